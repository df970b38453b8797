//! Moments that other processes tell, and how late this machine was meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The moments that a function told of by `word LABEL NANOSECONDS`, on the monotonic clock, which all processes share.
pub fn words(log: &str, label: &str) -> Vec<Instant> {
    let told = |line: &str| {
        let (_, rest) = line.split_once("word ")?;
        let (found, nanoseconds) = rest.split_once(' ')?;
        (found == label).then(|| nanoseconds.trim().parse().ok()).flatten()
    };
    log.lines().filter_map(told).map(here).collect()
}

/// The last of them.
///
/// # Panics
/// There is none; says what there is.
pub fn last_word(log: &str, label: &str) -> Instant {
    words(log, label).pop().unwrap_or_else(|| panic!("no word {label}: {log}"))
}

/// A moment of the kernel's monotonic clock, in nanoseconds.
fn here(nanoseconds: u64) -> Instant {
    let (now, time) = (Instant::now(), rustix::time::clock_gettime(rustix::time::ClockId::Monotonic));
    let ago = Duration::new(time.tv_sec.unsigned_abs(), 0) + Duration::from_nanos(time.tv_nsec.unsigned_abs());
    now - ago.saturating_sub(Duration::from_nanos(nanoseconds))
}

/// The boot-time clock, which goes on whatever happens to a process, in microseconds.
pub fn boot_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}

/// Watches how late this machine lets a thread run: what a bound on other processes' times has to allow for their turns on a
/// processor, and nothing more. Ends when it is dropped.
#[derive(Debug)]
pub struct Lateness {
    worst_us: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How often it looks.
const TURN: Duration = Duration::from_millis(2);

impl Lateness {
    /// Watches from now on.
    pub fn watch() -> Self {
        let (worst_us, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (worst, stop) = (worst_us.clone(), over.clone());
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let due = Instant::now() + TURN;
                std::thread::sleep(TURN);
                let late = u64::try_from(due.elapsed().as_micros()).expect("less than an age");
                worst.fetch_max(late, Ordering::Relaxed);
            }
        });
        Self { worst_us, over, thread: Some(thread) }
    }

    /// What so many turns of processes, one after the other, may have cost more than on a machine with nothing else to do.
    pub fn of_turns(&self, turns: u32) -> Duration {
        turns * Duration::from_micros(self.worst_us.load(Ordering::Relaxed))
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_moment_at_which_it_was_said() {
        let before = Instant::now();
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_nsec;
        let after = Instant::now();
        let log = format!("held\nword done {nanoseconds}\nINFO word done x\nword other 1\n");
        let [said] = words(&log, "done")[..] else { panic!("one word") };
        // Two clocks cannot be read at one moment.
        let apart = Duration::from_millis(1);
        assert!(said + apart >= before && said <= after + apart, "{before:?} {said:?} {after:?}");
    }

    #[test]
    fn a_machine_is_never_early() {
        let lateness = Lateness::watch();
        std::thread::sleep(10 * TURN);
        assert!(lateness.of_turns(1) > Duration::ZERO);
    }
}
