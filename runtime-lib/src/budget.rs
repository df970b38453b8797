//! How long to wait: for the lock, for the extension's answers, for the hand-back.

use crate::LockError;
use crate::settings::Settings;
use leasekeeper_wire as wire;
use std::time::Duration;

/// Kept of every invocation for posting its response.
const KEPT: Duration = Duration::from_millis(200);

/// The default wait inside an invocation, at most.
const WAIT: Duration = Duration::from_secs(5);

/// The longest wait there is.
const MAX_WAIT: Duration = Duration::from_millis(wire::MAX_WAIT_MS);

/// The extension's lease unless its settings say otherwise.
const LEASE: Duration = Duration::from_secs(20);

/// The last request of a wait is not clipped by the wait budget: one attempt's time-out, and some for two processes to
/// take turns on a slow CPU.
const LAST_ATTEMPT: Duration = Duration::from_millis(3_500);

/// Of a wait that the invocation's end cuts short this is left for the answer, or a busy lock would look like an extension
/// that does not answer.
const LAST_WORD: Duration = Duration::from_millis(300);

/// How long an answer that needs no DynamoDB may take; a starved extension on a small function needs some of it.
const ANSWER: Duration = Duration::from_secs(3);

/// What the hand-back may cost an invocation at most.
const HAND_BACK: Duration = Duration::from_secs(1);

/// Outside an invocation: the extension's own budget for the hand-back is 10 s at most.
const HAND_BACK_OUTSIDE: Duration = Duration::from_secs(11);

/// What a user asked for, where something was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) reserve: Option<Duration>,
}

/// What becomes of the wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What is sent; without it the extension's own setting and rule apply.
    pub(crate) wait_ms: Option<u64>,
    pub(crate) lease_ms: Option<u64>,
    /// When the client stops waiting for the extension's answer.
    pub(crate) bound: Duration,
}

/// Fits the wishes into what remains of the invocation, if there is one.
///
/// # Errors
/// [`LockError::BudgetExhausted`] if nothing remains to wait in; [`LockError::Protocol`] for a wish out of range.
pub(crate) fn plan(wishes: Wishes, settings: &Settings, remaining: Option<Duration>) -> Result<Plan, LockError> {
    for (name, wish) in [("wait", wishes.wait), ("reserve", wishes.reserve)] {
        if wish.is_some_and(|wish| millis(wish) > wire::MAX_WAIT_MS) {
            return Err(LockError::protocol(format!("`{name}` must be 0 to {} s", wire::MAX_WAIT_MS / 1_000)));
        }
    }
    if wishes.lease.is_some_and(|lease| !(wire::MIN_LEASE_MS..=wire::MAX_LEASE_MS).contains(&millis(lease))) {
        return Err(LockError::protocol(format!("`lease` must be 0.1 s to {} s", wire::MAX_LEASE_MS / 1_000)));
    }
    let lease_ms = wishes.lease.map(millis);
    let Some(remaining) = remaining else {
        let lease = wishes.lease.or(settings.lease).unwrap_or(LEASE);
        let wait = wishes.wait.or(settings.wait).unwrap_or(lease + WAIT).min(MAX_WAIT);
        // Sent even when nobody asked for it: this process and the extension can have different environments here.
        return Ok(Plan { wait_ms: Some(millis(wait)), lease_ms, bound: wait + LAST_ATTEMPT });
    };
    let left = remaining.saturating_sub(wishes.reserve.unwrap_or(KEPT).max(KEPT));
    if left.is_zero() {
        return Err(LockError::BudgetExhausted {});
    }
    let usual = settings.wait.unwrap_or(WAIT);
    let wait = match (wishes.wait, wishes.reserve) {
        (None, None) => None,
        (wait, _) => Some(wait.unwrap_or(usual).min(left).min(remaining.saturating_sub(KEPT + LAST_WORD))),
    };
    let bound = (wait.unwrap_or(usual) + LAST_ATTEMPT).min(remaining - KEPT);
    Ok(Plan { wait_ms: wait.map(millis), lease_ms, bound })
}

/// How long to wait for an answer that needs no DynamoDB.
pub(crate) fn answer(remaining: Option<Duration>) -> Duration {
    remaining.map_or(ANSWER, |remaining| ANSWER.min(remaining.saturating_sub(KEPT)))
}

/// How long to wait for the hand-back.
pub(crate) fn hand_back(remaining: Option<Duration>) -> Duration {
    remaining.map_or(HAND_BACK_OUTSIDE, |remaining| HAND_BACK.min(remaining.saturating_sub(KEPT)))
}

