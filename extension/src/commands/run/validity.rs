//! For how long a sidecar's lock is good, as this process counts it: a sidecar that has stopped tells nobody.

use crate::clock;
use leasekeeper_core::{Micros, Now};
use leasekeeper_wire::{Checked, Granted};
use std::time::Duration;

/// The longest pause between two looks at the clocks: one of them may stop over a suspension, the timer's may be that one.
const LOOK: Micros = 500_000;

/// A look that comes so late tells that we were stopped ourselves: what a living sidecar has to say is then waited for.
const STOPPED: Micros = 2 * LOOK;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait,
    /// Ask the sidecar for how long the lock is good.
    Ask,
    /// It has not said in time that it is good for longer: the lock counts as lost.
    Over,
    /// So it does where the sidecar has left a check without an answer.
    Silent,
}

/// Counts from before each request was sent, by whichever clock has moved most since the last look.
#[derive(Debug)]
pub(super) struct Validity {
    last: Now,
    elapsed: Micros,
    /// All times are by `elapsed`.
    until: Micros,
    /// From when on the sidecar is to be asked again.
    ask: Micros,
    /// The check that waits for its answer, and when it was sent.
    asked: Option<(u64, Micros)>,
    /// After a stop of our own it is not over before this.
    heard_by: Micros,
    /// It was put off for the check that waits, or is due: a second stop does not do so again.
    put_off: bool,
    /// How long an answer may take.
    patience: Micros,
}

impl Validity {
    /// To be called before the lock is asked for.
    pub(super) fn start() -> Self {
        Self::at(clock::now())
    }

    fn at(now: Now) -> Self {
        Self { last: now, elapsed: 0, until: 0, ask: 0, asked: None, heard_by: 0, put_off: false, patience: 0 }
    }

