//! The protocol's timing rules that a contender lives by, one by one: rules 2, 7, 8, 9 and 10.

mod common;

use common::{MS, SECOND, Script, acquire, granted, one_send, row, row_of, sends, shows};
use leasekeeper_core::{Answer, Input, LostReason, Op, Output, Refusal, Refused, Row, Seen, StoreRequest};

const KEY: u64 = 7;

fn refused(outputs: &[Output<u64>], id: u64) -> Option<Refused<u64>> {
    outputs.iter().find_map(|output| match output {
        Output::Refused(lease, why) if *lease == id => Some(why.clone()),
        _ => None,
    })
}

fn replaces(request: &StoreRequest<u64>, old: &Row<u64>) -> bool {
    matches!(request.op, Op::Replace { owner, version, .. } if (owner, version) == (old.owner, old.version))
}

/// Answers every read with this row until something else is sent or `most` is over: how long it took, and the pauses.
fn poll(script: &mut Script, stands: &Row<u64>, most: u64) -> (Option<StoreRequest<u64>>, u64, Vec<u64>) {
    let (mut passed, mut pauses) = (0, Vec::new());
    while let Some((request, after)) = script.until_send(most - passed) {
        passed += after;
        if request.op != Op::Read {
            return (Some(request), passed, pauses);
        }
        pauses.push(after);
        let more = script.answer(&request, Answer::Found(shows(stands)));
        if let Some(request) = sends(&more).pop() {
            return (Some(request), passed, pauses);
        }
    }
    (None, passed, pauses)
}

// Rule 2: observation and takeover.

#[test]
fn a_row_is_taken_over_when_it_stayed_unchanged_for_the_stored_lease_since_the_first_reply_and_at_that_moment() {
    for (own, stored) in [(10_000, 3_000), (3_000, 10_000), (100, 100)] {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, own, 60 * SECOND))));
        script.pass(10 * MS);
        let other = row(1, 2, stored);
        script.answer(&put, Answer::Failed(shows(&other)));
        let (takeover, passed, _) = poll(&mut script, &other, 60 * SECOND);
        let takeover = takeover.expect("a takeover");
        assert!(replaces(&takeover, &other), "{takeover:?}");
        assert_eq!(passed, stored * MS, "from the reply on, to the microsecond");
        assert_eq!(row_of(&takeover).lease_ms, own);
    }
}

#[test]
fn any_change_of_owner_version_or_lease_restarts_the_observation() {
    for change in [row(9, 2, 1_000), row(1, 9, 1_000), row(1, 2, 1_001)] {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 1_000, 60 * SECOND))));
        script.answer(&put, Answer::Failed(shows(&row(1, 2, 1_000))));
        let (takeover, passed, _) = poll(&mut script, &row(1, 2, 1_000), 900 * MS);
        assert!(takeover.is_none(), "after {passed}");
        let (read, _) = script.until_send(SECOND).expect("a read");
        assert_eq!(read.op, Op::Read);
        script.answer(&read, Answer::Found(shows(&change)));
        let (takeover, passed, _) = poll(&mut script, &change, 60 * SECOND);
        assert!(takeover.is_some_and(|takeover| replaces(&takeover, &change)));
        assert_eq!(passed, change.lease_ms * MS);
    }
}

#[test]
fn only_the_slower_of_boot_and_monotonic_clock_ripens_a_row_and_the_wall_clock_never() {
    for (boot, mono, wall) in [(SECOND, 0, 0), (0, SECOND, 0), (0, 0, SECOND), (SECOND, 0, SECOND), (0, SECOND, SECOND)]
    {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 1_000, 60 * SECOND))));
        script.answer(&put, Answer::Failed(shows(&row(1, 2, 1_000))));
        script.step(boot, mono, wall as i64);
        let sent = sends(&script.tick());
        assert!(sent.iter().all(|request| request.op == Op::Read), "{sent:?}");
    }
}

#[test]
fn a_takeover_that_comes_too_late_observes_the_new_row_and_waits_again() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 1_000, 60 * SECOND))));
    let (old, new) = (row(1, 2, 1_000), row(1, 3, 1_000));
    script.answer(&put, Answer::Failed(shows(&old)));
    let (takeover, _, _) = poll(&mut script, &old, 60 * SECOND);
    let outputs = script.answer(&takeover.expect("a takeover"), Answer::Failed(shows(&new)));
    assert!(outputs.is_empty(), "a failed condition is as good as a read: {outputs:?}");
    let (takeover, passed, _) = poll(&mut script, &new, 60 * SECOND);
    assert!(takeover.is_some_and(|takeover| replaces(&takeover, &new)));
    assert_eq!(passed, SECOND);
}

