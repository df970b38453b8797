//! Streaming responses, in Rust and in Node: the lock is held while the body flows, and given back before its end is seen.

use super::rows::{at_a_death, in_tenths, until_freed};
use super::*;
use testkit::dynamo::{Operation, row};
use testkit::evidence::figure;
use testkit::moments::Lateness;
use testkit::programs::node_path;
use testkit::sandbox::{Invocation, Outcome, Role};

const ROW: &str = "streaming";

fn rust(db: &Dynamo) -> Builder {
    environment(db).runtime(Program::new(built("streaming")))
}

fn node(db: &Dynamo) -> Builder {
    let runtime = Program::node(repository("tests/functions/node/runtime.mjs"));
    environment(db)
        .runtime(runtime.arg(repository("tests/functions/node/streams.mjs")))
        .env("NODE_PATH", node_path().to_string_lossy())
}

/// Two parts with a pause after each; `fails` breaks the body off then.
fn two_parts(fails: bool) -> Value {
    json!({"key": "k", "parts": ["one", "two"], "pause_ms": 150, "fails": fails})
}

/// Streams under the lock, and looks at its row while the parts flow.
async fn flow(env: &Sandbox, db: &Dynamo, event: Value) -> Invocation {
    let call = env.begin(event);
    env.streamed(&call, "one").await.unwrap();
    let held = db.item("k").expect("held while the body flows");
    assert_eq!(held["request_id"]["S"], call.id);
    env.streamed(&call, "two").await.unwrap();
    assert_eq!(db.item("k"), Some(held), "held all the while");
    call.over().await
}

/// How long before the body's end the lock was given back.
fn back_before_the_end(db: &Dynamo, done: &Invocation) -> Duration {
    let requests = db.requests_for("k");
    let [put, delete] = &requests[..] else { panic!("one put, one delete: {requests:?}") };
    assert_eq!((put.operation, delete.operation), (Operation::PutItem, Operation::DeleteItem));
    let confirmed = db.front().moment(delete.answered.expect("it was answered"));
    assert!(confirmed > done.answered, "not given back before the body began");
    done.ended.checked_duration_since(confirmed).expect("given back before the end is seen")
}

#[tokio::test]
async fn a_rust_streams_lock_is_held_to_its_end_and_back_before_the_end_is_seen() {
    let db = Dynamo::start().await;
    let env = rust(&db).start().await.unwrap();
    let done = flow(&env, &db, two_parts(false)).await;
    assert!(matches!(&done.outcome, Outcome::Response(text) if text.ends_with("onetwo")), "{done:?}");
    let before = back_before_the_end(&db, &done);
    figure(ROW, "Rust: from the confirmed release to the body's end", in_tenths(before));
}

#[tokio::test]
async fn a_node_streams_lock_is_held_to_its_end_and_back_before_the_end_is_seen() {
    let db = Dynamo::start().await;
    let env = node(&db).start().await.unwrap();
    let done = flow(&env, &db, two_parts(false)).await;
    assert_eq!(done.outcome, Outcome::Response("onetwo".into()));
    let before = back_before_the_end(&db, &done);
    figure(ROW, "Node: from the confirmed release to the body's end", in_tenths(before));
}

#[tokio::test]
async fn a_node_stream_that_flows_on_after_its_handler_has_returned_flows_under_the_lock() {
    let db = Dynamo::start().await;
    let env = node(&db).start().await.unwrap();
    let mut event = two_parts(false);
    event["returns_early"] = true.into();
    let done = flow(&env, &db, event).await;
    assert_eq!(done.outcome, Outcome::Response("onetwo".into()));
    back_before_the_end(&db, &done);
}

async fn fails(builder: fn(&Dynamo) -> Builder, language: &str) {
    let db = Dynamo::start().await;
    let env = builder(&db).start().await.unwrap();
    let done = flow(&env, &db, two_parts(true)).await;
    let failed = match &done.outcome {
        // The runtime's crate writes the error into the body.
        Outcome::Response(text) => text.contains("Runtime.StreamError"),
        Outcome::Error { kind, .. } => kind == "RangeError",
        Outcome::TimedOut => false,
    };
    assert!(failed, "{language}: {done:?}");
    back_before_the_end(&db, &done);
    // The environment lives on.
    let again = env.invoke(two_parts(false)).await;
    assert!(matches!(&again.outcome, Outcome::Response(text) if text.ends_with("onetwo")), "{again:?}");
    assert_eq!(env.starts(Role::Runtime), 1);
}

#[tokio::test]
async fn a_body_that_fails_gives_its_lock_back_before_the_failure_is_seen() {
    tokio::join!(fails(rust, "Rust"), fails(node, "Node"));
}

async fn loses(builder: fn(&Dynamo) -> Builder, language: &str) {
    let db = Dynamo::start().await;
    let env = builder(&db).env("LEASEKEEPER_LEASE_MS", "600").start().await.unwrap();
    let call = env.begin(json!({"key": "k", "parts": ["one", "two"], "pause_ms": 3_000}));
    env.streamed(&call, "one").await.unwrap();
    let taken = row("k", "someone", "v", 60_000);
    db.put_raw(taken.clone());
    let done = call.over().await;
    let (text, failed) = match &done.outcome {
        Outcome::Response(text) => (text, text.contains("Runtime.StreamError")),
        Outcome::Error { kind, message } => (message, kind == "Leasekeeper.Lost"),
        Outcome::TimedOut => panic!("{language}: {done:?}"),
    };
    assert!(failed && !text.contains("two"), "{language}: {done:?}");
    assert!(done.ended - done.answered < Duration::from_millis(1_500), "{language}: told by the next renewal");
    assert_eq!(db.item("k"), Some(taken), "{language}: another's row is let alone");
}

#[tokio::test]
async fn a_lock_that_is_lost_while_the_body_flows_ends_it_in_an_error_and_deletes_nothing() {
    tokio::join!(loses(rust, "Rust"), loses(node, "Node"));
}

#[tokio::test]
async fn a_function_killed_while_its_body_flows_leaves_its_lock_free_within_100_ms() {
    let db = Dynamo::start().await;
    let env = rust(&db).start().await.unwrap();
    let call = env.begin(json!({"key": "k", "parts": ["one", "two"], "pause_ms": 60_000}));
    env.streamed(&call, "one").await.unwrap();
    let (killed, lateness) = (Instant::now(), Lateness::watch());
    env.kill_runtime().unwrap();
    let took = until_freed(&db, "k").await.asked - killed;
    assert!(took <= at_a_death(&lateness), "{took:?}");
    figure(ROW, "Rust, killed while the body flows: free after", in_tenths(took));
    assert!(matches!(call.over().await.outcome, Outcome::Error { .. }));
}
