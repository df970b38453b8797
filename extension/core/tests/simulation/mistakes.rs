//! The simulation is not blind: wrong protocols and broken assumptions are seen, and by which promise.

use crate::world::{Broken, Mistake, Plan, Profile, Rule, Watched, World};
use leasekeeper_core::WrongRule;

/// A mistake that is not seen in so many schedules is not seen.
const MOST: u64 = 20_000;

fn check(row: &str, name: &str, mistake: Mistake, broken: Option<Broken>, profile: Profile, by: Rule) {
    let watched = Watched::only(&[by]);
    let found = (0..MOST).find(|seed| {
        let outcome = World::watch(Plan::new(*seed, profile, broken), mistake, watched);
        outcome.violation.is_some_and(|violation| violation.rule == by)
    });
    let schedules = found.unwrap_or_else(|| panic!("{by:?} does not catch {name} in {MOST} {profile:?} schedules")) + 1;
    let (name, promise) = (name.replace('_', " "), by.promise());
    println!("figure: {row} | {name} | {by:?} ({promise}), {profile:?} schedule {schedules}");
}

macro_rules! mistakes {
    ($($name:ident: $mistake:expr, $profile:ident, $rule:ident;)+) => {
        $(#[test]
        fn $name() {
            check("mistakes", stringify!($name), $mistake, None, Profile::$profile, Rule::$rule);
        })+

        /// What the mistakes above are caught by.
        const CATCHING: &[Rule] = &[$(Rule::$rule),+];
    };
}

mistakes! {
    boot_clock_alone: Mistake::OneClock(0), Uniform, Exclusion;
    monotonic_clock_alone: Mistake::OneClock(1), Uniform, Exclusion;
    wall_clock_alone: Mistake::OneClock(2), Uniform, Exclusion;
    maximum_between_endpoints: Mistake::EndpointMaximum, Uniform, Exclusion;
    a_wall_step_back_is_taken_for_time: Mistake::WallStepBackIsTime, Mild, FalseLoss;
    no_margin_for_drift: Mistake::NoMargin, Edge, Exclusion;
    own_lease_instead_of_the_stored_one: Mistake::OwnLease, Edge, TooEarly;
    renewal_without_a_condition: Mistake::RenewUnconditional, Uniform, Unconditional;
    renewal_on_the_owner_alone: Mistake::RenewOnOwner, Uniform, Unconditional;
    delete_without_a_condition: Mistake::DeleteUnconditional, Uniform, Unconditional;
    takeover_without_a_condition: Mistake::TakeoverUnconditional, Uniform, RowUnderGuard;
    takeover_on_the_owner_alone: Mistake::TakeoverOnOwner, Uniform, Unconditional;
    observing_from_the_send: Mistake::ObserveFromSend, Edge, Exclusion;
    observing_on_the_wall_clock: Mistake::Rule(WrongRule::ObserveOnWall), Uniform, Exclusion;
    observing_anew_at_every_look: Mistake::ObserveAnew, Mild, Recovery;
    takeover_at_the_next_poll: Mistake::Rule(WrongRule::TakeoverAtNextPoll), Edge, Recovery;
    observations_end_with_their_acquire: Mistake::Rule(WrongRule::ForgetsObservations), Mild, Recovery;
    valid_from_the_reply: Mistake::ValidFromReply, Edge, Exclusion;
    valid_until_the_release_is_answered: Mistake::ValidUntilReleased, Uniform, Exclusion;
    timer_keyed_by_the_owner: Mistake::TimerKeyedByOwner, Uniform, Exclusion;
    validity_counted_from_a_retrys_send: Mistake::SameVersionOnRetry, Edge, Exclusion;
    adoption_counts_from_the_latest_attempt: Mistake::Rule(WrongRule::AdoptFromLatest), Edge, Exclusion;
    one_owner_for_a_whole_environment: Mistake::Rule(WrongRule::OneOwner), Uniform, Exclusion;
    one_owner_for_all_puts_of_an_acquire: Mistake::Rule(WrongRule::SameOwnerOnRetry), Uniform, Effect;
    late_success_revives: Mistake::AnswerBeforeTime, Uniform, Revival;
    own_renewal_taken_for_anothers: Mistake::NoAdoption, Mild, FalseLoss;
    own_row_taken_for_anothers: Mistake::Rule(WrongRule::OwnRowIsForeign), Mild, SelfWait;
    own_row_too_old_ends_the_acquire: Mistake::Rule(WrongRule::ExpiredRowEnds), Uniform, FalseLoss;
    a_failed_renewal_is_not_tried_again: Mistake::NoRenewalRetry, Mild, FalseLoss;
    a_throttle_is_final: Mistake::ThrottleIsFinal, Mild, FalseLoss;
    attempts_take_a_third_of_the_lease: Mistake::Rule(WrongRule::SlowTimeouts), Mild, FalseLoss;
    clean_up_tried_once: Mistake::CleanOnce, Mild, Orphan;
    no_row_settles_a_put_of_unknown_outcome: Mistake::Rule(WrongRule::NothingSettles), Mild, Orphan;
    an_extension_fault_deletes_a_live_clients_row: Mistake::EarlyDelete, Uniform, EarlyDelete;
    shutdown_deletes_a_live_clients_row: Mistake::ShutdownDeletes, Uniform, EarlyDelete;
    request_id_ignored: Mistake::RequestIdIgnored, Uniform, Invocation;
    deadline_ignored: Mistake::DeadlineIgnored, Uniform, Invocation;
    longest_hold_ignored: Mistake::MaxHoldIgnored, Uniform, Invocation;
    renewal_between_thaw_and_invoke: Mistake::Rule(WrongRule::NoThawWait), Uniform, Invocation;
    a_put_after_the_budget: Mistake::Rule(WrongRule::PutsAfterBudget), Uniform, Budget;
    waits_for_longer_than_asked: Mistake::WaitsTooLong, Mild, Budget;
}

