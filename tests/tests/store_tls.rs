//! The extension's connections with TLS: whom it trusts, what is made ahead of the first lock, what a freeze leaves.

use serde_json::json;
use std::time::Duration;
use testkit::dynamo::Dynamo;
use testkit::programs::{built, repository};
use testkit::sandbox::{Builder, Program, Sandbox};
use testkit::sidecar::Sidecar;
use testkit::tls::TlsFront;

fn settings(dynamo: &Dynamo, front: &TlsFront) -> Vec<(&'static str, String)> {
    let led = |(name, value)| match name {
        "AWS_ENDPOINT_URL_DYNAMODB" => (name, front.endpoint()),
        _ => (name, value),
    };
    let mut settings: Vec<_> = dynamo.env().into_iter().map(led).collect();
    settings.push(("SSL_CERT_FILE", front.ca_file().display().to_string()));
    settings
}

/// The extension and a small function in an environment that is frozen between invocations.
fn environment(dynamo: &Dynamo, front: &TlsFront) -> Builder {
    let runtime = Program::python(repository("tests/functions/python/runtime.py"));
    Sandbox::builder().extension(built("leasekeeper")).runtime(runtime).freeze(true).envs(settings(dynamo, front))
}

async fn lock(env: &Sandbox) {
    let steps = json!({"steps": [{"do": "send", "line": {"op": "acquire", "key": "k", "wait_ms": 1_000}}]});
    let answer = env.invoke(steps).await.outcome.json();
    assert!(answer[0]["ok"]["lease"].is_u64(), "{answer}");
}

/// Waits until so many handshakes were made.
async fn made(front: &TlsFront, wanted: (u64, u64)) -> bool {
    for _ in 0..400 {
        if front.handshakes() == wanted {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[tokio::test]
async fn the_connection_is_made_after_registering_and_without_any_table_operation() {
    let dynamo = Dynamo::start().await;
    let front = TlsFront::start(dynamo.front().address()).await;
    let env = environment(&dynamo, &front).freeze(false).start().await.expect("it starts");
    assert!(made(&front, (1, 0)).await, "nobody has asked for a lock yet: {:?}", front.handshakes());
    assert!(dynamo.requests().is_empty(), "{:?}", dynamo.requests());
    lock(&env).await;
    assert_eq!(front.handshakes(), (1, 0), "the first lock uses that connection");
}

#[tokio::test]
async fn nothing_is_connected_ahead_under_snapstart_and_without_a_table() {
    let dynamo = Dynamo::start().await;
    let front = TlsFront::start(dynamo.front().address()).await;
    let snapshot = environment(&dynamo, &front).env("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start");
    let no_table = environment(&dynamo, &front).env("LEASEKEEPER_TABLE", "");
    for (what, builder) in [("SnapStart", snapshot), ("no table", no_table)] {
        let env = builder.freeze(false).start().await.expect("it starts");
        // A connection would be there within a few milliseconds.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!((front.handshakes(), dynamo.front().accepted()), ((0, 0), 0), "{what}");
        drop(env);
    }
}

#[tokio::test]
async fn after_a_freeze_new_connections_resume_the_session_of_the_dead_one() {
    let dynamo = Dynamo::start().await;
    let front = TlsFront::start(dynamo.front().address()).await;
    let env = environment(&dynamo, &front).start().await.expect("it starts");
    lock(&env).await;
    let before = front.handshakes();
    // Longer than a lease's twelfth: what wakes late knows that it slept.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    lock(&env).await;
    let (full, resumed) = front.handshakes();
    assert_eq!((full, resumed > before.1), (before.0, true), "{before:?}, then {full} and {resumed}");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_refused_and_the_answer_says_why() {
    let dynamo = Dynamo::start().await;
    let (front, other) =
        (TlsFront::start(dynamo.front().address()).await, TlsFront::start(dynamo.front().address()).await);
    let mut settings = settings(&dynamo, &front);
    settings.push(("SSL_CERT_FILE", other.ca_file().display().to_string()));
    let sidecar = Sidecar::start_with(settings).await;
    let refused = sidecar.connect().await.acquire("k", 3_000, 200).await.expect_err("it must not be trusted");
    assert_eq!(refused["code"], "unavailable", "{refused}");
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("certificate")), "{refused}");
    assert!(dynamo.requests().is_empty());
}
