//! Connections to DynamoDB: made once, given up in time, dropped on order; and what a time-out means.

use aws_config::{BehaviorVersion, Region};
use leasekeeper_core::{Answer, Op, Row, Seen};
use leasekeeper_extension::store::{DynamoStore, Note, Request, Store, Text};
use std::sync::Arc;
use std::time::Duration;
use testkit::dynamo::{Dynamo, Fault, Operation};
use tokio::time::Instant;

/// Longer than any answer that comes takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time-outs that no test waits for in real time: the clock is paused and jumps.
const OPEN: Duration = Duration::from_secs(7);
const CONNECT: Duration = Duration::from_secs(11);

fn request(key: &str, op: Op<Text>, timeout: Duration, connect_timeout: Duration) -> Request {
    Request { key: key.into(), op, timeout, connect_timeout, note: Note::default() }
}

fn create() -> Op<Text> {
    Op::Create { row: row() }
}

fn row() -> Row<Text> {
    Row { owner: "o1".into(), version: "v1".into(), lease_ms: 20_000 }
}

async fn patient(store: &DynamoStore, key: &str, op: Op<Text>) -> Answer<Text> {
    store.send(request(key, op, PATIENCE, PATIENCE)).await.answer
}

fn store_at(endpoint: String) -> DynamoStore {
    DynamoStore::configured("locks", move || {
        aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(aws_credential_types::Credentials::for_tests())
            .endpoint_url(endpoint.clone())
    })
}

/// Lets every task of this runtime that has something to do do it, sockets included, without waiting for time.
async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_open_connection_is_given_up_after_the_shorter_time_out() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    assert_eq!(patient(&store, "k", Op::Read).await, Answer::Found(Seen::Nothing));
    for fault in [Fault::Hang, Fault::CommitThenHang] {
        // A connection whose reply never came is not used again: open one for the next round.
        assert_eq!(patient(&store, "other", Op::Read).await, Answer::Found(Seen::Nothing));
        dynamo.delete_raw("k");
        dynamo.fail(Operation::PutItem, fault);
        tokio::time::pause();
        let began = Instant::now();
        let answer = store.send(request("k", create(), OPEN, CONNECT)).await.answer;
        let took = began.elapsed();
        tokio::time::resume();
        assert!(matches!(answer, Answer::Unknown(_)), "{answer:?}");
        assert_within_a_tick(took, OPEN);
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_made_is_given_up_after_the_longer_time_out() {
    // Accepts in the kernel, never says a word: TLS does not come about.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let store = store_at(format!("https://{}", silent.local_addr().expect("its address")));
    tokio::time::pause();
    let began = Instant::now();
    let answer = store.send(request("k", create(), OPEN, CONNECT)).await.answer;
    assert!(matches!(answer, Answer::Unavailable(_)), "nothing was ever sent: {answer:?}");
    assert_within_a_tick(began.elapsed(), CONNECT);
}

/// The timer's grain is a millisecond.
fn assert_within_a_tick(took: Duration, expected: Duration) {
    assert!(took >= expected && took <= expected + Duration::from_millis(5), "{took:?} instead of {expected:?}");
}

#[tokio::test]
async fn a_request_that_timed_out_may_still_be_committed() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    let late = Duration::from_millis(100);
    dynamo.fail(Operation::PutItem, Fault::DelayBefore(late));
    let soon = Duration::from_millis(20);
    assert_eq!(patient(&store, "other", Op::Read).await, Answer::Found(Seen::Nothing));
    let answer = store.send(request("k", create(), soon, soon)).await.answer;
    assert!(matches!(answer, Answer::Unknown(_)), "{answer:?}");
    assert_eq!(dynamo.item("k"), None);
    let deadline = Instant::now() + PATIENCE;
    while dynamo.item("k").is_none() {
        assert!(Instant::now() < deadline, "the write never landed");
        tokio::task::yield_now().await;
    }
    assert_eq!(patient(&store, "k", Op::Read).await, Answer::Found(Seen::Row(row())));
}

#[tokio::test]
async fn a_pooled_connection_that_was_closed_is_replaced_unseen() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    assert_eq!(patient(&store, "k", Op::Read).await, Answer::Found(Seen::Nothing));
    dynamo.front().close_connections().await;
    settle().await;
    assert_eq!(patient(&store, "k", create()).await, Answer::Done);
    assert_eq!(dynamo.count(Operation::PutItem), 1);
    assert_eq!(dynamo.front().accepted(), 2);
}

#[tokio::test]
async fn a_pooled_connection_that_died_costs_one_attempt_and_is_not_used_again() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    assert_eq!(patient(&store, "k", Op::Read).await, Answer::Found(Seen::Nothing));
    dynamo.front().kill_connections();
    tokio::time::pause();
    let answer = store.send(request("k", create(), OPEN, CONNECT)).await.answer;
    tokio::time::resume();
    assert!(matches!(answer, Answer::Unknown(_)), "{answer:?}");
    assert_eq!(patient(&store, "k", create()).await, Answer::Done);
    assert_eq!(dynamo.count(Operation::PutItem), 1, "the first one went into the dead connection and nowhere else");
}

#[tokio::test]
async fn dropped_connections_cost_no_attempt() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    // Several, so that more than one is idle.
    let reads = ["a", "b", "c"].map(|key| patient(&store, key, Op::Read));
    let [a, b, c] = reads;
    let found = tokio::join!(a, b, c);
    assert_eq!(found.0, Answer::Found(Seen::Nothing));
    let before = dynamo.front().accepted();
    dynamo.front().kill_connections();
    store.drop_connections();
    assert_eq!(patient(&store, "k", create()).await, Answer::Done);
    assert_eq!(dynamo.front().accepted(), before + 1);
    assert_eq!(dynamo.count(Operation::PutItem), 1);
}

#[tokio::test]
async fn requests_under_way_outlive_their_dropped_connections() {
    let dynamo = Dynamo::start().await;
    let store = Arc::new(dynamo.store());
    dynamo.fail(Operation::PutItem, Fault::DelayAfter(Duration::from_millis(50)));
    let under_way = tokio::spawn({
        let store = store.clone();
        async move { patient(&store, "k", create()).await }
    });
    assert!(dynamo.until(PATIENCE, |log| log.len() == 1).await);
    store.drop_connections();
    assert_eq!(patient(&store, "other", Op::Read).await, Answer::Found(Seen::Nothing));
    assert_eq!(under_way.await.expect("no panic"), Answer::Done);
    assert_eq!(dynamo.count(Operation::PutItem), 1);
}

#[tokio::test]
async fn warming_opens_the_connection_that_the_first_request_uses() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    store.warm().await;
    assert_eq!(dynamo.front().accepted(), 1);
    assert_eq!(dynamo.requests().len(), 0, "no row is touched and no permission needed");
    assert_eq!(patient(&store, "k", create()).await, Answer::Done);
    assert_eq!(dynamo.front().accepted(), 1);
}

#[tokio::test]
async fn warming_in_vain_fails_nothing() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("its address");
    let store = store_at(format!("https://{address}"));
    tokio::time::pause();
    let began = Instant::now();
    store.warm().await;
    assert!(began.elapsed() <= Duration::from_secs(4), "took {:?}", began.elapsed());
    drop(silent);
    tokio::time::resume();
    store_at(format!("http://{address}")).warm().await;
}

#[tokio::test]
async fn making_a_store_reads_and_connects_nothing() {
    let dynamo = Dynamo::start().await;
    let store = DynamoStore::configured("locks", || panic!("the configuration is read"));
    store.drop_connections();
    drop(store);
    assert_eq!(dynamo.front().accepted(), 0);
}