#[test]
fn what_was_seen_of_a_row_before_this_environment_held_it_is_no_condition_later() {
    let mut script = Script::new();
    script.hold(1, KEY, 1_000, 0);
    // An attempt that does not wait sees the row; one that waits is there when its holder is given up.
    let put = one_send(&script.give(Input::Acquire(acquire(2, KEY, 1_000, 0))));
    let stands = row(1_000_000, 1_000_001, 1_000);
    script.answer(&put, Answer::Failed(shows(&stands)));
    assert!(script.give(Input::Acquire(acquire(3, KEY, 1_000, 60 * SECOND))).is_empty());
    for _ in 0..6 {
        let (renewal, _) = script.until_send(SECOND).expect("a renewal");
        assert!(matches!(renewal.op, Op::Renew { .. }), "{renewal:?}");
        script.answer(&renewal, Answer::Done);
    }
    // The row was seen more than a lease ago; its holder is given up while its client may still believe.
    let outputs = script.give(Input::GiveUp(1, LostReason::Deadline));
    assert!(sends(&outputs).iter().all(|request| request.op == Op::Read), "{outputs:?}");
}

// Rule 7: waiting.

#[test]
fn polls_start_at_20_ms_double_to_100_and_spread_by_a_fifth() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 60 * SECOND))));
    let other = row(1, 2, 10_000);
    script.answer(&put, Answer::Failed(shows(&other)));
    let (_, _, pauses) = poll(&mut script, &other, SECOND);
    assert_eq!(pauses[..5], [20 * MS, 40 * MS, 80 * MS, 100 * MS, 100 * MS]);
}

#[test]
fn polls_are_never_further_apart_than_a_sixth_of_the_stored_lease() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 60 * SECOND))));
    let other = row(1, 2, 300);
    script.answer(&put, Answer::Failed(shows(&other)));
    let (_, _, pauses) = poll(&mut script, &other, 290 * MS);
    assert!(pauses.iter().all(|pause| *pause <= 50 * MS), "{pauses:?}");
}

#[test]
fn polls_slow_down_while_throttled_and_speed_up_again() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 60_000, 300 * SECOND))));
    let other = row(1, 2, 60_000);
    script.answer(&put, Answer::Failed(shows(&other)));
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let (read, after) = script.until_send(10 * SECOND).expect("a read");
        pauses.push(after / MS);
        script.answer(&read, Answer::Throttled("slow down".into()));
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
    let (read, _) = script.until_send(10 * SECOND).expect("a read");
    script.answer(&read, Answer::Found(shows(&other)));
    assert_eq!(script.until_send(10 * SECOND).expect("a read").1, 100 * MS);
}

#[test]
fn waiters_of_one_key_share_one_poller_and_are_served_in_order() {
    let mut script = Script::new();
    let other = row(1, 2, 10_000);
    let puts: Vec<_> =
        (1..=5).map(|lease| one_send(&script.give(Input::Acquire(acquire(lease, KEY, 10_000, 60 * SECOND))))).collect();
    for put in puts {
        script.answer(&put, Answer::Failed(shows(&other)));
    }
    let (_, _, pauses) = poll(&mut script, &other, 2 * SECOND);
    assert!(pauses.len() <= 25, "{} reads in two seconds for five waiters", pauses.len());
    let (read, _) = script.until_send(SECOND).expect("a read");
    let put = one_send(&script.answer(&read, Answer::Found(Seen::Nothing)));
    assert_eq!(put.lease, 1);
    script.answer(&put, Answer::Done);
    let mut order = vec![1];
    for holder in 1..5 {
        let outputs = script.give(Input::Release(holder));
        let next = one_send(&outputs);
        order.push(next.lease);
        let mut outputs = script.answer(&next, Answer::Done);
        if let Op::Delete { .. } = next.op {
            order.pop();
            // Remote contenders have their turn; then the poller finds the key free.
            let (read, _) = script.until_send(SECOND).expect("a read");
            let put = one_send(&script.answer(&read, Answer::Found(Seen::Nothing)));
            order.push(put.lease);
            outputs = script.answer(&put, Answer::Done);
        }
        assert!(granted(&outputs, holder + 1), "{outputs:?}");
    }
    assert_eq!(order, [1, 2, 3, 4, 5]);
}

