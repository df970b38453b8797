//! Guards that outlive their invocation: never renewed after it, told when the environment wakes, their rows kept until nobody can
//! believe in them.

use super::*;
use testkit::deeds::event;
use testkit::dynamo::{Operation, Recorded};
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::sandbox::Role;

const ROW: &str = "leaked-guard";
const LEASE: Duration = Duration::from_millis(3_000);
const VALIDITY: Duration = Duration::from_millis(2_700);
/// What a request may have been on its way: validity counts from its sending, and the store's log from its arrival.
const ON_THE_WAY: Duration = Duration::from_millis(50);

/// The one request of this operation for the leaked key.
fn only(db: &Dynamo, operation: Operation) -> Recorded {
    let mut all = db.requests_for("leaked").into_iter().filter(|request| request.operation == operation);
    let only = all.next().unwrap_or_else(|| panic!("no {operation:?}"));
    assert!(all.next().is_none(), "more than one {operation:?}");
    only
}

/// The leaked row was written once and deleted once, when its validity was over; how long after that.
fn deleted_when_nobody_could_believe(db: &Dynamo, validity: Duration) -> Duration {
    let requests = db.requests_for("leaked");
    assert_eq!(requests.len(), 2, "never renewed: {requests:?}");
    let (written, deleted) = (only(db, Operation::PutItem).at, only(db, Operation::DeleteItem).at);
    assert!(deleted + ON_THE_WAY >= written + validity, "deleted {:?} after it was written", deleted - written);
    deleted.saturating_sub(written + validity)
}

/// A Python global, a Node closure's variable, a Rust static.
async fn leak(language: Language) {
    let db = Dynamo::start().await;
    let env = language.environment(&db).freeze(true).timeout(Duration::from_secs(10));
    let env = env.env("LEASEKEEPER_LEASE_MS", LEASE.as_millis().to_string()).start().await.unwrap();
    let leaking = env.invoke(event("k", [json!(["leak", "leaked"])])).await;
    assert!(leaking.outcome.json()["owner"].is_string() && env.is_frozen());
    let frozen_at = Instant::now();
    tokio::time::sleep(Duration::from_millis(300)).await;

    let told = env.invoke(json!({})).await.outcome.json();
    assert_eq!(told["reason"], "thaw", "{language}: {told}");
    assert!(db.item("leaked").is_some(), "{language}: its holder may still believe");
    // The environment is awake until nobody can believe any more.
    let awake = VALIDITY.saturating_sub(frozen_at.elapsed()) + Duration::from_millis(300);
    let awake = u64::try_from(awake.as_millis()).unwrap();
    env.invoke(event("awake", [json!(["sleep", awake])])).await.outcome.json();
    assert_eq!(db.item("leaked"), None, "{language}");
    let late = deleted_when_nobody_could_believe(&db, VALIDITY);
    figure(
        ROW,
        "told lost at the next INVOKE; row deleted after the validity's end by",
        format!("{} ms", late.as_millis()),
    );
}

#[tokio::test]
async fn a_guard_in_a_python_global_is_lost_at_the_next_invoke_and_its_row_goes_when_its_validity_is_over() {
    leak(Language::Python).await;
}

#[tokio::test]
async fn a_guard_in_a_node_closure_is_lost_at_the_next_invoke_and_its_row_goes_when_its_validity_is_over() {
    leak(Language::Node).await;
}

#[tokio::test]
async fn a_guard_in_a_rust_static_is_lost_at_the_next_invoke_and_its_row_goes_when_its_validity_is_over() {
    leak(Language::Rust).await;
}

#[tokio::test]
async fn a_raw_clients_lease_is_told_lost_by_the_thaw_alone_once_its_validity_is_over() {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).thaw_lead(Duration::from_millis(400)).start().await.unwrap();
    let leaking = env.invoke(steps([acquire_for("leaked", 1_000), keep()])).await;
    granted(&leaking.outcome.json()[0]);
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let second = env.invoke(steps([event_within(1_000), json!({"do": "close"})])).await;
    let told = second.outcome.json();
    assert_eq!((&told[0]["event"], &told[0]["reason"]), (&json!("lost"), &json!("expired")), "{told}");
    let lost = env.wait_for_log(Role::Extension, "\"lost\"").await.unwrap();
    assert!(lost.at < second.delivered, "told before the INVOKE was there");
    gone(&db, "leaked").await;
    deleted_when_nobody_could_believe(&db, Duration::from_millis(900));
}

#[tokio::test]
async fn where_the_environment_is_not_frozen_a_leaked_lease_ends_with_its_invocations_deadline() {
    let db = Dynamo::start().await;
    // Nothing freezes it: what bounds a leak is the deadline of the invocation that it belongs to.
    let env = environment(&db).timeout(Duration::from_millis(1_200)).start().await.unwrap();
    let leaking = env.invoke(steps([acquire_for("leaked", 1_500), keep()])).await;
    granted(&leaking.outcome.json()[0]);
    let deadline = leaking.delivered + Duration::from_millis(1_200);
    let lost = env.wait_for_log(Role::Extension, "\"deadline\"").await.unwrap();
    assert!(lost.at >= deadline, "not before");
    assert!(db.item("leaked").is_some(), "its holder may still believe");
    gone(&db, "leaked").await;
    let renewals = db.count(Operation::UpdateItem);
    assert!((1..=2).contains(&renewals), "{renewals} renewals, all before the deadline");
    let last = db.requests_for("leaked").into_iter().rfind(|request| request.operation == Operation::UpdateItem);
    let last = last.expect("counted above").at;
    let deleted = only(&db, Operation::DeleteItem).at;
    assert!(deleted + ON_THE_WAY >= last + Duration::from_millis(1_350), "not before the validity is over");
}
