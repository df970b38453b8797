//! Elapsed time, accumulated reading by reading: no single clock is trusted, and neither are two endpoints.

use crate::{Micros, Now};

/// Three running sums over the readings. Two freezes may stop different clocks: the maximum is taken per interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Elapsed {
    last: Option<Now>,
    /// Sum of the largest steps of all three clocks: what a holder has to assume has passed.
    pub(crate) held: Micros,
    /// Sum of the smallest steps of the clocks that never step: what a contender may assume has passed.
    pub(crate) seen: Micros,
    /// Sum of the largest steps of the clocks that never step: time-outs, pauses and budgets.
    pub(crate) timer: Micros,
}

/// What one reading brought.
pub(crate) struct Step {
    /// The interval since the last reading, as a holder has to assume.
    pub(crate) passed: Micros,
    /// The wall clock went back.
    pub(crate) wall_stepped_back: bool,
}

impl Elapsed {
    pub(crate) fn advance(&mut self, now: Now) -> Step {
        let Some(last) = self.last.replace(now) else {
            return Step { passed: 0, wall_stepped_back: false };
        };
        // These two never step back; a reading that came out of order must not count the same time twice.
        self.last = Some(Now { boot: now.boot.max(last.boot), mono: now.mono.max(last.mono), ..now });
        let boot = now.boot.saturating_sub(last.boot);
        let mono = now.mono.saturating_sub(last.mono);
        let wall = now.wall.saturating_sub(last.wall);
        let passed = boot.max(mono).max(wall);
        self.held += passed;
        self.seen += boot.min(mono);
        self.timer += boot.max(mono);
        Step { passed, wall_stepped_back: now.wall < last.wall }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: Micros, mono: Micros, wall: Micros) -> Now {
        Now { boot, mono, wall }
    }

    #[test]
    fn freezes_that_stop_different_clocks_add_up() {
        let mut elapsed = Elapsed::default();
        elapsed.advance(at(0, 0, 1_000));
        elapsed.advance(at(100, 0, 1_000));
        elapsed.advance(at(100, 0, 1_100));
        assert_eq!((elapsed.held, elapsed.seen, elapsed.timer), (200, 0, 100));
    }

    #[test]
    fn a_reading_out_of_order_counts_no_time_twice() {
        let mut elapsed = Elapsed::default();
        for t in [100, 200, 150, 250] {
            elapsed.advance(at(t, t, t));
        }
        assert_eq!((elapsed.seen, elapsed.timer), (150, 150));
    }

    #[test]
    fn a_wall_clock_that_steps_back_takes_nothing_away() {
        let mut elapsed = Elapsed::default();
        elapsed.advance(at(0, 0, 5_000));
        let step = elapsed.advance(at(10, 10, 1_000));
        assert!(step.wall_stepped_back);
        assert_eq!((step.passed, elapsed.held, elapsed.seen), (10, 10, 10));
    }
}