#[test]
fn a_waiter_that_comes_later_overtakes_nobody_and_asks_nothing_that_is_known() {
    let mut script = Script::new();
    let other = row(1, 2, 10_000);
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 60 * SECOND))));
    script.answer(&put, Answer::Failed(shows(&other)));
    assert!(sends(&script.give(Input::Acquire(acquire(2, KEY, 10_000, 300 * MS)))).is_empty());
    // Without waiting there is still one attempt.
    assert_eq!(one_send(&script.give(Input::Acquire(acquire(3, KEY, 10_000, 0)))).lease, 3);
    let outputs = script.pass(300 * MS);
    assert!(matches!(refused(&outputs, 2), Some(Refused::Busy { holder, .. }) if holder == other), "{outputs:?}");

    let mut script = Script::new();
    let held = script.hold(1, KEY, 10_000, 0);
    for (lease, wait) in [(2, 300 * MS), (3, 60 * SECOND)] {
        assert!(sends(&script.give(Input::Acquire(acquire(lease, KEY, 10_000, wait)))).is_empty());
    }
    let outputs = script.pass(300 * MS);
    assert!(matches!(refused(&outputs, 2), Some(Refused::Busy { holder, .. }) if holder == held), "{outputs:?}");
    let put = one_send(&script.give(Input::Release(1)));
    assert!(put.lease == 3 && replaces(&put, &held));
}

#[test]
fn waiters_share_their_retries_too_while_the_store_throttles() {
    let mut script = Script::new();
    let mut todo = Vec::new();
    for lease in 1..=8 {
        todo.push(one_send(&script.give(Input::Acquire(acquire(lease, KEY, 10_000, 300 * SECOND)))));
    }
    let (mut passed, mut requests) = (0, 0);
    while passed < 60 * SECOND {
        for request in std::mem::take(&mut todo) {
            requests += 1;
            todo.extend(sends(&script.answer(&request, Answer::Throttled("slow down".into()))));
        }
        todo.extend(sends(&script.pass(10 * MS)));
        passed += 10 * MS;
    }
    assert!(requests < 8 + 2 * 66, "{requests} requests in a minute");
    // Nobody is forgotten: when the store answers again, the first one gets the lock and the others hear of it.
    let mut holder = None;
    while holder.is_none() && passed < 120 * SECOND {
        for request in std::mem::take(&mut todo) {
            let free = matches!(request.op, Op::Read);
            let outputs = script.answer(&request, if free { Answer::Found(Seen::Nothing) } else { Answer::Done });
            holder = holder.or((1..=8).find(|lease| granted(&outputs, *lease)));
            todo.extend(sends(&outputs));
        }
        todo.extend(sends(&script.pass(10 * MS)));
        passed += 10 * MS;
    }
    assert!(holder.is_some());
}

#[test]
fn when_the_first_waiter_leaves_the_next_one_polls() {
    let mut script = Script::new();
    let other = row(1, 2, 10_000);
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 300 * MS))));
    script.answer(&put, Answer::Failed(shows(&other)));
    assert!(script.give(Input::Acquire(acquire(2, KEY, 10_000, 60 * SECOND))).is_empty());
    // The first one's budget ends while its poll is under way.
    let (read, _) = script.until_send(SECOND).expect("a read");
    assert_eq!(read.lease, 1);
    let outputs = script.pass(400 * MS);
    assert!(matches!(refused(&outputs, 1), Some(Refused::Busy { .. })), "{outputs:?}");
    script.answer(&read, Answer::Found(shows(&other)));
    let (takeover, _, _) = poll(&mut script, &other, 60 * SECOND);
    assert!(takeover.is_some_and(|takeover| takeover.lease == 2 && replaces(&takeover, &other)));
}

#[test]
fn busy_tells_how_long_the_row_was_seen_and_when_it_is_worth_coming_back() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 0))));
    let other = row(1, 2, 5_000);
    let outputs = script.answer(&put, Answer::Failed(shows(&other)));
    let busy = Refused::Busy { holder: other.clone(), unchanged: 0, retry_after: 5 * SECOND };
    assert_eq!(outputs, [Output::Refused(1, busy)]);
    script.jump(2 * SECOND);
    let put = one_send(&script.give(Input::Acquire(acquire(2, KEY, 10_000, 0))));
    let outputs = script.answer(&put, Answer::Failed(shows(&other)));
    let busy = Refused::Busy { holder: other, unchanged: 2 * SECOND, retry_after: 3 * SECOND };
    assert_eq!(outputs, [Output::Refused(2, busy)]);
}

