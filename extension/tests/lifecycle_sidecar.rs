//! The real process without Lambda, and with settings that are wrong.

mod common;

use common::process::{Api, Extension, acquire};
use common::{Client, soon};
use leasekeeper_wire::{Acquire, Op};
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
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
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
async fn a_hangup_that_is_ignored_from_outside_ends_no_sidecar() {
    let socket = tempfile::tempdir().unwrap();
    let path = socket.path().join("leasekeeper/lock.sock");
    let script = "trap '' HUP; exec \"$0\" serve";
    let mut command = tokio::process::Command::new("/bin/sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_leasekeeper")]).env_clear();
    command.env("LEASEKEEPER_STORE", "memory").env("LEASEKEEPER_SOCKET", &path).kill_on_drop(true);
    let mut sidecar = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let connected = async {
        while tokio::net::UnixStream::connect(&path).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the socket", connected).await;
    let pid = rustix::process::Pid::from_raw(sidecar.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut client = Client::connect(&path).await;
    client.ask(1, acquire("k", "one")).await;
    assert!(client.line().await["ok"].is_object(), "it still grants locks");
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    drop(client);
    assert_eq!(soon("its end", sidecar.wait()).await.unwrap().code(), Some(0));
}

/// Acquires `k` and returns the client that holds it.
async fn holder(extension: &mut Extension) -> Client {
    let mut client = client(extension).await;
    client.ask(1, acquire("k", "one")).await;
    assert!(client.line().await["ok"].is_object());
    client
}

#[tokio::test]
async fn a_sidecar_that_is_to_end_renews_what_is_held_until_it_is_given_back_and_grants_nothing_new() {
    let mut extension = Extension::start(&[("LEASEKEEPER_LEASE_MS", "300")]);
    let mut holder = holder(&mut extension).await;
    let mut waiter = extension.connect().await;
    let wait = Op::Acquire(Acquire { key: "k".into(), wait_ms: Some(60_000), ..Acquire::default() });
    waiter.ask(1, wait).await;
    waiter.ask(2, Op::Hello).await;
    assert_eq!(waiter.line().await["id"], 2, "the acquire before it waits");
    extension.signal(Signal::TERM);
    let mut late = extension.connect().await;
    for (who, client) in [("who waits", &mut waiter), ("who comes late", &mut late)] {
        if who == "who comes late" {
            client.ask(1, acquire("another", "one")).await;
        }
        let refused = client.line().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!("unavailable")), "{who}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("is ending"), "{who}: {refused}");
    }
    let mut told = Vec::new();
    while told.iter().filter(|event| *event == "renewed").count() < 10 {
        let line = holder.line().await;
        if line["event"] == "ending" {
            assert_eq!(line, json!({"event": "ending", "lease": 1, "within_ms": 8_000}));
        }
        told.push(line["event"].clone());
    }
    assert!(told.contains(&json!("ending")) && !told.contains(&json!("lost")), "{told:?}");
    holder.ask(2, Op::Release { lease: 1 }).await;
    let released = loop {
        let line = holder.line().await;
        if line["id"] == 2 {
            break line;
        }
    };
    assert!(released["ok"].is_object(), "{released}");
    extension.logged("every lock has been given back").await;
    assert_eq!(extension.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_sidecars_end_waits_for_a_client_no_longer_than_it_stays() {
    let mut extension = Extension::start(&[]);
    let mut holder = holder(&mut extension).await;
    extension.signal(Signal::TERM);
    assert_eq!(holder.line().await["event"], "ending");
    extension.assert_lives();
    drop(holder);
    extension.logged("every lock has been given back").await;
    assert_eq!(extension.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_client_that_has_not_finished_in_time_is_told_that_its_lock_is_lost() {
    let mut extension = Extension::start(&[("LEASEKEEPER_DRAIN_MS", "50")]);
    let mut holder = holder(&mut extension).await;
    extension.signal(Signal::TERM);
    assert_eq!(holder.line().await, json!({"event": "ending", "lease": 1, "within_ms": 50}));
    assert_eq!(holder.line().await, json!({"event": "lost", "lease": 1, "reason": "shutdown"}));
    // It still has a moment to let go of it.
    holder.ask(2, Op::Release { lease: 1 }).await;
    assert_eq!(holder.line().await["error"]["reason"], "shutdown");
    extension.logged("have not finished in time").await;
    extension.logged("every lock has been given back").await;
    assert_eq!(extension.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_a_sidecar_at_once() {
    for (first, second) in [(Signal::INT, Signal::INT), (Signal::TERM, Signal::INT)] {
        let mut extension = Extension::start(&[]);
        let mut holder = holder(&mut extension).await;
        extension.signal(first);
        extension.logged("a second signal ends it at once").await;
        // Its client stays, so that the end would take its whole time.
        assert_eq!(holder.line().await["event"], "ending");
        extension.assert_lives();
        extension.signal(second);
        // Half of what it may take.
        let ended = tokio::time::timeout(Duration::from_secs(4), extension.ended()).await;
        assert_eq!(ended.expect("it ends at once").code(), Some(1));
        extension.logged("ended at once").await;
        assert!(!extension.path().exists());
    }
}

#[tokio::test]
async fn a_signal_once_everything_is_given_back_is_no_failure() {
    // It ends a moment later: not each of these comes before that.
    for _ in 0..10 {
        let mut extension = Extension::start(&[]);
        let mut client = client(&mut extension).await;
        client.ask(1, Op::Hello).await;
        client.line().await;
        extension.signal(Signal::TERM);
        extension.logged("every lock has been given back").await;
        extension.signal(Signal::INT);
        assert_eq!(extension.ended().await.code(), Some(0));
    }
}

#[tokio::test]
async fn a_sidecar_whose_path_another_one_has_taken_serves_who_it_has_and_has_the_path_again_after_that_one() {
    let mut first = Extension::start(&[]);
    let mut holder = holder(&mut first).await;
    let path = first.path();
    // Else it would be back before the second one is there.
    first.signal(Signal::STOP);
    std::fs::remove_file(&path).unwrap();
    let mut second = Extension::start(&[("LEASEKEEPER_SOCKET", path.to_str().unwrap())]);
    second.logged("listening").await;
    first.signal(Signal::CONT);
    let logged = first.logged("cannot be created again").await;
    assert!(logged["error"].as_str().unwrap().contains("another process listens"), "{logged}");
    holder.ask(2, Op::Check { lease: 1 }).await;
    assert!(holder.line().await["ok"].is_object());
    second.signal(Signal::TERM);
    assert_eq!(second.ended().await.code(), Some(0));
    first.logged("has been created again").await;
    let mut late = first.connect().await;
    late.ask(1, acquire("k", "one")).await;
    assert_eq!(late.line().await["error"]["code"], "busy", "it is the first one that answers: its lock is held there");
    holder.ask(3, Op::Release { lease: 1 }).await;
    assert!(holder.line().await["ok"].is_object());
    late.ask(2, acquire("k", "one")).await;
    assert!(late.line().await["ok"].is_object());
}

#[tokio::test]
async fn a_sidecar_whose_directory_is_taken_away_or_renamed_is_reachable_again() {
    for renamed in [false, true] {
        let mut extension = Extension::start(&[]);
        let mut holder = holder(&mut extension).await;
        let path = extension.path();
        let directory = path.parent().unwrap();
        if renamed {
            std::fs::rename(directory, directory.with_extension("old")).unwrap();
        } else {
            std::fs::remove_dir_all(directory).unwrap();
        }
        extension.logged("has been created again").await;
        extension.connect().await.ask(1, Op::Hello).await;
        holder.ask(2, Op::Check { lease: 1 }).await;
        assert!(holder.line().await["ok"].is_object());
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
async fn serve_is_what_it_does_without_a_command() {
    let mut extension = Extension::start_with(&["serve"], &[]);
    assert_eq!(extension.logged("listening").await["mode"], "Standalone");
    let mut client = extension.connect().await;
    client.ask(1, acquire("k", "one")).await;
    assert!(client.line().await["ok"].is_object());
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

/// A line that is no request is one line of the log.
#[tokio::test]
async fn what_a_log_that_nobody_reads_has_lost_is_counted_in_it_once() {
    const LINES: u64 = 6_000;
    let filter = "leasekeeper_extension::server=debug,leasekeeper_extension::log=warn";
    let mut extension = Extension::start(&[("LEASEKEEPER_LOG", filter)]);
    let mut client = soon("listening", Client::patiently(&extension.path())).await;
    let mut send = async |lines: u64| {
        for _ in 0..lines / 60 {
            client.send("nonsense\n".repeat(60)).await;
            for _ in 0..60 {
                assert_eq!(client.line().await["error"]["code"], "protocol");
            }
        }
    };
    send(LINES).await;
    let mut read = 0;
    let missing = loop {
        let line = extension.logged("").await;
        match line["lines"].as_u64() {
            Some(missing) => break missing,
            None => read += 1,
        }
    };
    assert!(missing > 0 && read + missing == LINES, "{read} lines, and {missing} are said to be missing");
    send(60).await;
    for _ in 0..60 {
        let line = extension.logged("").await;
        assert!(line["lines"].is_null() && line["message"].as_str().unwrap().contains("not a valid request"), "{line}");
    }
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
