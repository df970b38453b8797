//! The protocol's edges: the very microsecond, the second jump, the outcome that a later look settles.

use crate::common::{MS, SECOND};
use crate::script::{Script, acquire, one_send, row, row_of, sends, shows};
use leasekeeper_core::{Acquire, Answer, Input, LostReason, Op, Output, Refused, Seen};

const KEY: u64 = 7;
const LEASE_MS: u64 = 3_000;

fn unknown() -> Answer<u64> {
    Answer::Unknown("time-out".into())
}

/// Renewals and thaws among the outputs, in order.
fn after_jump(outputs: &[Output<u64>]) -> (bool, bool) {
    let renews = sends(outputs).iter().any(|request| matches!(request.op, Op::Renew { .. }));
    (outputs.contains(&Output::Thawed), renews)
}

#[test]
fn a_reading_is_late_from_a_microsecond_beyond_cadence_and_allowance_on() {
    for (beyond, late) in [(0, false), (1, true)] {
        let mut script = Script::new();
        script.hold(1, KEY, LEASE_MS, 0);
        // The clocks are read every tenth of a second, and a reading may be a quarter of a second late.
        script.jump(350 * MS + beyond);
        assert_eq!(script.tick().contains(&Output::Thawed), late, "{beyond} µs beyond");
    }
}

#[test]
fn a_second_late_reading_prolongs_the_wait_for_an_invoke_and_a_third_does_not() {
    let mut script = Script::new();
    script.hold(1, KEY, LEASE_MS, 0);
    script.pass(800 * MS);
    let seen: Vec<_> = (0..3)
        .map(|_| {
            script.jump(400 * MS);
            after_jump(&script.tick())
        })
        .collect();
    // At the third the process is starved rather than frozen: to wait on would lose the lease.
    assert_eq!(seen, [(true, false), (true, false), (true, true)]);
}

#[test]
fn a_jump_counts_for_an_acquire_whose_put_might_have_been_granted_before_it() {
    for (waited, thawed) in [(2_600, true), (2_700, false)] {
        let mut script = Script::new();
        script.pass(5 * SECOND);
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, LEASE_MS, 60 * SECOND))));
        script.answer(&put, unknown());
        // Its retries say for certain that they wrote nothing, so only the first may stand.
        let mut passed = 0;
        while passed < waited {
            for retry in sends(&script.pass(MS)) {
                script.answer(&retry, Answer::Unavailable("no connection".into()));
            }
            passed += 1;
        }
        script.jump(SECOND);
        assert_eq!(script.tick().contains(&Output::Thawed), thawed, "after {waited} ms");
    }
}

#[test]
fn a_takeover_of_unknown_outcome_is_over_once_a_later_look_shows_that_its_row_is_gone() {
    for later in [Seen::Nothing, shows(&row(3, 4, 60_000)), shows(&row(1, 9, 60_000))] {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, LEASE_MS, 4 * SECOND))));
        let old = row(1, 2, LEASE_MS);
        script.answer(&put, Answer::Failed(shows(&old)));
        let takeover = loop {
            let (request, _) = script.until_send(4 * SECOND).expect("it polls, then takes over");
            match request.op {
                Op::Read => script.answer(&request, Answer::Found(shows(&old))),
                _ => break request,
            };
        };
        script.answer(&takeover, unknown());
        // The row it was to replace stands still: the takeover may yet land, and is asked for when the wait ends.
        let (retry, _) = script.until_send(SECOND).expect("it tries again");
        assert!(matches!(retry.op, Op::Replace { .. }), "{retry:?}");
        let mut outputs = script.answer(&retry, Answer::Failed(later.clone()));
        // Whatever is seen afterwards stays as it is.
        let mut deletes = Vec::new();
        for _ in 0..4_000 {
            for request in sends(&outputs) {
                let stands = shows(&row(3, 4, 60_000));
                match request.op {
                    Op::Read => drop(script.answer(&request, Answer::Found(stands))),
                    Op::Delete { .. } => deletes.push(request),
                    _ => drop(script.answer(&request, Answer::Failed(stands))),
                }
            }
            outputs = script.pass(MS);
        }
        assert_eq!(deletes, [], "{later:?}: neither takeover can stand or appear");
        assert!(script.core.is_idle(), "{later:?}");
    }
}

#[test]
fn a_takeover_of_unknown_outcome_is_not_over_by_an_answer_to_what_was_sent_before_it() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, LEASE_MS, 3_500 * MS))));
    let old = row(1, 2, LEASE_MS);
    script.answer(&put, Answer::Failed(shows(&old)));
    // A poll is under way when the row ripens: its answer tells an older state.
    let mut before = None;
    let mut passed = 0;
    let takeover = loop {
        let outputs = script.pass(MS);
        passed += 1;
        let mut takeover = None;
        for request in sends(&outputs) {
            match request.op {
                Op::Read if passed > 2_850 => before = Some(request),
                Op::Read => drop(script.answer(&request, Answer::Found(shows(&old)))),
                _ => takeover = Some(request),
            }
        }
        assert!(passed < 3_400, "no takeover");
        if let Some(takeover) = takeover {
            break takeover;
        }
    };
    script.answer(&takeover, unknown());
    script.answer(&before.expect("it was sent"), Answer::Found(Seen::Nothing));
    let mut deleted = false;
    for _ in 0..3_000 {
        for request in sends(&script.pass(MS)) {
            deleted |= matches!(request.op, Op::Delete { owner } if owner == row_of(&takeover).owner);
            let answer = if matches!(request.op, Op::Read) { Answer::Found(shows(&old)) } else { unknown() };
            script.answer(&request, answer);
        }
    }
    assert!(deleted, "it may have landed: its owner is given back");
}

