//! Within the assumptions no rule is broken, at the very bound of the drift that the margin pays for.

use crate::model::bounds::{Bounds, MANY, Rates};
use crate::model::{Count, Moments, Rule};
use crate::search::{command, is_full, replay, run, search};
use std::thread::available_parallelism;

/// Searches `quick`, or `full` for the published proof: no rule may be broken, and each of `sees` must have happened.
fn holds(test: &str, what: &str, quick: &Bounds, full: &Bounds, sees: fn(&Moments) -> Vec<&Count>) {
    let bounds = if is_full() { full } else { quick };
    if replay(bounds, &Rule::ALL) {
        return;
    }
    // The proof runs one test after the other, `make test` several at once.
    let threads = if is_full() { available_parallelism().map_or(1, usize::from) } else { 1 };
    let found = search(bounds, &Rule::ALL, threads);
    let test = format!("promises::{test}");
    if let Some((rule, actions)) = found.broken.first_key_value() {
        let (story, _) = run(bounds, &Rule::ALL, actions);
        panic!("{rule} is broken:\n{story}\nreplay it with: {}", command(&test, actions));
    }
    println!("{test}: {} steps, {:?}", found.steps, found.moments);
    let seen = [&found.moments.granted, &found.moments.released].into_iter().chain(sees(&found.moments));
    assert!(seen.into_iter().all(Count::is_some), "the search does not get to the point: {:?}", found.moments);
    let (states, depth, seconds) = (found.states, found.depth, found.time.as_secs_f64());
    let told = format!("{states} states, depth {depth}, {seconds:.0} s, no violation");
    println!("{}", if is_full() { format!("figure: exhaustive | {what} | {told}") } else { told });
}

