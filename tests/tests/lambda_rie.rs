//! Functions in three languages under AWS's own emulator: the lock is held during the handler and gone after it.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::dynamo::Dynamo;
use testkit::programs::{built, node_path, python_path, repository};
use testkit::rie::{Rie, RieConfig};
use testkit::sandbox::Program;
use tokio::task::JoinSet;

fn config(db: &Dynamo, runtime: Program) -> RieConfig {
    let mut env: Vec<_> = db.env().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    env.push(("LEASEKEEPER_PLAIN_KEYS".into(), "true".into()));
    env.push(("NODE_PATH".into(), node_path().to_string_lossy().into_owned()));
    env.push(("PYTHONPATH".into(), python_path().to_string_lossy().into_owned()));
    RieConfig {
        extension: built("leasekeeper"),
        runtime,
        directory: repository("."),
        env,
        timeout_s: 10,
        concurrency: None,
    }
}

fn rust() -> Program {
    Program::new(built("bootstrap"))
}

/// Python with AWS's own runtime client; `scripts/python-venv` makes it.
fn python() -> (Program, PathBuf) {
    let interpreter = repository(".tools/awslambdaric/bin/python");
    assert!(interpreter.is_file(), "{} is missing: run `make tools`", interpreter.display());
    (Program::new(interpreter).arg("-m").arg("awslambdaric").arg("handler.handler"), repository("examples/python"))
}

fn node() -> Program {
    // The emulator wants its first argument to be a path.
    let path = std::env::var_os("PATH").expect("PATH is set");
    let node = std::env::split_paths(&path).map(|folder| folder.join("node")).find(|path| path.is_file());
    Program::new(node.expect("node is on PATH"))
        .arg(repository("tests/functions/node/runtime.mjs"))
        .arg(repository("examples/node/handler.mjs"))
}

/// The tests' own Runtime API loop, whose event lists what to do.
fn steps() -> Program {
    Program::python(repository("tests/functions/python/runtime.py"))
}