/// A check that nothing trips may be one that looks at nothing.
#[test]
fn every_check_of_a_promise_is_tripped_by_some_mistake() {
    println!("figure: mistakes | wrong protocols | {}", CATCHING.len());
    for rule in Rule::OF_PROMISES {
        assert!(CATCHING.contains(&rule), "{rule:?} ({}) is tripped by no mistake", rule.promise());
    }
}

macro_rules! assumptions {
    ($($name:ident: $broken:ident, $profile:ident, $rule:ident;)+) => {
        $(#[test]
        fn $name() {
            check("broken-assumptions", stringify!($name), Mistake::None, Some(Broken::$broken), Profile::$profile, Rule::$rule);
        })+
    };
}

// Each assumption is needed: without it the promise that rests on it breaks.
assumptions! {
    clocks_that_are_8_percent_off: Drift, Edge, Exclusion;
    boot_and_wall_clock_stop_together: BothClocksStop, Edge, Exclusion;
    a_wall_step_back_inside_a_freeze_that_stops_the_boot_clock: WallStepsInFreeze, Edge, Exclusion;
    rows_deleted_by_hand: RowsDeletedByHand, Edge, Exclusion;
    a_layer_that_sends_twice: Duplicates, Uniform, Effect;
}

/// A layer that sends twice can bring a released row back, but no guard with it.
#[test]
fn duplicated_requests_do_not_break_exclusion() {
    let rules = Watched::only(&[Rule::Exclusion, Rule::RowUnderGuard, Rule::Revival]);
    for seed in 0..2_000 {
        let outcome = World::watch(Plan::new(seed, Profile::Uniform, Some(Broken::Duplicates)), Mistake::None, rules);
        assert!(outcome.violation.is_none(), "seed {seed}: {:?}", outcome.violation);
    }
}

/// Whatever clocks and hands do, an owner that is gone does not come back: no transaction passes on its account.
#[test]
fn the_ownership_check_holds_whatever_clocks_do() {
    let rules = Watched::only(&[Rule::Effect, Rule::Unconditional]);
    for broken in [Broken::Drift, Broken::BothClocksStop, Broken::WallStepsInFreeze, Broken::RowsDeletedByHand] {
        for seed in 0..1_000 {
            let outcome = World::watch(Plan::new(seed, Profile::Edge, Some(broken)), Mistake::None, rules);
            assert!(outcome.violation.is_none(), "{broken:?}, seed {seed}: {:?}", outcome.violation);
        }
    }
}
