//! Extension and runtime are killed together: nobody gives the lock back, and contenders take it when its lease is over.

use super::rows::in_ms;
use super::takeover::{taken, taken_in_time};
use super::*;
use testkit::dynamo::{Operation, PYDYNOX, Recorded};
use testkit::evidence::figure;
use testkit::moments::Lateness;
use testkit::pydynox::Pydynox;
use testkit::sandbox::Role;
use testkit::sidecar::Sidecar;

const LEASE: Duration = Duration::from_millis(1_200);

#[tokio::test]
async fn a_lock_whose_extension_and_handler_are_killed_is_taken_over_between_its_lease_and_one_poll_more() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let lease_ms = u64::try_from(LEASE.as_millis()).unwrap();
    let contender = Sidecar::start(&db, "contender", &[]).await;
    let mut pydynox = Pydynox::start(&db).await;
    let held = steps([acquire_for("ours", lease_ms), acquire_for("theirs", lease_ms), say("held"), for_ever()]);
    let _call = env.begin(held);
    env.wait_for_log(Role::Runtime, "held").await.unwrap();
    let lateness = Lateness::watch();
    let (ours, theirs) =
        tokio::join!(async { contender.locks().acquire("ours").wait(Duration::from_secs(10)).await }, async {
            let renewed = |log: &[Recorded]| {
                let renewal = |key: &str| {
                    let of_key = |request: &&Recorded| request.key.as_deref() == Some(key);
                    log.iter()
                        .filter(of_key)
                        .any(|request| request.operation == Operation::UpdateItem && request.status == Some(200))
                };
                renewal("ours") && renewal("theirs")
            };
            // The contenders wait by then; the last write is a renewal.
            let waits = pydynox.acquire("g", "theirs", 20.0, 10.0);
            let kills = async {
                assert!(db.until(Duration::from_secs(5), renewed).await, "both are renewed");
                env.kill_extension().unwrap();
                env.kill_runtime().unwrap();
            };
            tokio::join!(waits, kills).0
        },);
    let row = db.item("ours").expect("it is held again");
    let ours = ours.expect("abandoned");
    assert_eq!(row["owner"]["S"], ours.owner());
    theirs.expect("abandoned");
    let took = taken_in_time(&db, "ours", LEASE, "contender", &lateness);
    figure("both-die", "lease 1.2 s: taken by another extension after the last write", in_ms(took.after));
    figure("both-die", "its longest round trip", in_ms(took.trip));
    // How soon pydynox looks is its own affair; that it waits for the lease is the protocol's.
    let took = taken(&db, "theirs", PYDYNOX).after;
    assert!(took >= LEASE, "{took:?}");
    figure("both-die", "lease 1.2 s: taken by pydynox after the last write", in_ms(took));
    ours.release().await.expect("held");
}