/// The row, which must appear soon; if not, what `rie` wrote says why.
async fn row(db: &Dynamo, rie: &Rie, key: &str) -> Value {
    let end = Instant::now() + Duration::from_secs(8);
    loop {
        if let Some(row) = db.item(key) {
            return row;
        }
        assert!(Instant::now() < end, "no row {key}: {}", rie.log());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn gone_within(db: &Dynamo, key: &str, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while db.item(key).is_some() {
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    true
}

/// Two invocations: the row is there while the handler works and gone when the answer is.
async fn holds_during_the_handler(db: &Dynamo, config: RieConfig) {
    let rie = Rie::start(config).await.unwrap();
    for customer in ["a", "b"] {
        let key = format!("customer:{customer}");
        let event = json!({"customer_id": customer, "work_ms": 300});
        let (reply, seen) = tokio::join!(rie.invoke(event), row(db, &rie, &key));
        let reply = reply.unwrap();
        assert_eq!(db.item(&key), None, "gone with the answer: {}", reply.body);
        let summary: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(summary["owner"], seen["owner"]["S"], "{} {}", reply.body, rie.log());
        assert_eq!(db.requests_for(&key).len(), 2, "one put, one delete");
    }
}

#[tokio::test]
async fn a_rust_function_holds_the_lock_during_its_handler_only() {
    let db = Dynamo::start().await;
    holds_during_the_handler(&db, config(&db, rust())).await;
}

#[tokio::test]
async fn a_python_function_under_awslambdaric_holds_the_lock_during_its_handler_only() {
    let db = Dynamo::start().await;
    let (program, directory) = python();
    holds_during_the_handler(&db, RieConfig { directory, ..config(&db, program) }).await;
}

#[tokio::test]
async fn a_node_function_in_a_runtime_loop_holds_the_lock_during_its_handler_only() {
    let db = Dynamo::start().await;
    holds_during_the_handler(&db, config(&db, node())).await;
}

#[tokio::test]
async fn a_rust_function_that_streams_holds_the_lock_to_its_bodys_end() {
    let db = Dynamo::start().await;
    let rie = Rie::start(config(&db, Program::new(built("streaming")))).await.unwrap();
    let event = json!({"key": "k", "parts": ["one", "two"], "pause_ms": 300});
    let (reply, _) = tokio::join!(rie.invoke(event), row(&db, &rie, "k"));
    let reply = reply.unwrap();
    assert_eq!(db.item("k"), None, "gone with the answer: {reply:?}");
    assert!(reply.body.ends_with("onetwo"), "{reply:?} {}", rie.log());
    let requests = db.requests_for("k");
    let [put, delete] = &requests[..] else { panic!("one put, one delete: {requests:?}") };
    assert!(delete.at - put.at >= Duration::from_millis(600), "held while the body flows");
}

/// The tests' own loop again: a wrapped handler answers that its lock is lost at the very moment of the time-out, and may be
/// the faster one.
#[tokio::test]
async fn after_a_timeout_the_row_is_gone_and_the_next_invocation_works() {
    let db = Dynamo::start().await;
    let rie = Rie::start(RieConfig { timeout_s: 2, ..config(&db, steps()) }).await.unwrap();
    let acquire = json!({"do": "send", "line": {"op": "acquire", "key": "slow"}});
    let slow = json!({"steps": [acquire, {"do": "sleep", "ms": 60_000}]});
    let (reply, _) = tokio::join!(rie.invoke(slow), row(&db, &rie, "slow"));
    let reply = reply.unwrap();
    assert!(reply.body.contains("Task timed out"), "{reply:?} {}", rie.log());
    assert!(gone_within(&db, "slow", Duration::from_secs(2)).await, "{}", rie.log());
    let again = rie.invoke(json!({"steps": [acquire]})).await.unwrap();
    let answer: Value = serde_json::from_str(&again.body).unwrap();
    assert!(answer[0]["ok"]["waited_ms"].is_u64(), "{again:?} {}", rie.log());
}

#[tokio::test]
async fn after_a_crash_in_the_handler_the_row_is_gone_and_the_next_invocation_works() {
    let db = Dynamo::start().await;
    let rie = Rie::start(config(&db, steps())).await.unwrap();
    let acquire = json!({"do": "send", "line": {"op": "acquire", "key": "crash"}});
    let crash = json!({"steps": [acquire, {"do": "sleep", "ms": 200}, {"do": "exit", "code": 1}]});
    let (reply, _) = tokio::join!(rie.invoke(crash), row(&db, &rie, "crash"));
    assert_eq!(reply.unwrap().status, 502);
    assert!(gone_within(&db, "crash", Duration::from_millis(100)).await, "{}", rie.log());
    let again = rie.invoke(json!({"steps": [acquire]})).await.unwrap();
    let answer: Value = serde_json::from_str(&again.body).unwrap();
    assert!(answer[0]["ok"]["waited_ms"].is_u64(), "{again:?} {}", rie.log());
}

/// Invokes again while the emulator answers that no runtime is idle: not all of its pollers are parked yet, and nobody has
/// seen the event. Any other answer is the function's, or the emulator's at its time-out.
async fn invoke_when_ready(rie: &Rie, event: Value) -> String {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let reply = rie.invoke(event.clone()).await.unwrap();
        if reply.status != 400 || !reply.body.contains("Runtime.Unavailable") {
            return reply.body;
        }
        assert!(Instant::now() < end, "{reply:?} {}", rie.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// `run_concurrent` in the emulator's Managed Instances mode.
async fn managed(db: &Dynamo, timeout_s: u32) -> Rie {
    let program = Program::new(built("concurrent"));
    let managed = RieConfig { concurrency: Some(8), timeout_s, directory: std::env::temp_dir(), ..config(db, program) };
    Rie::start(managed).await.unwrap()
}

#[tokio::test]
async fn on_managed_instances_one_process_holds_eight_locks_side_by_side() {
    let db = Dynamo::start().await;
    let rie = managed(&db, 10).await;
    let keys: Vec<String> = (0..8).map(|number| format!("m{number}")).collect();
    let mut calls = JoinSet::new();
    let rie = Arc::new(rie);
    for key in keys.clone() {
        let rie = rie.clone();
        calls.spawn(async move { invoke_when_ready(&rie, json!({"key": key, "work_ms": 1500})).await });
    }
    for key in &keys {
        row(&db, &rie, key).await;
    }
    let owners: BTreeSet<String> = keys
        .iter()
        .map(|key| db.item(key).expect("held at once")["owner"]["S"].as_str().expect("a text").to_owned())
        .collect();
    let answers: Vec<Value> =
        calls.join_all().await.iter().map(|body| serde_json::from_str(body).expect("the function's answer")).collect();
    let told: BTreeSet<String> =
        answers.iter().filter_map(|answer| Some(answer["owner"].as_str()?.to_owned())).collect();
    assert_eq!((told.len(), &told), (8, &owners), "{answers:?} {}", rie.log());
    assert!(answers.iter().all(|answer| answer["pid"] == answers[0]["pid"]), "one process: {answers:?}");
    assert!(keys.iter().all(|key| db.item(key).is_none()));
    assert!(rie.log().contains("\"mode\":\"ManagedInstances\""), "{}", rie.log());
    assert!(!rie.log().contains("Extension.InvalidEventType"), "INVOKE is not asked for: {}", rie.log());
}

/// The emulator ends the request only, and tells functions of this mode a deadline that is weeks away (its time-out's
/// nanoseconds taken for milliseconds), so the lease goes on for as long as the code that holds it.
#[tokio::test]
async fn on_managed_instances_a_timed_out_request_keeps_its_lock_until_its_code_has_ended() {
    let db = Dynamo::start().await;
    let rie = managed(&db, 1).await;
    let (body, _) = tokio::join!(invoke_when_ready(&rie, json!({"key": "k", "work_ms": 2_000})), row(&db, &rie, "k"));
    assert!(body.contains("Sandbox.Timedout"), "{body} {}", rie.log());
    assert!(db.item("k").is_some(), "its code still runs: {}", rie.log());
    assert!(gone_within(&db, "k", Duration::from_secs(3)).await, "{}", rie.log());
    let requests = db.requests_for("k");
    let [put, delete] = &requests[..] else { panic!("one put, one delete: {requests:?}") };
    assert!(delete.at - put.at >= Duration::from_secs(2), "by its own end, not by the request's: {requests:?}");
    let again = invoke_when_ready(&rie, json!({"key": "k", "work_ms": 0})).await;
    assert!(again.contains("\"owner\""), "{again} {}", rie.log());
}
