//! The driver between a client's outbox and a store: what each request is answered, and what is counted.
//!
//! Real time passes here only as far as the store makes it: waits and leases are short.

use leasekeeper_core::{Answer, Op as StoreOp, Refusal};
use leasekeeper_extension::driver::{self, Command, Gone, Surroundings};
use leasekeeper_extension::outbox::{Outgoing, outbox};
use leasekeeper_extension::settings::Settings;
use leasekeeper_extension::store::{MemoryStore, Request, Response, Store};
use leasekeeper_wire::{Acquire, Code, EventKind, Failure, Granted, LostReason, Metrics, Op, Released, ServerLine};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// A memory store that can be told to misbehave, shared by the drivers of a test.
#[derive(Clone, Default)]
struct Shared {
    store: Arc<MemoryStore>,
    deny_renewals: Arc<AtomicBool>,
    slow: Arc<AtomicBool>,
    panic_in_send: Arc<AtomicBool>,
    unreachable: Arc<AtomicBool>,
}

impl Store for Shared {
    async fn send(&self, request: Request) -> Response {
        if self.panic_in_send.swap(false, Ordering::Relaxed) {
            panic!("a bug in the store's client");
        }
        if self.unreachable.load(Ordering::Relaxed) {
            let answer = Answer::Unavailable("no connection".into());
            return Response { answer, note: None, read_units: 0.0, write_units: 0.0 };
        }
        if self.slow.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        if self.deny_renewals.load(Ordering::Relaxed) && matches!(request.op, StoreOp::Renew { .. }) {
            let answer = Answer::Denied(Refusal::Denied, "dynamodb:UpdateItem is not allowed".into());
            return Response { answer, note: None, read_units: 0.0, write_units: 0.0 };
        }
        self.store.send(request).await
    }

    fn drop_connections(&self) {}
}

fn settings(lease_ms: &str) -> Result<Settings, String> {
    let find = |name: &str| match name {
        "LEASEKEEPER_TABLE" => Some("locks".into()),
        "LEASEKEEPER_LEASE_MS" => Some(lease_ms.into()),
        _ => None,
    };
    Ok(Settings::from_lookup(find).unwrap())
}

const ON_DEMAND: fn() -> Surroundings = || Surroundings { invocations: true, freezes: true, ..Surroundings::default() };

struct Client {
    driver: UnboundedSender<Command>,
    client: u64,
    lines: Outgoing,
}

impl Client {
    fn connect(driver: &UnboundedSender<Command>, client: u64) -> Self {
        let (outbox, lines) = outbox();
        driver.send(Command::Open { client, outbox }).unwrap();
        Self { driver: driver.clone(), client, lines }
    }

    fn ask(&self, id: u64, op: Op) {
        self.driver.send(Command::Request { client: self.client, id, op }).unwrap();
    }

    async fn line(&mut self) -> ServerLine {
        let line = tokio::time::timeout(Duration::from_secs(5), self.lines.next()).await;
        ServerLine::decode(line.expect("a line in time").expect("an open outbox").as_bytes()).unwrap()
    }

    /// The reply to `id`; events before it are passed over.
    async fn reply(&mut self, id: u64) -> Result<Value, Failure> {
        loop {
            if let ServerLine::Reply { id: got, answer } = self.line().await {
                assert_eq!(got, Some(id));
                return answer;
            }
        }
    }

    async fn call(&mut self, id: u64, op: Op) -> Result<Value, Failure> {
        self.ask(id, op);
        self.reply(id).await
    }

    async fn acquire(&mut self, key: &str, wait_ms: u64) -> Result<Granted, Failure> {
        let granted = self.call(1, acquire(key, wait_ms)).await?;
        Ok(serde_json::from_value(granted).unwrap())
    }

    async fn lost(&mut self) -> LostReason {
        loop {
            if let ServerLine::Event(event) = self.line().await
                && let EventKind::Lost { reason } = event.kind
            {
                return reason;
            }
        }
    }
}

fn acquire(key: &str, wait_ms: u64) -> Op {
    Op::Acquire(Acquire { key: key.into(), wait_ms: Some(wait_ms), ..Acquire::default() })
}

