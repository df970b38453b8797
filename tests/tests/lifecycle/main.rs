//! The real extension in the Lambda sandbox, on the embedded DynamoDB: what happens to locks when environments freeze, die,
//! start anew or misbehave.

mod away;
mod both_die;
mod dead_connections;
mod death;
mod descriptors;
mod emptied_tmp;
mod emulator;
mod endings;
mod extension_dies;
mod freeze;
mod freeze_in_hold;
mod hold;
mod inherited;
mod init;
mod layered;
mod leaked;
mod managed;
mod managed_languages;
mod no_time_left;
mod out_of_memory;
mod outage;
mod own_fault;
mod peers;
mod race;
mod release_hangs;
mod rows;
mod runtime_dies;
mod shutdown;
mod slow_timers;
mod streaming;
mod surroundings;
mod takeover;
mod timeouts;
mod unlocked;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::dynamo::Dynamo;
use testkit::programs::{built, repository};
use testkit::sandbox::{Builder, Program, Sandbox};

/// An environment with the extension and the tests' Runtime API loop, on this DynamoDB.
fn environment(db: &Dynamo) -> Builder {
    Sandbox::builder()
        .extension(built("leasekeeper"))
        .runtime(Program::python(repository("tests/functions/python/runtime.py")))
        .envs(db.env())
        .env("LEASEKEEPER_PLAIN_KEYS", "true")
        .timeout(Duration::from_secs(10))
}

fn steps<const N: usize>(steps: [Value; N]) -> Value {
    json!({"steps": Value::from_iter(steps)})
}

fn acquire(key: &str) -> Value {
    json!({"do": "send", "line": {"op": "acquire", "key": key}})
}

fn acquire_for(key: &str, lease_ms: u64) -> Value {
    json!({"do": "send", "line": {"op": "acquire", "key": key, "lease_ms": lease_ms}})
}

fn check() -> Value {
    json!({"do": "send", "line": {"op": "check"}})
}

fn say(text: &str) -> Value {
    json!({"do": "say", "text": text})
}

fn sleep_ms(ms: u64) -> Value {
    json!({"do": "sleep", "ms": ms})
}

fn event_within(ms: u64) -> Value {
    json!({"do": "events", "ms": ms})
}

fn keep() -> Value {
    json!({"do": "keep"})
}

/// A minute: the handler does not get there.
fn for_ever() -> Value {
    sleep_ms(60_000)
}

/// Waits until the key's row is gone; when that was.
async fn gone(db: &Dynamo, key: &str) -> Instant {
    let end = Instant::now() + Duration::from_secs(5);
    while db.item(key).is_some() {
        assert!(Instant::now() < end, "the row {key} is still there");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Instant::now()
}

/// The grant in a handler's answer.
fn granted(reply: &Value) -> &Value {
    assert!(reply["ok"]["owner"].is_string(), "a grant was expected: {reply}");
    &reply["ok"]
}

fn valid_for(reply: &Value) -> Duration {
    Duration::from_millis(granted(reply)["valid_ms"].as_u64().expect("a grant tells its validity"))
}
