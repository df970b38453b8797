//! The one file that reads clocks: how much time has passed at most, and how much of an invocation is left.

use std::time::{Duration, Instant, SystemTime};

/// One reading of every clock there is. Each may stop over a freeze or step.
#[derive(Clone, Copy, Debug)]
struct Reading {
    mono: Instant,
    wall: SystemTime,
    boot: Duration,
}

impl Reading {
    fn take() -> Self {
        Self { mono: Instant::now(), wall: SystemTime::now(), boot: boot() }
    }

    /// The most that any clock says has passed since `earlier`; a clock that stepped back says nothing.
    fn since(&self, earlier: &Self) -> Duration {
        let mono = self.mono.saturating_duration_since(earlier.mono);
        let wall = self.wall.duration_since(earlier.wall).unwrap_or_default();
        let boot = self.boot.saturating_sub(earlier.boot);
        mono.max(wall).max(boot)
    }
}

#[cfg(target_os = "linux")]
fn boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Elsewhere nothing freezes: the monotonic and the wall clock are enough.
#[cfg(not(target_os = "linux"))]
fn boot() -> Duration {
    Duration::ZERO
}

/// Elapsed time, added up at every reading from whichever clock moved most: never less than what really passed.
#[derive(Debug)]
pub(crate) struct Elapsed {
    last: Reading,
    total: Duration,
    /// What the clocks show, where a test sets them.
    #[cfg(test)]
    set: Option<Reading>,
}

impl Elapsed {
    pub(crate) fn start() -> Self {
        Self {
            last: Reading::take(),
            total: Duration::ZERO,
            #[cfg(test)]
            set: None,
        }
    }

    /// What has passed since [`Elapsed::start`], at most.
    pub(crate) fn now(&mut self) -> Duration {
        #[cfg(test)]
        if let Some(reading) = self.set {
            return self.advance(reading);
        }
        self.advance(Reading::take())
    }

    /// Stops the clocks, then moves each by so many milliseconds; nobody has read them yet.
    #[cfg(test)]
    pub(crate) fn pass(&mut self, boot_ms: i64, mono_ms: i64, wall_ms: i64) {
        let step = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        let set = self.set.get_or_insert(self.last);
        if boot_ms < 0 {
            set.boot -= step(boot_ms)
        } else {
            set.boot += step(boot_ms)
        }
        if mono_ms < 0 {
            set.mono -= step(mono_ms)
        } else {
            set.mono += step(mono_ms)
        }
        if wall_ms < 0 { set.wall -= step(wall_ms) } else { set.wall += step(wall_ms) }
    }

    /// Lets time pass without waiting for it.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, time: Duration) {
        self.total += time;
    }

    fn advance(&mut self, reading: Reading) -> Duration {
        self.total += reading.since(&self.last);
        self.last = reading;
        self.total
    }
}

/// What is left until `deadline`; zero once it has passed.
pub(crate) fn until(deadline: SystemTime) -> Duration {
    deadline.duration_since(SystemTime::now()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn two_freezes_that_stop_different_clocks_both_count() {
        let mut elapsed = Elapsed::start();
        let mut reading = elapsed.last;
        reading.wall += 3 * SECOND;
        assert_eq!(elapsed.advance(reading), 3 * SECOND);
        reading.boot += 2 * SECOND;
        assert_eq!(elapsed.advance(reading), 5 * SECOND);
    }

    #[test]
    fn a_wall_clock_that_steps_back_takes_nothing_away() {
        let mut elapsed = Elapsed::start();
        let mut reading = elapsed.last;
        reading.mono += SECOND;
        reading.wall -= 60 * SECOND;
        assert_eq!(elapsed.advance(reading), SECOND);
        reading.wall += SECOND;
        assert_eq!(elapsed.advance(reading), 2 * SECOND);
    }

    #[test]
    fn a_deadline_that_has_passed_leaves_nothing() {
        assert_eq!(until(SystemTime::UNIX_EPOCH), Duration::ZERO);
    }
}
