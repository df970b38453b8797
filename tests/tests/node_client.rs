//! The Node package in a function: in the Lambda sandbox, with the real extension, on the embedded DynamoDB.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::deeds::{error_kind, event, gone, hold};
use testkit::dynamo::Dynamo;
use testkit::programs::{built, node_path, repository};
use testkit::sandbox::{Builder, Outcome, Program, Sandbox};

/// An environment with the extension and the tests' Node function, on this DynamoDB.
fn environment(db: &Dynamo) -> Builder {
    let runtime = repository("tests/functions/node/runtime.mjs");
    Sandbox::builder()
        .extension(built("leasekeeper"))
        .runtime(Program::node(runtime).arg(repository("tests/functions/node/locks.mjs")))
        .envs(db.env())
        .env("LEASEKEEPER_PLAIN_KEYS", "true")
        .env("NODE_PATH", node_path().to_string_lossy())
        .timeout(Duration::from_secs(10))
}

#[tokio::test]
async fn a_node_handler_that_keeps_the_only_cpu_busy_for_twice_the_lease_keeps_its_lock() {
    let db = Dynamo::start().await;
    let env = environment(&db).one_cpu().env("LEASEKEEPER_LEASE_MS", "1200").start().await.unwrap();
    let answer = env.invoke(event("k", [json!(["spin", 2_400])])).await.outcome.json();
    assert!(answer["renewals"].as_u64().unwrap() >= 4, "{answer}");
    assert!(answer["remaining_ms"].as_f64().unwrap() > 0.0, "{answer}");
    assert_eq!(db.item("k"), None, "gone with the answer");
}

#[tokio::test]
async fn a_busy_lock_is_reported_to_lambda_by_its_name_and_tells_nothing_of_the_holder() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let contender = environment(&db).env("LEASEKEEPER_WAIT_MS", "0").start().await.unwrap();
    let call = hold(&env, "k").await;
    let row = db.item("k").expect("it is held");
    assert_eq!(row["request_id"]["S"].as_str(), Some(call.id.as_str()), "the row names the invocation");
    let Outcome::Error { kind, message } = contender.invoke(event("k", [])).await.outcome else {
        panic!("the lock is held");
    };
    assert_eq!(kind, "Leasekeeper.Busy");
    assert!(!message.contains(row["owner"]["S"].as_str().unwrap()) && !message.contains(&call.id), "{message}");
}

#[tokio::test]
async fn a_node_handlers_own_error_is_reported_as_it_is_and_the_lock_is_given_back() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    assert_eq!(error_kind(env.invoke(event("k", [json!(["fail", "mine"])])).await.outcome), "RangeError");
    assert_eq!(db.item("k"), None);
}

#[tokio::test]
async fn a_node_handler_that_exits_or_is_killed_leaves_its_lock_free_within_100_ms() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let _call = hold(&env, "killed").await;
    let killed = Instant::now();
    env.kill_runtime().unwrap();
    let took = gone(&db, "killed").await - killed;
    assert!(took < Duration::from_millis(100), "{took:?}");

    let env = environment(&db).start().await.unwrap();
    assert_eq!(error_kind(env.invoke(event("exits", [json!(["exit", 3])])).await.outcome), "Runtime.ExitError");
    let took = gone(&db, "exits").await.elapsed();
    assert!(took < Duration::from_millis(100), "{took:?}");
}

/// Leaks a lease of 1.5 s, whose validity is 1.35 s, and freezes for so long: what the next invocation's first look shows.
async fn leak_across_a_freeze(frozen: Duration) -> Value {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).env("LEASEKEEPER_LEASE_MS", "1500").start().await.unwrap();
    env.invoke(event("k", [json!(["leak", "leaked"])])).await.outcome.json();
    assert!(env.is_frozen());
    tokio::time::sleep(frozen).await;
    let told = env.invoke(json!({})).await.outcome.json();
    assert_eq!(told["is_lost"], true, "{told}");
    told
}

#[tokio::test]
async fn a_lease_that_a_node_handler_leaked_is_told_lost_at_the_next_invocation() {
    let told = leak_across_a_freeze(Duration::from_millis(700)).await;
    assert_eq!(told["reason"], "thaw");
    // Nobody may take it before this is over, so it may be said until the loss is told.
    assert!(told["remaining"].as_f64().unwrap() <= 650.0, "{told}");
}

#[tokio::test]
async fn a_lease_whose_validity_ended_in_a_freeze_is_never_said_to_be_valid_after_it() {
    let told = leak_across_a_freeze(Duration::from_millis(1_400)).await;
    assert_eq!(told["remaining"], 0, "{told}");
}

#[tokio::test]
async fn writes_with_the_ownership_check_are_refused_after_the_release_by_either_client_of_the_sdk() {
    let sdk = repository(".tools/node/sdk/node_modules");
    assert!(sdk.is_dir(), "{} is missing: run `make tools`", sdk.display());
    let db = Dynamo::start().await;
    db.create_table("orders", "key", "S", None);
    let path = std::env::join_paths([node_path(), sdk]).unwrap();
    let env = environment(&db).env("NODE_PATH", path.to_string_lossy()).start().await.unwrap();
    let answer = env.invoke(json!({"writes": ["client", "document"]})).await.outcome.json();
    assert_eq!(answer, json!({"held": [true, true], "after": [false, false]}));
}
