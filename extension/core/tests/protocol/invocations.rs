//! Leases and invocations: the race between INVOKE and the handler's first acquire, deadlines, leaks, recovery times.

use crate::common::rng::Rng;
use crate::script::{MS, SECOND, Script, acquire, granted, one_send, row, row_of, sends, shows};
use leasekeeper_core::{Acquire, Answer, Config, Input, LostReason, Op, Output, Refused, Seen};

const KEY: u64 = 7;

fn lost(outputs: &[Output<u64>], id: u64) -> Option<LostReason> {
    outputs.iter().find_map(|output| match output {
        Output::Lost(lease, reason) if *lease == id => Some(*reason),
        _ => None,
    })
}

fn renewals(outputs: &[Output<u64>]) -> usize {
    sends(outputs).iter().filter(|request| matches!(request.op, Op::Renew { .. })).count()
}

/// Ten thousand times: the last invocation leaked a lease, the environment froze, and INVOKE comes up to 50 ms before or
/// after the next handler's first acquire.
#[test]
fn invoke_and_the_first_acquire_may_come_in_any_order() {
    let mut rng = Rng::new(50);
    let mut script = Script::new();
    script.give(Input::InvocationBegan { scope: 1, remaining: Some(60 * SECOND) });
    let (mut new_dropped, mut old_kept, mut raced) = (0, 0, 0);
    let mut lease = 0;
    for round in 1..=10_000 {
        lease += 1;
        let (leaked, leaked_key) = (lease, 1_000 + round);
        let ask = Acquire { scope: Some(round), ..acquire(leaked, leaked_key, 20_000, SECOND) };
        let put = one_send(&script.give(Input::Acquire(ask)));
        assert!(granted(&script.answer(&put, Answer::Done), leaked));
        script.pass(rng.below(50 * MS));
        // Frozen, for less than the lease's validity or more, with or without the monotonic clock.
        let frozen = rng.pick(&[1, 500, 3_000, 10_000, 60_000]) * MS;
        script.step(frozen, if rng.chance(50) { frozen } else { 0 }, frozen as i64);
        let mut outputs = if rng.chance(50) { script.tick() } else { Vec::new() };
        lease += 1;
        let (new, apart) = (lease, rng.below(50 * MS));
        let ask = Acquire { scope: Some(round + 1), ..acquire(new, 500_000 + round, 20_000, SECOND) };
        let began = Input::InvocationBegan { scope: round + 1, remaining: Some(60 * SECOND) };
        if rng.chance(50) {
            outputs.extend(script.give(began));
            outputs.extend(script.pass(apart));
            outputs.extend(script.give(Input::Acquire(ask)));
        } else {
            raced += 1;
            outputs.extend(script.give(Input::Acquire(ask)));
            let mut put = sends(&outputs).into_iter().find(|request| request.lease == new);
            if rng.chance(50) {
                outputs.extend(script.answer(&put.take().expect("a Put"), Answer::Done));
            }
            outputs.extend(script.pass(apart));
            outputs.extend(script.give(began));
        }
        let put = sends(&outputs).into_iter().find(|request| request.lease == new).expect("a Put");
        outputs.extend(script.answer(&put, Answer::Done));
        outputs.extend(script.pass(MS));
        new_dropped += u32::from(script.core.valid_for(new).is_none() || !granted(&outputs, new));
        old_kept += u32::from(script.core.valid_for(leaked).is_some() || lost(&outputs, leaked).is_none());
        let leaked_renewals =
            sends(&outputs).iter().any(|request| request.lease == leaked && matches!(request.op, Op::Renew { .. }));
        assert!(!leaked_renewals, "round {round}: the leaked lease was renewed after its invocation");
        // The new one is given back; what was leaked is deleted once nobody can believe in it.
        let mut deletes = sends(&script.give(Input::Release(new)));
        deletes.extend(sends(&outputs).into_iter().filter(|request| matches!(request.op, Op::Delete { .. })));
        let mut passed = 0;
        while !script.core.is_idle() {
            for delete in std::mem::take(&mut deletes) {
                script.answer(&delete, Answer::Done);
            }
            deletes.extend(sends(&script.pass(SECOND)));
            passed += 1;
            assert!(passed < 30, "round {round}: does not come to rest");
        }
        script.give(Input::InvocationBegan { scope: round + 1, remaining: Some(60 * SECOND) });
    }
    assert!(raced > 4_000);
    assert_eq!((new_dropped, old_kept), (0, 0), "new ones dropped, old ones kept");
}

