//! The fault front itself: what it refuses, what it counts, and when its rules apply.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeValue, Delete, Put, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};
use leasekeeper_core::{Answer, Op, Seen};
use leasekeeper_extension::store::{DynamoStore, Note, Request, Store};
use std::time::Duration;
use testkit::dynamo::{Dynamo, Fault, Operation};

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

async fn read(store: &DynamoStore, key: &str) -> bool {
    let patience = Duration::from_secs(20);
    let request =
        Request { key: key.into(), op: Op::Read, timeout: patience, connect_timeout: patience, note: Note::default() };
    store.send(request).await.answer == Answer::Found(Seen::Nothing)
}

#[tokio::test]
async fn what_a_lock_client_must_not_send_is_refused_and_remembered() {
    let dynamo = Dynamo::start().await;
    let client = dynamo.client().await;
    let total = ReturnConsumedCapacity::Total;
    let get = client.get_item().table_name("locks").key("key", s("k"));
    let put = client.put_item().table_name("locks").item("key", s("k"));
    let conditional =
        put.clone().condition_expression("attribute_not_exists(#k)").expression_attribute_names("#k", "key");
    let delete = client.delete_item().table_name("locks").key("key", s("k"));
    let all_old = ReturnValuesOnConditionCheckFailure::AllOld;

    assert!(get.clone().return_consumed_capacity(total.clone()).send().await.is_err(), "eventually consistent");
    assert!(get.clone().consistent_read(true).send().await.is_err(), "no capacity asked for");
    assert!(put.clone().return_consumed_capacity(total.clone()).send().await.is_err(), "unconditional");
    assert!(
        conditional.clone().return_consumed_capacity(total.clone()).send().await.is_err(),
        "the old row not asked for"
    );
    assert!(delete.return_consumed_capacity(total.clone()).send().await.is_err(), "unconditional");
    let bare = Put::builder().table_name("locks").item("key", s("k")).build().expect("complete");
    let bare = TransactWriteItem::builder().put(bare).build();
    assert!(client.transact_write_items().transact_items(bare).send().await.is_err(), "unconditional in a transaction");
    let scan = client.scan().table_name("locks").send().await.expect_err("not permitted");
    assert_eq!(scan.code(), Some("AccessDeniedException"));
    assert_eq!(dynamo.front().take_violations().len(), 7);
    assert_eq!(dynamo.item("k"), None);

    get.consistent_read(true).return_consumed_capacity(total.clone()).send().await.expect("as it should be");
    let good = conditional.return_values_on_condition_check_failure(all_old).return_consumed_capacity(total);
    good.send().await.expect("as it should be");
    assert_eq!(dynamo.front().violations(), Vec::<String>::new());
}

#[tokio::test]
async fn other_tables_are_other_peoples() {
    let dynamo = Dynamo::start().await;
    dynamo.create_table("orders", "key", "S", None);
    let client = dynamo.client().await;
    client.put_item().table_name("orders").item("key", s("k")).send().await.expect("no rule for this table");
    let delete = Delete::builder().table_name("orders").key("key", s("k")).build().expect("complete");
    let delete = TransactWriteItem::builder().delete(delete).build();
    client.transact_write_items().transact_items(delete).send().await.expect("no rule for this table");
    assert_eq!(dynamo.count(Operation::TransactWriteItems), 1);
}

#[tokio::test]
async fn dropping_it_tells_of_violations() {
    let dynamo = Dynamo::start().await;
    let client = dynamo.client().await;
    client.get_item().table_name("locks").key("key", s("k")).send().await.expect_err("refused");
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(dynamo)));
    let message = dropped.expect_err("it panics").downcast::<String>().expect("with a text");
    assert!(message.contains("GetItem: without"), "{message}");
}

#[tokio::test]
async fn rules_apply_by_operation_key_number_and_order() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    dynamo.fail(Operation::PutItem, Fault::Throttle);
    assert!(read(&store, "k").await, "another operation's");
    let second = dynamo.fail(Operation::GetItem, Fault::Throttle).key("k").after(1).times(2);
    assert!(read(&store, "k").await, "let pass");
    assert!(read(&store, "other").await, "another key's");
    assert!(!read(&store, "k").await && !read(&store, "k").await);
    assert_eq!(second.hits(), 2);
    assert!(read(&store, "k").await, "used up");
    let always = dynamo.fail(Operation::Any, Fault::InternalError).always();
    assert!(!read(&store, "k").await && !read(&store, "k").await && !read(&store, "k").await);
    always.lift();
    assert!(read(&store, "k").await, "lifted");

    let statuses: Vec<_> = dynamo.requests_for("k").iter().map(|request| request.status).collect();
    let expected = [200, 200, 400, 400, 200, 500, 500, 500, 200].map(Some);
    assert_eq!(statuses, expected);
    let faults = dynamo.requests().iter().filter(|request| request.fault == Some(Fault::Throttle)).count();
    assert_eq!((dynamo.count(Operation::GetItem), dynamo.count(Operation::Any), faults), (10, 10, 2));
}

#[tokio::test]
async fn waiting_for_the_log_ends_with_the_request_or_the_limit() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    assert!(!dynamo.until(Duration::ZERO, |log| !log.is_empty()).await);
    let (seen, found) = tokio::join!(dynamo.until(Duration::from_secs(20), |log| log.len() == 1), read(&store, "k"));
    assert!(seen && found);
}

#[test]
fn it_runs_without_a_runtime_and_ends_with_its_threads() {
    let dynamo = Dynamo::start_blocking();
    let address = dynamo.front().address();
    std::net::TcpStream::connect(address).expect("it listens");
    drop(dynamo);
    std::net::TcpStream::connect(address).expect_err("it listens no more");
}
