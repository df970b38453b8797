//! Clocks that stand still: what other processes read of them is in the test's hands.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The shim that processes preload.
const SHIM: &str = include_str!("clocks.c");

/// One of the clocks that the lock protocol reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_BOOTTIME`
    Boot,
    /// `CLOCK_MONOTONIC`
    Mono,
    /// `CLOCK_REALTIME`
    Wall,
}

/// The clocks of the processes that run with [`Clocks::env`].
#[derive(Debug)]
pub struct Clocks {
    home: TempDir,
    /// Three numbers of nanoseconds: what is taken off each clock.
    taken_off: File,
}

impl Clocks {
    /// Compiles the shim. Until [`Clocks::take_off`] is called the clocks are the kernel's.
    ///
    /// # Panics
    /// There is no C compiler, or no room for the result.
    pub fn start() -> Self {
        let home = TempDir::new().expect("a directory for the shim");
        let source = home.path().join("clocks.c");
        fs::write(&source, SHIM).expect("room for the shim");
        let library = home.path().join("clocks.so");
        let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"];
        let built = Command::new("cc").args(flags).arg(&library).arg(&source).arg("-ldl").output();
        let built = built.expect("the C compiler that Rust links with, as `cc`");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let taken_off = File::create(home.path().join("taken-off")).expect("room for three numbers");
        taken_off.write_all_at(&[0; 24], 0).expect("room for three numbers");
        Self { home, taken_off }
    }

    /// What a process needs to read these clocks.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.home.path().join(name).display().to_string();
        vec![("LD_PRELOAD", path("clocks.so")), ("TEST_CLOCKS", path("taken-off"))]
    }

    /// From now on these clocks show so much less than the kernel's. To be called while the processes are stopped, for as long as they
    /// were: then each clock has stood still, and none goes back.
    ///
    /// # Panics
    /// It is an age.
    pub fn take_off(&self, clocks: &[Clock], time: Duration) {
        let nanoseconds = i64::try_from(time.as_nanos()).expect("less than an age").to_ne_bytes();
        for clock in clocks {
            self.taken_off.write_all_at(&nanoseconds, 8 * *clock as u64).expect("the file was made with room for it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// How far a process's clocks lie behind those of a process without the shim, in whole hours.
    fn behind(clocks: &Clocks) -> Vec<u64> {
        let read = |env: Vec<(&'static str, String)>| {
            let ids = "[time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC, time.CLOCK_REALTIME]";
            let script = format!("import time\nfor c in {ids}: print(time.clock_gettime(c) + 604800)");
            let told = Command::new("python3").args(["-c", &script]).envs(env).output().expect("python3 runs");
            assert!(told.status.success(), "{told:?}");
            let told = String::from_utf8(told.stdout).expect("numbers");
            told.lines().map(|line| line.parse::<f64>().expect("a number")).collect::<Vec<_>>()
        };
        let (real, shown) = (read(Vec::new()), read(clocks.env()));
        real.iter().zip(shown).map(|(real, shown)| ((real - shown) / 3_600.0).round() as u64).collect()
    }

    #[test]
    fn each_clock_is_moved_alone() {
        let clocks = Clocks::start();
        assert_eq!(behind(&clocks), [0, 0, 0]);
        clocks.take_off(&[Clock::Wall], DAY);
        assert_eq!(behind(&clocks), [0, 0, 24]);
        clocks.take_off(&[Clock::Boot, Clock::Mono], DAY / 2);
        assert_eq!(behind(&clocks), [12, 12, 24]);
    }
}