fn of_invocation(key: &str, request_id: &str) -> Op {
    let ask = Acquire { request_id: Some(request_id.into()), remaining_ms: Some(10_000), ..Acquire::default() };
    Op::Acquire(Acquire { key: key.into(), wait_ms: Some(0), ..ask })
}

fn metrics(answer: Value) -> Metrics {
    serde_json::from_value(answer).unwrap()
}

#[tokio::test]
async fn an_uncontended_cycle_is_two_writes_and_no_read() {
    let driver = driver::start(settings("20000"), Surroundings::default(), Shared::default());
    let mut client = Client::connect(&driver, 1);
    let granted = client.acquire("k", 1_000).await.unwrap();
    assert_eq!((granted.table.as_str(), granted.lease_ms, granted.token), ("locks", 20_000, None));
    assert!((17_000..=18_000).contains(&granted.valid_ms), "{granted:?}");
    let released = client.call(2, Op::Release { lease: granted.lease }).await.unwrap();
    let released: Released = serde_json::from_value(released).unwrap();
    assert_eq!((released.metrics.write_requests, released.metrics.read_requests), (2, 0));
    assert_eq!(released.metrics.consumed_write_units, 2.0);
    let unknown = client.call(3, Op::Check { lease: granted.lease }).await.unwrap_err();
    assert_eq!(unknown.code, Code::Protocol);
}

#[tokio::test]
async fn a_zero_wait_contender_is_told_who_holds_it_after_one_request() {
    let store = Shared::default();
    let note = leasekeeper_extension::store::Note { function: Some("importer".into()), ..Default::default() };
    let holder = driver::start(settings("20000"), Surroundings { note, ..Surroundings::default() }, store.clone());
    let contender = driver::start(settings("20000"), Surroundings::default(), store);
    let mut first = Client::connect(&holder, 1);
    let granted = first.acquire("k", 0).await.unwrap();
    let busy = Client::connect(&contender, 1).acquire("k", 0).await.unwrap_err();
    assert_eq!(busy.code, Code::Busy);
    let told = busy.holder.unwrap();
    assert_eq!((told.owner, told.function.as_deref()), (granted.owner, Some("importer")));
    assert!(busy.retry_after_ms.is_some_and(|ms| ms <= 20_000));
    let metrics = busy.metrics.unwrap();
    assert_eq!((metrics.write_requests, metrics.read_requests, metrics.conditional_failures), (1, 0, 1));
    assert_eq!(metrics.wait_timeouts, 1);
    assert!(!busy.message.contains("importer"), "what is known of the holder stays out of the text: {}", busy.message);
}

#[tokio::test]
async fn a_waiter_gets_the_lock_after_the_release_and_each_renewal_is_one_write() {
    let store = Shared::default();
    let here = driver::start(settings("300"), Surroundings::default(), store.clone());
    let there = driver::start(settings("300"), Surroundings::default(), store);
    let mut holder = Client::connect(&here, 1);
    let granted = holder.acquire("k", 0).await.unwrap();
    let mut waiter = Client::connect(&there, 1);
    waiter.ask(1, acquire("k", 5_000));
    for _ in 0..3 {
        while !matches!(holder.line().await, ServerLine::Event(event) if event.kind == EventKind::Renewed) {}
    }
    let figures = metrics(holder.call(2, Op::Metrics { lease: granted.lease }).await.unwrap());
    assert!(figures.renewals >= 3);
    let released = holder.call(3, Op::Release { lease: granted.lease }).await.unwrap();
    let released: Released = serde_json::from_value(released).unwrap();
    assert_eq!(released.metrics.write_requests, 2 + released.metrics.renewals);
    let taken: Granted = serde_json::from_value(waiter.reply(1).await.unwrap()).unwrap();
    assert_ne!(taken.owner, granted.owner);
}

