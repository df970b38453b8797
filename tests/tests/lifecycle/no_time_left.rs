//! No time left: nothing is sent for an invocation that could not use the lock.

use super::*;
use leasekeeper::Locks;
use std::time::SystemTime;
use testkit::evidence::figure;
use testkit::programs::{node_path, python_path};
use testkit::sidecar::Sidecar;
use tokio::process::Command;

const ROW: &str = "no-time-left";

/// What is left of an invocation, and what is asked for: a wait and a reserve, in milliseconds.
type Ask = (i64, Option<u64>, Option<u64>);

/// No time at all, or no more than is kept of it.
const USED_UP: [Ask; 7] = [
    (1, None, None),
    (0, None, None),
    (-5, None, None),
    (-5, Some(0), None),
    (1, Some(60_000), None),
    (3_000, None, Some(3_000)),
    (3_000, Some(0), Some(3_000)),
];

/// Where the extension keeps 2.5 s.
const AT_THE_RESERVE: [Ask; 4] =
    [(2_500, None, None), (2_500, Some(0), None), (2_400, Some(60_000), None), (1, None, None)];

/// Asks for `k` on behalf of an invocation with so much left.
const PYTHON: &str = "
import json, sys, time, leasekeeper
class Context:
    aws_request_id = 'r'
    def __init__(self, ms):
        self.end = time.monotonic() + ms / 1000
    def get_remaining_time_in_millis(self):
        return int((self.end - time.monotonic()) * 1000)
for remaining, wait, reserve in json.loads(sys.argv[1]):
    wishes = {'wait': wait, 'reserve': reserve}
    wishes = {name: value / 1000 for name, value in wishes.items() if value is not None}
    began = time.monotonic()
    try:
        leasekeeper.Lock('k', context=Context(remaining), **wishes).acquire()
        code = 'granted'
    except leasekeeper.LockError as error:
        code = error.code
    print(json.dumps([code, round((time.monotonic() - began) * 1000)]))
";
const NODE: &str = "
const { lock, LockError } = require('leasekeeper');
(async () => {
  for (const [remaining, wait, reserve] of JSON.parse(process.argv[1])) {
    const end = performance.now() + remaining;
    const context = { awsRequestId: 'r', getRemainingTimeInMillis: () => Math.round(end - performance.now()) };
    const began = performance.now();
    const code = await lock('k', { context, waitMs: wait ?? undefined, reserveMs: reserve ?? undefined }).then(
      () => 'granted',
      (error) => (error instanceof LockError ? error.code : String(error)),
    );
    console.log(JSON.stringify([code, Math.round(performance.now() - began)]));
  }
})();
";

/// The codes that a client's library in a process of its own ends with, and after how long.
async fn ends_in(program: Program, sidecar: &Sidecar, asks: &[Ask]) -> Vec<(String, Duration)> {
    let mut command = Command::new(program.path());
    command.args(program.arguments()).arg(json!(asks).to_string()).env("LEASEKEEPER_SOCKET", sidecar.socket());
    command.env("PYTHONPATH", python_path()).env("NODE_PATH", node_path());
    let output = command.output().await.expect("python3 and node are on PATH");
    let lines = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let ends = lines.lines().map(|line| serde_json::from_str::<(String, u64)>(line).expect("a code and a time"));
    let ends: Vec<_> = ends.map(|(code, ms)| (code, Duration::from_millis(ms))).collect();
    assert_eq!(ends.len(), asks.len(), "{output:?}");
    ends
}

async fn ends_in_rust(locks: Locks, asks: &[Ask]) -> Vec<(String, Duration)> {
    let mut ends = Vec::new();
    for (remaining, wait, reserve) in asks {
        let left = Duration::from_millis(remaining.unsigned_abs());
        let now = SystemTime::now();
        let mut acquire = locks.acquire("k").invocation("r", if *remaining < 0 { now - left } else { now + left });
        if let Some(wait) = wait {
            acquire = acquire.wait(Duration::from_millis(*wait));
        }
        if let Some(reserve) = reserve {
            acquire = acquire.reserve(Duration::from_millis(*reserve));
        }
        let began = Instant::now();
        let code = acquire.await.map_or_else(|error| error.code().to_string(), |_| "granted".into());
        ends.push((code, began.elapsed()));
    }
    ends
}

