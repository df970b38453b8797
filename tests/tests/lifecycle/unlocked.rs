//! Functions that take no lock: the extension costs them next to nothing, whatever has become of DynamoDB.

use super::*;
use testkit::dynamo::{Fault, Operation};
use testkit::evidence::figure;
use testkit::sandbox::Role;
use testkit::unlocked::added;

const ROW: &str = "no-lock";
/// In microseconds.
const BOUND: i128 = 1_000;

fn without_the_extension() -> Builder {
    let runtime = Program::python(repository("tests/functions/python/runtime.py"));
    Sandbox::builder().runtime(runtime)
}

#[tokio::test]
async fn an_invocation_that_takes_no_lock_is_longer_by_less_than_1_ms_and_sends_nothing() {
    let db = Dynamo::start().await;
    let without = without_the_extension().start().await.unwrap();
    let with = environment(&db).start().await.unwrap();
    let added = added(&with, &without).await;
    figure(ROW, "added to the median invocation", format!("{added} µs"));
    assert!(added < BOUND, "{added} µs");
    assert!(db.requests().is_empty(), "no table operation");
}

/// How long all threads of a process have run so far.
fn ran(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    threads
        .map(|thread| {
            let figures = std::fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap_or_default();
            // Nanoseconds on a CPU come first; a thread that has just ended has none.
            figures.split(' ').next().and_then(|first| first.parse().ok()).map_or(Duration::ZERO, Duration::from_nanos)
        })
        .sum()
}

#[tokio::test]
async fn an_extension_without_locks_uses_no_cpu() {
    const IDLE: Duration = Duration::from_secs(2);
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    env.invoke(steps([acquire("k")])).await;
    gone(&db, "k").await;
    // Not frozen: whatever ran on its own would run.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (pid, requests) = (env.pid(Role::Extension).unwrap(), db.requests().len());
    let before = ran(pid);
    tokio::time::sleep(IDLE).await;
    let used = ran(pid) - before;
    figure(ROW, "CPU time of an idle extension in 2 s", format!("{} µs", used.as_micros()));
    assert!(used < Duration::from_millis(1), "{used:?} in {IDLE:?}");
    assert!(before > Duration::ZERO, "the kernel keeps count");
    assert_eq!(db.requests().len(), requests, "no table operation");
}

#[tokio::test]
async fn an_invocation_that_takes_no_lock_is_not_delayed_even_if_dynamodb_is_unreachable() {
    let db = Dynamo::start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unreachable = environment(&db).env("AWS_ENDPOINT_URL_DYNAMODB", format!("http://{closed}"));
    let without = without_the_extension().start().await.unwrap();
    let added = added(&unreachable.start().await.unwrap(), &without).await;
    figure("dynamodb-away", "unreachable: added to the median invocation without a lock", format!("{added} µs"));
    assert!(added < BOUND, "{added} µs");
}

#[tokio::test]
async fn an_invocation_that_takes_no_lock_is_not_delayed_by_a_slow_or_a_forbidden_dynamodb() {
    for (what, fault) in [("slow", Fault::DelayBefore(Duration::from_secs(5))), ("denied", Fault::AccessDenied)] {
        let db = Dynamo::start().await;
        db.fail(Operation::Any, fault).always();
        let without = without_the_extension().start().await.unwrap();
        let with = environment(&db).start().await.unwrap();
        // Once asked for a lock, so that it has met it.
        let asked =
            with.invoke(steps([json!({"do": "send", "line": {"op": "acquire", "key": "k", "wait_ms": 0}})])).await;
        assert!(asked.outcome.json()[0]["error"]["code"].is_string(), "{asked:?}");
        let added = added(&with, &without).await;
        figure(
            "dynamodb-away",
            &format!("{what}: added to the median invocation without a lock"),
            format!("{added} µs"),
        );
        assert!(added < BOUND, "{what}: {added} µs");
    }
}
