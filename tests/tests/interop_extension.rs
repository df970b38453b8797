//! Real extension processes and pydynox compete for one lock, in both directions: contention, crash, pause, ownership check.

use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Put, TransactWriteItem};
use rustix::process::Signal;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use testkit::dynamo::{Dynamo, Operation, PYDYNOX, Recorded};
use testkit::pydynox::Pydynox;
use testkit::sidecar::Sidecar;
use tokio::time::sleep;

/// Short, so that abandoned rows ripen soon; long enough for two processes on a busy machine.
const LEASE: Duration = Duration::from_millis(2_000);
const LEASE_MS: u64 = 2_000;
const LEASE_S: f64 = 2.0;

/// When the row was last written by `client`, and when another client's Put replaced it afterwards.
fn handover(log: &[Recorded], client: &str) -> (Duration, Duration) {
    let committed = |request: &&Recorded| request.status == Some(200) && request.operation != Operation::GetItem;
    let last = log.iter().filter(committed).rfind(|request| request.client == client).expect("it wrote");
    let next = log.iter().filter(committed).find(|request| request.at > last.at).expect("it was replaced");
    assert_ne!(next.client, client);
    assert_eq!(next.operation, Operation::PutItem);
    (last.at, next.at)
}

#[tokio::test]
async fn each_waits_while_the_other_holds_and_renews_beyond_its_lease() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "extension", &[]).await;
    let mut client = sidecar.connect().await;
    let mut pydynox = Pydynox::start(&dynamo).await;

    let grant = client.acquire("k", LEASE_MS, 5_000).await.expect("free");
    let raised = pydynox.acquire("g", "k", LEASE_S, 1.5 * LEASE_S).await.expect_err("held and renewed");
    assert_eq!(raised.class, "LockNotAcquired", "{}", raised.message);
    client.release(grant.lease).await.expect("still held");
    assert_eq!(dynamo.item("k"), None);

    pydynox.acquire("g", "k", LEASE_S, 5.0).await.expect("given back");
    let refused = client.acquire("k", LEASE_MS, LEASE_MS * 3 / 2).await.expect_err("held and renewed");
    assert_eq!(refused["code"], "busy", "{refused}");
    pydynox.check("g").await.expect("undisturbed");
    pydynox.release("g").await.expect("still held");
    assert_eq!(dynamo.item("k"), None);
    client.acquire("k", LEASE_MS, 5_000).await.expect("given back");
}

#[tokio::test]
async fn a_killed_pydynox_is_succeeded_by_the_extension_after_its_lease() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "extension", &[]).await;
    let mut client = sidecar.connect().await;
    let mut pydynox = Pydynox::start(&dynamo).await;
    pydynox.acquire("g", "k", LEASE_S, 5.0).await.expect("free");
    pydynox.crash().await;
    client.acquire("k", 20_000, 20_000).await.expect("abandoned");
    let (last, next) = handover(&dynamo.requests(), PYDYNOX);
    assert!(next - last >= LEASE, "taken over {:?} after the last write", next - last);
}

#[tokio::test]
async fn a_killed_extension_is_succeeded_by_pydynox_after_its_lease() {
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "extension", &[]).await;
    let mut client = sidecar.connect().await;
    let mut pydynox = Pydynox::start(&dynamo).await;
    client.acquire("k", LEASE_MS, 5_000).await.expect("free");
    sidecar.kill().await;
    pydynox.acquire("g", "k", 20.0, 20.0).await.expect("abandoned");
    let (last, next) = handover(&dynamo.requests(), "extension");
    assert!(next - last >= LEASE, "taken over {:?} after the last write", next - last);
}

#[tokio::test]
async fn an_extension_that_was_stopped_beyond_its_lease_knows_and_leaves_the_new_row_alone() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "extension", &[]).await;
    let mut client = sidecar.connect().await;
    let mut pydynox = Pydynox::start(&dynamo).await;
    let grant = client.acquire("k", LEASE_MS, 5_000).await.expect("free");
    sidecar.signal(Signal::STOP);
    let owner = pydynox.acquire("g", "k", 20.0, 20.0).await.expect("abandoned");
    sidecar.signal(Signal::CONT);
    let event = client.event().await;
    assert_eq!((&event["event"], &event["lease"]), (&json!("lost"), &json!(grant.lease)), "{event}");
    client.release(grant.lease).await.expect_err("it is lost");
    drop(client);
    // A request of its own is answered after whatever the loss made the extension send.
    sidecar.connect().await.acquire("other", LEASE_MS, 0).await.expect("free");
    assert_eq!(dynamo.item("k").expect("pydynox's row")["owner"]["S"], owner.as_str());
    pydynox.release("g").await.expect("undisturbed");
}

