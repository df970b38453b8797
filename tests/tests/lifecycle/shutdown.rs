//! SHUTDOWN: what dead clients held is given back at once, what a living one holds is not touched.

use super::rows::in_ms;
use super::*;
use rustix::process::Signal;
use testkit::dynamo::{Fault, Operation, Recorded};
use testkit::evidence::figure;
use testkit::sandbox::Role;
use testkit::sidecar::{Sidecar, SocketClient};

/// Every one on a connection of its own.
const CLIENTS: usize = 50;

/// One of each kind, met by every delete of its key.
const FAILING: [Fault; 5] = [Fault::Throttle, Fault::InternalError, Fault::Unavailable, Fault::Drop, Fault::Hang];

#[tokio::test]
async fn at_shutdown_fifty_dead_clients_leases_are_given_back_at_once_though_five_releases_fail() {
    const ROW: &str = "shutdown-50";
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let call = env.begin(steps([json!({"do": "crowd", "count": CLIENTS, "prefix": "k"}), say("held"), for_ever()]));
    env.wait_for_log(Role::Runtime, "held").await.unwrap();
    let key = |number| format!("k{number}");
    for (number, fault) in FAILING.into_iter().enumerate() {
        db.fail(Operation::DeleteItem, fault).key(&key(number)).always();
    }
    // The reply of one is lost: its row is gone all the same.
    db.fail(Operation::DeleteItem, Fault::CommitThenDrop).key(&key(FAILING.len()));
    db.fail(Operation::DeleteItem, Fault::DelayBefore(Duration::from_millis(50))).always();

    // The clients die and SHUTDOWN comes while the extension has no turn: it meets both at once, with all leases held.
    env.signal(Role::Extension, Signal::STOP).unwrap();
    let killed = db.elapsed();
    env.kill_runtime().unwrap();
    let ended = tokio::spawn(call.over());
    env.extension_told().await.unwrap();
    let held = (0..CLIENTS).filter(|number| db.item(&key(*number)).is_some()).count();
    assert_eq!(held, CLIENTS, "nothing can have been given back yet");
    env.signal(Role::Extension, Signal::CONT).unwrap();
    ended.await.unwrap();

    let log = db.requests();
    let deletes = |number| {
        let key = key(number);
        log.iter().filter(move |r| r.operation == Operation::DeleteItem && r.key.as_deref() == Some(&key))
    };
    for (number, fault) in FAILING.into_iter().enumerate() {
        assert!(db.item(&key(number)).is_some(), "k{number}: no delete of it got through");
        let least = if fault == Fault::Hang { 1 } else { 3 };
        assert!(deletes(number).count() >= least, "k{number}: it was tried to the end");
    }
    let mut last = Duration::ZERO;
    for number in FAILING.len()..CLIENTS {
        assert_eq!(db.item(&key(number)), None, "k{number}");
        // Also the one whose reply was lost: the store had answered.
        let done = deletes(number).next().and_then(|request| request.answered).expect("its first delete was committed");
        last = last.max(done - killed);
    }
    let shutdown = env.shutdowns()[0];
    figure(ROW, "45 of 50 free after the clients' death and SHUTDOWN", in_ms(last));
    figure(ROW, "process gone after SHUTDOWN", in_ms(shutdown.took));
    assert!(last < Duration::from_millis(500), "{last:?}");
    assert_eq!((shutdown.delivered, shutdown.killed, shutdown.code), (true, false, Some(0)));
    assert!(shutdown.took < Duration::from_millis(1_500), "{:?}", shutdown.took);
    env.wait_for_log(Role::Extension, "some locks could not be given back in time").await.unwrap();
}

/// A process of the environment that outlives its runtime: it holds `key` for the invocation `id`.
async fn survivor(env: &Sandbox, key: &str, lease_ms: u64, id: &str) -> (SocketClient, u64) {
    let mut client = SocketClient::at(&env.socket()).await;
    let ask = json!({"op": "acquire", "key": key, "lease_ms": lease_ms, "wait_ms": 0, "request_id": id, "remaining_ms": 9_000});
    let granted = client.ask(ask).await.expect("free");
    (client, granted["lease"].as_u64().expect("a number"))
}

#[tokio::test]
async fn a_client_that_is_alive_at_shutdown_is_told_lost_and_its_row_runs_out() {
    const LEASE_MS: u64 = 3_000;
    const SHORT_MS: u64 = 1_000;
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let contender = Sidecar::start(&db, "contender", &[]).await;
    let call = env.begin(steps([say("up"), for_ever()]));
    env.wait_for_log(Role::Runtime, "up").await.unwrap();
    let (mut believing, long) = survivor(&env, "k", LEASE_MS, &call.id).await;
    let (mut short, soon_over) = survivor(&env, "short", SHORT_MS, &call.id).await;
    let (mut leaving, left) = survivor(&env, "left", LEASE_MS, &call.id).await;
    let mut waiting = contender.connect().await;
    let taken = tokio::spawn(async move { waiting.acquire("k", LEASE_MS, 10_000).await.map(|_| waiting) });
    assert!(db.until(Duration::from_secs(5), |log| log.iter().any(|r| r.client == "contender")).await);

    let asked = db.elapsed();
    let valid = Duration::from_millis(short.check(soon_over).await.expect("held"));
    env.kill_runtime().unwrap();
    for (client, lease) in [(&mut believing, long), (&mut short, soon_over), (&mut leaving, left)] {
        assert_eq!(client.lost(lease).await, "shutdown");
        let error = client.check(lease).await.expect_err("lost");
        assert_eq!((&error["code"], &error["reason"]), (&json!("lost"), &json!("shutdown")), "{error}");
    }
    let told = db.elapsed();
    let row = db.item("k").expect("its client is alive and has not let go");
    assert_eq!(leaving.release(left).await.expect_err("lost")["code"], "lost");
    let of = |key: &'static str, operation| {
        move |r: &&Recorded| r.key.as_deref() == Some(key) && r.operation == operation && r.client.is_empty()
    };
    let deleted = |log: &[Recorded], key| log.iter().find(of(key, Operation::DeleteItem)).map(|r| r.at);
    let let_go = db.until(Duration::from_secs(1), |log| deleted(log, "left").is_some()).await;
    assert!(let_go, "a client that lets go of it need not wait for the validity's end");

    call.over().await;
    let shutdown = env.shutdowns()[0];
    assert_eq!((shutdown.delivered, shutdown.killed, shutdown.code), (true, false, Some(0)));
    assert_eq!(db.item("k").as_ref(), Some(&row), "neither deleted nor renewed");
    let log = db.requests();
    let short_gone = deleted(&log, "short").expect("within SHUTDOWN's time nobody could believe in it any more");
    assert!(short_gone >= asked + valid, "deleted after {:?} of {valid:?}", short_gone - asked);
    assert!(deleted(&log, "k").is_none());

    drop(taken.await.unwrap().expect("its lease has run out"));
    let log = db.requests_for("k");
    let last = log.iter().rfind(|r| r.client.is_empty() && r.status == Some(200)).expect("it was held").at;
    assert!(last < told, "nothing was written once its client was told");
    let takeover =
        log.iter().find(|r| r.client == "contender" && r.operation == Operation::PutItem && r.status == Some(200));
    let after = takeover.expect("it was taken over").at - last;
    figure("own-fault", "SHUTDOWN with a living client: a lease of 3 s taken over after its last write", in_ms(after));
    assert!(after >= Duration::from_millis(LEASE_MS), "{after:?}");
}
