//! A tenth of a processor, as the smallest functions have: processes run for 10 ms in every 100.

use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

const RUNS: Duration = Duration::from_millis(10);
const EVERY: Duration = Duration::from_millis(100);

/// Where control groups that bound processor time are, in their first version.
const CPU: &str = "/sys/fs/cgroup/cpu";

/// Slows down process groups until it is dropped.
#[derive(Debug)]
pub struct Tenth {
    how: &'static str,
    _group: Option<Cgroup>,
    _stops: Option<Stops>,
}

impl Tenth {
    /// By the kernel's own quota where this process may set one, else by stopping them.
    pub fn of(leaders: &[u32]) -> Self {
        match Cgroup::around(leaders) {
            Ok(group) => Self { how: "control group with a quota of 10 ms in 100", _group: Some(group), _stops: None },
            Err(_) => Self::by_stopping(leaders),
        }
    }

    /// By SIGSTOP and SIGCONT. The leaders' groups have their numbers.
    pub fn by_stopping(leaders: &[u32]) -> Self {
        Self { how: "stopped for 90 ms in 100", _group: None, _stops: Some(Stops::begin(leaders.to_vec())) }
    }

    /// How it is done, for people.
    pub fn how(&self) -> &'static str {
        self.how
    }
}

/// A control group that is removed when it is dropped.
#[derive(Debug)]
struct Cgroup(PathBuf);

impl Cgroup {
    fn around(leaders: &[u32]) -> io::Result<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let name = format!("leasekeeper-{}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(CPU).join(name);
        fs::create_dir(&path)?;
        let group = Self(path);
        fs::write(group.0.join("cpu.cfs_period_us"), EVERY.as_micros().to_string())?;
        fs::write(group.0.join("cpu.cfs_quota_us"), RUNS.as_micros().to_string())?;
        for leader in leaders {
            fs::write(group.0.join("cgroup.procs"), leader.to_string())?;
        }
        Ok(group)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(2);
        // A group is removed once nobody is in it: who is still there goes back to where all others are.
        while fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
                // It may have ended meanwhile.
                let _ = fs::write(Path::new(CPU).join("cgroup.procs"), pid);
            }
            sleep(Duration::from_millis(2));
        }
    }
}

/// A thread that stops and continues process groups.
#[derive(Debug)]
struct Stops {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stops {
    fn begin(leaders: Vec<u32>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                signal(&leaders, Signal::STOP);
                sleep(EVERY - RUNS);
                signal(&leaders, Signal::CONT);
                sleep(RUNS);
            }
        });
        Self { over, thread: Some(thread) }
    }
}

fn signal(leaders: &[u32], signal: Signal) {
    for leader in leaders {
        let group =
            i32::try_from(*leader).ok().and_then(Pid::from_raw).expect("the kernel's process ids are above zero");
        // One that has ended is slow enough.
        let _ = kill_process_group(group, signal);
    }
}

impl Drop for Stops {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic, and ends with a SIGCONT.
            let _ = thread.join();
        }
    }
}
