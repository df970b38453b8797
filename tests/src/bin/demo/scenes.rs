//! The demo's scenes, each with a DynamoDB and environments of its own.

use crate::report::Report;
use crate::timeline::{disjoint, draw, holds};
use leasekeeper::{LockError, Locks};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::dynamo::{Dynamo, Operation};
use testkit::programs::{built, clients_are_laid_out, node_path, python_path, repository};
use testkit::sandbox::{Builder, Outcome, Program, Role, Sandbox};

/// An environment with the extension and this runtime, on this DynamoDB.
fn environment(db: &Dynamo, runtime: Program) -> Builder {
    Sandbox::builder()
        .extension(built("leasekeeper"))
        .runtime(runtime)
        .envs(db.env())
        .env("LEASEKEEPER_PLAIN_KEYS", "true")
        .env("NODE_PATH", node_path().to_string_lossy())
        .env("PYTHONPATH", python_path().to_string_lossy())
        .timeout(Duration::from_secs(10))
}

fn function() -> Program {
    Program::new(built("function"))
}

/// Starts an environment; if that fails, the scene has failed.
async fn start(report: &mut Report, environment: Builder) -> Option<Sandbox> {
    match environment.start().await {
        Ok(sandbox) => Some(sandbox),
        Err(error) => {
            report.check(false, format!("the environment starts: {error}"));
            None
        }
    }
}

/// Another environment's extension, asked directly.
async fn contender(report: &mut Report, db: &Dynamo) -> Option<(Sandbox, Locks)> {
    let sandbox = start(report, environment(db, function())).await?;
    let locks = Locks::at(sandbox.socket());
    Some((sandbox, locks))
}

/// One attempt, in the name of an invocation of its own.
async fn try_once(locks: &Locks, key: &str) -> Result<leasekeeper::Guard, LockError> {
    let deadline = std::time::SystemTime::now() + Duration::from_secs(10);
    locks.try_acquire(key).invocation("demo-contender", deadline).await
}

/// What a handler in this language lacks here, if anything.
fn missing(program: &str) -> Option<String> {
    if !Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Some(format!("there is no {program}"));
    }
    clients_are_laid_out().err().map(str::to_owned)
}

