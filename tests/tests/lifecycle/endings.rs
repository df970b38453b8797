//! Every way a handler ends by itself: its row is gone before its caller hears of it, and what it said stays what it said.

use super::rows::{freed, in_ms};
use super::*;
use testkit::dynamo::{Fault, Operation, row};
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::sandbox::{LogLine, Outcome, Role};

/// How long the store takes for a delete: who does not wait for it answers so much earlier.
const SLOW: Duration = Duration::from_millis(300);

const ROW: &str = "handler-ends";

/// The ways in which a handler of this language can end, and the event that makes it.
pub(super) fn endings(language: Language) -> Vec<(&'static str, Value)> {
    let mut all = vec![("returns", json!({"deeds": []})), ("fails", json!({"deeds": [["fail", "mine"]]}))];
    // Cut off by a time-out that the application has put around its locked handler.
    let cut_off = json!({"deeds": [["sleep", 60_000]], "give_up_ms": 200});
    match language {
        Language::Rust => all.extend([("panics", json!({"deeds": [["panic", "mine"]]})), ("is dropped", cut_off)]),
        Language::Python => all.push(("is cancelled", cut_off)),
        // Nothing ends a promise from outside.
        Language::Node => {}
    }
    all
}

pub(super) fn under(key: &str, event: &Value) -> Value {
    let mut event = event.clone();
    event["key"] = key.into();
    event
}

/// An error's type and its message.
fn told(outcome: &Outcome) -> (String, String) {
    let Outcome::Error { kind, message } = outcome else { panic!("an error was expected: {outcome:?}") };
    let document: Value = serde_json::from_str(message).unwrap_or_else(|_| panic!("an error document: {message}"));
    (kind.clone(), document["errorMessage"].as_str().expect("it has a message").to_owned())
}

async fn the_row_is_gone_before_the_response(language: Language) {
    let db = Dynamo::start().await;
    let env = language.environment(&db).timeout(Duration::from_secs(10)).start().await.unwrap();
    for (ending, event) in endings(language) {
        let without = env.invoke(event.clone()).await.outcome;
        db.fail(Operation::DeleteItem, Fault::DelayBefore(SLOW)).key(ending);
        let call = env.invoke(under(ending, &event)).await;
        let freed = freed(&db, ending);
        let early = freed.committed.saturating_duration_since(call.answered);
        assert_eq!(early, Duration::ZERO, "{ending}: the response was out so long before the row was gone");
        match without {
            Outcome::Response(_) => assert!(matches!(call.outcome, Outcome::Response(_)), "{:?}", call.outcome),
            own => assert_eq!(told(&call.outcome), told(&own), "{ending}: the handler's own error, as without a lock"),
        }
        figure(ROW, "response after the delete by", in_ms(call.answered - freed.committed));
    }
}

#[tokio::test]
async fn a_rust_handlers_row_is_gone_before_its_response_however_it_ends() {
    the_row_is_gone_before_the_response(Language::Rust).await;
}

#[tokio::test]
async fn a_python_handlers_row_is_gone_before_its_response_however_it_ends() {
    the_row_is_gone_before_the_response(Language::Python).await;
}

#[tokio::test]
async fn a_node_handlers_row_is_gone_before_its_response_however_it_ends() {
    the_row_is_gone_before_the_response(Language::Node).await;
}

#[tokio::test]
async fn a_delete_whose_reply_is_lost_is_known_to_be_done_before_the_response() {
    let db = Dynamo::start().await;
    let env = Language::Rust.environment(&db).start().await.unwrap();
    db.fail(Operation::DeleteItem, Fault::CommitThenDrop).key("k");
    let call = env.invoke(json!({"key": "k"})).await;
    assert!(matches!(call.outcome, Outcome::Response(_)), "{:?}", call.outcome);
    assert_eq!(db.item("k"), None);
    let log = db.requests_for("k");
    let [first, second] = &log[log.len() - 2..] else { panic!("{log:?}") };
    assert_eq!((first.fault, first.status), (Some(Fault::CommitThenDrop), None));
    assert_eq!((second.operation, second.status), (Operation::DeleteItem, Some(400)), "it finds no row any more");
    assert!(db.front().moment(second.answered.unwrap()) <= call.answered);
}