/// Whole milliseconds, as the wire has them.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasekeeper_wire::Code;

    const SECOND: Duration = Duration::from_secs(1);

    fn in_invocation(wishes: Wishes, remaining: Duration) -> Result<Plan, LockError> {
        plan(wishes, &Settings::default(), Some(remaining))
    }

    #[test]
    fn without_wishes_the_extensions_own_rule_applies_and_only_the_clients_patience_is_set() {
        let plan = in_invocation(Wishes::default(), 60 * SECOND).expect("time is left");
        assert_eq!(plan, Plan { wait_ms: None, lease_ms: None, bound: WAIT + LAST_ATTEMPT });
        let plan = in_invocation(Wishes::default(), 3 * SECOND).expect("time is left");
        assert_eq!(plan.bound, Duration::from_millis(2_800));
    }

    #[test]
    fn a_reserve_is_kept_of_the_wait() {
        let wishes = Wishes { reserve: Some(8 * SECOND), ..Wishes::default() };
        assert_eq!(in_invocation(wishes, 60 * SECOND).expect("time is left").wait_ms, Some(5_000));
        assert_eq!(in_invocation(wishes, 10 * SECOND).expect("time is left").wait_ms, Some(2_000));
        let wishes = Wishes { wait: Some(30 * SECOND), ..wishes };
        assert_eq!(in_invocation(wishes, 20 * SECOND).expect("time is left").wait_ms, Some(12_000));
    }

    #[test]
    fn a_wait_never_outlasts_the_invocation() {
        let wishes = Wishes { wait: Some(30 * SECOND), ..Wishes::default() };
        let plan = in_invocation(wishes, 10 * SECOND).expect("time is left");
        assert_eq!((plan.wait_ms, plan.bound), (Some(9_500), Duration::from_millis(9_800)));
        let plan = in_invocation(wishes, Duration::from_millis(400)).expect("time is left");
        assert_eq!((plan.wait_ms, plan.bound), (Some(0), Duration::from_millis(200)));
    }

    #[test]
    fn nothing_is_asked_for_when_the_time_is_used_up() {
        for (wishes, remaining) in [
            (Wishes::default(), Duration::ZERO),
            (Wishes::default(), KEPT),
            (Wishes { wait: Some(Duration::ZERO), ..Wishes::default() }, KEPT),
            (Wishes { reserve: Some(3 * SECOND), ..Wishes::default() }, 3 * SECOND),
        ] {
            let error = in_invocation(wishes, remaining).expect_err("no time is left");
            assert_eq!(error.code(), Code::BudgetExhausted);
        }
    }

    #[test]
    fn outside_an_invocation_a_wait_outlasts_one_dead_holder() {
        let wishes = Wishes { lease: Some(30 * SECOND), ..Wishes::default() };
        let plan = plan(wishes, &Settings::default(), None).expect("nothing presses");
        assert_eq!(plan, Plan { wait_ms: Some(35_000), lease_ms: Some(30_000), bound: 35 * SECOND + LAST_ATTEMPT });
    }

    #[test]
    fn outside_an_invocation_the_extension_waits_no_longer_than_this_side() {
        let lease = Some(60 * SECOND);
        for (settings, wait_ms) in [
            (Settings::default(), 25_000),
            (Settings { lease, ..Settings::default() }, 65_000),
            (Settings { lease, wait: Some(7 * SECOND), ..Settings::default() }, 7_000),
            // A lease and 5 s can be more than a wait may be.
            (Settings { lease: Some(Duration::from_secs(86_400)), ..Settings::default() }, 86_400_000),
        ] {
            let plan = plan(Wishes::default(), &settings, None).expect("nothing presses");
            assert_eq!((plan.wait_ms, plan.lease_ms), (Some(wait_ms), None));
            assert_eq!(plan.bound, Duration::from_millis(wait_ms) + LAST_ATTEMPT);
        }
    }

    #[test]
    fn the_patience_follows_the_extensions_settings() {
        let settings = Settings { wait: Some(50 * SECOND), ..Settings::default() };
        let plan = plan(Wishes::default(), &settings, Some(90 * SECOND)).expect("time is left");
        assert_eq!((plan.wait_ms, plan.bound), (None, 50 * SECOND + LAST_ATTEMPT));
    }

    #[test]
    fn wishes_out_of_range_are_refused() {
        let day = Duration::from_secs(86_400);
        let ms = Duration::from_millis(1);
        for wishes in [
            Wishes { wait: Some(day + ms), ..Wishes::default() },
            Wishes { reserve: Some(Duration::MAX), ..Wishes::default() },
            Wishes { lease: Some(99 * ms), ..Wishes::default() },
            Wishes { lease: Some(day + ms), ..Wishes::default() },
        ] {
            assert_eq!(in_invocation(wishes, 60 * SECOND).expect_err("out of range").code(), Code::Protocol);
        }
        let wishes = Wishes { wait: Some(day), lease: Some(100 * ms), reserve: None };
        assert!(in_invocation(wishes, 60 * SECOND).is_ok());
    }

    #[test]
    fn the_hand_back_costs_at_most_a_second_and_leaves_time_for_the_response() {
        assert_eq!(hand_back(Some(60 * SECOND)), SECOND);
        assert_eq!(hand_back(Some(Duration::from_millis(700))), Duration::from_millis(500));
        assert_eq!(hand_back(Some(Duration::from_millis(150))), Duration::ZERO);
    }
}
