//! How late this process gets its turns on the CPU: what looks like a silent DynamoDB may be a starved process.

use leasekeeper_core::{Micros, Now};

/// For how long a late turn counts: this and the period before it.
const PERIOD: Micros = 10_000_000;

/// The worst of late.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// When the next turn is due, on the monotonic clock.
    due: Option<Micros>,
    since: Micros,
    worst: Micros,
    before: Micros,
}

impl Lateness {
    /// Nothing is to be done before `within` has passed.
    pub(super) fn expect(&mut self, now: Now, within: Option<Micros>) {
        self.due = within.map(|within| now.mono.saturating_add(within));
    }

    /// A turn, whatever brought it.
    pub(super) fn turn(&mut self, now: Now) {
        let late = self.due.take().map_or(0, |due| now.mono.saturating_sub(due));
        self.roll(now);
        self.worst = self.worst.max(late);
    }

    /// By how much a turn came late at most.
    pub(super) fn worst(&mut self, now: Now) -> Micros {
        self.roll(now);
        self.worst.max(self.before)
    }

    fn roll(&mut self, now: Now) {
        let passed = now.mono.saturating_sub(self.since);
        if passed >= PERIOD {
            self.before = if passed < 2 * PERIOD { self.worst } else { 0 };
            self.worst = 0;
            self.since = now.mono;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono: Micros) -> Now {
        Now { boot: 0, mono, wall: 0 }
    }

    #[test]
    fn only_what_was_due_can_be_late() {
        let mut lateness = Lateness::default();
        lateness.turn(at(5));
        lateness.expect(at(10), None);
        lateness.turn(at(1_000));
        lateness.expect(at(1_000), Some(500));
        lateness.turn(at(1_200));
        assert_eq!(lateness.worst(at(1_200)), 0);
        lateness.expect(at(1_200), Some(500));
        lateness.turn(at(1_750));
        lateness.turn(at(9_000));
        assert_eq!(lateness.worst(at(9_000)), 50);
    }

    #[test]
    fn what_was_late_is_forgotten_after_a_while() {
        let mut lateness = Lateness::default();
        let mut late = |at_least: Micros| {
            lateness.expect(at(at_least), Some(0));
            lateness.turn(at(at_least + 70));
            move |later: Micros, lateness: &mut Lateness| lateness.worst(at(at_least + later))
        };
        let worst = late(PERIOD);
        assert_eq!(worst(PERIOD - 1, &mut lateness), 70);
        assert_eq!(worst(PERIOD + 1, &mut lateness), 70);
        assert_eq!(worst(3 * PERIOD, &mut lateness), 0);
    }
}