#[tokio::test]
async fn wrong_settings_answer_every_acquire_with_the_variable() {
    let wrong = Settings::from_lookup(|_| None).unwrap_err().to_string();
    let driver = driver::start(Err(wrong), Surroundings::default(), Shared::default());
    let mut client = Client::connect(&driver, 1);
    assert!(client.call(1, Op::Hello).await.is_ok());
    for _ in 0..2 {
        let refused = client.acquire("k", 0).await.unwrap_err();
        assert_eq!(refused.code, Code::Config);
        assert!(refused.message.contains("LEASEKEEPER_TABLE"), "{}", refused.message);
    }
}

#[tokio::test]
async fn under_lambda_a_request_names_its_invocation() {
    let driver = driver::start(settings("20000"), ON_DEMAND(), Shared::default());
    let mut client = Client::connect(&driver, 1);
    let refused = client.acquire("k", 0).await.unwrap_err();
    assert_eq!(refused.code, Code::Protocol);
    assert!(refused.message.contains("request_id"), "{}", refused.message);
    assert!(client.call(2, of_invocation("k", "a")).await.is_ok());
}

#[tokio::test]
async fn a_lease_of_an_older_invocation_is_lost_when_the_next_one_begins_and_its_own_is_kept() {
    let driver = driver::start(settings("20000"), ON_DEMAND(), Shared::default());
    let mut client = Client::connect(&driver, 1);
    let began = |id: &str| Command::InvocationBegan { request_id: id.into(), remaining: Duration::from_secs(10) };
    driver.send(began("a")).unwrap();
    client.call(1, of_invocation("old", "a")).await.unwrap();
    let early: Granted = serde_json::from_value(client.call(2, of_invocation("new", "b")).await.unwrap()).unwrap();
    driver.send(began("b")).unwrap();
    assert_eq!(client.lost().await, LostReason::Thaw);
    assert!(client.call(3, Op::Check { lease: early.lease }).await.is_ok());
    let late = client.call(4, of_invocation("other", "a")).await.unwrap_err();
    assert_eq!(late.code, Code::BudgetExhausted);
}

#[tokio::test]
async fn a_refused_renewal_is_loss_with_its_reason_and_check_and_release_say_so() {
    let store = Shared::default();
    store.deny_renewals.store(true, Ordering::Relaxed);
    let driver = driver::start(settings("300"), Surroundings::default(), store);
    let mut client = Client::connect(&driver, 1);
    let granted = client.acquire("k", 0).await.unwrap();
    assert_eq!(client.lost().await, LostReason::Denied);
    for (id, op) in [(2, Op::Check { lease: granted.lease }), (3, Op::Release { lease: granted.lease })] {
        let lost = client.call(id, op).await.unwrap_err();
        assert_eq!((lost.code, lost.reason), (Code::Lost, Some(LostReason::Denied)));
        assert_eq!(lost.metrics.map(|metrics| metrics.lost), Some(1));
    }
}

#[tokio::test]
async fn a_closed_connection_gives_back_and_a_failed_one_lets_lapse() {
    let store = Shared::default();
    let driver = driver::start(settings("600"), Surroundings::default(), store.clone());
    for (client, how) in [(1, Gone::Closed), (2, Gone::Faulted)] {
        let mut gone = Client::connect(&driver, client);
        gone.acquire(&format!("k{client}"), 0).await.unwrap();
        driver.send(Command::Close { client, how }).unwrap();
    }
    let mut other = Client::connect(&driver, 3);
    assert!(other.acquire("k1", 100).await.is_ok(), "closed: free at once");
    assert_eq!(other.acquire("k2", 0).await.unwrap_err().code, Code::Busy, "failed: its client may still believe");
    assert!(other.acquire("k2", 1_000).await.is_ok(), "free once the validity is over");
}

#[tokio::test]
async fn leases_are_their_own_connections_alone() {
    let driver = driver::start(settings("20000"), Surroundings::default(), Shared::default());
    let granted = Client::connect(&driver, 1).acquire("k", 0).await.unwrap();
    let mut other = Client::connect(&driver, 2);
    for (id, op) in [
        (1, Op::Check { lease: granted.lease }),
        (2, Op::Release { lease: granted.lease }),
        (3, Op::Metrics { lease: granted.lease }),
    ] {
        assert_eq!(other.call(id, op).await.unwrap_err().code, Code::Protocol);
    }
}

