//! The protocol's timing rules that a holder lives by, one by one: rules 1, 3, 4 and 5.

use crate::script::{MS, SECOND, Script, acquire, granted, one_send, renewed_version, row, row_of, sends, shows};
use leasekeeper_core::{Acquire, Answer, Input, LostReason, Op, Output, Seen};

const KEY: u64 = 7;

fn unknown() -> Answer<u64> {
    Answer::Unknown("time-out".into())
}

fn lost(outputs: &[Output<u64>]) -> Option<LostReason> {
    outputs.iter().find_map(|output| match output {
        Output::Lost(_, reason) => Some(*reason),
        _ => None,
    })
}

// Rule 1: elapsed time.

#[test]
fn a_guard_is_valid_for_nine_tenths_of_the_lease_from_before_the_send_and_not_a_microsecond_more() {
    let mut script = Script::new();
    script.hold(1, KEY, 10_000, 250 * MS);
    assert_eq!(script.valid(1), Some(9 * SECOND - 250 * MS));
    script.jump(9 * SECOND - 250 * MS - 1);
    assert_eq!(script.valid(1), Some(1));
    script.jump(1);
    assert_eq!(script.valid(1), None);
}

#[test]
fn every_clock_alone_ends_a_guard_and_freezes_that_stop_different_clocks_add_up() {
    for steps in [[(9, 0, 0), (0, 0, 0)], [(0, 9, 0), (0, 0, 0)], [(0, 0, 9), (0, 0, 0)], [(5, 0, 0), (0, 0, 4)]] {
        let mut script = Script::new();
        script.hold(1, KEY, 10_000, 0);
        for (boot, mono, wall) in steps {
            script.step(boot * SECOND, mono * SECOND, wall * SECOND as i64);
            script.tick();
        }
        assert_eq!(script.valid(1), None, "{steps:?}");
    }
}

#[test]
fn a_wall_clock_that_steps_back_is_no_loss_and_renews_at_once() {
    let mut script = Script::new();
    script.hold(1, KEY, 10_000, 0);
    script.pass(SECOND);
    script.step(0, 0, -3_600 * SECOND as i64);
    let renewal = one_send(&script.tick());
    assert!(matches!(renewal.op, Op::Renew { .. }));
    assert_eq!(script.valid(1), Some(8 * SECOND));
}

#[test]
fn the_clocks_are_read_at_least_every_thirtieth_of_the_lease_or_half_second_while_anything_may_be_granted_or_held() {
    for (lease_ms, most) in [(3_000, 100 * MS), (20_000, 500 * MS), (100, 3_333)] {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, lease_ms, 60 * SECOND))));
        assert!(script.core.next_wakeup().is_some_and(|delay| delay <= most), "a Put is under way");
        script.answer(&put, Answer::Throttled("slow down".into()));
        let (put, _) = script.until_send(SECOND).expect("a retry");
        script.answer(&put, unknown());
        assert!(script.core.next_wakeup().is_some_and(|delay| delay <= most), "its outcome is unknown");
        let (again, _) = script.until_send(SECOND).expect("a retry");
        script.answer(&again, Answer::Failed(shows(&row_of(&put))));
        assert!(script.core.next_wakeup().is_some_and(|delay| delay <= most), "held");
    }
}

// Rule 3: renewal.

#[test]
fn a_renewal_is_due_a_third_of_the_lease_after_the_send_of_the_winning_write() {
    let mut script = Script::new();
    let held = script.hold(1, KEY, 9_000, 100 * MS);
    let (renewal, passed) = script.until_send(9 * SECOND).expect("a renewal");
    assert_eq!(passed, 3 * SECOND - 100 * MS);
    assert!(
        matches!(&renewal.op, Op::Renew { owner, last, .. } if (*owner, *last) == (held.owner, held.version)),
        "{renewal:?}"
    );
    assert!(sends(&script.pass(SECOND / 2)).is_empty(), "at most one in flight");
    let outputs = script.answer(&renewal, Answer::Done);
    assert!(outputs.contains(&Output::Renewed(1)));
    assert_eq!(script.valid(1), Some(8_100 * MS - SECOND / 2), "validity counts from the renewal's send");
}

