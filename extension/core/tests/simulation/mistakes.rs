//! The simulation is not blind: wrong protocols and broken assumptions are seen, and by which promise.

use crate::world::{Broken, Mutation, Plan, Profile, Rule, World};

/// After how many schedules, and by which rule, a mistake is caught.
fn caught(mutation: Mutation, broken: Option<Broken>, profile: Profile, most: u64, by: &[Rule]) -> Option<(u64, Rule)> {
    (0..most).find_map(|seed| {
        let violation = World::watch(Plan::new(seed, profile, broken), mutation, Some(by)).violation?;
        Some((seed + 1, violation.rule))
    })
}

fn check(mutation: Mutation, profile: Profile, by: &[Rule]) {
    let found = caught(mutation, None, profile, 20_000, by);
    let (schedules, rule) = found.unwrap_or_else(|| panic!("{mutation:?} is not caught by {by:?}"));
    println!("{mutation:?}: {rule:?} after {schedules} {profile:?} schedules");
}

macro_rules! mistakes {
    ($($name:ident: $mutation:expr, $profile:ident, $($rule:ident)|+;)+) => {
        $(#[test]
        fn $name() {
            check($mutation, Profile::$profile, &[$(Rule::$rule),+]);
        })+
    };
}

mistakes! {
    boot_clock_alone: Mutation::OneClock(0), Uniform, Exclusion;
    monotonic_clock_alone: Mutation::OneClock(1), Uniform, Exclusion;
    wall_clock_alone: Mutation::OneClock(2), Uniform, Exclusion;
    maximum_between_endpoints: Mutation::EndpointMaximum, Uniform, Exclusion;
    no_margin_for_drift: Mutation::NoMargin, Edge, Exclusion;
    own_lease_instead_of_the_stored_one: Mutation::OwnLease, Edge, Exclusion;
    renewal_without_a_condition: Mutation::RenewUnconditional, Uniform, Unconditional;
    delete_without_a_condition: Mutation::DeleteUnconditional, Uniform, Unconditional;
    takeover_without_a_condition: Mutation::TakeoverUnconditional, Uniform, Unconditional;
    takeover_on_the_owner_alone: Mutation::TakeoverOnOwner, Uniform, Unconditional;
    observing_from_the_send: Mutation::ObserveFromSend, Edge, Exclusion;
    valid_from_the_reply: Mutation::ValidFromReply, Edge, Exclusion;
    valid_until_the_release_is_answered: Mutation::ValidUntilReleased, Uniform, Exclusion;
    timer_keyed_by_the_owner: Mutation::TimerKeyedByOwner, Uniform, Exclusion;
    same_version_on_a_retry: Mutation::SameVersionOnRetry, Edge, Exclusion;
    late_success_revives: Mutation::AnswerBeforeTime, Uniform, Revival;
    own_renewal_taken_for_anothers: Mutation::NoAdoption, Mild, FalseLoss;
    a_throttle_is_final: Mutation::ThrottleIsFinal, Mild, FalseLoss;
    clean_up_tried_once: Mutation::CleanOnce, Mild, Orphan;
    early_delete_on_a_fault_of_ours: Mutation::EarlyDelete, Uniform, EarlyDelete;
    request_id_ignored: Mutation::RequestIdIgnored, Uniform, Invocation;
}

/// A layer that sends twice can bring a released row back, but no guard with it.
#[test]
fn duplicated_requests_do_not_break_exclusion() {
    let rules = [Rule::Exclusion, Rule::RowUnderGuard, Rule::Revival];
    assert_eq!(caught(Mutation::None, Some(Broken::Duplicates), Profile::Uniform, 2_000, &rules), None);
}

/// Each assumption of the exclusion promise is needed: without it there are two valid guards.
#[test]
fn broken_assumptions_do_break_exclusion() {
    for broken in [Broken::Drift, Broken::BothClocksStop, Broken::RowsDeletedByHand] {
        let found = caught(Mutation::None, Some(broken), Profile::Edge, 20_000, &[Rule::Exclusion]);
        let (schedules, _) = found.unwrap_or_else(|| panic!("{broken:?} breaks nothing"));
        println!("{broken:?}: Exclusion after {schedules} Edge schedules");
    }
}
