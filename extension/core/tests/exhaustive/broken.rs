//! The searches are not blind: one microsecond beyond the drift bound, without an assumption, or with a mistake made on
//! purpose, they find a violation, and its schedule breaks the same rule when it is run again.

use crate::model::bounds::{Bounds, Broken, Mistake};
use crate::model::{Action, Rule};
use crate::search::{command, replay, run, search, text};
use leasekeeper_core::WrongRule;

fn breaks(test: &str, what: &str, bounds: &Bounds, rule: Rule) {
    if replay(bounds, &[rule]) {
        return;
    }
    let found = search(bounds, &[rule], 1);
    let Some(actions) = found.broken.get(rule.name()) else {
        panic!("{what}: {} is not broken in {} states", rule.name(), found.states);
    };
    let written = text(actions);
    let read: Vec<Action> = written.split(' ').map(|step| step.parse().expect("what is written can be read")).collect();
    assert_eq!(read, *actions);
    let (story, broken) = run(bounds, &[rule], &read);
    println!("{story}\nrun it again with: {}", command(&format!("broken::{test}"), actions));
    assert_eq!(broken, [rule], "the schedule that was found breaks what it was found to break");
    println!(
        "figure: exhaustive | {what} | {} broken in {} steps, after {} states: `{written}`",
        rule.name(),
        actions.len(),
        found.states
    );
}

fn holds(test: &str, what: &str, bounds: &Bounds) {
    // Exclusion is broken here; what needs no clock is not.
    let rules = [Rule::Effect, Rule::Order];
    if replay(bounds, &rules) {
        return;
    }
    let found = search(bounds, &rules, 1);
    if let Some((rule, actions)) = found.broken.first_key_value() {
        let (story, _) = run(bounds, &rules, actions);
        panic!("{rule} is broken:\n{story}\nreplay it with: {}", command(&format!("broken::{test}"), actions));
    }
    assert!(found.moments.replaced.is_some() || found.moments.taken_over.is_some(), "{:?}", found.moments);
    println!("figure: exhaustive | {what}: guarded writes | {} states, none is accepted", found.states);
}

macro_rules! broken {
    ($($name:ident($what:literal): $bounds:expr, $rule:ident;)+) => {
        $(#[test]
        fn $name() {
            breaks(stringify!($name), $what, &$bounds, Rule::$rule);
        })+
    };
}

macro_rules! guarded {
    ($($name:ident($what:literal): $bounds:expr;)+) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name), $what, &$bounds);
        })+
    };
}

const PLAIN: Bounds = Bounds::PLAIN;
const SLOW: Bounds = Bounds { broken: Some(Broken::SlowDrift), ..PLAIN };
const FAST: Bounds = Bounds { short_ticks: 1, broken: Some(Broken::FastDrift), ..PLAIN };
const NO_CLOCK: Bounds = Bounds { sleeps: 1, broken: Some(Broken::BothClocksStop), ..PLAIN };
const BY_HAND: Bounds = Bounds { broken: Some(Broken::RowDeletedByHand), ..PLAIN };
const TWICE: Bounds = Bounds { broken: Some(Broken::PutSentTwice), ..PLAIN };

broken! {
    a_microsecond_a_tick_too_slow_there_are_two_holders("slow clocks one microsecond a tick beyond the bound"):
        Bounds { unknown: 1, ..SLOW }, Exclusion;
    ten_microseconds_a_tick_too_fast_there_are_two_holders("fast clocks ten microseconds a tick beyond the bound"):
        Bounds { unknown: 1, ..FAST }, Exclusion;
    where_boot_and_wall_clock_stop_together_there_are_two_holders("boot and wall clock stop together"): NO_CLOCK, Exclusion;
    where_the_row_is_deleted_by_hand_there_are_two_holders("the row deleted by hand"): BY_HAND, Exclusion;
    where_a_put_is_sent_twice_a_released_owner_comes_back("a plain Put re-sent by a layer below"): TWICE, Effect;
}

guarded! {
    guarded_writes_stay_refused_beyond_the_drift_bound("clocks beyond the bound"):
        Bounds { unknown: 1, ..FAST };
    guarded_writes_stay_refused_where_both_clocks_stop("boot and wall clock stop together"): NO_CLOCK;
    guarded_writes_stay_refused_where_the_row_is_deleted_by_hand("the row deleted by hand"):
        Bounds { unknown: 1, ..BY_HAND };
}

broken! {
    renewing_on_the_owner_alone_brings_a_version_back("renewals on the owner alone, one re-sent"):
        Bounds { unknown: 1, resends: 1, mistake: Some(Mistake::RenewOnOwner), ..PLAIN }, Exclusion;
    renewing_on_the_owner_alone_leaves_versions_without_an_order("renewals on the owner alone, one re-sent"):
        Bounds { resends: 1, mistake: Some(Mistake::RenewOnOwner), ..PLAIN }, Order;
    taking_over_on_the_owner_alone_ignores_a_renewal("takeovers on the owner alone"):
        Bounds { unknown: 1, mistake: Some(Mistake::TakeoverOnOwner), ..PLAIN }, Exclusion;
    taking_over_without_a_condition_ignores_everything("takeovers without a condition"):
        Bounds { unknown: 1, mistake: Some(Mistake::TakeoverUnconditional), ..PLAIN }, Exclusion;
    deleting_without_a_condition_takes_another_holders_row("deletes without a condition"):
        Bounds { asks: [2, 1], unknown: 1, mistake: Some(Mistake::DeleteUnconditional), ..PLAIN }, Exclusion;
    taking_an_answer_before_the_time_revives_a_guard("answers taken before the clocks are read"):
        Bounds { unknown: 1, mistake: Some(Mistake::AnswerBeforeTime), ..PLAIN }, Revival;
    believing_until_the_release_is_answered_is_too_long("a client that believes until its release is answered"):
        Bounds { mistake: Some(Mistake::ValidUntilReleased), ..PLAIN }, Exclusion;
    deleting_at_once_what_is_given_up_contradicts_its_client("rows of leases given up deleted at once"):
        Bounds { give_ups: 1, mistake: Some(Mistake::EarlyDelete), ..PLAIN }, Exclusion;
    deleting_at_once_what_is_given_up_comes_before_its_guard_is_invalid("rows of leases given up deleted at once"):
        Bounds { give_ups: 1, mistake: Some(Mistake::EarlyDelete), ..PLAIN }, EarlyEnd;
    counting_from_the_latest_renewal_is_too_long("validity counted from the latest attempt"):
        Bounds { ticks: 3, refusals: 1, mistake: Some(Mistake::Core(WrongRule::AdoptFromLatest)), ..PLAIN }, Exclusion;
    one_owner_for_all_puts_lets_an_old_write_pass("one owner for all Puts of a process"):
        Bounds { unknown: 1, mistake: Some(Mistake::Core(WrongRule::OneOwner)), ..PLAIN }, Effect;
    one_owner_for_a_retried_put_lets_an_old_write_pass("one owner for all Puts of an acquire"):
        Bounds { unknown: 1, mistake: Some(Mistake::Core(WrongRule::SameOwnerOnRetry)), ..PLAIN }, Effect;
}
