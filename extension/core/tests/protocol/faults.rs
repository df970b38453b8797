//! The faults that PROTOCOL.md lists of another client, each shown to be absent here, named after its sentence.

use crate::common::rng::Rng;
use crate::script::{MS, SECOND, Script, acquire, granted, one_send, renewed_version, row, row_of, sends, shows};
use leasekeeper_core::{Answer, Config, Input, LostReason, Op, Output, Refusal, Refused, Seen};

const KEY: u64 = 7;

fn lost(outputs: &[Output<u64>]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Lost(..)))
}

#[test]
fn fault_1_a_renewal_that_commits_after_its_time_out_does_not_make_the_next_one_lose() {
    let mut script = Script::new();
    let held = script.hold(1, KEY, 6_000, 0);
    let (first, _) = script.until_send(6 * SECOND).expect("a renewal");
    script.pass(first.timeout);
    script.answer(&first, Answer::Unknown("time-out".into()));
    let (second, _) = script.until_send(6 * SECOND).expect("a retry");
    // The first one commits now, before the second arrives.
    let stored = row(held.owner, renewed_version(&first), 6_000);
    let outputs = script.answer(&second, Answer::Failed(shows(&stored)));
    assert_eq!(outputs, [Output::Renewed(1)]);
    let (third, _) = script.until_send(6 * SECOND).expect("a renewal");
    assert!(matches!(third.op, Op::Renew { last, .. } if last == stored.version));
    assert!(!lost(&script.answer(&third, Answer::Done)));
}

#[test]
fn fault_2_one_throttle_500_or_transaction_conflict_does_not_end_an_acquisition_with_budget_left() {
    for answer in [
        Answer::Throttled("ProvisionedThroughputExceededException".into()),
        Answer::Throttled("TransactionConflictException".into()),
        Answer::Unknown("InternalServerError".into()),
    ] {
        let mut script = Script::new();
        let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 20_000, 500 * MS))));
        assert!(script.answer(&put, answer).is_empty());
        let (again, _) = script.until_send(500 * MS).expect("a retry within the budget");
        assert!(granted(&script.answer(&again, Answer::Done), 1));
    }
}

#[test]
fn fault_3_a_pooled_connection_that_died_fails_neither_acquire_nor_release() {
    let dead = || Answer::Unavailable("connection reset by peer".into());
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 20_000, 500 * MS))));
    assert!(script.answer(&put, dead()).is_empty());
    let (again, after) = script.until_send(500 * MS).expect("a retry");
    assert!(after <= 24 * MS);
    assert!(granted(&script.answer(&again, Answer::Done), 1));
    let delete = one_send(&script.give(Input::Release(1)));
    assert!(script.answer(&delete, dead()).is_empty());
    let (again, after) = script.until_send(500 * MS).expect("a retry");
    assert!(after <= 24 * MS);
    assert_eq!(script.answer(&again, Answer::Done), [Output::Released { lease: 1, confirmed: true }]);
}

#[test]
fn fault_4_a_failed_release_is_retried() {
    for answer in [Answer::Throttled("slow down".into()), Answer::Unknown("time-out".into())] {
        let mut script = Script::new();
        let held = script.hold(1, KEY, 20_000, 0);
        let delete = one_send(&script.give(Input::Release(1)));
        assert!(script.answer(&delete, answer).is_empty());
        let (again, _) = script.until_send(SECOND).expect("a retry");
        assert!(matches!(again.op, Op::Delete { owner } if owner == held.owner));
        // The first one did commit: no row is as good as deleted.
        let outputs = script.answer(&again, Answer::Failed(Seen::Nothing));
        assert_eq!(outputs, [Output::Released { lease: 1, confirmed: true }]);
    }
}

