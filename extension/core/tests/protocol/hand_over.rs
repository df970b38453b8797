//! Hand-over inside one environment: rule 10 of the protocol.

use crate::script::{MS, SECOND, Script, acquire, granted, one_send, row_of, sends, shows};
use leasekeeper_core::{Answer, Input, Op, Output, Refused, Row, Seen, StoreRequest};

const KEY: u64 = 7;

fn replaces(request: &StoreRequest<u64>, old: &Row<u64>) -> bool {
    matches!(request.op, Op::Replace { owner, version, .. } if (owner, version) == (old.owner, old.version))
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
fn who_comes_while_remote_contenders_have_their_turn_waits_behind_those_who_wait_here() {
    let (mut script, _) = crowd(4);
    for holder in 1..=3 {
        let put = one_send(&script.give(Input::Release(holder)));
        // Nor does it send a Put of its own while the first waiter's is under way.
        let late = script.give(Input::Acquire(acquire(10 + holder, KEY, 10_000, 60 * SECOND)));
        assert!(sends(&late).is_empty(), "{late:?}");
        assert!(granted(&script.answer(&put, Answer::Done), holder + 1));
    }
    let delete = one_send(&script.give(Input::Release(4)));
    assert!(matches!(delete.op, Op::Delete { .. }));
    let late = script.give(Input::Acquire(acquire(20, KEY, 10_000, 60 * SECOND)));
    assert!(sends(&late).is_empty(), "while the row is being deleted: {late:?}");
    script.answer(&delete, Answer::Done);
    for (lease, wait) in [(21, 60 * SECOND), (22, 50 * MS)] {
        let late = script.give(Input::Acquire(acquire(lease, KEY, 10_000, wait)));
        assert!(sends(&late).is_empty(), "in the others' turn: {late:?}");
    }
    let outputs = script.pass(50 * MS);
    let busy = |output: &Output<u64>| matches!(output, Output::Refused(22, Refused::Busy { .. }));
    assert!(outputs.iter().any(busy), "it waited behind others: {outputs:?}");
    let (read, _) = script.until_send(SECOND).expect("a look after the pause");
    let put = one_send(&script.answer(&read, Answer::Found(Seen::Nothing)));
    assert_eq!(put.lease, 5, "the first of those who wait");
    assert!(granted(&script.answer(&put, Answer::Done), 5));
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

#[test]
fn a_hand_over_that_shows_anothers_row_settles_the_release_without_a_delete() {
    let (mut script, _) = crowd(1);
    let put = one_send(&script.give(Input::Release(1)));
    let other = Row { owner: 1, version: 2, lease_ms: 10_000 };
    let outputs = script.answer(&put, Answer::Failed(shows(&other)));
    assert!(
        outputs.contains(&Output::Released { lease: 1, confirmed: true }) && sends(&outputs).is_empty(),
        "{outputs:?}"
    );
}

#[test]
fn the_answer_to_another_keys_put_settles_no_release() {
    let mut script = Script::new();
    script.hold(1, KEY, 10_000, 0);
    let delete = one_send(&script.give(Input::Release(1)));
    let put = one_send(&script.give(Input::Acquire(acquire(2, KEY + 1, 10_000, 60 * SECOND))));
    let outputs = script.answer(&put, Answer::Failed(shows(&Row { owner: 1, version: 2, lease_ms: 10_000 })));
    assert!(!outputs.contains(&Output::Released { lease: 1, confirmed: true }), "{outputs:?}");
    let outputs = script.answer(&delete, Answer::Done);
    assert!(outputs.contains(&Output::Released { lease: 1, confirmed: true }));
}

#[test]
fn a_delete_that_finds_the_row_gone_already_lets_the_next_waiter_look_at_once() {
    let (mut script, _) = crowd(4);
    for holder in 1..=3 {
        let put = one_send(&script.give(Input::Release(holder)));
        assert!(granted(&script.answer(&put, Answer::Done), holder + 1));
    }
    let delete = one_send(&script.give(Input::Release(4)));
    assert!(matches!(delete.op, Op::Delete { .. }));
    let look = one_send(&script.answer(&delete, Answer::Failed(Seen::Nothing)));
    assert_eq!((look.lease, look.op), (5, Op::Read));
}