    /// The lock is had. It was not granted earlier than `waited_ms` after it was asked for.
    pub(super) fn granted(mut self, granted: &Granted) -> Self {
        self.patience = (granted.lease_ms.saturating_mul(1_000) / 6).min(1_000_000);
        self.good(granted.waited_ms.saturating_mul(1_000), granted.valid_ms);
        self
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Was it over at the last look, whatever a sidecar may yet say after a stop of our own?
    pub(super) fn is_over(&self) -> bool {
        self.elapsed >= self.until
    }

    /// A check with this id is about to be sent.
    pub(super) fn asks(&mut self, id: u64) {
        self.look(clock::now());
        self.asked = Some((id, self.elapsed));
    }

    /// A check was answered.
    pub(super) fn checked(&mut self, id: u64, checked: &Checked) {
        if let Some((_, sent)) = self.asked.take_if(|(asked, _)| *asked == id) {
            self.put_off = false;
            self.good(sent, checked.valid_ms);
        }
    }

    /// How long to wait until the next [`step`](Self::step).
    pub(super) fn pause(&mut self) -> Duration {
        self.look(clock::now());
        let due = if self.is_asked() { self.until.max(self.heard_by) } else { self.ask };
        Duration::from_micros(due.saturating_sub(self.elapsed).min(LOOK))
    }

    pub(super) fn step(&mut self) -> Step {
        self.look(clock::now());
        self.now()
    }

    fn now(&self) -> Step {
        if self.elapsed >= self.until.max(self.heard_by) {
            match self.asked {
                Some((_, sent)) if self.elapsed - sent >= self.patience => Step::Silent,
                _ => Step::Over,
            }
        } else if self.elapsed >= self.ask && !self.is_asked() {
            Step::Ask
        } else {
            Step::Wait
        }
    }

    fn good(&mut self, sent: Micros, valid_ms: u64) {
        let valid = valid_ms.saturating_mul(1_000);
        self.until = sent.saturating_add(valid);
        // Where no renewal is told of, it is asked after two thirds: an answer has time to come.
        self.ask = self.until - valid / 3;
    }

    fn look(&mut self, now: Now) {
        let moved = |of: fn(&Now) -> Micros| of(&now).saturating_sub(of(&self.last));
        let passed = moved(|now| now.boot).max(moved(|now| now.mono)).max(moved(|now| now.wall));
        self.last = now;
        self.elapsed = self.elapsed.saturating_add(passed);
        if passed > STOPPED && !self.put_off {
            self.heard_by = self.elapsed + self.patience;
            self.put_off = self.is_asked() || self.elapsed >= self.ask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease of 3 s, good for 2.7 s.
    fn grant(waited_ms: u64) -> Granted {
        Granted {
            lease: 1,
            valid_ms: 2_700,
            lease_ms: 3_000,
            owner: String::new(),
            table: String::new(),
            token: None,
            waited_ms,
        }
    }

    /// Asked for at 0 and granted at once.
    fn granted() -> Validity {
        Validity::at(Now { boot: 0, mono: 0, wall: 0 }).granted(&grant(0))
    }

    fn step_at(validity: &mut Validity, ms: u64) -> Step {
        validity.look(Now { boot: ms * 1_000, mono: ms * 1_000, wall: ms * 1_000 });
        validity.now()
    }

    #[test]
    fn it_asks_in_time_and_is_over_where_no_answer_comes() {
        let mut validity = granted();
        for (ms, step) in [(900, Step::Wait), (1_799, Step::Wait), (1_800, Step::Ask)] {
            assert_eq!(step_at(&mut validity, ms), step, "{ms}");
        }
        validity.asked = Some((7, validity.elapsed));
        for (ms, step) in [(2_699, Step::Wait), (2_700, Step::Silent)] {
            assert_eq!(step_at(&mut validity, ms), step, "{ms}");
        }
    }

    #[test]
    fn an_answer_counts_from_when_its_question_was_sent_and_anothers_does_not_count() {
        let mut validity = granted();
        assert_eq!(step_at(&mut validity, 1_000), Step::Wait);
        validity.asked = Some((7, validity.elapsed));
        assert_eq!(step_at(&mut validity, 1_500), Step::Wait);
        validity.checked(6, &Checked { valid_ms: 60_000 });
        assert_eq!(validity.until, 2_700_000);
        validity.checked(7, &Checked { valid_ms: 2_000 });
        assert_eq!((validity.until, validity.is_asked()), (3_000_000, false));
    }

    #[test]
    fn a_grant_that_was_waited_for_counts_from_the_end_of_the_wait() {
        assert_eq!(Validity::start().granted(&grant(400)).until, 3_100_000);
        assert_eq!(Validity::start().granted(&grant(0)).until, 2_700_000);
    }

    #[test]
    fn whoever_was_stopped_itself_hears_the_sidecar_first() {
        let mut validity = granted();
        assert_eq!(step_at(&mut validity, 900), Step::Wait);
        // A sixth of the lease for the answer.
        assert_eq!(step_at(&mut validity, 9_000), Step::Ask);
        validity.asked = Some((7, validity.elapsed));
        assert_eq!(step_at(&mut validity, 9_499), Step::Wait);
        assert_eq!(step_at(&mut validity, 9_500), Step::Silent);
    }

    #[test]
    fn a_second_stop_of_our_own_puts_nothing_off_until_a_check_was_answered() {
        let mut validity = granted();
        assert_eq!(step_at(&mut validity, 9_000), Step::Ask);
        validity.asked = Some((7, validity.elapsed));
        validity.checked(7, &Checked { valid_ms: 2_700 });
        assert_eq!(step_at(&mut validity, 9_950), Step::Wait);
        assert_eq!(step_at(&mut validity, 10_900), Step::Ask);
        validity.asked = Some((8, validity.elapsed));
        assert_eq!(step_at(&mut validity, 13_000), Step::Wait);
        assert_eq!(step_at(&mut validity, 14_100), Step::Silent);
    }

    #[test]
    fn a_sidecar_that_has_just_been_asked_is_not_blamed() {
        let mut validity = granted();
        assert_eq!(step_at(&mut validity, 1_800), Step::Ask);
        validity.asked = Some((7, validity.elapsed));
        validity.checked(7, &Checked { valid_ms: 900 });
        assert_eq!(step_at(&mut validity, 2_400), Step::Ask);
        validity.asked = Some((8, validity.elapsed));
        assert_eq!(step_at(&mut validity, 2_700), Step::Over);
    }

    #[test]
    fn time_that_one_clock_alone_has_seen_counts() {
        let mut validity = granted();
        validity.look(Now { boot: 0, mono: 900_000, wall: 0 });
        validity.look(Now { boot: 900_000, mono: 900_000, wall: 0 });
        validity.look(Now { boot: 900_000, mono: 900_000, wall: 900_000 });
        assert_eq!(validity.now(), Step::Over);
    }
}