#[test]
fn every_renewal_attempt_has_a_version_of_its_own_and_a_failed_one_is_retried_after_a_twelfth() {
    let mut script = Script::new();
    script.hold(1, KEY, 6_000, 0);
    let mut versions = Vec::new();
    let (mut renewal, _) = script.until_send(6 * SECOND).expect("a renewal");
    for _ in 0..3 {
        versions.push(renewed_version(&renewal));
        script.answer(&renewal, Answer::Throttled("slow down".into()));
        let (next, passed) = script.until_send(6 * SECOND).expect("a retry");
        assert_eq!(passed, 500 * MS);
        renewal = next;
    }
    versions.push(renewed_version(&renewal));
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 4);
}

#[test]
fn validity_counts_from_the_attempt_that_the_row_names() {
    let mut script = Script::new();
    let held = script.hold(1, KEY, 12_000, 0);
    let (first, _) = script.until_send(12 * SECOND).expect("a renewal at 4 s");
    script.pass(SECOND);
    script.answer(&first, unknown());
    let (second, passed) = script.until_send(12 * SECOND).expect("a retry");
    assert_eq!(passed, SECOND);
    let stored = row(held.owner, renewed_version(&first), 12_000);
    let outputs = script.answer(&second, Answer::Failed(shows(&stored)));
    assert!(outputs.contains(&Output::Renewed(1)));
    assert_eq!(script.valid(1), Some(10_800 * MS - 2 * SECOND), "from the first attempt's send");
}

#[test]
fn an_unknown_version_under_our_own_owner_is_taken_as_last_and_extends_nothing() {
    let mut script = Script::new();
    let held = script.hold(1, KEY, 12_000, 0);
    let (renewal, _) = script.until_send(12 * SECOND).expect("a renewal at 4 s");
    let outputs = script.answer(&renewal, Answer::Failed(shows(&row(held.owner, 99, 12_000))));
    assert!(outputs.is_empty(), "{outputs:?}");
    assert_eq!(script.valid(1), Some(6_800 * MS));
    let (retry, _) = script.until_send(12 * SECOND).expect("a retry");
    assert!(matches!(retry.op, Op::Renew { last: 99, .. }));
}

#[test]
fn another_owner_or_no_row_is_loss_at_once_and_nothing_is_deleted() {
    let other = Seen::Row(row(1, 2, 500));
    for (seen, reason) in [(other, LostReason::Stolen), (Seen::Nothing, LostReason::Deleted)] {
        let mut script = Script::new();
        script.hold(1, KEY, 12_000, 0);
        let (renewal, _) = script.until_send(12 * SECOND).expect("a renewal");
        let outputs = script.answer(&renewal, Answer::Failed(seen));
        assert_eq!(lost(&outputs), Some(reason));
        assert!(sends(&outputs).is_empty() && script.core.is_idle());
        assert_eq!(script.valid(1), None);
    }
}

#[test]
fn late_success_revives_nothing() {
    let mut script = Script::new();
    script.hold(1, KEY, 12_000, 0);
    let (renewal, _) = script.until_send(12 * SECOND).expect("a renewal at 4 s");
    script.jump(6_800 * MS);
    let outputs = script.answer(&renewal, Answer::Done);
    assert_eq!(lost(&outputs), Some(LostReason::Expired));
    assert!(!outputs.contains(&Output::Renewed(1)));
    assert_eq!(script.valid(1), None);
}

