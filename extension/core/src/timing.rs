//! The protocol's durations, all derived from the lease, in microseconds.

use crate::Micros;

const MILLI: Micros = 1_000;
const SECOND: Micros = 1_000_000;

/// How long owners that were given up are remembered.
pub(crate) const ABANDONED_FOR: Micros = 900 * SECOND;
/// How long an acquire for an invocation that seems to be over waits for an INVOKE that repeats it.
pub(crate) const INVOKE_WAIT: Micros = 100 * MILLI;
/// How long renewals wait after a jump in time for an INVOKE that would end their invocation.
const THAW_WAIT: Micros = 100 * MILLI;
/// The first pause of every growing sequence of retries or polls.
const FIRST_PAUSE: Micros = 20 * MILLI;
/// The longest pause between polls and retries of a healthy store.
pub(crate) const LONGEST_PAUSE: Micros = 100 * MILLI;
/// The longest pause while the store throttles.
pub(crate) const LONGEST_THROTTLED_PAUSE: Micros = SECOND;
/// Added to the longest time-out before the core itself calls a request's outcome unknown: the driver's word comes first.
const ANSWER_GRACE: Micros = 50 * MILLI;

/// Durations that follow from one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease(Micros);

impl Lease {
    pub(crate) fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(MILLI))
    }

    /// A contender may take over once the row was seen unchanged for this long.
    pub(crate) fn full(self) -> Micros {
        self.0
    }

    /// A guard is valid for less than this after its winning write was sent: the margin pays for 5 % of clock drift.
    pub(crate) fn validity(self) -> Micros {
        // Exact: leases are whole milliseconds.
        self.0 / 10 * 9
    }

    /// A renewal is due this long after the validity's start.
    pub(crate) fn renew_after(self) -> Micros {
        self.0 / 3
    }

    /// From here on the holder is told that the lease is in danger.
    pub(crate) fn danger_after(self) -> Micros {
        self.0 / 10 * 6
    }

    /// An acquire that finds its own row older than this renews it before it grants.
    pub(crate) fn fresh_for(self) -> Micros {
        self.0 / 10 * 4
    }

    /// The pause before a failed renewal is tried again.
    pub(crate) fn renew_retry(self) -> Micros {
        (self.0 / 12).min(SECOND)
    }

    /// An attempt's time-out on an open connection.
    pub(crate) fn timeout(self) -> Micros {
        (self.0 / 6).min(SECOND)
    }

    /// An attempt's time-out where a connection has to be made.
    pub(crate) fn connect_timeout(self) -> Micros {
        (self.0 / 6).min(3 * SECOND)
    }

    /// When the core stops waiting for an answer that the driver owes.
    pub(crate) fn answer_within(self) -> Micros {
        self.connect_timeout() + ANSWER_GRACE
    }

    /// How long giving a row back is repeated.
    pub(crate) fn cleanup_budget(self) -> Micros {
        (self.0 / 10 * 6).min(10 * SECOND)
    }

    /// Deletes are never further apart: several have to fit into the budget of a short lease.
    pub(crate) fn longest_clean_up_pause(self) -> Micros {
        (self.0 / 12).min(SECOND)
    }

    /// The clocks are read at least this often while anything is held.
    pub(crate) fn cadence(self) -> Micros {
        (self.0 / 30).min(SECOND / 2)
    }

    /// A reading later than the cadence by more than this may be a freeze.
    pub(crate) fn late(self) -> Micros {
        self.0 / 12
    }

    /// How long renewals wait after such a reading.
    pub(crate) fn thaw_wait(self) -> Micros {
        (self.0 / 12).min(THAW_WAIT)
    }

    /// Polls of a row with this lease are never further apart.
    pub(crate) fn longest_poll(self) -> Micros {
        (self.0 / 6).min(SECOND)
    }
}

/// Pauses that double up to a bound, spread by ±20 %.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Backoff {
    next: Micros,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    /// The next pause; `jitter` is uniform in 0..=1000.
    pub(crate) fn pause(&mut self, longest: Micros, jitter: u64) -> Micros {
        let pause = self.next.min(longest);
        self.next = (pause * 2).clamp(FIRST_PAUSE, LONGEST_THROTTLED_PAUSE);
        pause * (800 + jitter.min(1_000) * 400 / 1_000) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_is_nine_tenths_to_the_microsecond() {
        assert_eq!(Lease::from_ms(20_000).validity(), 18 * SECOND);
        assert_eq!(Lease::from_ms(101).validity(), 90_900);
    }

    #[test]
    fn time_outs_are_a_sixth_of_the_lease_within_their_bounds() {
        assert_eq!(Lease::from_ms(3_000).timeout(), SECOND / 2);
        assert_eq!(Lease::from_ms(3_000).connect_timeout(), SECOND / 2);
        assert_eq!(Lease::from_ms(60_000).timeout(), SECOND);
        assert_eq!(Lease::from_ms(60_000).connect_timeout(), 3 * SECOND);
    }

    #[test]
    fn pauses_double_from_20_ms_to_the_bound_and_spread_by_a_fifth() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..5).map(|_| backoff.pause(LONGEST_PAUSE, 500)).collect();
        assert_eq!(pauses, [20_000, 40_000, 80_000, 100_000, 100_000]);
        assert_eq!(backoff.pause(LONGEST_PAUSE, 0), 80_000);
        assert_eq!(backoff.pause(LONGEST_PAUSE, 1_000), 120_000);
    }

    #[test]
    fn throttling_slows_down_further_and_a_healthy_store_speeds_up_again() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..7).map(|_| backoff.pause(LONGEST_THROTTLED_PAUSE, 500)).collect();
        assert_eq!(pauses, [20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 1_000_000]);
        assert_eq!(backoff.pause(LONGEST_PAUSE, 500), LONGEST_PAUSE);
    }
}
