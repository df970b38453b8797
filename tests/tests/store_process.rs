//! A real extension process with something wrong on its way to DynamoDB: a lock request is told what, and it lives on.

use serde_json::Value;
use testkit::dynamo::{Dynamo, Fault, Operation};
use testkit::sidecar::Sidecar;

/// What an acquire is refused with.
async fn refusal(sidecar: &Sidecar, wait_ms: u64) -> Value {
    sidecar.connect().await.acquire("k", 20_000, wait_ms).await.expect_err("it cannot be acquired")
}

fn assert_says(refusal: &Value, code: &str, parts: &[&str]) {
    let message = refusal["message"].as_str().unwrap_or("");
    assert_eq!(refusal["code"], code, "{refusal}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing in {message:?}");
    }
}

#[tokio::test]
async fn without_credentials_nothing_is_sent_and_the_refusal_says_so() {
    let dynamo = Dynamo::start().await;
    let none = [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")];
    let sidecar = Sidecar::start(&dynamo, "extension", &none).await;
    let refusal = refusal(&sidecar, 20_000).await;
    assert_says(&refusal, "denied", &["credentials", "dynamodb:PutItem", "`locks`", "Environment: "]);
    assert!(!refusal["message"].as_str().unwrap_or("").contains('\n'), "{refusal}");
    sidecar.logged("ERROR", "credentials").await;
    let log = sidecar.log();
    assert!(log.lines().all(|line| line.starts_with("20")), "each line is an event with its time: {log}");
    assert_eq!(dynamo.requests().len(), 0);
}

#[tokio::test]
async fn without_a_region_nothing_is_sent_and_the_refusal_names_the_variable() {
    let dynamo = Dynamo::start().await;
    // With the endpoint of a setting and with that of the Region.
    for missing in [&["REGION"] as &[&str], &["REGION", "ENDPOINT"]] {
        let mut variables = dynamo.env_as("extension");
        variables.retain(|(name, _)| !missing.iter().any(|part| name.contains(part)));
        let sidecar = Sidecar::start_with(variables).await;
        assert_says(&refusal(&sidecar, 20_000).await, "config", &["AWS_REGION", "dynamodb:PutItem", "`locks`"]);
    }
    assert_eq!(dynamo.requests().len(), 0);
}

#[tokio::test]
async fn a_missing_table_is_named_with_what_it_must_be() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "extension", &[("LEASEKEEPER_TABLE", "absent")]).await;
    assert_says(&refusal(&sidecar, 20_000).await, "config", &["`absent`", "eu-central-1", "partition key `key`"]);
    dynamo.create_table("absent", "key", "S", None);
    sidecar.connect().await.acquire("k", 20_000, 5_000).await.expect("created meanwhile");
}

#[tokio::test]
async fn a_missing_permission_is_named_until_it_is_granted() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "extension", &[]).await;
    let denied = dynamo.fail(Operation::PutItem, Fault::AccessDenied).always();
    assert_says(&refusal(&sidecar, 20_000).await, "denied", &["dynamodb:PutItem", "`locks`"]);
    denied.lift();
    sidecar.connect().await.acquire("k", 20_000, 5_000).await.expect("granted meanwhile");
}

#[tokio::test]
async fn an_endpoint_that_refuses_connections_is_unavailable_when_the_wait_is_over() {
    let dynamo = Dynamo::start().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("http://{}", free.local_addr().expect("its address"));
    drop(free);
    let sidecar = Sidecar::start(&dynamo, "extension", &[("AWS_ENDPOINT_URL_DYNAMODB", &endpoint)]).await;
    assert_says(&refusal(&sidecar, 300).await, "unavailable", &[]);
    assert_says(&refusal(&sidecar, 0).await, "unavailable", &[]);
}
