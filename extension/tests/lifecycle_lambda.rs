//! The real process under an Extensions API, well-behaved and not.

mod common;

use common::process::{Api, Extension, acquire};
use common::soon;
use leasekeeper_wire::Op;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

fn events(body: &str) -> Value {
    serde_json::from_str::<Value>(body).unwrap()["events"].clone()
}

#[tokio::test]
async fn it_listens_before_it_registers_under_its_files_name() {
    let api = Api::start().await;
    let extension = Extension::under(&api, &[]);
    let register = api.asked().await;
    // The function starts as soon as this is answered: a lock can be had already.
    let mut client = extension.connect().await;
    client.ask(1, acquire("k", "first")).await;
    assert_eq!(client.line().await["ok"]["lease"], 1);
    assert!(register.headers.contains(&"lambda-extension-name: leasekeeper".into()), "{:?}", register.headers);
    assert_eq!(events(&register.body), json!(["INVOKE", "SHUTDOWN"]));
    register.register().await;
    api.parked().await;
}

#[tokio::test]
async fn on_managed_instances_it_asks_for_shutdown_only() {
    let api = Api::start().await;
    let mut extension = Extension::under(&api, &[("AWS_LAMBDA_INITIALIZATION_TYPE", "lambda-managed-instances")]);
    let register = api.asked().await;
    assert_eq!(events(&register.body), json!(["SHUTDOWN"]));
    register.register().await;
    api.parked().await.shutdown("spindown", 2_000).await;
    assert!(extension.ended().await.success());
}

#[tokio::test]
async fn a_refused_subscription_is_tried_with_shutdown_only() {
    let api = Api::start().await;
    let _extension = Extension::under(&api, &[]);
    let refused = r#"{"errorType":"Extension.InvalidEventType"}"#;
    api.asked().await.answer("403 Forbidden", refused).await;
    let second = api.asked().await;
    assert_eq!(events(&second.body), json!(["SHUTDOWN"]));
    second.answer("403 Forbidden", refused).await;
    let third = api.asked().await;
    assert_eq!(events(&third.body), json!(["INVOKE", "SHUTDOWN"]), "it was not the subscription");
    third.register().await;
    api.parked().await;
}

#[tokio::test]
async fn registering_goes_on_through_every_fault() {
    let api = Api::start().await;
    let mut extension = Extension::under(&api, &[]);
    for fault in [
        "",
        "nonsense\r\n\r\n",
        "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nlambda-extension-identifier: the-id\r\ncontent-length: 99\r\n\r\n{\"func",
        "HTTP/1.1 200 OK\r\nlambda-extension-identifier: the-id\r\ncontent-length: 6\r\n\r\n<html>",
    ] {
        let asked = api.asked().await;
        assert_eq!(events(&asked.body), json!(["INVOKE", "SHUTDOWN"]), "before {fault:?}");
        asked.say(fault).await;
        let logged = extension.logged("not registered yet").await;
        assert_eq!(logged["level"], "ERROR");
    }
    api.registered().await;
    extension.assert_lives();
}

#[tokio::test]
async fn asking_for_events_goes_on_through_every_fault() {
    let api = Api::start().await;
    let mut extension = Extension::under(&api, &[]);
    let mut parked = api.registered().await;
    let too_much = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "x".repeat(1024 * 1024 + 1));
    for fault in [
        "",
        "nonsense\r\n\r\n",
        "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull",
        "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"eventType\":",
        "HTTP/1.1 200 OK\r\ncontent-length: 23\r\n\r\n{\"eventType\":\"RESTORE\"}",
        "HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n{\"eventType\":\"INVOKE\"}",
        &too_much,
    ] {
        parked.say(fault).await;
        let logged = extension.logged("no event could be read").await;
        assert_eq!(logged["level"], "ERROR", "{logged}");
        parked = api.parked().await;
    }
    parked.invoke("after-all").await;
    let parked = api.parked().await;
    extension.assert_lives();
    parked.shutdown("spindown", 2_000).await;
    assert!(extension.ended().await.success());
}

#[tokio::test]
async fn an_api_that_refuses_connections_is_asked_again() {
    let api = Api::start().await;
    let variables = [("AWS_LAMBDA_RUNTIME_API", api.endpoint())];
    drop(api);
    let mut extension = Extension::start(&variables.each_ref().map(|(name, value)| (*name, value.as_str())));
    for _ in 0..3 {
        extension.logged("not registered yet").await;
    }
    extension.assert_lives();
}