#[test]
fn after_a_thaw_renewals_wait_for_the_invoke_but_not_for_long() {
    for (lease_ms, most) in [(20_000, 100 * MS), (600, 50 * MS)] {
        let mut script = Script::new();
        script.hold(1, KEY, lease_ms, 0);
        script.jump(lease_ms * MS / 2);
        let outputs = script.tick();
        assert!(outputs.contains(&Output::Thawed) && renewals(&outputs) == 0, "{outputs:?}");
        let (renewal, after) = script.until_send(lease_ms * MS).expect("no INVOKE came: it was only late");
        assert!(matches!(renewal.op, Op::Renew { .. }));
        assert_eq!(after, most);
    }
    // With an INVOKE of its own invocation it need not wait; with another's it ends.
    for (scope, goes_on) in [(1, true), (2, false)] {
        let mut script = Script::new();
        let ask = Acquire { scope: Some(1), ..acquire(1, KEY, 20_000, 0) };
        let put = one_send(&script.give(Input::Acquire(ask)));
        script.answer(&put, Answer::Done);
        script.jump(10 * SECOND);
        script.tick();
        let outputs = script.give(Input::InvocationBegan { scope, remaining: None });
        assert_eq!((renewals(&outputs) == 1, lost(&outputs, 1).is_none()), (goes_on, goes_on), "{outputs:?}");
    }
}

#[test]
fn where_nothing_freezes_invocations_end_nothing_and_renewals_wait_for_nothing() {
    let mut script = Script::with(Config { freezes: false, memory: 16 });
    let ask = Acquire { scope: Some(1), ..acquire(1, KEY, 20_000, 0) };
    let put = one_send(&script.give(Input::Acquire(ask)));
    script.answer(&put, Answer::Done);
    script.jump(10 * SECOND);
    assert_eq!(renewals(&script.tick()), 1);
    script.give(Input::InvocationBegan { scope: 2, remaining: Some(0) });
    assert!(script.valid(1).is_some());
}

#[test]
fn the_earlier_of_the_clients_and_the_invokes_deadline_ends_a_lease() {
    for (clients, invokes) in [(5, 3), (3, 5)] {
        let mut script = Script::new();
        let ask = Acquire { scope: Some(1), remaining: Some(clients * SECOND), ..acquire(1, KEY, 3_000, SECOND) };
        let put = one_send(&script.give(Input::Acquire(ask)));
        script.answer(&put, Answer::Done);
        script.give(Input::InvocationBegan { scope: 1, remaining: Some(invokes * SECOND) });
        let (mut passed, mut outputs) = (0, Vec::new());
        while lost(&outputs, 1).is_none() {
            outputs = script.pass(10 * MS);
            passed += 10;
            for request in sends(&outputs) {
                outputs.extend(script.answer(&request, Answer::Done));
            }
        }
        assert_eq!((passed, lost(&outputs, 1)), (3_000, Some(LostReason::Deadline)));
    }
}

#[test]
fn a_wait_ends_with_its_invocation_and_leaves_nothing() {
    let mut script = Script::new();
    script.give(Input::InvocationBegan { scope: 1, remaining: Some(2 * SECOND) });
    let ask = Acquire { scope: Some(1), remaining: Some(2 * SECOND), ..acquire(1, KEY, 20_000, 60 * SECOND) };
    let put = one_send(&script.give(Input::Acquire(ask)));
    // The next INVOKE comes while the Put is under way; it lands all the same, and is taken away.
    let outputs = script.give(Input::InvocationBegan { scope: 2, remaining: None });
    assert_eq!(outputs, [Output::Refused(1, Refused::GivenUp(LostReason::Thaw))]);
    let delete = one_send(&script.answer(&put, Answer::Done));
    assert!(matches!(delete.op, Op::Delete { owner } if owner == row_of(&put).owner));
    script.answer(&delete, Answer::Done);
    assert!(script.core.is_idle());
}

