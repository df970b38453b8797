//! Init: nothing is locked in it, however long it lies back, and nothing random is shared by the clones of a snapshot.

use super::rows::in_tenths;
use super::*;
use rustix::process::Signal;
use std::collections::BTreeSet;
use testkit::dynamo::{Operation, Recorded};
use testkit::entropy::Snapshot;
use testkit::evidence::figure;
use testkit::programs::{node_path, python_path};
use testkit::sandbox::{Fault, Role};

const ROW: &str = "init";

fn rust(db: &Dynamo) -> Builder {
    environment(db).runtime(Program::new(built("at_init")))
}

/// Under AWS's own runtime client, which has the hooks of SnapStart.
fn python(db: &Dynamo) -> Builder {
    let interpreter = repository(".tools/awslambdaric/bin/python");
    assert!(interpreter.is_file(), "{} is missing: run `make tools`", interpreter.display());
    let path = std::env::join_paths([python_path(), repository("tests/functions/python")]).unwrap();
    environment(db)
        .runtime(Program::new(interpreter).arg("-m").arg("awslambdaric").arg("at_init.handler"))
        .env("PYTHONPATH", path.to_string_lossy())
        .env("PYTHONDONTWRITEBYTECODE", "1")
}

fn node(db: &Dynamo) -> Builder {
    let runtime = Program::node(repository("tests/functions/node/runtime.mjs"));
    environment(db)
        .runtime(runtime.arg(repository("tests/functions/node/at-init.mjs")))
        .env("NODE_PATH", node_path().to_string_lossy())
}

/// Every request for a lock outside an invocation was refused by name, with what to do.
fn assert_refused(answer: &Value, when: &[&str], advice: &str) {
    let told = answer["told"].as_array().unwrap();
    assert_eq!(told.iter().map(|told| told["when"].as_str().unwrap()).collect::<Vec<_>>(), when);
    for told in told {
        assert_eq!(told["code"], "protocol", "{told}");
        for part in ["request_id is required under Lambda", advice] {
            assert!(told["message"].as_str().unwrap().contains(part), "no {part:?} in {told}");
        }
    }
}