#[tokio::test]
async fn an_endpoint_that_is_none_leaves_it_alive_and_says_so() {
    let mut extension = Extension::start(&[("AWS_LAMBDA_RUNTIME_API", "not an address")]);
    extension.logged("AWS_LAMBDA_RUNTIME_API is not a host and port").await;
    extension.assert_lives();
}

#[tokio::test]
async fn it_is_parked_again_while_an_invocation_holds_a_lock() {
    let api = Api::start().await;
    let extension = Extension::under(&api, &[]);
    api.registered().await.invoke("one").await;
    let mut client = extension.connect().await;
    client.ask(1, acquire("k", "one")).await;
    assert!(client.line().await["ok"].is_object());
    let parked = api.parked().await;
    // Only the next invocation ends it.
    client.ask(2, Op::Check { lease: 1 }).await;
    assert!(client.line().await["ok"].is_object());
    parked.invoke("two").await;
    assert_eq!(client.line().await, json!({"event": "lost", "lease": 1, "reason": "thaw"}));
    api.parked().await;
}

#[tokio::test]
async fn shutdown_ends_it_at_once_when_nothing_is_held_whatever_the_reason() {
    for reason in ["SPINDOWN", "spindown", "TIMEOUT", "Failure", "SandboxTerminated"] {
        let api = Api::start().await;
        let mut extension = Extension::under(&api, &[]);
        // Far more than the test would wait.
        api.registered().await.shutdown(reason, 3_600_000).await;
        assert_eq!(extension.logged("the environment ends").await["reason"], reason.to_lowercase());
        assert_eq!(extension.ended().await.code(), Some(0));
        assert!(!extension.path().exists(), "its socket is taken away");
    }
}

#[tokio::test]
async fn shutdown_waits_for_believing_clients_until_shortly_before_its_deadline() {
    let api = Api::start().await;
    let mut extension = Extension::under(&api, &[]);
    let parked = api.registered().await;
    let mut client = extension.connect().await;
    client.ask(1, acquire("k", "one")).await;
    assert!(client.line().await["ok"].is_object());
    parked.shutdown("timeout", 1_000).await;
    assert_eq!(client.line().await, json!({"event": "lost", "lease": 1, "reason": "shutdown"}));
    extension.logged("some locks could not be given back in time").await;
    assert_eq!(extension.ended().await.code(), Some(0));
}

#[tokio::test]
async fn sigterm_is_not_the_end_under_lambda() {
    let api = Api::start().await;
    let mut extension = Extension::under(&api, &[]);
    let parked = api.registered().await;
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        extension.signal(signal);
        assert_eq!(extension.logged("a signal is ignored").await["signal"], name);
    }
    parked.invoke("one").await;
    api.parked().await.shutdown("spindown", 2_000).await;
    assert_eq!(extension.ended().await.code(), Some(0));
}

#[tokio::test]
async fn an_emptied_tmp_gets_its_socket_back_with_the_next_invocation() {
    let api = Api::start().await;
    let mut extension = Extension::under(&api, &[]);
    let parked = api.registered().await;
    std::fs::remove_dir_all(extension.path().parent().unwrap()).unwrap();
    parked.invoke("one").await;
    extension.logged("has been created again").await;
    let mut client = extension.connect().await;
    client.ask(1, Op::Hello).await;
    assert_eq!(client.line().await["ok"]["version"], 1);
}

#[tokio::test]
async fn a_socket_that_cannot_be_bound_does_not_end_it() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("lock.sock");
    let mut extension = Extension::under(&api, &[("LEASEKEEPER_SOCKET", path.to_str().unwrap())]);
    let logged = extension.logged("the lock socket cannot be opened").await;
    assert!(logged["error"].as_str().unwrap().contains("has mode 0755, not 0700"), "{logged}");
    let parked = api.registered().await;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    parked.invoke("one").await;
    extension.logged("has been created again").await;
    soon("a connection", tokio::net::UnixStream::connect(path)).await.unwrap();
}

#[tokio::test]
async fn locks_in_memory_are_warned_about_under_lambda() {
    let api = Api::start().await;
    let mut extension = Extension::under(&api, &[]);
    let warned = extension.logged("memory").await;
    assert_eq!(warned["level"], "WARN");
    assert!(warned["message"].as_str().unwrap().contains("no other environment or process is excluded"), "{warned}");
}

#[tokio::test]
async fn arguments_do_not_keep_it_from_registering() {
    let api = Api::start().await;
    let mut extension = Extension::start_with(&["--help"], &[("AWS_LAMBDA_RUNTIME_API", &api.endpoint())]);
    api.registered().await;
    extension.assert_lives();
}
