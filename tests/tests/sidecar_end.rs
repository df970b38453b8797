//! A sidecar that is asked to end while clients hold locks in DynamoDB.

use rustix::process::Signal;
use std::time::Duration;
use testkit::dynamo::{Dynamo, Operation};
use testkit::sidecar::Sidecar;
use tokio::time::Instant;

const LEASE_MS: u64 = 20_000;

#[tokio::test]
async fn who_finishes_in_time_gives_back_as_ever_and_who_does_not_keeps_its_row_until_its_lease_is_over() {
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "", &[("LEASEKEEPER_DRAIN_MS", "400")]).await;
    let (mut quick, mut slow) = (sidecar.connect().await, sidecar.connect().await);
    let quicks = quick.acquire("quick", LEASE_MS, 0).await.expect("a free key");
    let slows = slow.acquire("slow", LEASE_MS, 0).await.expect("a free key");
    let asked = Instant::now();
    sidecar.signal(Signal::TERM);
    for (client, grant) in [(&mut quick, &quicks), (&mut slow, &slows)] {
        let event = client.event().await;
        assert_eq!((event["event"].as_str(), event["lease"].as_u64()), (Some("ending"), Some(grant.lease)), "{event}");
        assert!(client.check(grant.lease).await.expect("it is still held") > 15_000);
    }
    quick.release(quicks.lease).await.expect("given back as ever");
    assert_eq!(dynamo.item("quick"), None);
    assert_eq!(slow.lost(slows.lease).await, "shutdown");
    let lost = slow.check(slows.lease).await.expect_err("it is lost");
    assert!(lost["message"].as_str().is_some_and(|text| text.contains("the sidecar is shutting down")), "{lost}");
    let told = asked.elapsed();
    assert!(told >= Duration::from_millis(400), "told after {told:?}");
    assert_eq!(sidecar.ended().await.code(), Some(0));
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(3), "the limit and a second: {took:?}");
    let row = dynamo.item("slow").expect("its client may still believe");
    assert_eq!(row["owner"]["S"], slows.owner);
    assert_eq!(dynamo.requests_for("slow").iter().filter(|sent| sent.operation == Operation::DeleteItem).count(), 0);
}

#[tokio::test]
async fn a_client_that_lets_go_after_the_limit_frees_its_row_at_once() {
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "", &[("LEASEKEEPER_DRAIN_MS", "0")]).await;
    let mut client = sidecar.connect().await;
    let grant = client.acquire("k", LEASE_MS, 0).await.expect("a free key");
    sidecar.signal(Signal::TERM);
    assert_eq!(client.lost(grant.lease).await, "shutdown");
    assert!(dynamo.item("k").is_some());
    drop(client);
    assert_eq!(sidecar.ended().await.code(), Some(0));
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn a_lock_that_cannot_be_given_back_before_the_end_is_left_to_its_lease() {
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "", &[("LEASEKEEPER_DRAIN_MS", "200")]).await;
    let mut client = sidecar.connect().await;
    let grant = client.acquire("k", LEASE_MS, 0).await.expect("a free key");
    let denied = dynamo.fail(Operation::DeleteItem, testkit::dynamo::Fault::Unavailable).always();
    sidecar.signal(Signal::TERM);
    assert_eq!(client.event().await["event"], "ending");
    let asked = Instant::now();
    drop(client);
    assert_eq!(sidecar.ended().await.code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(3), "the limit and a second: {:?}", asked.elapsed());
    assert!(denied.hits() > 0);
    assert_eq!(dynamo.item("k").expect("nobody could delete it")["owner"]["S"], grant.owner);
    sidecar.logged("WARN", "their leases expire").await;
}