#[test]
fn a_row_of_ours_that_is_too_old_is_granted_unrenewed_at_the_very_end_of_the_wait() {
    let mut script = Script::new();
    let first = one_send(&script.give(Input::Acquire(acquire(1, KEY, LEASE_MS, 1_500 * MS))));
    let landed = row_of(&first);
    // Retries are refused without a word of the row, until one shows that the first had landed.
    let mut passed = 0;
    let mut last = Some(first);
    while passed < 1_300 {
        if let Some(request) = last.take() {
            script.answer(&request, if passed == 0 { unknown() } else { Answer::Unavailable("down".into()) });
        }
        last = sends(&script.pass(MS)).pop();
        passed += 1;
    }
    let retry = last.take().unwrap_or_else(|| script.until_send(SECOND).expect("a retry").0);
    let renewal = one_send(&script.answer(&retry, Answer::Failed(shows(&landed))));
    assert!(matches!(renewal.op, Op::Renew { .. }), "older than four tenths of the lease: {renewal:?}");
    let mut outputs = Vec::new();
    while !outputs.iter().any(|output| matches!(output, Output::Granted { .. })) {
        let step = script.core.next_wakeup().expect("the wait's end is due");
        outputs = script.pass(step);
    }
    let valid = 2_700 * MS - 1_500 * MS;
    assert!(outputs.contains(&Output::Granted { lease: 1, owner: landed.owner, valid }), "{outputs:?}");
}

#[test]
fn a_row_of_ours_is_granted_unrenewed_up_to_four_tenths_of_its_lease() {
    for (age, at_once) in [(1_200_000, true), (1_200_001, false)] {
        let mut script = Script::new();
        let first = one_send(&script.give(Input::Acquire(acquire(1, KEY, LEASE_MS, 60 * SECOND))));
        script.answer(&first, unknown());
        let (retry, passed) = script.until_send(SECOND).expect("a retry");
        script.answer(&retry, Answer::Unavailable("down".into()));
        let (retry, more) = script.until_send(SECOND).expect("another");
        // Its answer takes what is left of the age, though the core stops waiting for one much earlier.
        let mut flying = retry;
        let mut passed = passed + more;
        while passed < age {
            let step = script.core.next_wakeup().expect("it waits").min(age - passed);
            passed += step;
            flying = sends(&script.pass(step)).pop().unwrap_or(flying);
        }
        let outputs = script.answer(&flying, Answer::Failed(shows(&row_of(&first))));
        let valid = 2_700 * MS - age;
        let granted = outputs.contains(&Output::Granted { lease: 1, owner: row_of(&first).owner, valid });
        assert_eq!(granted, at_once, "{age} µs: {outputs:?}");
        assert!(script.tick().is_empty());
    }
}

#[test]
fn a_renewal_that_proves_committed_late_ends_the_danger_only_before_danger_begins_again() {
    for (at, recovered) in [(2_299_999, true), (2_300_000, false)] {
        let mut script = Script::new();
        script.hold(1, KEY, LEASE_MS, 0);
        script.pass(500 * MS);
        // A wall clock that steps back makes it renew early; none of the attempts is answered in time.
        script.step(0, 0, -1_000_000);
        let renewal = one_send(&script.tick());
        let Op::Renew { owner, new, .. } = renewal.op else { panic!("a renewal") };
        let mut last = None;
        let (mut passed, mut danger) = (500 * MS, false);
        while passed < at {
            let step = script.core.next_wakeup().expect("it is held").min(at - passed);
            passed += step;
            let outputs = script.pass(step);
            danger |= outputs.contains(&Output::Danger(1));
            last = sends(&outputs).pop().or(last);
        }
        assert!(danger);
        let committed = row(owner, new, LEASE_MS);
        let outputs = script.answer(&last.expect("another attempt"), Answer::Failed(shows(&committed)));
        assert!(outputs.contains(&Output::Renewed(1)), "{outputs:?}");
        assert_eq!(outputs.contains(&Output::Recovered(1)), recovered, "{outputs:?}");
    }
}