#[tokio::test]
async fn a_pydynox_that_was_stopped_beyond_its_lease_is_refused_by_the_extensions_row() {
    let dynamo = Dynamo::start().await;
    dynamo.create_table("orders", "key", "S", None);
    let sidecar = Sidecar::start(&dynamo, "extension", &[]).await;
    let mut client = sidecar.connect().await;
    let mut pydynox = Pydynox::start(&dynamo).await;
    pydynox.acquire("g", "k", LEASE_S, 5.0).await.expect("free");
    pydynox.transact("g", "orders", json!({"key": "under the lock"})).await.expect("held");
    pydynox.signal(Signal::STOP);
    let grant = client.acquire("k", 20_000, 20_000).await.expect("abandoned");
    pydynox.signal(Signal::CONT);
    pydynox.transact("g", "orders", json!({"key": "too late"})).await.expect_err("not its lock any more");
    pydynox.check("g").await.expect_err("it knows");
    assert_eq!(dynamo.item("k").expect("our row")["owner"]["S"], grant.owner.as_str());
    client.release(grant.lease).await.expect("undisturbed");
}

#[tokio::test]
async fn a_transaction_under_the_extensions_owner_is_refused_after_release_and_after_takeover() {
    let dynamo = Dynamo::start().await;
    dynamo.create_table("orders", "key", "S", None);
    let sidecar = Sidecar::start(&dynamo, "extension", &[]).await;
    let mut client = sidecar.connect().await;
    let mut pydynox = Pydynox::start(&dynamo).await;
    let application = dynamo.client().await;
    let write = async |owner: &str| {
        let s = |text: &str| AttributeValue::S(text.to_owned());
        let check = ConditionCheck::builder()
            .table_name(dynamo.table())
            .key("key", s("k"))
            .condition_expression("#owner = :mine")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":mine", s(owner));
        let put = Put::builder().table_name("orders").item("key", s("order"));
        let check = TransactWriteItem::builder().condition_check(check.build().expect("complete")).build();
        let put = TransactWriteItem::builder().put(put.build().expect("complete")).build();
        application.transact_write_items().transact_items(check).transact_items(put).send().await.is_ok()
    };
    let grant = client.acquire("k", LEASE_MS, 5_000).await.expect("free");
    assert!(write(&grant.owner).await, "held");
    client.release(grant.lease).await.expect("held");
    assert!(!write(&grant.owner).await, "released");
    let owner = pydynox.acquire("g", "k", LEASE_S, 5.0).await.expect("given back");
    assert!(!write(&grant.owner).await, "pydynox holds it");
    assert!(write(&owner).await, "pydynox's owner is as good");
    pydynox.release("g").await.expect("held");
}

/// The section that only one may be in.
#[derive(Debug, Default)]
struct Section {
    taken: AtomicBool,
    visits: AtomicUsize,
}

impl Section {
    async fn visit(&self) {
        assert!(!self.taken.swap(true, Ordering::SeqCst), "two are inside");
        sleep(Duration::from_millis(5)).await;
        self.visits.fetch_add(1, Ordering::SeqCst);
        assert!(self.taken.swap(false, Ordering::SeqCst), "another one has left");
    }
}

#[tokio::test]
async fn two_extensions_and_two_pydynoxes_are_never_inside_together() {
    const ROUNDS: usize = 15;
    let dynamo = Dynamo::start().await;
    let section = Arc::new(Section::default());
    let mut contenders = tokio::task::JoinSet::new();
    for name in ["first", "second"] {
        let sidecar = Sidecar::start(&dynamo, name, &[]).await;
        let mut client = sidecar.connect().await;
        let mut pydynox = Pydynox::start(&dynamo).await;
        let inside = section.clone();
        contenders.spawn(async move {
            for _ in 0..ROUNDS {
                let grant = client.acquire("k", 10_000, 60_000).await.expect("its turn comes");
                inside.visit().await;
                client.release(grant.lease).await.expect("still held");
            }
            drop(sidecar);
        });
        let inside = section.clone();
        contenders.spawn(async move {
            for _ in 0..ROUNDS {
                pydynox.acquire("g", "k", 10.0, 60.0).await.expect("its turn comes");
                inside.visit().await;
                pydynox.release("g").await.expect("still held");
            }
        });
    }
    contenders.join_all().await;
    assert_eq!(section.visits.load(Ordering::SeqCst), 4 * ROUNDS);
    assert_eq!(dynamo.item("k"), None);
}