#[test]
fn fault_5_the_last_poll_is_not_clipped_and_the_end_is_busy_at_any_latency() {
    let mut rng = Rng::new(5);
    for _ in 0..200 {
        let rtt = rng.between(1, 200) * MS;
        let wait = rng.between(0, 500) * MS;
        let mut script = Script::new();
        let other = row(1, 2, 20_000);
        let mut request = one_send(&script.give(Input::Acquire(acquire(1, KEY, 20_000, wait))));
        let mut outputs = Vec::new();
        loop {
            assert_eq!(request.timeout, SECOND, "never clipped");
            outputs.extend(script.pass(rtt));
            let seen = shows(&other);
            let answer = if request.op == Op::Read { Answer::Found(seen) } else { Answer::Failed(seen) };
            outputs.extend(script.answer(&request, answer));
            if outputs.iter().any(|output| matches!(output, Output::Refused(..))) {
                break;
            }
            let mut passed = 0;
            request = loop {
                let step = script.core.next_wakeup().expect("something is due");
                passed += step;
                let new = script.pass(step);
                let sent = sends(&new);
                outputs.extend(new);
                if let Some(request) = sent.into_iter().next() {
                    break request;
                }
                if outputs.iter().any(|output| matches!(output, Output::Refused(..))) || passed > SECOND {
                    break request;
                }
            };
        }
        let ends = outputs.iter().filter(|output| matches!(output, Output::Refused(..)));
        assert!(
            matches!(ends.collect::<Vec<_>>()[..], [Output::Refused(1, Refused::Busy { .. })]),
            "rtt {rtt}, wait {wait}: {outputs:?}"
        );
    }
}

#[test]
fn fault_6_a_late_put_after_a_time_out_leaves_no_row_that_the_client_could_have_deleted() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 20_000, 0))));
    script.pass(put.timeout);
    let owner = row_of(&put).owner;
    let delete = one_send(&script.answer(&put, Answer::Unknown("time-out".into())));
    let mut next = sends(&script.answer(&delete, Answer::Failed(Seen::Nothing))).pop();
    // The Put lands nine seconds later: a delete after that takes it away.
    let mut passed = 0;
    while passed < 9 * SECOND {
        let (request, after) = match next.take() {
            Some(request) => (request, 0),
            None => script.until_send(3 * SECOND).expect("deletes go on"),
        };
        passed += after;
        assert!(matches!(request.op, Op::Delete { owner: deleted } if deleted == owner));
        next = sends(&script.answer(&request, Answer::Failed(Seen::Nothing))).pop();
    }
    let (request, _) = script.until_send(3 * SECOND).expect("another delete within the ten seconds");
    assert!(matches!(request.op, Op::Delete { owner: deleted } if deleted == owner));
    script.answer(&request, Answer::Done);
    assert!(script.core.is_idle());
}

#[test]
fn fault_7_observations_are_forgotten_one_by_one_not_wiped_whole() {
    let mut script = Script::with(Config { freezes: true, memory: 16 });
    let mut lease = 0;
    let mut look = |script: &mut Script, key: u64| {
        lease += 1;
        let put = one_send(&script.give(Input::Acquire(acquire(lease, key, 10_000, 0))));
        match &put.op {
            Op::Replace { .. } => {
                script.answer(&put, Answer::Denied(Refusal::Denied, "this test takes nothing over".into()));
                true
            }
            _ => {
                script.answer(&put, Answer::Failed(shows(&row(key * 10, key * 10 + 1, 10_000))));
                false
            }
        }
    };
    for key in 100..117 {
        assert!(!look(&mut script, key));
    }
    script.jump(10 * SECOND);
    let ripe = (101..117).filter(|key| look(&mut script, *key)).count();
    assert_eq!(ripe, 16, "only the one that was used least recently is forgotten");
}

