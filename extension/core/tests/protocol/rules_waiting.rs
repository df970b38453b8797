//! The protocol's timing rules that a contender lives by, one by one: rules 2, 7, 8 and 9.

use crate::script::{MS, SECOND, Script, acquire, granted, one_send, row, row_of, sends, shows};
use leasekeeper_core::{Answer, Config, Input, LostReason, Op, Output, Refusal, Refused, Row, Seen, StoreRequest};

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
    assert_eq!(pauses[0], 20 * MS, "the first one's answer sets the pace, the others' do not slow it down");
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

#[test]
fn holders_renewals_go_before_waiters_polls() {
    let mut script = Script::with(Config { freezes: false, memory: 16 });
    script.hold(1, 100, 3_000, 0);
    let put = one_send(&script.give(Input::Acquire(acquire(2, KEY, 3_000, 60 * SECOND))));
    script.answer(&put, Answer::Failed(shows(&row(1, 2, 60_000))));
    script.hold(3, 101, 3_000, 0);
    script.jump(SECOND);
    let sent = sends(&script.tick());
    let renewals: Vec<_> = sent.iter().map(|request| matches!(request.op, Op::Renew { .. })).collect();
    assert_eq!(renewals, [true, true, false], "{sent:?}");
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
