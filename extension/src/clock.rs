//! The only file that reads clocks.

#![expect(clippy::disallowed_methods, reason = "this is the one place")]

use leasekeeper_core::{Micros, Now};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// One reading of the clocks that the core asks for.
pub fn now() -> Now {
    Now {
        boot: micros(clock_gettime(ClockId::Boottime)),
        mono: micros(clock_gettime(ClockId::Monotonic)),
        wall: micros(clock_gettime(ClockId::Realtime)),
    }
}

fn micros(time: Timespec) -> Micros {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1_000
}
