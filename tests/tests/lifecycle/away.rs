//! DynamoDB is away: a lock request ends by its budget and says why, and the function goes on.

use super::rows::in_tenths;
use super::*;
use std::net::TcpListener;
use testkit::dynamo::{Fault, Operation, row};
use testkit::evidence::figure;
use testkit::sandbox::{Outcome, Role};

const ROW: &str = "dynamodb-away";
const LEASE_MS: u64 = 3_000;
const WAIT_MS: u64 = 400;
/// A sixth of the lease: the last attempt is not cut short by the budget.
const ATTEMPT: Duration = Duration::from_millis(LEASE_MS / 6);
/// What a busy machine may take until a process runs.
const SCHEDULING: Duration = Duration::from_millis(250);

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// An environment whose DynamoDB is where this was bound.
fn at(db: &Dynamo, listener: &TcpListener) -> Builder {
    environment(db).env("AWS_ENDPOINT_URL_DYNAMODB", format!("http://{}", listener.local_addr().unwrap()))
}

/// Nobody listens there any more.
fn unreachable(db: &Dynamo) -> Builder {
    at(db, &listener())
}

fn wait_for(key: &str) -> Value {
    json!({"do": "send", "line": {"op": "acquire", "key": key, "lease_ms": LEASE_MS, "wait_ms": WAIT_MS}})
}

async fn told_in_time(what: &str, builder: Builder, cause: &str) {
    let env = builder.start().await.unwrap();
    let done = env.invoke(steps([wait_for("k"), say("goes on")])).await;
    let took = done.answered - done.delivered;
    let answer = done.outcome.json();
    let error = &answer[0]["error"];
    assert_eq!(error["code"], "unavailable", "{what}: {answer}");
    assert!(error["message"].as_str().unwrap().contains(cause), "{what}: {answer}");
    assert!(took >= Duration::from_millis(WAIT_MS), "{what}: the whole wait is tried, not {took:?}");
    assert!(took < Duration::from_millis(WAIT_MS) + ATTEMPT + SCHEDULING, "{what}: {took:?}");
    figure(ROW, &format!("{what}: a wait of {WAIT_MS} ms is over after"), in_tenths(took));
    assert_eq!(env.invoke(steps([])).await.outcome, Outcome::Response("[]".into()), "{what}");
    assert_eq!((env.starts(Role::Extension), env.starts(Role::Runtime)), (1, 1), "{what}");
}

#[tokio::test]
async fn a_lock_request_to_a_dynamodb_that_is_away_ends_by_its_budget_and_says_why() {
    let db = Dynamo::start().await;
    db.fail(Operation::Any, Fault::DelayBefore(Duration::from_secs(5))).always();
    // The kernel makes its connections, and nobody ever reads from them.
    let mute = listener();
    tokio::join!(
        told_in_time("unreachable", unreachable(&db), "onnection refused"),
        told_in_time("mute", at(&db, &mute), "no answer in time"),
        told_in_time("5 s slow", environment(&db), "no answer in time"),
    );
}

#[tokio::test]
async fn a_wrapped_handler_without_a_lock_fails_by_name_and_is_not_run() {
    let db = Dynamo::start().await;
    let function = unreachable(&db).runtime(Program::new(built("function")));
    let env = function.env("LEASEKEEPER_WAIT_MS", "300").start().await.unwrap();
    let done = env.invoke(json!({"key": "k", "work_ms": 5_000})).await;
    let Outcome::Error { kind, message } = &done.outcome else { panic!("{done:?}") };
    assert_eq!(kind, "Leasekeeper.Unavailable");
    assert!(message.contains("onnection refused"), "{message}");
    assert!(done.answered - done.delivered < Duration::from_millis(5_000), "its work was not begun");
    assert_eq!(env.starts(Role::Runtime), 1);
}

/// An invocation of a function whose role lacks one permission, with what its handler saw.
async fn without(operation: Operation, event: Value) -> (Dynamo, Value) {
    let db = Dynamo::start().await;
    db.put_raw(row("taken", "someone", "v", 60_000));
    db.fail(operation, Fault::AccessDenied).always();
    let env = environment(&db).start().await.unwrap();
    let done = env.invoke(event).await;
    assert_eq!(env.invoke(steps([])).await.outcome, Outcome::Response("[]".into()), "{operation:?}");
    assert_eq!((env.starts(Role::Extension), env.starts(Role::Runtime)), (1, 1), "{operation:?}");
    (db, done.outcome.json())
}

/// The error, which names the action and the table at once.
fn assert_denied(error: &Value, code: &str, action: &str) {
    assert_eq!(error["code"], code, "{error}");
    let message = error["message"].as_str().unwrap();
    for part in [action, "`locks`", "AccessDeniedException"] {
        assert!(message.contains(part), "no {part:?} in {message:?}");
    }
}

#[tokio::test]
async fn each_verb_that_is_denied_alone_is_named_to_whoever_needs_it_and_the_function_goes_on() {
    let release = json!({"do": "send", "line": {"op": "release"}});
    let (_, answer) = without(Operation::PutItem, steps([acquire("k")])).await;
    assert_denied(&answer[0]["error"], "denied", "dynamodb:PutItem");

    // Only who has to wait reads.
    let (_, answer) = without(Operation::GetItem, steps([acquire("k"), release.clone(), acquire("taken")])).await;
    assert!(answer[1]["ok"].is_object(), "{answer}");
    assert_denied(&answer[2]["error"], "denied", "dynamodb:GetItem");

    let renewed = steps([acquire_for("k", 900), event_within(2_000), release.clone()]);
    let (_, answer) = without(Operation::UpdateItem, renewed).await;
    granted(&answer[0]);
    assert_eq!((&answer[1]["event"], &answer[1]["reason"]), (&json!("lost"), &json!("denied")));
    assert_denied(&answer[2]["error"], "lost", "dynamodb:UpdateItem");

    let (db, answer) = without(Operation::DeleteItem, steps([acquire("k"), release])).await;
    granted(&answer[0]);
    assert_denied(&answer[1]["error"], "release_unconfirmed", "dynamodb:DeleteItem");
    assert!(db.item("k").is_some());
}