/// The same asked with the libraries of all languages.
async fn ends_in_all(sidecar: &Sidecar, asks: &[Ask]) -> Vec<(&'static str, Vec<(String, Duration)>)> {
    let node = Program::new("node").arg("-e").arg(NODE);
    vec![
        ("Rust", ends_in_rust(sidecar.locks(), asks).await),
        ("Python", ends_in(Program::python("-c").arg(PYTHON), sidecar, asks).await),
        ("Node", ends_in(node, sidecar, asks).await),
    ]
}

async fn nothing_is_sent(db: &Dynamo, sidecar: &Sidecar, asks: &[Ask]) {
    for (language, ends) in ends_in_all(sidecar, asks).await {
        for ((code, _), ask) in ends.iter().zip(asks) {
            assert_eq!(code, "budget_exhausted", "{language}: {ask:?}");
        }
    }
    let mut raw = sidecar.connect().await;
    for (remaining, wait, _) in asks.iter().filter(|(remaining, _, reserve)| *remaining >= 0 && reserve.is_none()) {
        let mut ask = json!({"op": "acquire", "key": "k", "request_id": "r", "remaining_ms": remaining});
        if let Some(wait) = wait {
            ask["wait_ms"] = (*wait).into();
        }
        let error = raw.ask(ask).await.expect_err("no time is left");
        assert_eq!(error["code"], "budget_exhausted", "{remaining}: {error}");
    }
    assert!(db.requests().is_empty(), "nothing may be sent: {:?}", db.requests());
    figure(ROW, "requests for an invocation with no time left", db.requests().len());
}

#[tokio::test]
async fn with_no_time_left_nothing_is_sent_from_any_language_or_the_raw_socket() {
    let db = Dynamo::start().await;
    let sidecar = Sidecar::start(&db, "", &[]).await;
    nothing_is_sent(&db, &sidecar, &USED_UP).await;
    let mut raw = sidecar.connect().await;
    let ask = json!({"op": "acquire", "key": "k", "request_id": "r", "remaining_ms": -5});
    assert_eq!(raw.ask(ask).await.expect_err("durations are not negative")["code"], "protocol");
    assert!(db.requests().is_empty());
}

#[tokio::test]
async fn at_the_reserve_that_is_set_nothing_is_sent() {
    let db = Dynamo::start().await;
    let sidecar = Sidecar::start(&db, "", &[("LEASEKEEPER_RESERVE_MS", "2500")]).await;
    nothing_is_sent(&db, &sidecar, &AT_THE_RESERVE).await;
}

#[tokio::test]
async fn a_longer_wait_is_cut_to_what_remains() {
    // Of 2.9 s the extension keeps 2.5; of 1.2 s a client that asks for a reserve of 1 s.
    let long = Some(60_000);
    let db = Dynamo::start().await;
    let sidecar = Sidecar::start(&db, "", &[("LEASEKEEPER_RESERVE_MS", "2500")]).await;
    let mut holder = sidecar.connect().await;
    holder.acquire("k", 20_000, 0).await.expect("free");
    let cut = Duration::from_millis(400);
    for (language, ends) in ends_in_all(&sidecar, &[(2_900, long, None), (2_900, None, None)]).await {
        for (code, took) in ends {
            assert_eq!(code, "busy", "{language}");
            figure(
                ROW,
                "a wait of 60 s with 2.9 s left and 2.5 kept is over after",
                format!("{} ms", took.as_millis()),
            );
            assert!(took < cut + Duration::from_millis(250), "{language}: {took:?}");
        }
    }
    let mut raw = sidecar.connect().await;
    let began = Instant::now();
    let ask = json!({"op": "acquire", "key": "k", "request_id": "r", "remaining_ms": 2_900, "wait_ms": 60_000});
    let error = raw.ask(ask).await.expect_err("held");
    assert_eq!(error["code"], "busy", "{error}");
    let took = began.elapsed();
    assert!(took >= cut && took < cut + Duration::from_millis(250), "{took:?}");
}
