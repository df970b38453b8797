//! The Python package in a function: in the Lambda sandbox, with the real extension, on the embedded DynamoDB.

use serde_json::json;
use std::time::{Duration, Instant};
use testkit::deeds::{error_kind, event, gone, hold};
use testkit::dynamo::Dynamo;
use testkit::programs::{built, python_path, repository};
use testkit::sandbox::{Builder, Outcome, Program, Sandbox};

/// An environment with the extension and the tests' Python function, on this DynamoDB.
fn environment(db: &Dynamo) -> Builder {
    let interpreter = repository(".tools/python/bin/python");
    assert!(interpreter.is_file(), "{} is missing: run `make tools`", interpreter.display());
    let runtime = repository("tests/functions/python/bootstrap.py");
    Sandbox::builder()
        .extension(built("leasekeeper"))
        .runtime(Program::new(interpreter).arg(runtime).arg(repository("tests/functions/python/locks.py")))
        .envs(db.env())
        .env("LEASEKEEPER_PLAIN_KEYS", "true")
        .env("PYTHONPATH", python_path().to_string_lossy())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .timeout(Duration::from_secs(10))
}

#[tokio::test]
async fn a_python_handler_that_keeps_the_only_cpu_busy_for_twice_the_lease_keeps_its_lock() {
    let db = Dynamo::start().await;
    let env = environment(&db).one_cpu().env("LEASEKEEPER_LEASE_MS", "1200").start().await.unwrap();
    let answer = env.invoke(event("k", [json!(["spin", 2_400])])).await.outcome.json();
    assert!(answer["renewals"].as_u64().unwrap() >= 4, "{answer}");
    assert!(answer["remaining"].as_f64().unwrap() > 0.0, "{answer}");
    assert_eq!(answer["threads"], 1, "the library has no thread");
    assert_eq!(db.item("k"), None, "gone with the answer");
}

#[tokio::test]
async fn what_a_python_handler_locks_in_threads_and_event_loops_belongs_to_its_invocation() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let deeds = [json!(["pool", ["p1", "p2", "p3"]]), json!(["loop", "l"])];
    let answer = env.invoke(event("k", deeds)).await.outcome.json();
    assert!(answer["owner"].is_string(), "{answer}");
    for key in ["k", "p1", "p2", "p3", "l"] {
        assert_eq!(db.requests_for(key).len(), 2, "{key}: one put, one delete");
        assert_eq!(db.item(key), None);
    }
}

#[tokio::test]
async fn a_busy_lock_tells_a_python_handlers_caller_nothing_of_the_holder() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let contender = environment(&db).env("LEASEKEEPER_WAIT_MS", "0").start().await.unwrap();
    let call = hold(&env, "k").await;
    let row = db.item("k").expect("it is held");
    let Outcome::Error { kind, message } = contender.invoke(event("k", [])).await.outcome else {
        panic!("the lock is held");
    };
    assert_eq!(kind, "Busy");
    assert!(!message.contains(row["owner"]["S"].as_str().unwrap()) && !message.contains(&call.id), "{message}");
}

#[tokio::test]
async fn a_python_handlers_own_error_is_reported_as_it_is_and_the_lock_is_given_back() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    assert_eq!(error_kind(env.invoke(event("k", [json!(["fail", "mine"])])).await.outcome), "ArithmeticError");
    assert_eq!(db.item("k"), None);
}

#[tokio::test]
async fn a_python_handlers_transaction_with_the_ownership_check_is_refused_after_the_release() {
    let db = Dynamo::start().await;
    db.create_table("orders", "key", "S", None);
    let env = environment(&db).start().await.unwrap();
    for form in ["client", "resource"] {
        let answer = env.invoke(event("k", [json!(["guarded", form])])).await.outcome.json();
        assert_eq!(answer["did"][0], json!(["done", ["ConditionalCheckFailed", "None"]]), "{form}: {answer}");
    }
}

#[tokio::test]
async fn a_python_handler_that_exits_or_is_killed_leaves_its_lock_free_within_100_ms() {
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

#[tokio::test]
async fn a_lease_that_a_python_handler_leaked_is_lost_at_the_next_invocation_and_never_said_to_be_valid() {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).env("LEASEKEEPER_LEASE_MS", "1000").start().await.unwrap();
    env.invoke(event("k", [json!(["leak", "leaked"])])).await.outcome.json();
    assert!(env.is_frozen());
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let told = env.invoke(json!({})).await.outcome.json();
    // Which of the two it is depends on what the extension sees first when it wakes: its clocks, or the invocation.
    assert!(["thaw", "expired"].contains(&told["reason"].as_str().unwrap()), "{told}");
    assert_eq!((&told["remaining"], &told["told"]), (&json!(0.0), &json!(true)), "{told}");
}