#[test]
fn danger_is_told_at_six_tenths_and_is_reversible() {
    let mut script = Script::new();
    script.hold(1, KEY, 6_000, 0);
    let (renewal, _) = script.until_send(6 * SECOND).expect("a renewal at 2 s");
    assert!(!script.pass(1_600 * MS - 1).contains(&Output::Danger(1)));
    assert!(script.pass(1).contains(&Output::Danger(1)));
    script.answer(&renewal, unknown());
    let (renewal, _) = script.until_send(6 * SECOND).expect("a retry");
    let outputs = script.answer(&renewal, Answer::Done);
    assert_eq!(outputs, [Output::Renewed(1), Output::Recovered(1)]);
    assert!(!script.pass(SECOND).contains(&Output::Danger(1)));
}

#[test]
fn a_renewal_answered_after_its_lease_went_back_to_waiting_says_nothing_of_the_next_row() {
    let mut script = Script::new();
    // The first Put's outcome is unknown; its row is found late, at half the lease: it is renewed before it is granted.
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 600, 60 * SECOND))));
    script.pass(20 * MS);
    script.answer(&put, unknown());
    let (again, _) = script.until_send(SECOND).expect("a retry");
    script.jump(400 * MS);
    script.give(Input::InvocationBegan { scope: 1, remaining: None });
    let outputs = script.answer(&again, unknown());
    assert!(!granted(&outputs, 1));
    let (third, _) = script.until_send(SECOND).expect("a retry");
    let old = row_of(&put);
    let renewal = one_send(&script.answer(&third, Answer::Failed(shows(&old))));
    assert!(matches!(renewal.op, Op::Renew { .. }));
    // It is too late for that; the next Put wins another row, and only then the renewal is answered.
    let left = 540 * MS - 450 * MS;
    let sent = sends(&script.pass(left));
    let read = sent.iter().find(|request| request.op == Op::Read).expect("a look at the row");
    let over = one_send(&script.answer(read, Answer::Found(shows(&old))));
    assert!(matches!(&over.op, Op::Replace { owner, .. } if *owner == old.owner));
    assert!(granted(&script.answer(&over, Answer::Done), 1));
    let outputs = script.answer(&renewal, Answer::Failed(Seen::Nothing));
    assert_eq!(lost(&outputs), None, "the answer speaks of the row before");
    assert!(script.valid(1).is_some());
}

#[test]
fn starvation_that_makes_every_reading_late_does_not_hold_renewals_back_for_ever() {
    let mut script = Script::new();
    script.hold(1, KEY, 3_000, 0);
    // Every reading comes 0.12 leases after the one before: later than a thirtieth and a twelfth.
    let mut renewal = None;
    for _ in 0..7 {
        script.jump(360 * MS);
        let sent = sends(&script.tick());
        renewal = renewal.or(sent.into_iter().next());
    }
    assert!(renewal.is_some(), "the lease is nearly over and no renewal was sent");
}

// Rule 4: attempt time-outs.

#[test]
fn attempts_time_out_after_a_sixth_of_the_lease_within_bounds_and_never_later_than_the_validity() {
    for (lease_ms, open, connect) in [(100, 16_666, 16_666), (12_000, SECOND, 2 * SECOND), (60_000, SECOND, 3 * SECOND)]
    {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, lease_ms, 0))));
        assert_eq!((put.timeout, put.connect_timeout), (open, connect));
    }
    let mut script = Script::new();
    script.hold(1, KEY, 6_000, 0);
    let mut left = None;
    while let Some((renewal, _)) = script.until_send(6 * SECOND) {
        let Op::Renew { .. } = renewal.op else { break };
        left = script.valid(1);
        assert!(renewal.timeout <= left.expect("a renewal is sent while valid"));
        assert_eq!(renewal.timeout, left.expect("valid").min(SECOND));
        script.answer(&renewal, unknown());
    }
    assert!(left.is_some_and(|left| left < SECOND), "the last one was clipped");
}

#[test]
fn no_put_starts_after_the_budget_and_the_outcome_is_busy() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 300 * MS))));
    script.pass(50 * MS);
    let other = row(1, 2, 10_000);
    script.answer(&put, Answer::Failed(shows(&other)));
    let mut outputs = Vec::new();
    let mut reads = 0;
    while let Some((read, _)) = script.until_send(250 * MS) {
        if script.core.is_idle() {
            break;
        }
        reads += 1;
        outputs.extend(script.answer(&read, Answer::Found(shows(&other))));
        assert!(reads < 20);
    }
    let outputs = {
        outputs.extend(script.pass(SECOND));
        outputs
    };
    assert!(sends(&outputs).is_empty());
    assert!(script.core.is_idle());
}