// Rule 8: observations outlive the waits.

#[test]
fn short_and_zero_waits_in_successive_invocations_recover_an_abandoned_lock_together() {
    for wait in [0, 30 * MS] {
        let mut script = Script::new();
        let abandoned = row(1, 2, 3_000);
        let (mut lease, mut seen_for) = (0, 0);
        let won = loop {
            lease += 1;
            script.give(Input::InvocationBegan { scope: lease, remaining: Some(SECOND) });
            let put = one_send(&script.give(Input::Acquire(acquire(lease, KEY, 3_000, wait))));
            if replaces(&put, &abandoned) {
                break granted(&script.answer(&put, Answer::Done), lease);
            }
            script.answer(&put, Answer::Failed(shows(&abandoned)));
            while let Some((read, _)) = script.until_send(100 * MS) {
                script.answer(&read, Answer::Found(shows(&abandoned)));
            }
            assert!(script.core.is_idle());
            script.jump(400 * MS);
            script.tick();
            seen_for += 400;
            assert!(seen_for < 4_000, "never recovered");
        };
        assert!(won && lease > 3);
    }
}

// Rule 9: transient and permanent.

#[test]
fn transient_answers_are_retried_within_the_budget_and_permanent_ones_end_it_at_once() {
    let transient = [
        Answer::Throttled("ThrottlingException".into()),
        Answer::Throttled("TransactionConflict".into()),
        Answer::Unavailable("connection refused".into()),
        Answer::Unknown("internal error".into()),
    ];
    for answer in transient {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, SECOND))));
        let outputs = script.answer(&put, answer.clone());
        assert!(outputs.is_empty(), "{answer:?}: {outputs:?}");
        let (again, after) = script.until_send(SECOND).expect("a retry");
        assert_eq!(after, 20 * MS);
        assert_ne!(row_of(&again).owner, row_of(&put).owner, "every Put has an owner of its own");
        assert!(granted(&script.answer(&again, Answer::Done), 1));
    }
    for refusal in [Refusal::Denied, Refusal::Config] {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, SECOND))));
        let outputs = script.answer(&put, Answer::Denied(refusal, "no".into()));
        assert_eq!(outputs, [Output::Refused(1, Refused::Denied(refusal, "no".into()))]);
        assert!(script.core.is_idle());
    }
}

#[test]
fn a_poll_that_is_denied_or_shows_another_librarys_row_ends_every_wait() {
    let denied = Answer::Denied(Refusal::Denied, "no reads".into());
    let foreign = Answer::Found(Seen::Foreign("no protocol".into()));
    for answer in [denied, foreign] {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, SECOND))));
        script.answer(&put, Answer::Failed(shows(&row(1, 2, 10_000))));
        assert!(script.give(Input::Acquire(acquire(2, KEY, 10_000, SECOND))).is_empty());
        let (read, _) = script.until_send(SECOND).expect("a read");
        let outputs = script.answer(&read, answer);
        assert!(refused(&outputs, 1).is_some() && refused(&outputs, 2).is_some() && outputs.len() == 2, "{outputs:?}");
        assert!(script.core.is_idle());
    }
}

#[test]
fn a_foreign_row_is_refused_at_once_without_any_write() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 60 * SECOND))));
    let outputs = script.answer(&put, Answer::Failed(Seen::Foreign("lease_ms is a string".into())));
    assert_eq!(outputs, [Output::Refused(1, Refused::Foreign("lease_ms is a string".into()))]);
}

// Rule 10: hand-over inside one environment.

/// One holder and its waiters in one environment.
fn crowd(waiters: u64) -> (Script, Row<u64>) {
    let mut script = Script::new();
    let held = script.hold(1, KEY, 10_000, 0);
    for lease in 2..2 + waiters {
        assert!(script.give(Input::Acquire(acquire(lease, KEY, 10_000, 60 * SECOND))).is_empty());
    }
    (script, held)
}

