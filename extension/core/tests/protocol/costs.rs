//! What a lock costs: requests, wake-ups, memory.

use crate::script::{MS, SECOND, Script, acquire, granted, one_send, row, row_of, sends, shows};
use leasekeeper_core::{Answer, Config, Input, Op, Output, Seen};

const KEY: u64 = 7;

#[test]
fn an_uncontended_cycle_is_two_writes_and_no_read() {
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 20_000, 5 * SECOND))));
    assert!(matches!(put.op, Op::Create { .. }));
    let mut outputs = script.pass(20 * MS);
    outputs.extend(script.answer(&put, Answer::Done));
    outputs.extend(script.pass(5 * SECOND));
    assert!(sends(&outputs).is_empty());
    let delete = one_send(&script.give(Input::Release(1)));
    assert!(matches!(delete.op, Op::Delete { .. }));
    let mut outputs = script.answer(&delete, Answer::Done);
    assert!(script.core.is_idle() && script.core.next_wakeup().is_none());
    outputs.extend(script.pass(60 * SECOND));
    assert!(sends(&outputs).is_empty());
}

#[test]
fn a_contended_attempt_that_does_not_wait_is_one_request() {
    let mut script = Script::new();
    for lease in 1..50 {
        let put = one_send(&script.give(Input::Acquire(acquire(lease, KEY, 20_000, 0))));
        let mut outputs = script.pass(20 * MS);
        outputs.extend(script.answer(&put, Answer::Failed(shows(&row(1, lease, 20_000)))));
        outputs.extend(script.pass(SECOND));
        assert!(sends(&outputs).is_empty() && script.core.is_idle());
    }
}

#[test]
fn a_hold_with_n_renewals_is_two_and_n_writes() {
    for (lease_ms, hold, renewals) in [(20_000, 599 * SECOND, 89), (20_000, 6 * SECOND, 0), (3_000, 9_900 * MS, 9)] {
        let mut script = Script::new();
        script.hold(1, KEY, lease_ms, 10 * MS);
        let (mut passed, mut writes) = (10 * MS, 1);
        while let Some((renewal, after)) = script.until_send(hold - passed) {
            assert!(matches!(renewal.op, Op::Renew { .. }));
            passed += after + 10 * MS;
            writes += 1;
            script.pass(10 * MS);
            script.answer(&renewal, Answer::Done);
            if passed >= hold {
                break;
            }
        }
        let delete = one_send(&script.give(Input::Release(1)));
        script.answer(&delete, Answer::Done);
        assert!(script.core.is_idle());
        assert_eq!(writes + 1, 2 + renewals, "{lease_ms}");
    }
}

#[test]
fn a_held_lease_wakes_its_driver_thirty_times_a_lease_and_an_idle_core_never() {
    for lease_ms in [100, 3_000, 20_000] {
        let mut script = Script::new();
        script.hold(1, KEY, lease_ms, 0);
        let before = script.handled;
        let wall = 10 * lease_ms * MS;
        let (mut passed, mut renewals) = (0, 0);
        while let Some((renewal, after)) = script.until_send(wall - passed) {
            passed += after;
            renewals += 1;
            script.answer(&renewal, Answer::Done);
            if passed >= wall {
                break;
            }
        }
        let wakes = script.handled - before;
        let cadence = (lease_ms * MS / 30).min(SECOND / 2);
        assert!(wakes <= wall / cadence + 3 * renewals + 5, "{wakes} in {wall} µs for {renewals} renewals");
    }
}

#[test]
fn a_store_that_fails_for_an_hour_is_asked_patiently_and_leaves_no_heap_of_puts() {
    let mut script = Script::new();
    script.give(Input::Acquire(acquire(1, KEY, 60_000, 3_600 * SECOND)));
    let (mut requests, mut passed) = (0, 0);
    let mut request = None;
    while passed < 3_600 * SECOND {
        let (next, after) = match request.take() {
            Some(next) => (next, 0),
            None => match script.until_send(3_600 * SECOND - passed) {
                Some(next) => next,
                None => break,
            },
        };
        passed += after;
        requests += 1;
        script.answer(&next, Answer::Unknown("internal error".into()));
    }
    assert!(requests > 1_000 && requests < 3_600 * 13, "{requests}");
    let size = format!("{:?}", script.core).len();
    assert!(size < 2_000_000, "{size} characters of state");
}

#[test]
fn what_is_remembered_is_bounded_however_many_keys_and_invocations_there_were() {
    let mut sizes = Vec::new();
    for rounds in [200, 2_000] {
        let mut script = Script::with(Config { freezes: true, memory: 32 });
        for lease in 1..rounds {
            script.give(Input::InvocationBegan { scope: lease, remaining: None });
            let put = one_send(&script.give(Input::Acquire(acquire(lease, lease, 100, 0))));
            let outputs = match lease % 3 {
                0 => script.answer(&put, Answer::Failed(shows(&row(1, 2, 100)))),
                1 => script.answer(&put, Answer::Unknown("time-out".into())),
                _ => script.answer(&put, Answer::Failed(Seen::Foreign("other".into()))),
            };
            drop(outputs);
            script.pass(200 * MS);
            assert!(script.core.is_idle());
        }
        sizes.push(format!("{:?}", script.core).len());
    }
    assert!(sizes[1] < sizes[0] * 2, "{sizes:?}");
}

#[test]
fn a_first_attempt_without_waiting_takes_a_second_request_only_for_what_is_free_at_once() {
    // Ripe from an earlier look: one request.
    let mut script = Script::new();
    let put = one_send(&script.give(Input::Acquire(acquire(1, KEY, 20_000, 0))));
    let other = row(1, 2, 5_000);
    script.answer(&put, Answer::Failed(shows(&other)));
    script.jump(5 * SECOND);
    let put = one_send(&script.give(Input::Acquire(acquire(2, KEY, 20_000, 0))));
    assert!(matches!(put.op, Op::Replace { .. }));
    // It was given back meanwhile: a second request follows at once, and no third.
    let again = one_send(&script.answer(&put, Answer::Failed(Seen::Nothing)));
    assert!(matches!(again.op, Op::Create { .. }));
    let outputs = script.answer(&again, Answer::Failed(shows(&row(3, 4, 5_000))));
    assert!(matches!(outputs[..], [Output::Refused(2, _)]), "{outputs:?}");
    // A row of ours that a freeze made too old is replaced by a second request, and again there is no third.
    let mut aged = Script::new();
    let put = one_send(&aged.give(Input::Acquire(acquire(1, KEY, 20_000, 0))));
    aged.jump(19 * SECOND);
    aged.tick();
    let over = sends(&aged.answer(&put, Answer::Done)).pop();
    assert!(over.is_none(), "the time-out was taken for the outcome");
    let mut aged = Script::new();
    let put = one_send(&aged.give(Input::Acquire(acquire(1, KEY, 3_000, 0))));
    aged.step(0, 0, 3_000 * MS as i64);
    let over = one_send(&aged.answer(&put, Answer::Done));
    assert!(matches!(over.op, Op::Replace { .. }));
    let outputs = aged.answer(&over, Answer::Failed(Seen::Nothing));
    assert!(!sends(&outputs).iter().any(|request| matches!(request.op, Op::Create { .. })), "{outputs:?}");
    // And where it stays free, the lock is held after two.
    let put = one_send(&script.give(Input::Acquire(acquire(3, KEY, 20_000, 0))));
    let outputs = script.answer(&put, Answer::Done);
    assert!(granted(&outputs, 3) && row_of(&put).lease_ms == 20_000);
}
