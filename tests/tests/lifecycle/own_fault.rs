//! The extension's own faults: a panic in a task, provoked in a real process, contradicts no client that is alive.

use super::rows::in_ms;
use super::*;
use testkit::dynamo::{Operation, Recorded};
use testkit::evidence::figure;
use testkit::moments::Lateness;
use testkit::sandbox::Role;
use testkit::sidecar::{Sidecar, SocketClient};

const ROW: &str = "own-fault";

/// The extension with a log that panics: see `tests/src/bin/faulty.rs`.
fn faulty(db: &Dynamo) -> Builder {
    environment(db).extension(built("faulty"))
}

/// No request, which the connection's own task logs.
fn panic_in_the_connection() -> Value {
    json!({"do": "text", "text": r#"{"v":1,"id":99,"op":"hello","provoke":1}"#})
}

fn renewals(db: &Dynamo, key: &str) -> Vec<Recorded> {
    let mut log = db.requests_for(key);
    log.retain(|request| request.operation == Operation::UpdateItem);
    log
}

#[tokio::test]
async fn a_panic_in_a_connections_task_ends_that_connection_and_its_row_runs_out_beside_the_others() {
    const LEASE_MS: u64 = 1_500;
    let lateness = Lateness::watch();
    let db = Dynamo::start().await;
    let env = faulty(&db).managed_instances(3).start().await.unwrap();
    let pid = env.pid(Role::Extension);
    let other = env.begin(steps([acquire_for("other", LEASE_MS), say("other holds"), sleep_ms(2_200), check()]));
    env.wait_for_log(Role::Runtime, "other holds").await.unwrap();
    let tell = || json!({"do": "tell"});
    let struck = env.begin(steps([
        acquire_for("k", LEASE_MS),
        check(),
        tell(),
        panic_in_the_connection(),
        tell(),
        say("struck"),
        sleep_ms(1_500),
    ]));
    env.wait_for_log(Role::Runtime, "struck").await.unwrap();
    let (struck_at, row) = (db.elapsed(), db.item("k").expect("its client is alive and has not let go"));
    granted(&env.invoke(steps([acquire("new")])).await.outcome.json()[0]);
    assert_eq!(env.invoke(steps([])).await.outcome.json(), json!([]), "a function without a lock runs on");

    let answer = struck.over().await.outcome.json();
    assert_eq!(answer[2], json!({"closed": true}), "its end tells the client: {answer}");
    let answer = other.over().await.outcome.json();
    assert!(answer[1]["ok"]["valid_ms"].is_u64(), "another connection's lock is held on: {answer}");
    assert!(renewals(&db, "other").iter().any(|renewal| renewal.at > struck_at), "and renewed");

    gone(&db, "k").await;
    let log = db.requests_for("k");
    let written =
        log.iter().rfind(|r| r.status == Some(200) && r.operation != Operation::DeleteItem).expect("it was held");
    assert_eq!(row["version"], version_of(written), "nothing is renewed after the fault");
    let delete = log.iter().find(|request| request.operation == Operation::DeleteItem).expect("it was given back").at;
    let after = delete - written.at;
    figure(ROW, "a connection's task panicked: a lease of 1.5 s deleted after its last write", in_ms(after));
    // Nine tenths of the lease count from the write's sending, a turn or two of processes before the store sees it.
    let least = Duration::from_millis(LEASE_MS * 9 / 10);
    assert!(after + lateness.of_turns(2) >= least, "{after:?}: its client could still believe");
    assert_eq!((env.pid(Role::Extension), env.starts(Role::Extension)), (pid, 1));
}

/// The version that a Put or a renewal writes.
fn version_of(write: &Recorded) -> Value {
    match write.operation {
        Operation::PutItem => write.body["Item"]["version"].clone(),
        _ => write.body["ExpressionAttributeValues"][":new"].clone(),
    }
}

#[tokio::test]
async fn a_panic_of_the_driver_loses_every_lock_deletes_none_and_lets_functions_run_on() {
    const LEASE_MS: u64 = 1_500;
    let db = Dynamo::start().await;
    let env = faulty(&db).start().await.unwrap();
    let contender = Sidecar::start(&db, "contender", &[]).await;
    // The driver logs the key that it grants.
    let call = env.begin(steps([say("up"), sleep_ms(400), acquire("provoke")]));
    env.wait_for_log(Role::Runtime, "up").await.unwrap();
    let mut believing = SocketClient::at(&env.socket()).await;
    let ask = json!({"op": "acquire", "key": "k", "lease_ms": LEASE_MS, "wait_ms": 0, "request_id": call.id, "remaining_ms": 9_000});
    let lease = believing.ask(ask).await.expect("free")["lease"].as_u64().expect("a number");
    let mut waiting = contender.connect().await;
    let taken = tokio::spawn(async move { waiting.acquire("k", LEASE_MS, 10_000).await.map(|_| waiting) });

    assert_eq!(believing.lost(lease).await, "extension_failed");
    let told = db.elapsed();
    let row = db.item("k").expect("its client is alive and has not let go");
    assert_eq!(believing.check(lease).await.expect_err("the driver is gone")["code"], "unavailable");
    let answer = call.over().await.outcome.json();
    assert_eq!(answer[0]["error"]["code"], "unavailable", "{answer}");
    assert_eq!(env.invoke(steps([])).await.outcome.json(), json!([]), "a function without a lock runs on");
    let answer = env.invoke(steps([acquire("later")])).await.outcome.json();
    assert_eq!(answer[0]["error"]["code"], "unavailable", "{answer}");
    assert_eq!((env.starts(Role::Extension), env.extension_errors()), (1, Vec::new()));

    drop(taken.await.unwrap().expect("its lease has run out"));
    let log = db.requests_for("k");
    let (ours, theirs): (Vec<_>, Vec<_>) = log.iter().partition(|request| request.client.is_empty());
    assert!(ours.iter().all(|request| request.operation != Operation::DeleteItem), "nothing of it is deleted");
    let last = ours.iter().rfind(|request| request.status == Some(200)).expect("it was held");
    assert!(last.at < told && row["version"] == version_of(last), "nothing is written once its client was told");
    let takeover = theirs.iter().find(|r| r.operation == Operation::PutItem && r.status == Some(200));
    let after = takeover.expect("it was taken over").at - last.at;
    figure(ROW, "the driver panicked: a lease of 1.5 s taken over after its last write", in_ms(after));
    assert!(after >= Duration::from_millis(LEASE_MS), "{after:?}");

    let shutdown = env.shutdown().await.unwrap();
    assert_eq!((shutdown.delivered, shutdown.killed, shutdown.code), (true, false, Some(0)));
}