#[test]
fn a_hand_over_is_one_put_on_our_own_owner_and_last_version_after_the_guard_is_final() {
    let (mut script, held) = crowd(2);
    assert_eq!(script.until_send(SECOND), None, "nobody polls a row that is held here");
    let put = one_send(&script.give(Input::Release(1)));
    assert_eq!(script.core.valid_for(1), None);
    assert!(put.lease == 2 && replaces(&put, &held) && row_of(&put).owner != held.owner);
    script.pass(10 * MS);
    let outputs = script.answer(&put, Answer::Done);
    assert!(outputs.contains(&Output::Released { lease: 1, confirmed: true }) && granted(&outputs, 2));
    assert!(sends(&outputs).is_empty(), "one request in all");
}

#[test]
fn at_most_three_hand_overs_in_a_row_then_remote_contenders_have_their_turn() {
    let (mut script, _) = crowd(5);
    let mut in_a_row = 0;
    let delete = loop {
        let request = one_send(&script.give(Input::Release(in_a_row + 1)));
        let Op::Replace { .. } = request.op else { break request };
        in_a_row += 1;
        assert!(granted(&script.answer(&request, Answer::Done), in_a_row + 1));
    };
    assert_eq!(in_a_row, 3);
    assert!(matches!(delete.op, Op::Delete { .. }));
    let outputs = script.answer(&delete, Answer::Done);
    assert!(sends(&outputs).is_empty(), "{outputs:?}");
    let (read, after) = script.until_send(SECOND).expect("a look after the pause");
    assert_eq!((read.op.clone(), after), (Op::Read, 100 * MS));
    // A remote contender used its turn; then hand-overs go on with what comes back.
    let put = one_send(&script.answer(&read, Answer::Found(Seen::Nothing)));
    assert!(granted(&script.answer(&put, Answer::Done), 5));
    assert!(matches!(one_send(&script.give(Input::Release(5))).op, Op::Replace { .. }));
}

#[test]
fn a_hand_over_of_unknown_outcome_loses_neither_the_heir_nor_the_release() {
    for landed in [true, false] {
        let (mut script, held) = crowd(1);
        let put = one_send(&script.give(Input::Release(1)));
        let stands = if landed { row_of(&put) } else { held.clone() };
        let mut outputs = script.answer(&put, Answer::Unknown("time-out".into()));
        let (mut released, mut heir, mut rounds) = (false, false, 0);
        let mut row_stands = Some(stands);
        let mut todo: Vec<_> = sends(&outputs);
        while !(released && heir) {
            rounds += 1;
            assert!(rounds < 20, "released {released}, heir {heir}");
            if todo.is_empty() {
                todo.extend(script.until_send(SECOND).map(|(request, _)| request));
            }
            let request = todo.remove(0);
            let seen = row_stands.as_ref().map_or(Seen::Nothing, shows);
            let answer = match (&request.op, &row_stands) {
                (Op::Delete { owner }, Some(row)) if *owner == row.owner => {
                    row_stands = None;
                    Answer::Done
                }
                (Op::Create { row }, None) => {
                    row_stands = Some(row.clone());
                    Answer::Done
                }
                (Op::Replace { row, owner, version }, Some(old)) if (*owner, *version) == (old.owner, old.version) => {
                    row_stands = Some(row.clone());
                    Answer::Done
                }
                (Op::Read, _) => Answer::Found(seen),
                _ => Answer::Failed(seen),
            };
            outputs = script.answer(&request, answer);
            todo.extend(sends(&outputs));
            released |= outputs.contains(&Output::Released { lease: 1, confirmed: true });
            heir |= granted(&outputs, 2);
        }
    }
}

#[test]
fn a_hand_over_that_hangs_leaves_time_to_delete() {
    let mut script = Script::new();
    let held = script.hold(1, KEY, 100, 0);
    // The heir's lease is long, and so is its time-out: longer than the whole clean-up of the short lease.
    assert!(script.give(Input::Acquire(acquire(2, KEY, 60_000, 300 * SECOND))).is_empty());
    let put = one_send(&script.give(Input::Release(1)));
    script.pass(put.timeout);
    let outputs = script.answer(&put, Answer::Unknown("time-out".into()));
    let sent = sends(&outputs);
    let delete = sent.iter().find(|request| matches!(request.op, Op::Delete { owner } if owner == held.owner));
    let outputs = script.answer(delete.expect("the row is deleted"), Answer::Done);
    assert!(outputs.contains(&Output::Released { lease: 1, confirmed: true }));
}
