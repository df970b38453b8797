//! The real process without Lambda, and with settings that are wrong.

mod common;

use common::process::{Api, Extension, acquire};
use common::{Client, soon};
use leasekeeper_wire::Op;
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// A client of a process that has just been started.
async fn client(extension: &mut Extension) -> Client {
    extension.logged("listening").await;
    extension.connect().await
}

#[tokio::test]
async fn a_signal_ends_a_sidecar_and_takes_its_socket_away() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut extension = Extension::start(&[]);
        let mut client = client(&mut extension).await;
        client.ask(1, Op::Hello).await;
        assert_eq!(client.line().await["ok"]["version"], 1);
        extension.signal(signal);
        extension.logged("every lock has been given back").await;
        assert_eq!(extension.ended().await.code(), Some(0));
        assert!(!extension.path().exists());
    }
}

#[tokio::test]
async fn a_sidecars_end_waits_for_believing_clients_and_no_longer_than_they_stay() {
    let mut extension = Extension::start(&[]);
    let mut client = client(&mut extension).await;
    client.ask(1, acquire("k", "one")).await;
    assert!(client.line().await["ok"].is_object());
    extension.signal(Signal::TERM);
    assert_eq!(client.line().await, json!({"event": "lost", "lease": 1, "reason": "shutdown"}));
    extension.assert_lives();
    drop(client);
    extension.logged("every lock has been given back").await;
    assert_eq!(extension.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_a_sidecar_at_once() {
    for (first, second) in [(Signal::INT, Signal::INT), (Signal::TERM, Signal::INT)] {
        let mut extension = Extension::start(&[]);
        let mut client = client(&mut extension).await;
        client.ask(1, acquire("k", "one")).await;
        assert!(client.line().await["ok"].is_object());
        extension.signal(first);
        extension.logged("a second signal ends it at once").await;
        // Its client stays, so that the giving back would take its whole time.
        assert_eq!(client.line().await["event"], "lost");
        extension.assert_lives();
        extension.signal(second);
        // Half of what it may take to give back.
        let ended = tokio::time::timeout(Duration::from_secs(4), extension.ended()).await;
        assert_eq!(ended.expect("it ends at once").code(), Some(1));
        extension.logged("ended at once").await;
        assert!(!extension.path().exists());
    }
}

#[tokio::test]
async fn what_runs_is_said_when_it_listens() {
    let mut memory = Extension::start(&[("LEASEKEEPER_LEASE_MS", "7000")]);
    let line = memory.logged("").await;
    assert_eq!(line["message"], "listening", "no warning before it: {line}");
    assert_eq!((&line["mode"], &line["store"]), (&json!("Standalone"), &json!("memory")), "{line}");
    assert_eq!((&line["version"], &line["lease_ms"]), (&json!(env!("CARGO_PKG_VERSION")), &json!(7_000)), "{line}");
    let mut dynamo = Extension::start(&[("LEASEKEEPER_STORE", "dynamodb"), ("LEASEKEEPER_TABLE", "locks")]);
    let line = dynamo.logged("listening").await;
    assert_eq!((&line["store"], &line["table"]), (&json!("dynamodb"), &json!("locks")), "{line}");
}

#[tokio::test]
async fn a_second_sidecar_on_the_same_socket_says_so_and_ends() {
    let mut first = Extension::start(&[]);
    first.logged("listening").await;
    let path = first.path();
    let mut second = Extension::start(&[("LEASEKEEPER_SOCKET", path.to_str().unwrap())]);
    let logged = second.logged("the lock socket cannot be opened").await;
    assert!(logged["error"].as_str().unwrap().contains("another process listens"), "{logged}");
    assert_eq!(second.ended().await.code(), Some(1));
    first.connect().await;
}

#[tokio::test]
async fn a_killed_sidecars_socket_is_taken_over() {
    let mut first = Extension::start(&[]);
    first.logged("listening").await;
    first.signal(Signal::KILL);
    first.ended().await;
    assert!(first.path().exists());
    let path = first.path();
    let mut second = Extension::start(&[("LEASEKEEPER_SOCKET", path.to_str().unwrap())]);
    second.logged("listening").await;
    first.connect().await;
}

#[tokio::test]
async fn with_wrong_settings_it_comes_up_and_each_acquire_names_them() {
    let api = Api::start().await;
    let wrong = [("LEASEKEEPER_STORE", "dynamodb"), ("LEASEKEEPER_LEASE_MS", "5")];
    let mut extension = Extension::under(&api, &wrong);
    let logged = extension.logged("settings are missing or wrong").await;
    assert_eq!(logged["level"], "ERROR");
    api.registered().await;
    let mut client = extension.connect().await;
    for id in 1..3 {
        client.ask(id, acquire("k", "one")).await;
        let reply = client.line().await;
        assert_eq!(reply["error"]["code"], "config", "{reply}");
        let message = reply["error"]["message"].as_str().unwrap();
        for part in ["LEASEKEEPER_TABLE is not set", "LEASEKEEPER_LEASE_MS is \"5\"", "from 100 to 86400000"] {
            assert!(message.contains(part), "{message}");
            assert!(logged["error"].as_str().unwrap().contains(part), "{logged}");
        }
    }
    client.ask(3, Op::Hello).await;
    assert_eq!(client.line().await["ok"]["version"], 1);
    extension.assert_lives();
}

#[tokio::test]
async fn a_sidecar_that_cannot_know_where_to_listen_ends() {
    let wrong = [("LEASEKEEPER_SOCKET", "lock.sock"), ("LEASEKEEPER_LEASE_MS", "5")];
    let mut extension = Extension::start(&wrong);
    let logged = extension.logged("nowhere to listen").await;
    assert_eq!(logged["level"], "ERROR");
    let error = logged["error"].as_str().unwrap();
    assert!(error.contains("LEASEKEEPER_SOCKET is \"lock.sock\": it must be an absolute path"), "{error}");
    assert!(error.contains("LEASEKEEPER_LEASE_MS"), "{error}");
    assert_eq!(extension.ended().await.code(), Some(1));
}

#[tokio::test]
async fn under_lambda_it_lives_on_whatever_its_socket_should_be() {
    let api = Api::start().await;
    let mut extension = Extension::under(&api, &[("LEASEKEEPER_SOCKET", "lock.sock")]);
    extension.logged("settings are missing or wrong").await;
    let parked = api.registered().await;
    extension.assert_lives();
    // It takes the socket at the default path away again.
    parked.shutdown("spindown", 2_000).await;
    assert_eq!(extension.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_misspelt_variable_is_warned_about() {
    let mut extension = Extension::start(&[("LEASEKEEPER_TABEL", "locks"), ("LEASEKEEPER_STRICT_RELEASE", "true")]);
    let logged = extension.logged("unknown variable").await;
    assert_eq!((&logged["level"], &logged["name"]), (&json!("WARN"), &json!("LEASEKEEPER_TABEL")));
    let next = soon("the next line", extension.logged("")).await;
    assert_eq!(next["message"], "listening", "the other one is known");
}

/// A pipe takes 64 KiB before it makes a writer wait; each cycle logs two lines.
#[tokio::test]
async fn a_log_that_nobody_reads_holds_up_no_lock() {
    let mut extension = Extension::start(&[]);
    let mut client = client(&mut extension).await;
    for id in 0..1_000 {
        client.ask(2 * id, acquire("k", "one")).await;
        let lease = client.line().await["ok"]["lease"].as_u64().expect("granted");
        client.ask(2 * id + 1, Op::Release { lease }).await;
        assert!(client.line().await["ok"].is_object());
    }
}

/// More lines than may wait for a reader: what cannot be written must not hold up the end either.
#[tokio::test]
async fn a_log_that_nobody_reads_holds_up_no_end() {
    let mut extension = Extension::start(&[]);
    let mut client = client(&mut extension).await;
    for id in 0..4_000 {
        client.ask(2 * id, acquire("k", "one")).await;
        let lease = client.line().await["ok"]["lease"].as_u64().expect("granted");
        client.ask(2 * id + 1, Op::Release { lease }).await;
        assert!(client.line().await["ok"].is_object());
    }
    extension.signal(Signal::TERM);
    assert_eq!(extension.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_log_that_is_closed_ends_nothing() {
    let mut extension = Extension::start(&[]);
    let mut client = client(&mut extension).await;
    extension.close_log();
    for id in 0..10 {
        client.ask(id, acquire(&format!("k{id}"), "one")).await;
        assert!(client.line().await["ok"].is_object());
    }
    extension.assert_lives();
}