/// Waits until `key`'s row is there, or gone; tells when that was seen.
async fn until_row(db: &Dynamo, key: &str, there: bool, limit: Duration) -> Option<Instant> {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if db.item(key).is_some() == there {
            return Some(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    None
}

/// A Rust, a Python and a Node handler contend for one key.
pub(crate) async fn turns(report: &mut Report) {
    report.scene("Three functions, three environments, one lock: customer:42");
    let db = Dynamo::start().await;
    let mut languages = vec![("Rust", Program::new(built("bootstrap")))];
    for (name, program) in [("Python", "python3"), ("Node", "node")] {
        if let Some(why) = missing(program) {
            report.skip(format!("the {name} handler: {why}"));
            continue;
        }
        let runtime = match name {
            "Python" => Program::python(repository("tests/functions/python/bootstrap.py"))
                .arg(repository("examples/python/handler.py")),
            _ => Program::node(repository("tests/functions/node/runtime.mjs"))
                .arg(repository("examples/node/handler.mjs")),
        };
        languages.push((name, runtime));
    }
    let names: Vec<_> = languages.iter().map(|(name, _)| *name).collect();
    let mut environments = Vec::new();
    for (name, program) in languages {
        let Some(environment) = start(report, environment(&db, program)).await else { return };
        environments.push((name, environment));
    }
    let event = json!({"customer_id": "42", "work_ms": 250});
    let mut calls = Vec::new();
    for _ in 0..2 {
        calls.extend(environments.iter().map(|(name, environment)| (*name, environment.begin(event.clone()))));
    }
    let mut owners = BTreeMap::new();
    for (name, call) in calls {
        match call.over().await.outcome {
            Outcome::Response(body) => {
                let answer: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
                owners.insert(answer["owner"].as_str().unwrap_or_default().to_owned(), name);
            }
            other => report.check(false, format!("{name} answered {other:?}")),
        }
    }
    let holds = holds(&db.requests_for("customer:42"));
    draw(&holds, |hold| (*owners.get(&hold.owner).unwrap_or(&"?")).to_owned(), &names);
    let wanted = 2 * names.len();
    report.check(holds.len() == wanted && owners.len() == wanted, format!("each had its turns: {} holds", holds.len()));
    report.check(disjoint(&holds), "no two holds overlap, as the store saw them");
    report.check(db.item("customer:42").is_none(), "nothing is left in the table");
}

/// Four busy threads on the extension's only CPU, for twice the lease.
pub(crate) async fn busy_cpu(report: &mut Report) {
    report.scene("Four busy threads pinned to the extension's CPU, for twice the lease of 2 s");
    let db = Dynamo::start().await;
    let Some((_other, locks)) = contender(report, &db).await else { return };
    let pinned = environment(&db, function()).env("LEASEKEEPER_LEASE_MS", "2000").cpu(0);
    let Some(pinned) = start(report, pinned).await else { return };
    let call = pinned.begin(json!({"key": "report", "work_ms": 4_000, "busy_threads": 4}));
    until_row(&db, "report", true, Duration::from_secs(5)).await;
    let (mut busy, mut taken) = (0, 0);
    let end = Instant::now() + Duration::from_millis(3_900);
    while Instant::now() < end {
        match try_once(&locks, "report").await {
            Err(LockError::Busy { .. }) => busy += 1,
            _ => taken += 1,
        }
        tokio::time::sleep(Duration::from_millis(95)).await;
    }
    let outcome = call.over().await.outcome;
    let answer = if let Outcome::Response(body) = &outcome { body.clone() } else { format!("{outcome:?}") };
    let renewals = serde_json::from_str(&answer).ok().and_then(|a: serde_json::Value| a["renewals"].as_u64());
    println!("   the handler answered {answer}");
    if renewals.is_none() {
        println!("{}", pinned.log_text(Role::Extension));
    }
    report.check(renewals.is_some_and(|renewals| renewals >= 4), "it held the lock to the end, renewed all the while");
    report.check(busy >= 30 && taken == 0, format!("a contender was turned away {busy} times and never let in"));
}

/// SIGKILL in the middle of the work.
pub(crate) async fn killed(report: &mut Report) {
    report
        .scene("A handler is killed with SIGKILL while it holds the lock (by its lease alone others would wait 20 s)");
    let db = Dynamo::start().await;
    let Some(environment) = start(report, environment(&db, function())).await else { return };
    let call = environment.begin(json!({"key": "order:7", "work_ms": 9_000}));
    until_row(&db, "order:7", true, Duration::from_secs(5)).await;
    let killed = Instant::now();
    environment.kill_runtime().expect("the handler runs");
    let gone = until_row(&db, "order:7", false, Duration::from_secs(5)).await.map(|at| at - killed);
    report.check(
        gone.is_some_and(|after| after < Duration::from_millis(100)),
        format!("the lock was free {}", after(gone)),
    );
    drop(call);
}

/// The function's own time-out.
pub(crate) async fn timed_out(report: &mut Report) {
    report.scene("A handler runs into the function's time-out of 1 s (by its lease alone others would wait 20 s)");
    let db = Dynamo::start().await;
    let slow = environment(&db, function()).timeout(Duration::from_secs(1));
    let Some(slow) = start(report, slow).await else { return };
    // Busy, so that it cannot answer that its lock is lost at the very moment of the time-out.
    let mut call = slow.begin(json!({"key": "order:8", "work_ms": 60_000, "busy_threads": 1}));
    until_row(&db, "order:8", true, Duration::from_secs(1)).await;
    let outcome = call.outcome().await;
    let ended = Instant::now();
    let gone = until_row(&db, "order:8", false, Duration::from_secs(5)).await.map(|at| at - ended);
    report.check(outcome == Outcome::TimedOut, "the caller was told: timed out");
    report
        .check(gone.is_some_and(|after| after < Duration::from_secs(2)), format!("the lock was free {}", after(gone)));
}

/// Who is in the way?
pub(crate) async fn told(report: &mut Report) {
    report.scene("A contender that does not wait is told who holds the lock");
    let db = Dynamo::start().await;
    let Some((_other, locks)) = contender(report, &db).await else { return };
    let Some(environment) = start(report, environment(&db, function())).await else { return };
    let call = environment.begin(json!({"key": "order:9", "work_ms": 500}));
    let id = call.id.clone();
    until_row(&db, "order:9", true, Duration::from_secs(5)).await;
    let asked = Instant::now();
    let refused = try_once(&locks, "order:9").await;
    let took = asked.elapsed();
    match refused {
        Err(error @ LockError::Busy { .. }) => {
            println!("   after {took:.1?}: {error}");
            let holder = error.holder().cloned().unwrap_or_default();
            println!(
                "   held by {}, invocation {}",
                holder.function.as_deref().unwrap_or("?"),
                holder.request_id.as_deref().unwrap_or("?")
            );
            report.check(holder.request_id.as_deref() == Some(id.as_str()), "it names the invocation that holds it");
        }
        other => report.check(false, format!("expected busy, got {other:?}")),
    }
    let outcome = call.over().await.outcome;
    report.check(matches!(outcome, Outcome::Response(_)), "and the holder was not disturbed");
    let writes = db.requests_for("order:9").iter().filter(|request| request.operation != Operation::GetItem).count();
    report.check(writes == 3, format!("{writes} writes in all: acquire, the contender's one attempt, release"));
}

fn after(time: Option<Duration>) -> String {
    time.map_or_else(|| "not within 5 s".into(), |time| format!("after {} ms", time.as_millis()))
}