#[test]
fn fault_8_even_the_shortest_lease_has_time_outs_that_leave_room_for_two_more_attempts() {
    // Which leases are refused for the round trips seen is the extension's to say; the time-outs are the core's.
    let mut script = Script::new();
    script.hold(1, KEY, 100, 0);
    let mut attempts = 0;
    while let Some((renewal, _)) = script.until_send(100 * MS) {
        let Op::Renew { .. } = renewal.op else { break };
        attempts += 1;
        script.pass(renewal.timeout);
        script.answer(&renewal, Answer::Unknown("time-out".into()));
    }
    assert_eq!(attempts, 3);
}

#[test]
fn fault_9_transaction_conflicts_are_fatal_to_neither_acquire_renewal_nor_release() {
    let conflict = || Answer::Throttled("TransactionConflictException".into());
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 6_000, SECOND))));
    script.answer(&put, conflict());
    let (put, _) = script.until_send(SECOND).expect("a retry");
    assert!(granted(&script.answer(&put, Answer::Done), 1));
    let (renewal, _) = script.until_send(6 * SECOND).expect("a renewal");
    assert!(script.answer(&renewal, conflict()).is_empty());
    let (renewal, _) = script.until_send(6 * SECOND).expect("a retry");
    assert_eq!(script.answer(&renewal, Answer::Done), [Output::Renewed(1)]);
    let delete = one_send(&script.give(Input::Release(1)));
    assert!(script.answer(&delete, conflict()).is_empty());
    let (delete, _) = script.until_send(SECOND).expect("a retry");
    assert_eq!(script.answer(&delete, Answer::Done), [Output::Released { lease: 1, confirmed: true }]);
}

#[test]
fn fault_10_a_permanent_renewal_error_is_told_at_once_and_by_its_cause() {
    let mut script = Script::new();
    script.hold(1, KEY, 6_000, 0);
    let (renewal, _) = script.until_send(6 * SECOND).expect("a renewal");
    let outputs = script.answer(&renewal, Answer::Denied(Refusal::Denied, "AccessDeniedException".into()));
    assert_eq!(outputs, [Output::Lost(1, LostReason::Denied)]);
    assert_eq!(script.valid(1), None);
}

#[test]
fn fault_11_a_wall_clock_that_steps_back_by_any_amount_is_no_loss() {
    for back in [1, MS, SECOND, 3_600 * SECOND, 1_000_000 * SECOND] {
        let mut script = Script::new();
        script.hold(1, KEY, 20_000, 0);
        let mut outputs = script.pass(SECOND);
        script.step(0, 0, -(back as i64));
        outputs.extend(script.tick());
        let renewal = one_send(&outputs);
        outputs.extend(script.answer(&renewal, Answer::Done));
        outputs.extend(script.pass(5 * SECOND));
        assert!(!lost(&outputs), "{outputs:?}");
        assert_eq!(script.valid(1), Some(13 * SECOND));
    }
}

#[test]
fn two_faults_in_a_row_cost_no_healthy_holder_its_lease_in_99_of_100_schedules() {
    let mut rng = Rng::new(29);
    let mut losses = 0;
    for _ in 0..1_000 {
        let lease_ms = rng.pick(&[1_000, 6_000, 20_000]);
        let mut script = Script::new();
        script.hold(1, KEY, lease_ms, rng.below(lease_ms * MS / 50));
        let mut outputs = Vec::new();
        for faults_left in (0..3).rev() {
            let Some((renewal, _)) = script.until_send(lease_ms * MS) else { break };
            if !matches!(renewal.op, Op::Renew { .. }) {
                break;
            }
            if faults_left == 0 {
                outputs.extend(script.pass(rng.below(lease_ms * MS / 50)));
                outputs.extend(script.answer(&renewal, Answer::Done));
                break;
            }
            let hangs = rng.chance(60);
            outputs.extend(script.pass(if hangs { renewal.timeout } else { rng.below(renewal.timeout) }));
            outputs.extend(script.answer(&renewal, Answer::Unknown("lost".into())));
        }
        losses += u32::from(script.valid(1).is_none());
    }
    assert!(losses <= 10, "{losses} of 1,000");
}