macro_rules! holds {
    ($($(#[doc = $doc:literal])* $name:ident($what:literal) { quick: $quick:expr, full: $full:expr, sees: [$($seen:ident),*] })+) => {
        $($(#[doc = $doc])* #[test]
        fn $name() {
            holds(stringify!($name), $what, &$quick, &$full, |moments| vec![$(&moments.$seen),*]);
        })+
    };
}

const PLAIN: Bounds = Bounds::PLAIN;

holds! {
    /// A clock at 18/20 of another one: a validity of 18 units and a lease of 20 end in one instant.
    exclusion_holds_at_the_exact_drift_bound("clocks at the drift bound, an instant before it, an unknown outcome, a missed wake-up") {
        quick: Bounds { short_ticks: 1, sleeps: 1, ..PLAIN },
        full: Bounds { short_ticks: 1, unknown: 1, sleeps: 1, ..PLAIN },
        sees: [renewed, lost, taken_over, met]
    }
    /// Five ticks a lease: a renewal is tried again while the first may yet land, and the row tells which one did.
    renewals_of_unknown_outcome_are_adopted_by_what_the_row_shows("renewals tried again, two unknown outcomes") {
        quick: Bounds { ticks: 4, unknown: 1, ..PLAIN },
        full: Bounds { ticks: 5, unknown: 2, ..PLAIN },
        sees: [renewed, lost, late]
    }
    /// Processes that sleep through renewals and through the end, and then hear of what was sent before.
    a_process_that_wakes_late_believes_in_nothing("two missed wake-ups, an unknown outcome") {
        quick: Bounds { sleeps: 2, ..PLAIN },
        full: Bounds { unknown: 1, sleeps: 2, ..PLAIN },
        sees: [renewed, lost, taken_over, met]
    }
    /// What an acquire left under way meets the next one of the same client.
    a_client_that_comes_again_is_not_held_up_or_let_in_by_its_own_past("a second acquire, an unknown outcome") {
        quick: Bounds { asks: [2, 1], horizon: Some(2), ..PLAIN },
        full: Bounds { asks: [2, 1], unknown: 1, ..PLAIN },
        sees: [renewed]
    }
    /// Conditional writes name owners and versions that never come again: sent twice, they are carried out once.
    conditional_writes_that_arrive_twice_do_nothing_the_second_time("a conditional write re-sent, an unknown outcome, a missed wake-up") {
        quick: Bounds { unknown: 1, resends: 1, ..PLAIN },
        full: Bounds { unknown: 1, sleeps: 1, resends: 1, ..PLAIN },
        sees: [renewed, lost, resent]
    }
    /// A freeze stops boot and monotonic clock, or monotonic and wall clock; two freezes need not stop the same.
    freezes_that_stop_different_clocks_are_all_counted("two sleeps or freezes, whichever clock goes on") {
        quick: Bounds { sleeps: 1, freezes: true, ..PLAIN },
        full: Bounds { sleeps: 2, freezes: true, ..PLAIN },
        sees: [renewed, lost]
    }
    /// A new process knows nothing of what the old one sent.
    a_process_that_dies_leaves_nothing_that_breaks_a_later_hold("processes that die twice and come again") {
        quick: Bounds { asks: [2, 1], crashes: 1, ..PLAIN },
        full: Bounds { asks: [2, 1], crashes: 2, ..PLAIN },
        sees: [renewed, late]
    }
    /// The client of a lease that was given up may go on believing: its row stays until it can no longer.
    a_lease_given_up_is_left_to_who_may_still_believe("a lease given up by the extension, an unknown outcome, a missed wake-up") {
        quick: Bounds { unknown: 1, give_ups: 1, ..PLAIN },
        full: Bounds { unknown: 1, sleeps: 1, give_ups: 1, ..PLAIN },
        sees: [renewed, lost]
    }
    /// Throttled, or failed at once while the request is still under way.
    answers_that_say_nothing_change_nothing("two requests throttled or failed at once") {
        quick: Bounds { refusals: 1, ..PLAIN },
        full: Bounds { refusals: 2, ..PLAIN },
        sees: [renewed, late]
    }
    /// Slow, true or fast, anew in every tick and for each client.
    clocks_may_change_their_rates_at_any_time("rates that change in every tick, two unknown outcomes") {
        quick: Bounds { rates: Rates::Any, unknown: 1, ..PLAIN },
        full: Bounds { rates: Rates::Any, unknown: 2, ..PLAIN },
        sees: [renewed, lost, late]
    }
    /// A lease of 100 ms: pauses are as long as ticks, and answers are waited for beyond one.
    the_shortest_lease_keeps_the_same_rules("a lease of 100 ms, an unknown outcome, a missed wake-up") {
        quick: Bounds { unit: 2_500, unknown: 1, ..PLAIN },
        full: Bounds { unit: 2_500, unknown: 1, sleeps: 1, ..PLAIN },
        sees: [renewed, lost, late]
    }
    /// Two leases of one environment on the key of a third: handed over inside, contended outside.
    hand_over_inside_one_environment_keeps_others_out("two acquires at once in one environment, a missed wake-up") {
        quick: Bounds { asks: [2, 1], at_once: 2, ..PLAIN },
        full: Bounds { asks: [2, 1], at_once: 2, sleeps: 1, ..PLAIN },
        sees: [renewed, replaced]
    }
    /// Waits that end: what they may have left is given back.
    an_acquire_that_ends_without_the_lock_lets_nobody_in_by_it("waits of one tick, a second acquire, an unknown outcome") {
        quick: Bounds { asks: [2, 1], wait: Some(1), ..PLAIN },
        full: Bounds { asks: [2, 1], wait: Some(1), unknown: 1, ..PLAIN },
        sees: [renewed, refused]
    }
    /// No bound but time: any number of unknown outcomes and missed wake-ups.
    anything_may_go_wrong_for_a_while("any number of unknown outcomes and missed wake-ups, for four ticks") {
        quick: Bounds { unknown: MANY, sleeps: MANY, horizon: Some(2), ..PLAIN },
        full: Bounds { unknown: MANY, sleeps: MANY, horizon: Some(4), ..PLAIN },
        sees: [late]
    }
}
