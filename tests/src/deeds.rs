//! What the tests ask of the Python and the Node function that lock through their packages: `tests/functions/*/locks.*`.

use crate::dynamo::Dynamo;
use crate::sandbox::{Call, Outcome, Role, Sandbox};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// An event: hold `key` and do these things under it, one after the other.
pub fn event<const N: usize>(key: &str, deeds: [Value; N]) -> Value {
    json!({"key": key, "deeds": Value::from_iter(deeds)})
}

/// Begins an invocation that holds `key` for long, and waits until it does.
///
/// # Panics
/// It does not within five seconds.
pub async fn hold(env: &Sandbox, key: &str) -> Call {
    let call = env.begin(event(key, [json!(["sleep", 60_000])]));
    env.wait_for_log(Role::Runtime, "held").await.expect("the function tells that it holds the lock");
    call
}

/// Waits until no row stands under `key`; tells when that was seen.
///
/// # Panics
/// One still does after five seconds.
pub async fn gone(db: &Dynamo, key: &str) -> Instant {
    let end = Instant::now() + Duration::from_secs(5);
    while db.item(key).is_some() {
        assert!(Instant::now() < end, "the row {key} is still there");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Instant::now()
}

/// The type of the error that the invocation ended with.
///
/// # Panics
/// It ended otherwise.
pub fn error_kind(outcome: Outcome) -> String {
    match outcome {
        Outcome::Error { kind, .. } => kind,
        other => panic!("an error was expected: {other:?}"),
    }
}