/// No client of the extension's has a connection, or will have closed it in a moment.
async fn nobody_is_connected(env: &Sandbox) {
    let path = env.socket().display().to_string();
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let all = std::fs::read_to_string("/proc/net/unix").unwrap();
        // The listener's, and one for each connection.
        let sockets = all.lines().filter(|line| line.ends_with(&path)).count();
        if sockets == 1 {
            return;
        }
        assert!(Instant::now() < end, "{sockets} sockets");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn signal_both(env: &Sandbox, signal: Signal) {
    for role in [Role::Extension, Role::Runtime] {
        env.signal(role, signal).unwrap();
    }
}

async fn provisioned(builder: fn(&Dynamo) -> Builder, language: &str, advice: &str) {
    let db = Dynamo::start().await;
    let builder = builder(&db).env("AWS_LAMBDA_INITIALIZATION_TYPE", "provisioned-concurrency");
    let env = builder.freeze(true).start().await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(db.requests().is_empty(), "{language}: {:?}", db.requests());
    let answer = env.invoke(json!({"key": "k"})).await.outcome.json();
    assert_refused(&answer, &["init"], advice);
    assert!(answer["owner"].is_string(), "{language}: {answer}");
    assert!(db.requests_for("init").is_empty(), "{language}");
    assert_eq!(db.requests_for("k").len(), 2, "{language}: one put, one delete");
}

#[tokio::test]
async fn in_init_and_in_the_long_pause_after_it_no_lock_is_granted_and_nothing_is_sent() {
    tokio::join!(
        provisioned(rust, "Rust", "`.context(&event.context)`"),
        provisioned(python, "Python", "`context=context`"),
        provisioned(node, "Node", "option `context`"),
    );
}

async fn restored(builder: fn(&Dynamo) -> Builder, language: &str, advice: &str) {
    let db = Dynamo::start().await;
    let env = builder(&db).snap_start().start().await.unwrap();
    nobody_is_connected(&env).await;
    assert!(db.requests().is_empty(), "{language}: {:?}", db.requests());
    signal_both(&env, Signal::STOP);
    // What was connected when the snapshot was taken is dead, and nobody has said so.
    db.front().kill_connections();
    env.inject(Fault::Closed);
    tokio::time::sleep(Duration::from_millis(200)).await;
    signal_both(&env, Signal::CONT);
    let done = env.invoke(json!({"key": "k"})).await;
    let answer = done.outcome.json();
    assert_refused(&answer, &["init", "before the snapshot", "after the restore"], advice);
    assert!(answer["owner"].is_string(), "{language}: {answer}");
    let what = format!("{language}, restored, all connections dead: an invocation with a lock");
    figure(ROW, &what, in_tenths(done.answered - done.asked));
    assert_eq!((env.starts(Role::Extension), env.starts(Role::Runtime)), (1, 1), "{language}");
    env.faults_sent().await.unwrap();
}

#[tokio::test]
async fn after_a_restore_everything_is_connected_anew_and_the_first_invocation_locks() {
    tokio::join!(restored(rust, "Rust", "`.context(&event.context)`"), restored(python, "Python", "`context=context`"),);
}

/// Owners and versions that a client's writes brought into the table.
fn ids(db: &Dynamo, client: &str) -> BTreeSet<String> {
    let of = |request: &Recorded| {
        let item = &request.body["Item"];
        [&item["owner"], &item["version"], &request.body["ExpressionAttributeValues"][":new"]]
            .map(|id| id["S"].as_str().map(String::from))
    };
    let writes = [Operation::PutItem, Operation::UpdateItem];
    let sent =
        db.requests().into_iter().filter(|request| request.client == client && writes.contains(&request.operation));
    sent.flat_map(|request| of(&request)).flatten().collect()
}

/// Two environments whose processes drew the same from the kernel during init, and then, if they are restored, each its own:
/// the ids that each has written.
async fn clones(restored: bool) -> [BTreeSet<String>; 2] {
    let db = Dynamo::start().await;
    let snapshot = Snapshot::start();
    let mut environments = Vec::new();
    for client in ["a", "b"] {
        let cloned = snapshot.env().into_iter().fold(Program::new("env"), |env, (k, v)| env.arg(format!("{k}={v}")));
        let builder = environment(&db).extension(cloned.arg(built("leasekeeper"))).envs(db.env_as(client)).snap_start();
        environments.push((client, builder.freeze(true).start().await.unwrap()));
    }
    if restored {
        snapshot.restore();
    }
    let begin = |(client, env): &(&str, Sandbox)| {
        let release = || json!({"do": "send", "line": {"op": "release"}});
        let hold = |name: &str| [acquire_for(&format!("{client}-{name}"), 600), sleep_ms(500), release()];
        env.begin(json!({"steps": Value::from_iter([hold("one"), hold("two")].into_iter().flatten())}))
    };
    let calls: Vec<_> = environments.iter().map(begin).collect();
    for call in calls {
        let answer = call.over().await.outcome.json();
        assert!(answer[1]["ok"].is_object() && answer[3]["ok"].is_object(), "{answer}");
    }
    ["a", "b"].map(|client| ids(&db, client))
}

#[tokio::test]
async fn clones_of_a_snapshot_draw_owners_and_versions_of_their_own() {
    let [a, b] = clones(true).await;
    // Two owners, two versions, and one or two renewals of each lock.
    assert!(a.len() >= 6 && b.len() >= 6, "{a:?} {b:?}");
    assert!(a.is_disjoint(&b), "{a:?} {b:?}");
    figure(ROW, "ids of two clones, none of them shared", a.len() + b.len());
}

/// The other way round: had the ids been drawn before the snapshot, or from what was drawn before it, they would be the same.
#[tokio::test]
async fn clones_that_could_draw_nothing_of_their_own_would_share_their_ids() {
    let [a, b] = clones(false).await;
    assert!(!a.is_empty() && !a.is_disjoint(&b), "{a:?} {b:?}");
}
