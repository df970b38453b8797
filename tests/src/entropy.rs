//! Clones of a snapshot, as far as randomness goes: processes that drew the same from the kernel until they were restored.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// The shim that processes preload.
const SHIM: &str = include_str!("entropy.c");

/// One snapshot, restored in each process that runs with [`Snapshot::env`].
#[derive(Debug)]
pub struct Snapshot {
    home: TempDir,
}

impl Snapshot {
    /// Compiles the shim. Until [`Snapshot::restore`] is called every process draws the same.
    ///
    /// # Panics
    /// There is no C compiler, or no room for the result.
    pub fn start() -> Self {
        let home = TempDir::new().expect("a directory for the shim");
        let source = home.path().join("entropy.c");
        fs::write(&source, SHIM).expect("room for the shim");
        let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"];
        let built = Command::new("cc").args(flags).arg(home.path().join("entropy.so")).arg(&source).output();
        let built = built.expect("the C compiler that Rust links with, as `cc`");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Self { home }
    }

    fn restored(&self) -> PathBuf {
        self.home.path().join("restored")
    }

    /// What a process needs to be one of its clones.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        let shim = self.home.path().join("entropy.so");
        vec![("LD_PRELOAD", shim.display().to_string()), ("TEST_RESTORED", self.restored().display().to_string())]
    }

    /// From now on the clones draw from the kernel again, each its own.
    ///
    /// # Panics
    /// No file can be made.
    pub fn restore(&self) {
        fs::write(self.restored(), "").expect("room for a file");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process draws as a clone.
    fn draw(snapshot: &Snapshot) -> Vec<u8> {
        // The seed of its hashes is the first thing that Python draws.
        let script = "print(hash('a'), hash('b'))";
        let mut python = Command::new("python3");
        let drawn = python.args(["-S", "-c", script]).env_remove("PYTHONHASHSEED").envs(snapshot.env()).output();
        drawn.expect("python3 runs").stdout
    }

    #[test]
    fn clones_draw_the_same_until_they_are_restored() {
        let snapshot = Snapshot::start();
        let before = draw(&snapshot);
        assert!(!before.is_empty());
        assert_eq!(draw(&snapshot), before);
        snapshot.restore();
        let after = draw(&snapshot);
        assert_ne!(after, before);
        assert_ne!(draw(&snapshot), after);
    }
}
