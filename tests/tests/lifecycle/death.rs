//! Deaths: of the handler, of the extension, of the environment.

use super::*;
use testkit::sandbox::{Outcome, Role, ShutdownReason};

/// Begins an invocation that holds `key` for ever, and waits until it does.
async fn hold(env: &Sandbox, key: &str) -> testkit::sandbox::Call {
    let call = env.begin(steps([acquire(key), say("held"), for_ever()]));
    env.wait_for_log(Role::Runtime, "held").await.unwrap();
    call
}

#[tokio::test]
async fn a_handler_killed_by_sigkill_leaves_its_lock_free_within_100_ms() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let mut call = hold(&env, "k").await;
    assert!(db.item("k").is_some());
    let killed = Instant::now();
    env.kill_runtime().unwrap();
    let took = gone(&db, "k").await - killed;
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert!(matches!(call.outcome().await, Outcome::Error { kind, .. } if kind == "Runtime.ExitError"));
}

#[tokio::test]
async fn across_process_namespaces_the_socket_tells_of_the_handlers_death_as_fast() {
    let db = Dynamo::start().await;
    // From inside its own namespace the extension cannot see the handler's process: its peer's id is 0.
    let inside = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let apart = inside.into_iter().fold(Program::new("unshare"), Program::arg).arg(built("leasekeeper"));
    let env = environment(&db).extension(apart).start().await.unwrap();
    let _call = hold(&env, "k").await;
    assert!(db.item("k").is_some());
    let killed = Instant::now();
    env.kill_runtime().unwrap();
    let took = gone(&db, "k").await - killed;
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn a_client_that_closes_its_connection_leaves_its_lock_free_within_100_ms() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let call = env.begin(steps([acquire("k"), json!({"do": "close"}), say("closed"), sleep_ms(300)]));
    let closed = env.wait_for_log(Role::Runtime, "closed").await.unwrap().at;
    let gone = gone(&db, "k").await;
    assert!(gone.saturating_duration_since(closed) < Duration::from_millis(100));
    granted(&call.over().await.outcome.json()[0]);
}

#[tokio::test]
async fn after_a_hard_timeout_the_lock_is_free_within_2_s_and_the_next_invocation_works() {
    let db = Dynamo::start().await;
    let env = environment(&db).timeout(Duration::from_secs(2)).start().await.unwrap();
    let mut call = hold(&env, "k").await;
    assert_eq!(call.outcome().await, Outcome::TimedOut);
    let timed_out = Instant::now();
    let took = gone(&db, "k").await - timed_out;
    assert!(took < Duration::from_secs(2), "{took:?}");
    call.over().await;
    let shutdown = env.shutdowns()[0];
    assert_eq!((shutdown.reason, shutdown.killed, shutdown.code), (ShutdownReason::Timeout, false, Some(0)));

    let again = env.invoke(steps([acquire("k")])).await.outcome.json();
    assert!(granted(&again[0])["waited_ms"].as_u64().unwrap() < 1000, "{again}");
    assert_eq!(env.starts(Role::Extension), 2);
}

#[tokio::test]
async fn a_killed_extension_finds_its_stale_socket_and_the_lock_is_taken_after_its_lease() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let call = env.begin(steps([acquire_for("k", 1000), say("held"), for_ever()]));
    env.wait_for_log(Role::Runtime, "held").await.unwrap();
    env.kill_extension().unwrap();
    assert!(matches!(call.over().await.outcome, Outcome::Error { kind, .. } if kind == "Extension.Crash"));
    assert!(env.socket().exists(), "what a killed process leaves behind");
    let row = db.item("k").expect("the row outlives its extension");

    let wait = json!({"do": "send", "line": {"op": "acquire", "key": "k", "wait_ms": 3000}});
    let again = env.invoke(steps([wait])).await.outcome.json();
    assert_ne!(granted(&again[0])["owner"], row["owner"]["S"]);
    let waited = again[0]["ok"]["waited_ms"].as_u64().unwrap();
    assert!((1000..1500).contains(&waited), "the stored lease, seen unchanged from now on: {waited} ms");
    assert_eq!(env.starts(Role::Extension), 2);
}

#[tokio::test]
async fn shutdown_is_over_well_before_its_deadline() {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).start().await.unwrap();
    env.invoke(steps([acquire("k"), keep()])).await;
    let shutdown = env.shutdown().await.unwrap();
    assert_eq!((shutdown.delivered, shutdown.killed, shutdown.code), (true, false, Some(0)));
    assert!(shutdown.took < Duration::from_millis(700), "{:?}", shutdown.took);
    assert_eq!(db.item("k"), None, "the leaking process is dead, so its row may go");
    assert!(!env.socket().exists(), "no stale socket after an orderly end");
}