#[test]
fn with_no_time_left_nothing_is_sent() {
    let mut script = Script::new();
    let late = Acquire { scope: Some(2), remaining: Some(0), ..acquire(2, KEY, 20_000, SECOND) };
    assert_eq!(script.give(Input::Acquire(late)), [Output::Refused(2, Refused::BudgetExhausted)]);
}

/// Invocation 1 is over, invocation 2 is the present one.
fn second_invocation() -> Script {
    let mut script = Script::new();
    for scope in [1, 2] {
        script.give(Input::InvocationBegan { scope, remaining: Some(60 * SECOND) });
    }
    script
}

fn of_the_first(lease: u64) -> Input<u64> {
    Input::Acquire(Acquire { scope: Some(1), remaining: Some(60 * SECOND), ..acquire(lease, KEY, 20_000, SECOND) })
}

#[test]
fn for_an_invocation_that_is_over_nothing_is_sent() {
    let mut script = second_invocation();
    assert_eq!(script.give(of_the_first(1)), []);
    assert_eq!(script.pass(100 * MS - 1), []);
    assert_eq!(script.pass(1), [Output::Refused(1, Refused::BudgetExhausted)]);
    assert!(script.core.is_idle());
}

/// Lambda repeats a failed asynchronous invocation under its old id, perhaps in the same environment.
#[test]
fn a_repeated_invocation_may_acquire_a_little_before_its_invoke() {
    let mut script = second_invocation();
    assert_eq!(script.give(of_the_first(1)), []);
    assert_eq!(script.pass(50 * MS), []);
    let put = one_send(&script.give(Input::InvocationBegan { scope: 1, remaining: Some(60 * SECOND) }));
    assert!(granted(&script.answer(&put, Answer::Done), 1));
    script.pass(200 * MS);
    assert!(script.valid(1).is_some());
}

#[test]
fn an_acquire_that_waits_for_its_invoke_can_be_taken_back_given_up_or_shut_down() {
    for (end, refused) in [
        (Input::Release(1), Refused::TakenBack),
        (Input::GiveUp(1, LostReason::ExtensionFailed), Refused::GivenUp(LostReason::ExtensionFailed)),
        (Input::Drain, Refused::GivenUp(LostReason::Shutdown)),
        (Input::Shutdown, Refused::GivenUp(LostReason::Shutdown)),
    ] {
        let mut script = second_invocation();
        script.give(of_the_first(1));
        assert!(!script.core.is_idle());
        assert_eq!(script.give(end), [Output::Refused(1, refused)]);
        assert!(script.core.is_idle());
        assert_eq!(script.give(Input::InvocationBegan { scope: 1, remaining: None }), []);
    }
}

#[test]
fn the_longest_hold_counts_from_the_grant() {
    let mut script = Script::new();
    let ask = Acquire { max_hold: Some(2 * SECOND), ..acquire(1, KEY, 20_000, SECOND) };
    let put = one_send(&script.give(Input::Acquire(ask)));
    script.pass(500 * MS);
    script.answer(&put, Answer::Done);
    assert_eq!(lost(&script.pass(2 * SECOND - 1), 1), None);
    assert_eq!(lost(&script.pass(1), 1), Some(LostReason::MaxHold));
}

