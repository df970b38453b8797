//! A freeze in the middle of a hold: whichever clocks stand still, every lease is lost before anything is written.

use crate::common::{MS, SECOND};
use crate::script::{Script, acquire, renewed_version, row, sends, shows};
use leasekeeper_core::{Answer, Input, LostReason, Op, Output, Row, Seen, StoreRequest};

const LEASES: [u64; 3] = [1, 2, 3];
/// Of the first lease, which someone else takes over during the freeze.
const TAKEN: u64 = 101;
const LEASE_MS: u64 = 3_000;
/// What the clocks show of a freeze: boot, monotonic and wall. One of boot and wall is assumed to run on.
const CLOCKS: [[u64; 3]; 6] = [[1, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]];

/// What happens first after the thaw.
#[derive(Clone, Copy, Debug)]
enum First {
    /// A timer, or a client's check.
    Tick,
    /// The answer to the first lease's renewal that was under way: committed.
    Committed,
    /// The answer to it: someone else's row.
    Taken,
    /// The answer to it: nobody knows.
    Unknown,
    /// A client gives its lease back.
    Release,
    /// The next invocation begins.
    Invoke,
    /// A client asks for another lock.
    Acquire,
}

/// Holds three leases, with a renewal of each under way if asked for.
fn hold(script: &mut Script, renewing: bool) -> (Vec<Row<u64>>, Vec<StoreRequest<u64>>) {
    let rows = LEASES.map(|lease| script.hold(lease, 100 + lease, LEASE_MS, 5 * MS)).to_vec();
    let outputs = script.pass(if renewing { SECOND } else { 500 * MS });
    let renewals = sends(&outputs);
    assert_eq!(renewals.len(), if renewing { LEASES.len() } else { 0 });
    (rows, renewals)
}

fn thaw(script: &mut Script, first: First, renewals: &[StoreRequest<u64>], taken: &Row<u64>) -> Vec<Output<u64>> {
    match first {
        First::Tick => script.tick(),
        First::Committed => script.answer(&renewals[0], Answer::Done),
        First::Taken => script.answer(&renewals[0], Answer::Failed(shows(taken))),
        First::Unknown => script.answer(&renewals[0], Answer::Unknown("time-out".into())),
        First::Release => script.give(Input::Release(LEASES[1])),
        First::Invoke => script.give(Input::InvocationBegan { scope: 9, remaining: Some(60 * SECOND) }),
        First::Acquire => script.give(Input::Acquire(acquire(9, 999, LEASE_MS, SECOND))),
    }
}

#[test]
fn whichever_clocks_stand_still_three_leases_are_lost_before_anything_is_written_and_nothing_is_renewed() {
    let quiet = [First::Tick, First::Release, First::Invoke, First::Acquire];
    let renewing = [First::Tick, First::Committed, First::Taken, First::Unknown, First::Release, First::Invoke];
    let starts = quiet.map(|first| (first, false)).into_iter().chain(renewing.map(|first| (first, true)));
    for (first, renewal_under_way) in starts {
        for clocks in CLOCKS {
            // From the validity's end on, which is a tenth before anybody may take it over.
            for frozen in [2_700 * MS, 3 * SECOND, 600 * SECOND] {
                frozen_for(frozen, clocks, first, renewal_under_way);
            }
        }
    }
}

fn frozen_for(frozen: u64, [boot, mono, wall]: [u64; 3], first: First, renewal_under_way: bool) {
    let case = format!("{first:?}, {frozen} µs, clocks {boot} {mono} {wall}, renewal under way: {renewal_under_way}");
    let mut script = Script::new();
    let (rows, renewals) = hold(&mut script, renewal_under_way);
    let taken = row(5, 6, LEASE_MS);
    script.step(boot * frozen, mono * frozen, (wall * frozen) as i64);
    let outputs = thaw(&mut script, first, &renewals, &taken);
    for lease in LEASES {
        let lost = outputs.iter().position(|output| matches!(output, Output::Lost(id, _) if *id == lease));
        let lost = lost.unwrap_or_else(|| panic!("{case}: lease {lease} is not lost at once: {outputs:?}"));
        assert_eq!(outputs[lost], Output::Lost(lease, LostReason::Expired), "{case}");
        let written = outputs.iter().position(|output| matches!(output, Output::Send(sent) if sent.lease == lease));
        assert!(written.is_none_or(|written| lost < written), "{case}: {outputs:?}");
        assert_eq!(script.core.valid_for(lease), None, "{case}");
    }
    // Whatever is sent from now on, until all is over: deletes of rows of its own, and no other.
    let mut sent = sends(&outputs);
    for _ in 0..20 {
        for request in std::mem::take(&mut sent) {
            let Some(own) = LEASES.iter().position(|lease| *lease == request.lease) else { continue };
            assert!(matches!(request.op, Op::Delete { owner } if owner == rows[own].owner), "{case}: {request:?}");
            let stands = if request.key == TAKEN { shows(&taken) } else { Seen::Nothing };
            sent.extend(sends(&script.answer(&request, Answer::Failed(stands))));
        }
        sent.extend(sends(&script.pass(500 * MS)));
    }
    assert!(LEASES.iter().all(|lease| script.core.valid_for(*lease).is_none()), "{case}");
}

/// What a lease has left after a freeze that was too short to end it: nothing is written before the next look, and the renewal that
/// then comes is for the version that stands.
#[test]
fn a_freeze_that_ends_in_time_takes_its_length_off_the_validity_whichever_clocks_stood_still() {
    for [boot, mono, wall] in CLOCKS {
        let mut script = Script::new();
        let (rows, _) = hold(&mut script, false);
        script.step(boot * SECOND, mono * SECOND, (wall * SECOND) as i64);
        assert_eq!(sends(&script.tick()), [], "renewals wait for an INVOKE that may end their invocation");
        for (lease, before) in LEASES.into_iter().zip([10 * MS, 5 * MS, 0]) {
            // Each lease was acquired 5 ms after the one before, and its own answer took as long.
            let passed = 500 * MS + before + 5 * MS + SECOND;
            assert_eq!(script.core.valid_for(lease), Some(2_700 * MS - passed), "lease {lease}");
        }
        let (renewal, _) = script.until_send(SECOND).expect("it goes on");
        let last = rows[0].version;
        assert!(matches!(renewal.op, Op::Renew { last: expected, .. } if expected == last), "{renewal:?}");
        script.answer(&renewal, Answer::Done);
        assert_ne!(renewed_version(&renewal), last);
        assert!(script.valid(LEASES[0]).is_some_and(|valid| valid > 2_500 * MS));
    }
}
