//! pydynox and the extension's store on one table: each reads, respects and replaces the other's rows.

use leasekeeper_core::{Answer, Op, Row, Seen};
use leasekeeper_extension::store::{DynamoStore, Note, Request, Store, Text};
use serde_json::json;
use std::time::Duration;
use testkit::dynamo::{Dynamo, Operation, row as row_json};
use testkit::pydynox::Pydynox;

async fn send(store: &DynamoStore, op: Op<Text>) -> Answer<Text> {
    let patience = Duration::from_secs(20);
    let note = Note { function: Some("import".to_owned()), ..Note::default() };
    store.send(Request { key: "k".into(), op, timeout: patience, connect_timeout: patience, note }).await.answer
}

fn ours(version: &str, lease_ms: u64) -> Row<Text> {
    Row { owner: "0c7e4b5a-8f1d-4a6b-9e3c-2d1f0a9b8c7d".into(), version: version.into(), lease_ms }
}

/// The row that stands there, as the store reads it.
async fn seen(store: &DynamoStore) -> Row<Text> {
    match send(store, Op::Read).await {
        Answer::Found(Seen::Row(row)) => row,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_row_of_pydynox_is_one_of_ours_in_every_attribute() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    let mut pydynox = Pydynox::start(&dynamo).await;
    let owner = pydynox.acquire("g", "k", 3.0, 5.0).await.expect("the key is free");
    let row = seen(&store).await;
    assert_eq!((&*row.owner, row.lease_ms), (owner.as_str(), 3_000));
    assert_eq!(send(&store, Op::Create { row: ours("v1", 20_000) }).await, Answer::Failed(Seen::Row(row.clone())));
    assert_eq!(dynamo.item("k"), Some(row_json("k", &row.owner, &row.version, 3_000)));
    assert!(
        dynamo.until(Duration::from_secs(20), |log| log.iter().any(|r| r.operation == Operation::UpdateItem)).await
    );
    pydynox.release("g").await.expect("still held");
    assert_eq!(send(&store, Op::Create { row: ours("v1", 20_000) }).await, Answer::Done);
}

#[tokio::test]
async fn pydynox_waits_for_our_row_and_takes_it_over_when_it_is_abandoned() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    let mut pydynox = Pydynox::start(&dynamo).await;
    assert_eq!(send(&store, Op::Create { row: ours("v1", 2_000) }).await, Answer::Done);
    let raised = pydynox.acquire("g", "k", 2.0, 0.3).await.expect_err("held");
    assert_eq!(raised.class, "LockNotAcquired");
    assert_eq!(
        send(&store, Op::Renew { owner: ours("", 0).owner, last: "v1".into(), new: "v2".into() }).await,
        Answer::Done
    );
    let written = dynamo.requests().last().expect("the renewal").at;
    let owner = pydynox.acquire("g", "k", 2.0, 20.0).await.expect("abandoned");
    let put = dynamo.requests().into_iter().rfind(|request| request.operation == Operation::PutItem);
    let put = put.expect("the takeover");
    assert!(put.at - written >= Duration::from_millis(2_000), "taken over after {:?}", put.at - written);
    assert_eq!(put.body["Item"]["owner"]["S"], owner.as_str());
    // What only people read is gone with our row.
    assert_eq!(dynamo.item("k").expect("a row").get("function"), None);
    let row = seen(&store).await;
    let late = Op::Renew { owner: ours("", 0).owner, last: "v2".into(), new: "v3".into() };
    assert!(matches!(send(&store, late).await, Answer::Failed(Seen::Row(seen)) if seen.owner == row.owner));
    assert!(matches!(send(&store, Op::Delete { owner: ours("", 0).owner }).await, Answer::Failed(Seen::Row(_))));
}

#[tokio::test]
async fn pydynox_notices_our_takeover_and_its_transaction_is_refused() {
    let dynamo = Dynamo::start().await;
    dynamo.create_table("orders", "key", "S", None);
    let store = dynamo.store();
    let mut pydynox = Pydynox::start(&dynamo).await;
    // A lease so long that no renewal falls into this test.
    pydynox.acquire("g", "k", 60.0, 5.0).await.expect("the key is free");
    pydynox.transact("g", "orders", json!({"key": "first"})).await.expect("under the lock");
    let row = seen(&store).await;
    let takeover = Op::Replace { row: ours("v1", 20_000), owner: row.owner, version: row.version };
    assert_eq!(send(&store, takeover).await, Answer::Done);
    pydynox.check("g").await.expect("it cannot know yet");
    pydynox.transact("g", "orders", json!({"key": "second"})).await.expect_err("not its lock any more");
    assert_eq!(seen(&store).await, ours("v1", 20_000));
}

#[tokio::test]
async fn a_crashed_pydynox_leaves_a_row_that_can_be_taken_over() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    let mut pydynox = Pydynox::start(&dynamo).await;
    pydynox.acquire("g", "k", 60.0, 5.0).await.expect("the key is free");
    pydynox.crash().await;
    let row = seen(&store).await;
    let takeover = Op::Replace { row: ours("v1", 20_000), owner: row.owner, version: row.version };
    assert_eq!(send(&store, takeover).await, Answer::Done);
    assert_eq!(seen(&store).await, ours("v1", 20_000));
}