#[test]
fn a_row_of_ours_that_was_too_old_and_is_replaced_by_anothers_is_waited_for_like_any_other() {
    let mut script = Script::new();
    let first = one_send(&script.give(Input::Acquire(acquire(1, KEY, LEASE_MS, 60 * SECOND))));
    script.answer(&first, unknown());
    let mut retry = script.until_send(SECOND).expect("a retry").0;
    for _ in 0..40 {
        script.answer(&retry, Answer::Unavailable("down".into()));
        retry = script.until_send(SECOND).expect("a retry").0;
    }
    // Ours, but nobody may believe in it any more: it is taken over at once.
    let over = one_send(&script.answer(&retry, Answer::Failed(shows(&row_of(&first)))));
    assert!(matches!(&over.op, Op::Replace { owner, .. } if *owner == row_of(&first).owner), "{over:?}");
    assert_eq!(sends(&script.answer(&over, Answer::Failed(shows(&row(8, 9, 60_000))))), []);
    let (poll, after) = script.until_send(SECOND).expect("a poll");
    assert!(matches!(poll.op, Op::Read) && after >= 20 * MS, "{poll:?} after {after} µs");
}

#[test]
fn with_a_lock_goes_back_what_an_earlier_put_of_unknown_outcome_may_have_left() {
    let mut script = Script::new();
    let first = one_send(&script.give(Input::Acquire(acquire(1, KEY, 60_000, 60 * SECOND))));
    script.answer(&first, unknown());
    let second = script.until_send(SECOND).expect("it tries again").0;
    script.answer(&second, Answer::Done);
    let delete = one_send(&script.give(Input::Release(1)));
    assert_eq!(delete.op, Op::Delete { owner: row_of(&second).owner });
    let outputs = script.answer(&delete, Answer::Done);
    assert!(outputs.contains(&Output::Released { lease: 1, confirmed: true }), "{outputs:?}");
    let late = sends(&outputs).pop().or_else(|| script.until_send(SECOND).map(|(request, _)| request));
    assert_eq!(late.expect("the first is asked for too").op, Op::Delete { owner: row_of(&first).owner });
}

#[test]
fn of_the_puts_of_one_acquire_the_last_64_are_given_back_and_older_ones_are_known_as_given_up() {
    let mut script = Script::new();
    let mut put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 60_000, 600 * SECOND))));
    let mut owners = Vec::new();
    while owners.len() < 70 {
        owners.push(row_of(&put).owner);
        script.answer(&put, unknown());
        put = script.until_send(SECOND).expect("it tries again").0;
    }
    script.answer(&put, Answer::Unavailable("down".into()));
    let mut deletes = sends(&script.give(Input::Release(1)));
    // A round through all of them goes without a pause.
    let mut asked = Vec::new();
    while let Some(request) = deletes.pop() {
        let Op::Delete { owner } = request.op else { panic!("{request:?}") };
        asked.push(owner);
        deletes = sends(&script.answer(&request, Answer::Failed(Seen::Nothing)));
    }
    // The last Put, which never reached the store, pushed out a seventh before it was known to be none.
    assert_eq!(asked, owners[7..]);
    script.pass(60 * SECOND);
    assert!(script.core.is_idle());
    // Should the first have landed after all, its row is nobody's, and is taken over at once.
    let put = one_send(&script.give(Input::Acquire(acquire(2, KEY, 60_000, SECOND))));
    let landed = row(owners[0], 5, 60_000);
    let over = one_send(&script.answer(&put, Answer::Failed(shows(&landed))));
    assert!(matches!(over.op, Op::Replace { owner, .. } if owner == owners[0]), "{over:?}");
}

#[test]
fn a_deferred_acquire_has_what_is_left_of_its_wait_and_of_its_invocation() {
    // The wait ends first, then the invocation.
    for (wait, remaining, ends) in [(300, None, 300), (60_000, Some(400), 400)] {
        let mut script = Script::new();
        script.pass(5 * SECOND);
        script.give(Input::InvocationBegan { scope: 1, remaining: None });
        script.give(Input::InvocationBegan { scope: 2, remaining: None });
        let remaining = remaining.map(|remaining: u64| remaining * MS);
        let ask = Acquire { scope: Some(1), remaining, ..acquire(1, KEY, 60_000, wait * MS) };
        assert_eq!(script.give(Input::Acquire(ask)), []);
        script.pass(60 * MS);
        let put = one_send(&script.give(Input::InvocationBegan { scope: 1, remaining: None }));
        let other = row(8, 9, 60_000);
        let mut outputs = script.answer(&put, Answer::Failed(shows(&other)));
        let mut passed = 60;
        let refused = loop {
            for read in sends(&outputs) {
                script.answer(&read, Answer::Found(shows(&other)));
            }
            outputs = script.pass(MS);
            passed += 1;
            let refused = outputs.iter().find_map(|output| match output {
                Output::Refused(1, refused) => Some(refused.clone()),
                _ => None,
            });
            if let Some(refused) = refused {
                break refused;
            }
            assert!(passed < 2_000, "it never ends");
        };
        assert_eq!(passed, ends, "{refused:?}");
        match remaining {
            None => assert!(matches!(refused, Refused::Busy { .. }), "{refused:?}"),
            Some(_) => assert_eq!(refused, Refused::GivenUp(LostReason::Deadline)),
        }
    }
}
