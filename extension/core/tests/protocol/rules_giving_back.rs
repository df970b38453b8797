//! Release, loss and clean-up: rule 6 of the protocol, and the rule that nobody who still believes is contradicted.

use crate::script::{MS, SECOND, Script, acquire, granted, one_send, row_of, sends, shows};
use leasekeeper_core::{
    Acquire, Answer, Config, Input, LostReason, Op, Output, Refusal, Refused, Row, Seen, StoreRequest,
};

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

fn is_delete(op: &Op<u64>, owner: u64) -> bool {
    matches!(op, Op::Delete { owner: deleted } if *deleted == owner)
}

// Rule 6: release and clean-up.

#[test]
fn a_guard_is_invalid_before_its_release_is_sent() {
    let mut script = Script::new();
    let held = script.hold(1, KEY, 10_000, 0);
    let delete = one_send(&script.give(Input::Release(1)));
    assert_eq!(script.core.valid_for(1), None);
    assert!(is_delete(&delete.op, held.owner));
    let outputs = script.answer(&delete, Answer::Done);
    assert_eq!(outputs, [Output::Released { lease: 1, confirmed: true }]);
    assert!(script.core.is_idle());
}

#[test]
fn a_failed_release_is_repeated_through_its_budget_and_not_beyond() {
    for (lease_ms, budget, pause) in [(5_000, 3 * SECOND, 500 * MS), (86_400_000, 10 * SECOND, 1_200 * MS)] {
        let mut script = Script::new();
        let held = script.hold(1, KEY, lease_ms, 0);
        let mut delete = one_send(&script.give(Input::Release(1)));
        let (mut deletes, mut passed) = (1, 0);
        loop {
            assert!(is_delete(&delete.op, held.owner));
            let outputs = script.answer(&delete, Answer::Unavailable("connection reset".into()));
            assert!(outputs.is_empty(), "{outputs:?}");
            let Some((next, after)) = script.until_send(budget) else { break };
            (delete, passed, deletes) = (next, passed + after, deletes + 1);
        }
        assert!(deletes > 10 && passed <= budget && passed + pause > budget, "{deletes} in {passed}");
        assert!(script.core.is_idle());
    }
}

#[test]
fn the_shortest_leases_release_survives_a_time_out_and_a_throttle() {
    let mut script = Script::new();
    script.hold(1, KEY, 100, 0);
    let delete = one_send(&script.give(Input::Release(1)));
    script.pass(16_666);
    let outputs = script.answer(&delete, unknown());
    let delete = sends(&outputs).pop().or_else(|| Some(script.until_send(20 * MS)?.0)).expect("a second delete");
    script.answer(&delete, Answer::Throttled("slow down".into()));
    let (delete, _) = script.until_send(20 * MS).expect("a third delete");
    assert_eq!(script.answer(&delete, Answer::Done), [Output::Released { lease: 1, confirmed: true }]);
}

#[test]
fn a_delete_that_hangs_beyond_the_budget_keeps_nobody_busy() {
    for offset in (0..150).step_by(10) {
        let mut script = Script::new();
        script.hold(1, KEY, 600, 0);
        let delete = one_send(&script.give(Input::Release(1)));
        script.pass(offset * MS);
        script.answer(&delete, Answer::Unavailable("reset".into()));
        // No later delete is answered, nor the one at the budget's end: `pass` fails on a busy loop.
        for _ in 0..60 {
            script.pass(10 * MS);
        }
        assert!(script.core.is_idle());
    }
}

#[test]
fn while_a_puts_outcome_is_unknown_no_row_settles_nothing() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 5_000, 0))));
    let outputs = script.answer(&put, unknown());
    assert!(matches!(outputs[0], Output::Refused(1, Refused::Unavailable(_))), "{outputs:?}");
    let mut delete = one_send(&outputs);
    let mut deletes = 0;
    loop {
        deletes += 1;
        assert!(is_delete(&delete.op, row_of(&put).owner));
        let outputs = script.answer(&delete, Answer::Failed(Seen::Nothing));
        assert!(outputs.is_empty());
        let Some((next, _)) = script.until_send(3 * SECOND) else { break };
        delete = next;
    }
    assert!(deletes >= 5, "{deletes}");
    assert!(script.core.is_idle());
}

#[test]
fn every_attempted_owner_is_deleted() {
    let mut script = Script::new();
    let mut owners = Vec::new();
    let mut put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 5_000, 200 * MS))));
    while let Op::Create { row } = put.op.clone() {
        owners.push(row.owner);
        script.answer(&put, unknown());
        put = script.until_send(SECOND).expect("a retry, or a delete at the end of the wait").0;
    }
    let mut deleted = Vec::new();
    let mut request = Some(put);
    while let Some(delete) = request {
        if let Op::Delete { owner } = delete.op {
            deleted.push(owner);
        }
        let outputs = script.answer(&delete, Answer::Failed(Seen::Nothing));
        request = sends(&outputs).pop().or_else(|| script.until_send(3 * SECOND).map(|(next, _)| next));
    }
    assert!(owners.len() >= 3);
    for owner in &owners {
        assert!(deleted.iter().filter(|one| *one == owner).count() >= 2, "{owner} in {deleted:?}");
    }
}