#[test]
fn a_free_key_that_is_seen_after_the_budget_is_left_alone_by_one_that_waited() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 100 * MS))));
    script.pass(150 * MS);
    let outputs = script.answer(&put, Answer::Failed(Seen::Nothing));
    assert!(sends(&outputs).is_empty() && script.core.is_idle(), "{outputs:?}");
}

#[test]
fn the_last_put_of_a_wait_is_not_clipped_and_still_wins() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 100 * MS))));
    assert_eq!(put.timeout, SECOND);
    let outputs = script.pass(600 * MS);
    assert!(outputs.is_empty(), "its answer is waited for: {outputs:?}");
    assert!(granted(&script.answer(&put, Answer::Done), 1));
}

// Rule 5: own rows that are old.

#[test]
fn an_own_row_with_less_than_six_tenths_left_is_renewed_before_it_is_granted() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 60 * SECOND))));
    script.answer(&put, unknown());
    let (again, _) = script.until_send(SECOND).expect("a retry");
    script.pass(SECOND);
    script.jump(5 * SECOND);
    script.answer(&again, unknown());
    let (third, _) = script.until_send(SECOND).expect("a retry");
    let outputs = script.answer(&third, Answer::Failed(shows(&row_of(&put))));
    assert!(!granted(&outputs, 1), "{outputs:?}");
    let renewal = match sends(&outputs).into_iter().next() {
        Some(renewal) => renewal,
        None => script.until_send(SECOND).expect("a renewal").0,
    };
    assert!(matches!(renewal.op, Op::Renew { .. }));
    script.pass(30 * MS);
    let outputs = script.answer(&renewal, Answer::Done);
    assert!(granted(&outputs, 1));
    assert_eq!(script.valid(1), Some(9 * SECOND - 30 * MS));
}

#[test]
fn a_row_of_ours_that_waits_for_its_renewal_keeps_nobody_busy() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 60 * SECOND))));
    script.answer(&put, unknown());
    let (again, _) = script.until_send(SECOND).expect("a retry");
    script.jump(SECOND);
    script.tick();
    let again = script.until_send(SECOND).map_or(again, |(next, _)| next);
    script.jump(5 * SECOND);
    script.give(Input::InvocationBegan { scope: 1, remaining: None });
    script.answer(&again, unknown());
    let (again, _) = script.until_send(2 * SECOND).expect("a retry");
    let outputs = script.answer(&again, Answer::Failed(shows(&row_of(&put))));
    assert!(!granted(&outputs, 1));
    // More than 0.6 of the lease is over and the renewal hangs: `pass` fails on a busy loop.
    script.pass(SECOND);
}

#[test]
fn the_longest_and_absurd_durations_overflow_nothing() {
    let mut script = Script::new();
    let ask = Acquire { remaining: Some(u64::MAX), max_hold: Some(u64::MAX), ..acquire(1, KEY, 86_400_000, u64::MAX) };
    let put = one_send(&script.give(Input::Acquire(ask)));
    assert!(granted(&script.answer(&put, Answer::Done), 1));
    assert_eq!(script.valid(1), Some(77_760 * SECOND));
    script.give(Input::InvocationBegan { scope: 1, remaining: Some(u64::MAX) });
    let (_, passed) = script.until_send(30_000 * SECOND).expect("a renewal");
    assert_eq!(passed, 28_800 * SECOND);
    let foreign = Seen::Row(row(1, 2, u64::MAX));
    let ask = acquire(2, 8, 100, u64::MAX);
    let put = one_send(&script.give(Input::Acquire(ask)));
    script.answer(&put, Answer::Failed(foreign));
    script.pass(SECOND);
}
