//! `break`: deletes the row that was looked at, and no other.

use crate::{finish, leasekeeper, perform};
use serde_json::json;
use std::time::Duration;
use testkit::dynamo::{COMMANDS, Dynamo, Fault, Operation, row};
use testkit::sidecar::Sidecar;
use tokio::time::Instant;

#[tokio::test]
async fn the_row_that_was_inspected_is_deleted_and_its_holder_told_at_its_next_renewal() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "holder", &[]).await;
    let mut client = sidecar.connect().await;
    let grant = client.acquire("k", 6_000, 10_000).await.expect("a free key");
    let version = dynamo.item("k").expect("it is held")["version"]["S"].as_str().expect("a text").to_owned();
    let broken = perform(&dynamo, &["break", "k", "--if-version", &version]).await;
    let said = Instant::now();
    broken.assert_done(&["the row is deleted, the lock is free", "within 2 s as a rule", "for 5.4 s at most"]);
    assert_eq!(dynamo.item("k"), None);
    client.check(grant.lease).await.expect("until its next renewal the holder believes");
    assert_eq!(client.lost(grant.lease).await, "deleted");
    assert!(said.elapsed() < Duration::from_millis(2_500), "told after {:?}", said.elapsed());
}

#[tokio::test]
async fn what_follows_is_also_told_to_scripts() {
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("k", "o", "v", 20_000));
    let json = perform(&dynamo, &["break", "k", "--if-version", "v", "--json"]).await.json();
    assert_eq!(
        json,
        json!({
            "table": "locks", "key": "k", "broken": true, "owner": "o", "version": "v", "lease_ms": 20_000,
            "told_within_ms": 6_666, "believes_at_most_ms": 18_000,
        })
    );
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn without_a_version_or_with_another_one_nothing_is_deleted() {
    let dynamo = Dynamo::start().await;
    let item = row("k", "o", "v2", 20_000);
    dynamo.put_raw(item.clone());
    perform(&dynamo, &["break", "k"]).await.assert_failed(2, &["--if-version is required", "leasekeeper inspect"]);
    assert!(dynamo.requests().is_empty());
    let parts = ["nothing was deleted", "its version is not v1 but v2", "inspect it again"];
    perform(&dynamo, &["break", "k", "--if-version", "v1"]).await.assert_failed(65, &parts);
    assert_eq!(dynamo.item("k"), Some(item));
    assert_eq!(dynamo.count(Operation::DeleteItem), 0);
}

#[tokio::test]
async fn a_row_that_changes_while_it_is_broken_is_left() {
    for (changed, part) in [
        (Some(row("k", "o", "v2", 20_000)), "its version is not v1 but v2"),
        (Some(row("k", "another", "v1", 20_000)), "has just changed hands"),
        (None, "there is no row"),
    ] {
        let dynamo = Dynamo::start().await;
        dynamo.put_raw(row("k", "o", "v1", 20_000));
        dynamo.fail(Operation::DeleteItem, Fault::DelayBefore(Duration::from_millis(300)));
        let child = leasekeeper(&dynamo, COMMANDS, &["break", "k", "--if-version", "v1"]).spawn().expect("it starts");
        let sent =
            |operation| move |log: &[testkit::dynamo::Recorded]| log.iter().any(|sent| sent.operation == operation);
        assert!(dynamo.until(Duration::from_secs(10), sent(Operation::DeleteItem)).await);
        match &changed {
            Some(item) => dynamo.put_raw(item.clone()),
            None => dynamo.delete_raw("k"),
        }
        finish(child).await.assert_failed(65, &[part]);
        assert_eq!(dynamo.item("k"), changed);
    }
}

#[tokio::test]
async fn no_row_and_another_librarys_row_are_told_apart_and_left() {
    let dynamo = Dynamo::start().await;
    let parts = ["there is no row", "nothing to break", "mistyped"];
    perform(&dynamo, &["break", "k", "--if-version", "v"]).await.assert_failed(65, &parts);
    let item = json!({"key": {"S": "k"}, "owner": {"S": "o"}, "version": {"S": "v"}});
    dynamo.put_raw(item.clone());
    let parts = ["no lock row of protocol version 1", "left alone"];
    perform(&dynamo, &["break", "k", "--if-version", "v"]).await.assert_failed(65, &parts);
    assert_eq!(dynamo.item("k"), Some(item));
    assert_eq!(dynamo.count(Operation::DeleteItem), 0);
}

#[tokio::test]
async fn a_delete_whose_answer_is_lost_is_sent_once_and_said_to_be_unknown() {
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("k", "o", "v", 20_000));
    dynamo.fail(Operation::DeleteItem, Fault::CommitThenDrop);
    let parts = ["nobody knows whether the row was deleted", "inspect it again", "dynamodb:DeleteItem"];
    perform(&dynamo, &["break", "k", "--if-version", "v"]).await.assert_failed(69, &parts);
    assert_eq!(dynamo.count(Operation::DeleteItem), 1);
}