/// A dead holder's row is taken over between the stored lease after its last write and that plus the longest poll and two
/// round trips: the observation starts with the first reply that shows the last version.
#[test]
fn a_waiting_contender_takes_a_dead_holders_lock_no_earlier_and_little_later_than_its_lease() {
    let mut rng = Rng::new(4);
    let mut worst = 0;
    for round in 0..500 {
        let lease_ms = rng.pick(&[500, 3_000, 20_000]);
        let one_way = rng.between(0, 20) * MS;
        // The holder's last renewal is committed at `last`; it dies right after.
        let last = rng.below(lease_ms * MS / 3);
        let late = taken_over(lease_ms, one_way, last) - last - lease_ms * MS;
        worst = worst.max(late);
        assert!(late <= 120 * MS + 4 * one_way, "round {round}: {late} µs late, one way {one_way}");
    }
    assert!(worst > 100 * MS, "the bound is not idle: {worst}");
}

/// When the contender's takeover is committed, the row having changed for the last time at `last`.
fn taken_over(lease_ms: u64, one_way: u64, last: u64) -> u64 {
    let (before, after) = (row(1, 2, lease_ms), row(1, 3, lease_ms));
    let mut script = Script::new();
    let mut clock = 0;
    // What is on its way: when it arrives, and with which answer it comes back.
    let mut flying = Vec::new();
    let first = script.give(Input::Acquire(acquire(1, KEY, 1_000, 120 * SECOND)));
    flying.extend(sends(&first).into_iter().map(|request| (one_way, request, None)));
    loop {
        let wake = script.core.next_wakeup().map(|delay| clock + delay);
        let next = flying.iter().map(|(at, _, _)| *at).chain(wake).min().expect("something is due");
        script.jump(next - clock);
        clock = next;
        let mut outputs = Vec::new();
        match flying.iter().position(|(at, _, _)| *at <= clock) {
            None => outputs = script.tick(),
            Some(at) => match flying.remove(at) {
                (_, request, Some(answer)) => outputs = script.answer(&request, answer),
                (_, request, None) => {
                    let stands = if clock < last { &before } else { &after };
                    let answer = match &request.op {
                        Op::Read => Answer::Found(shows(stands)),
                        Op::Replace { version, .. } if *version == stands.version => return clock,
                        _ => Answer::Failed(shows(stands)),
                    };
                    flying.push((clock + one_way, request, Some(answer)));
                }
            },
        }
        flying.extend(sends(&outputs).into_iter().map(|request| (clock + one_way, request, None)));
    }
}

#[test]
fn an_own_row_that_was_replaced_or_deleted_while_it_waited_for_its_renewal_is_acquired_anew() {
    for seen in [Seen::Nothing, Seen::Row(row(5, 6, 1_000))] {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 60 * SECOND))));
        script.pass(SECOND);
        script.answer(&put, Answer::Unknown("time-out".into()));
        let (again, _) = script.until_send(SECOND).expect("a retry");
        script.step(4 * SECOND, 0, 0);
        script.answer(&again, Answer::Unknown("time-out".into()));
        let (third, _) = script.until_send(SECOND).expect("a retry");
        let outputs = script.answer(&third, Answer::Failed(shows(&row_of(&put))));
        assert!(!granted(&outputs, 1), "{outputs:?}");
        let renewal = match sends(&outputs).pop() {
            Some(renewal) => renewal,
            None => script.until_send(SECOND).expect("a renewal").0,
        };
        assert!(matches!(renewal.op, Op::Renew { .. }), "{renewal:?}");
        let free = seen == Seen::Nothing;
        let outputs = script.answer(&renewal, Answer::Failed(seen));
        assert!(!outputs.iter().any(|output| matches!(output, Output::Lost(..) | Output::Refused(..))));
        let next = sends(&outputs).pop().unwrap_or_else(|| script.until_send(5 * SECOND).expect("it goes on").0);
        assert!(free || next.op == Op::Read, "another's row is observed: {next:?}");
        let outputs = match next.op {
            Op::Read => {
                let put = one_send(&script.answer(&next, Answer::Found(Seen::Nothing)));
                script.answer(&put, Answer::Done)
            }
            _ => script.answer(&next, Answer::Done),
        };
        assert!(granted(&outputs, 1), "{outputs:?}");
    }
}