/// A wait that ended with three Puts of unknown outcome; returns their rows and the first delete.
fn three_puts() -> (Script, Vec<Row<u64>>, StoreRequest<u64>) {
    let mut script = Script::new();
    let mut rows = Vec::new();
    let mut put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 5_000, 100 * MS))));
    for _ in 0..3 {
        rows.push(row_of(&put));
        script.answer(&put, unknown());
        put = script.until_send(SECOND).expect("a retry, or a delete at the end of the wait").0;
    }
    assert!(is_delete(&put.op, rows[0].owner), "{put:?}");
    (script, rows, put)
}

#[test]
fn a_delete_that_finds_another_row_of_ours_takes_that_away_next() {
    let (mut script, rows, delete) = three_puts();
    let next = one_send(&script.answer(&delete, Answer::Failed(shows(&rows[2]))));
    assert!(is_delete(&next.op, rows[2].owner), "{next:?}");
}

#[test]
fn a_clean_up_that_got_rid_of_one_owner_skips_none_of_the_others() {
    let (mut script, rows, delete) = three_puts();
    let next = one_send(&script.answer(&delete, Answer::Done));
    assert!(is_delete(&next.op, rows[1].owner), "{next:?}");
    let next = one_send(&script.answer(&next, Answer::Failed(Seen::Nothing)));
    assert!(is_delete(&next.op, rows[2].owner), "{next:?}");
}

#[test]
fn an_owner_given_up_is_taken_over_at_once_when_its_put_lands_after_all() {
    let mut script = Script::new();
    let late = one_send(&script.give(Input::Acquire(acquire(1, KEY, 5_000, 0))));
    script.answer(&late, unknown());
    while !script.core.is_idle() {
        script.pass(100 * MS);
    }
    let put = one_send(&script.give(Input::Acquire(acquire(2, KEY, 5_000, 0))));
    let over = one_send(&script.answer(&put, Answer::Failed(shows(&row_of(&late)))));
    let stood = row_of(&late);
    assert!(
        matches!(over.op, Op::Replace { owner, version, .. } if (owner, version) == (stood.owner, stood.version)),
        "{over:?}"
    );
    assert!(granted(&script.answer(&over, Answer::Done), 2));
}

#[test]
fn a_put_that_is_answered_after_a_short_leases_clean_up_budget_is_still_deleted() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 100, 0))));
    script.give(Input::Release(1));
    script.pass(62 * MS);
    let delete = one_send(&script.answer(&put, Answer::Done));
    assert!(is_delete(&delete.op, row_of(&put).owner));
}

#[test]
fn loss_uses_the_same_clean_up() {
    let mut script = Script::new();
    let held = script.hold(1, KEY, 3_000, 0);
    let mut outputs = Vec::new();
    while lost(&outputs).is_none() {
        outputs.extend(script.pass(10 * MS));
    }
    assert_eq!(lost(&outputs), Some(LostReason::Expired));
    let last = sends(&outputs).pop().expect("a delete");
    assert!(is_delete(&last.op, held.owner));
    script.answer(&last, Answer::Unavailable("reset".into()));
    let (again, _) = script.until_send(SECOND).expect("repeated");
    assert!(is_delete(&again.op, held.owner));
}

#[test]
fn a_lease_given_up_for_a_cause_of_ours_is_deleted_only_when_nobody_can_believe_any_more() {
    let causes = [
        Input::GiveUp(1, LostReason::ExtensionFailed),
        Input::Shutdown,
        Input::InvocationBegan { scope: 2, remaining: None },
    ];
    for cause in causes {
        let mut script = Script::new();
        let ask = Acquire { scope: Some(1), ..acquire(1, KEY, 3_000, 0) };
        let put = one_send(&script.give(Input::Acquire(ask)));
        script.answer(&put, Answer::Done);
        script.pass(200 * MS);
        let outputs = script.give(cause.clone());
        assert!(lost(&outputs).is_some() && sends(&outputs).is_empty(), "{cause:?}: {outputs:?}");
        assert!(sends(&script.pass(2_500 * MS - 1)).is_empty(), "{cause:?}: its client may still believe");
        let delete = one_send(&script.pass(1));
        assert!(is_delete(&delete.op, row_of(&put).owner));
        script.answer(&delete, Answer::Done);
        assert!(script.core.is_idle());
    }
}