#[tokio::test]
async fn a_lease_too_short_for_the_round_trips_seen_is_an_error_that_says_so() {
    let store = Shared::default();
    store.slow.store(true, Ordering::Relaxed);
    let driver = driver::start(settings("20000"), Surroundings::default(), store);
    let mut client = Client::connect(&driver, 1);
    for _ in 0..2 {
        let granted = client.acquire("k", 0).await.unwrap();
        client.call(2, Op::Release { lease: granted.lease }).await.unwrap();
    }
    let short = Acquire { key: "k".into(), lease_ms: Some(200), wait_ms: Some(0), ..Acquire::default() };
    let refused = client.call(3, Op::Acquire(short)).await.unwrap_err();
    assert_eq!(refused.code, Code::Config);
    assert!(refused.message.contains("200 ms") && refused.message.contains("at least"), "{}", refused.message);
}

#[tokio::test]
async fn a_panic_in_the_stores_client_is_an_unknown_outcome() {
    let store = Shared::default();
    store.panic_in_send.store(true, Ordering::Relaxed);
    let driver = driver::start(settings("20000"), Surroundings::default(), store);
    let granted = Client::connect(&driver, 1).acquire("k", 2_000).await.unwrap();
    assert!(granted.valid_ms > 17_000);
}

#[tokio::test]
async fn a_starved_process_does_not_blame_dynamodb_alone() {
    let store = Shared::default();
    store.unreachable.store(true, Ordering::Relaxed);
    let driver = driver::start(settings("20000"), Surroundings::default(), store);
    let mut client = Client::connect(&driver, 1);
    let failure = client.acquire("k", 50).await.unwrap_err();
    assert_eq!(failure.code, Code::Unavailable);
    assert!(!failure.message.contains("CPU"), "{}", failure.message);
    client.ask(2, acquire("k", 100));
    tokio::time::sleep(Duration::from_millis(50)).await;
    // The whole test process is single-threaded: nothing of the driver runs meanwhile.
    std::thread::sleep(Duration::from_millis(300));
    let failure = client.reply(2).await.unwrap_err();
    assert_eq!(failure.code, Code::Unavailable);
    assert!(failure.message.contains("CPU") && failure.message.contains("no connection"), "{}", failure.message);
}

/// Its `drop_connections` runs in the driver's own task.
struct Faulty(Shared);

impl Store for Faulty {
    async fn send(&self, request: Request) -> Response {
        self.0.send(request).await
    }

    fn drop_connections(&self) {
        panic!("a bug in the driver's task");
    }
}

#[tokio::test]
async fn a_panic_of_the_driver_loses_every_lease_and_ends_nothing_else() {
    let driver = driver::start(settings("300"), Surroundings::default(), Faulty(Shared::default()));
    let mut client = Client::connect(&driver, 1);
    client.acquire("k", 0).await.unwrap();
    // The whole test process is single-threaded: a blocking pause is a jump in time, which drops connections.
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(client.lost().await, LostReason::ExtensionFailed);
    driver.closed().await;
}

#[tokio::test]
async fn shutdown_waits_for_releases_and_grants_nothing_more() {
    let store = Shared::default();
    store.slow.store(true, Ordering::Relaxed);
    let driver = driver::start(settings("20000"), Surroundings::default(), store.clone());
    let mut client = Client::connect(&driver, 1);
    client.acquire("k", 0).await.unwrap();
    driver.send(Command::Close { client: 1, how: Gone::Closed }).unwrap();
    let (done, finished) = oneshot::channel();
    driver.send(Command::Shutdown { done }).unwrap();
    tokio::time::timeout(Duration::from_secs(2), finished).await.expect("within the release's time").unwrap();
    let fresh = driver::start(settings("20000"), Surroundings::default(), store);
    assert!(Client::connect(&fresh, 1).acquire("k", 0).await.is_ok(), "the row is gone");
    let mut late = Client::connect(&driver, 2);
    assert_eq!(late.acquire("other", 0).await.unwrap_err().code, Code::Unavailable);
}
