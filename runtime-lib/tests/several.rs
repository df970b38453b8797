//! Several locks: acquired in one order, given back in the reverse, all or none.

mod common;

use common::{Fake, Peer};
use leasekeeper::{Code, Locks};
use leasekeeper_wire::{Failure, Metrics, Released};

/// Grants what is asked for, and tells the key.
async fn grant(fake: &Fake) -> (Peer, String) {
    let (peer, request) = fake.grant_for(18_000).await;
    assert_eq!(request.wait_ms, Some(0), "the options are set for each");
    (peer, request.key)
}

async fn confirm(mut peer: Peer) {
    let id = peer.release().await;
    peer.ok(id, &Released { metrics: Metrics::default() }).await;
    peer.closed().await;
}

#[tokio::test]
async fn locks_are_acquired_in_their_order_and_given_back_in_the_reverse() {
    let fake = Fake::start();
    let locks = fake.locks();
    let work = async {
        let guards = locks.acquire_all(["b", "c", "a", "b"], |acquire| acquire.try_once()).await.expect("granted");
        let keys: Vec<String> = guards.leases().map(|lease| lease.key().to_owned()).collect();
        assert_eq!(keys, ["a", "b", "c"]);
        guards.release().await.expect("confirmed");
    };
    let extension = async {
        let (a, first) = grant(&fake).await;
        let (b, second) = grant(&fake).await;
        let (c, third) = grant(&fake).await;
        assert_eq!([first, second, third], ["a", "b", "c"]);
        // Each is confirmed before the next is given back, so any other order would wait for ever.
        confirm(c).await;
        confirm(b).await;
        confirm(a).await;
    };
    tokio::join!(work, extension);
}

#[tokio::test]
async fn all_or_none() {
    let fake = Fake::start();
    let locks = fake.locks();
    let extension = async {
        let (a, _) = grant(&fake).await;
        let mut busy = fake.accept().await;
        let (id, _) = busy.acquire().await;
        busy.error(id, Failure::new(Code::Busy, "")).await;
        confirm(a).await;
    };
    let (error, ()) = tokio::join!(locks.acquire_all(["a", "b", "c"], |acquire| acquire.try_once()), extension);
    assert_eq!(error.expect_err("one is busy").code(), Code::Busy);
}

#[tokio::test]
async fn one_wrong_key_and_nothing_is_sent() {
    let nowhere = Locks::at("/nonexistent/lock.sock");
    let error = nowhere.acquire_all(["a", ""], |acquire| acquire).await.expect_err("an empty key");
    assert_eq!(error.code(), Code::Protocol);
}