#[test]
fn shutdown_ends_waiting_too_old_lapsing_and_new_leases_alike() {
    let mut script = Script::with(Config::default());
    script.hold(1, 1, 3_000, 0);
    script.give(Input::GiveUp(1, LostReason::MaxHold));
    let waiting = one_send(&script.give(Input::Acquire(acquire(2, 2, 3_000, SECOND))));
    let old = one_send(&script.give(Input::Acquire(acquire(3, 3, 3_000, SECOND))));
    script.answer(&old, unknown());
    let outputs = script.give(Input::Shutdown);
    let refused = |id| outputs.contains(&Output::Refused(id, Refused::GivenUp(LostReason::Shutdown)));
    assert!(refused(2) && refused(3), "{outputs:?}");
    let outputs = script.give(Input::Acquire(acquire(4, 4, 3_000, SECOND)));
    assert_eq!(outputs, [Output::Refused(4, Refused::GivenUp(LostReason::Shutdown))]);
    script.answer(&waiting, Answer::Denied(Refusal::Denied, "no".into()));
    for _ in 0..100 {
        script.pass(100 * MS);
    }
    assert!(script.core.is_idle());
}

#[test]
fn while_it_drains_what_is_held_is_renewed_and_given_back_and_nothing_new_begins() {
    let mut script = Script::with(Config { freezes: false, ..Config::default() });
    let held = script.hold(1, 1, 3_000, 0);
    let waiting = one_send(&script.give(Input::Acquire(acquire(2, 2, 3_000, SECOND))));
    let queued = script.give(Input::Acquire(acquire(3, 1, 3_000, SECOND)));
    assert!(queued.is_empty(), "it waits for what is held here: {queued:?}");
    let old = one_send(&script.give(Input::Acquire(acquire(4, 4, 3_000, SECOND))));
    script.answer(&old, unknown());
    let outputs = script.give(Input::Drain);
    for id in [2, 3, 4] {
        assert!(outputs.contains(&Output::Refused(id, Refused::GivenUp(LostReason::Shutdown))), "{id}: {outputs:?}");
    }
    assert_eq!(lost(&outputs), None);
    // A Put that lands afterwards is no grant: it is taken away.
    let delete = one_send(&script.answer(&waiting, Answer::Done));
    assert!(is_delete(&delete.op, row_of(&waiting).owner));
    script.answer(&delete, Answer::Done);
    let new = script.give(Input::Acquire(acquire(5, 5, 3_000, SECOND)));
    assert_eq!(new, [Output::Refused(5, Refused::GivenUp(LostReason::Shutdown))]);
    for _ in 0..4 {
        let renewal = loop {
            let (request, _) = script.until_send(2 * SECOND).expect("it is renewed");
            if matches!(request.op, Op::Renew { .. }) {
                break request;
            }
            script.answer(&request, Answer::Failed(Seen::Nothing));
        };
        script.answer(&renewal, Answer::Done);
        assert!(script.valid(1).is_some());
    }
    let delete = one_send(&script.give(Input::Release(1)));
    assert!(is_delete(&delete.op, held.owner), "nobody is left to hand it to");
    assert!(script.answer(&delete, Answer::Done).contains(&Output::Released { lease: 1, confirmed: true }));
    script.pass(10 * SECOND);
    assert!(script.core.is_idle());
}

#[test]
fn where_draining_has_a_limit_what_is_still_held_then_lapses() {
    let mut script = Script::with(Config { freezes: false, ..Config::default() });
    let held = script.hold(1, KEY, 3_000, 0);
    script.give(Input::Drain);
    script.pass(500 * MS);
    let outputs = script.give(Input::Shutdown);
    assert_eq!(lost(&outputs), Some(LostReason::Shutdown));
    assert!(sends(&script.pass(2_200 * MS - 1)).is_empty(), "its client may still believe");
    assert!(is_delete(&one_send(&script.pass(1)).op, held.owner));
}

#[test]
fn a_client_that_leaves_while_its_row_is_too_old_to_be_granted_was_never_granted() {
    let mut script = Script::with(Config { freezes: false, ..Config::default() });
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 10_000, 60 * SECOND))));
    script.answer(&put, unknown());
    script.jump(5 * SECOND);
    let again = one_send(&script.tick());
    // The first Put's row is found, and is renewed before it is granted.
    let renewal = one_send(&script.answer(&again, Answer::Failed(shows(&row_of(&put)))));
    assert!(matches!(renewal.op, Op::Renew { .. }));
    let outputs = script.give(Input::Release(1));
    assert!(outputs.contains(&Output::Refused(1, Refused::TakenBack)), "{outputs:?}");
    assert!(is_delete(&one_send(&outputs).op, row_of(&put).owner));
}