/// A release that DynamoDB refuses, or never answers, after a handler that has failed.
async fn a_failed_clean_up_is_attached(language: Language) {
    let db = Dynamo::start().await;
    let env = language.environment(&db).timeout(Duration::from_secs(10)).start().await.unwrap();
    let failing = endings(language).into_iter().filter(|(ending, _)| *ending == "fails" || *ending == "panics");
    for (ending, event) in failing {
        let own = env.invoke(event.clone()).await.outcome;
        for (how, fault) in [("refused", Fault::AccessDenied), ("hangs", Fault::Hang)] {
            let key = format!("{ending} {how}");
            let rule = db.fail(Operation::DeleteItem, fault).key(&key).always();
            let lines = env.logs().len();
            let outcome = env.invoke(under(&key, &event)).await.outcome;
            assert_eq!(told(&outcome), told(&own), "{key}: the handler's own error stays what it is");
            assert!(rule.hits() > 0 && db.item(&key).is_some(), "{key}: the clean-up has failed");
            let after = env.logs().split_off(lines);
            let of_it = |line: &LogLine| line.role == Role::Runtime && line.text.contains("release_unconfirmed");
            assert!(after.iter().any(of_it), "{key}: nothing is told of the clean-up: {after:#?}");
            rule.lift();
        }
    }
    assert_eq!(env.starts(Role::Runtime), 1, "and nothing else came of it");
}

#[tokio::test]
async fn a_failed_clean_up_is_attached_to_a_rust_handlers_error_or_panic() {
    a_failed_clean_up_is_attached(Language::Rust).await;
}

#[tokio::test]
async fn a_failed_clean_up_is_attached_to_a_python_handlers_error() {
    a_failed_clean_up_is_attached(Language::Python).await;
}

#[tokio::test]
async fn a_failed_clean_up_is_attached_to_a_node_handlers_error() {
    a_failed_clean_up_is_attached(Language::Node).await;
}

/// A handler that is ended because its lock was taken from it: it hears `Lost`, and whoever has the lock keeps it.
async fn a_lost_lock_ends_its_handler(language: Language) {
    let db = Dynamo::start().await;
    let env = language.environment(&db).env("LEASEKEEPER_LEASE_MS", "1800").timeout(Duration::from_secs(10));
    let env = env.start().await.unwrap();
    // In Python only what runs in an event loop can be ended; its own time-out does not come.
    let call = env.begin(json!({"key": "k", "deeds": [["sleep", 60_000]], "give_up_ms": 60_000}));
    env.wait_for_log(Role::Runtime, "held").await.unwrap();
    let theirs = row("k", "thief", "v1", 20_000);
    db.put_raw(theirs.clone());
    let taken = Instant::now();
    let call = call.over().await;
    let (kind, message) = told(&call.outcome);
    assert_eq!(kind, language.error("Lost"));
    assert!(message.contains("stolen"), "{message}");
    // Its next renewal finds out, a third of the lease after the one before.
    assert!(call.answered - taken < Duration::from_millis(1_800), "{:?}", call.answered - taken);
    assert_eq!(db.item("k"), Some(theirs), "the lock's new holder is not disturbed");
    figure(ROW, "lease 1.8 s, lock taken away: Lost told to the caller after", in_ms(call.answered - taken));
}

#[tokio::test]
async fn a_rust_handler_whose_lock_is_taken_away_is_cancelled_and_its_caller_told() {
    a_lost_lock_ends_its_handler(Language::Rust).await;
}

#[tokio::test]
async fn a_python_handler_whose_lock_is_taken_away_is_cancelled_and_its_caller_told() {
    a_lost_lock_ends_its_handler(Language::Python).await;
}

#[tokio::test]
async fn a_node_handler_whose_lock_is_taken_away_is_left_behind_and_its_caller_told() {
    a_lost_lock_ends_its_handler(Language::Node).await;
}
