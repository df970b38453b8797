//! Asking for a lock over the socket: what is sent, what is refused, what a missing or stopped extension costs.

mod common;

use common::{Fake, HOUR};
use leasekeeper::{Code, Holder, Locks, Metrics};
use leasekeeper_wire::{Failure, Reply};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn an_acquire_names_its_invocation_and_leaves_the_rest_to_the_extensions_settings() {
    let fake = Fake::start();
    let deadline = SystemTime::now() + HOUR;
    let locks = fake.locks();
    let acquire = async { locks.acquire("customer:1").invocation("request-1", deadline).await };
    let (guard, (_peer, request)) = tokio::join!(acquire, fake.grant_for(18_000));
    let guard = guard.expect("granted");
    assert_eq!(request.key, "customer:1");
    assert_eq!(request.request_id.as_deref(), Some("request-1"));
    let remaining = request.remaining_ms.expect("an invocation");
    assert!((3_500_000..=3_600_000).contains(&remaining), "{remaining}");
    assert_eq!((request.wait_ms, request.lease_ms), (None, None));
    assert_eq!((guard.key(), guard.owner(), guard.table(), guard.token()), ("customer:1", "owner-1", "locks", None));
    assert_eq!(guard.waited(), Duration::from_millis(12));
}

#[tokio::test]
async fn what_is_asked_for_is_sent() {
    let fake = Fake::start();
    let locks = fake.locks();
    let (guard, (_peer, request)) =
        tokio::join!(async { locks.acquire("k").wait(2 * SECOND).lease(9 * SECOND).await }, fake.grant_for(8_000));
    drop(guard.expect("granted"));
    assert_eq!((request.wait_ms, request.lease_ms), (Some(2_000), Some(9_000)));
    assert_eq!((request.request_id, request.remaining_ms), (None, None));

    let (guard, (_peer, request)) = tokio::join!(async { locks.try_acquire("k").await }, fake.grant_for(8_000));
    drop(guard.expect("granted"));
    assert_eq!(request.wait_ms, Some(0));
}

#[tokio::test]
async fn with_the_invocations_time_used_up_or_a_wish_out_of_range_nothing_is_sent() {
    let nowhere = Locks::at("/nonexistent/lock.sock");
    let now = SystemTime::now();
    let error = nowhere.acquire("k").invocation("r", now).await.expect_err("no time");
    assert_eq!(error.code(), Code::BudgetExhausted);
    let error = nowhere.acquire("k").invocation("r", now + 3 * SECOND).reserve(3 * SECOND).await.expect_err("no time");
    assert_eq!(error.code(), Code::BudgetExhausted);
    let error = nowhere.acquire("k").lease(Duration::from_millis(99)).await.expect_err("too short");
    assert_eq!(error.code(), Code::Protocol);
    let error = nowhere.acquire("k").invocation("", now + HOUR).await.expect_err("no request id");
    assert_eq!(error.code(), Code::Protocol);
}

#[tokio::test]
async fn without_an_extension_the_error_says_what_to_do() {
    let fake = Fake::start();
    let locks = fake.locks();
    drop(fake);
    let error = locks.acquire("k").await.expect_err("nobody listens");
    assert_eq!(error.code(), Code::ExtensionMissing);
    let text = error.to_string();
    for word in ["layer", "sidecar `leasekeeper`", "LEASEKEEPER_TABLE", "LEASEKEEPER_SOCKET"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let error = Locks::at("x".repeat(200)).acquire("k").await.expect_err("no path for a socket");
    assert_eq!(error.code(), Code::Config);
    assert!(error.to_string().contains("LEASEKEEPER_SOCKET is not a valid socket path: xxx"), "{error}");
    assert_eq!(Locks::at("").acquire("k").await.expect_err("no path").code(), Code::Config);
}

#[tokio::test]
async fn a_refusal_carries_what_the_extension_knows() {
    let fake = Fake::start();
    let locks = fake.locks();
    let refuse = async {
        let mut peer = fake.accept().await;
        let (id, _) = peer.acquire().await;
        let failure = Failure {
            retry_after_ms: Some(900),
            holder: Some(Holder { owner: "other".into(), ..Holder::default() }),
            metrics: Some(Metrics { wait_timeouts: 1, ..Metrics::default() }),
            ..Failure::new(Code::Busy, "held by other")
        };
        peer.error(id, failure).await;
        peer.closed().await;
    };
    let (error, ()) = tokio::join!(async { locks.acquire("k").await.expect_err("busy") }, refuse);
    assert_eq!(error.code(), Code::Busy);
    assert_eq!(error.holder().map(|holder| holder.owner.as_str()), Some("other"));
    assert_eq!(error.retry_after(), Some(Duration::from_millis(900)));
    assert_eq!(error.metrics().map(|metrics| metrics.wait_timeouts), Some(1));
    assert!(!error.to_string().contains("other"), "{error}");
}

#[tokio::test]
async fn a_request_that_forgot_its_invocation_is_told_how_to_name_it() {
    let fake = Fake::start();
    let locks = fake.locks();
    let refuse = async |message: &str| {
        let mut peer = fake.accept().await;
        let (id, _) = peer.acquire().await;
        peer.error(id, Failure::new(Code::Protocol, message)).await;
    };
    let missing = "field request_id is required under Lambda: a lease belongs to one invocation and ends with it";
    let (error, ()) = tokio::join!(async { locks.acquire("k").await.expect_err("refused") }, refuse(missing));
    assert_eq!(error.code(), Code::Protocol);
    assert!(error.to_string().contains(missing), "{error}");
    assert!(error.to_string().contains("call `.context(&event.context)`"), "{error}");

    let (error, ()) = tokio::join!(async { locks.acquire("k").await.expect_err("refused") }, refuse("field v is 2"));
    assert!(!error.to_string().contains(".context"), "{error}");
}

#[tokio::test]
async fn an_extension_that_closes_is_missing_or_what_it_said_before() {
    let fake = Fake::start();
    let locks = fake.locks();
    let leave = async {
        let mut peer = fake.accept().await;
        peer.acquire().await;
    };
    let (error, ()) = tokio::join!(async { locks.acquire("k").await.expect_err("gone") }, leave);
    assert_eq!(error.code(), Code::ExtensionMissing);

    let refuse = async {
        let mut peer = fake.accept().await;
        peer.acquire().await;
        peer.line(&Reply::error(None, Failure::new(Code::Denied, "user 7 may not connect")).encode()).await;
    };
    let (error, ()) = tokio::join!(async { locks.acquire("k").await.expect_err("refused") }, refuse);
    assert_eq!(error.code(), Code::Denied);
    assert!(error.to_string().contains("user 7"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_extension_costs_the_wait_one_attempt_and_no_more() {
    let fake = Fake::start();
    let locks = fake.locks();
    let begin = Instant::now();
    let error = locks.acquire("k").wait(2 * SECOND).await.expect_err("no answer");
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.to_string().contains("the extension did not answer within 5.5s"), "{error}");
    assert!(error.to_string().contains("see its log"), "{error}");
    assert_eq!(begin.elapsed().as_millis() / 10, 550);
    // What it finds when it goes on: a request whose client has gone.
    let mut peer = fake.accept().await;
    peer.acquire().await;
    peer.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_extension_never_costs_the_invocations_last_moments() {
    let fake = Fake::start();
    let locks = fake.locks();
    let begin = Instant::now();
    let deadline = SystemTime::now() + 2 * SECOND;
    let error = locks.acquire("k").wait(60 * SECOND).invocation("r", deadline).await.expect_err("no answer");
    assert_eq!(error.code(), Code::Unavailable);
    assert!(begin.elapsed() <= Duration::from_millis(1_801), "{:?}", begin.elapsed());
    assert!(begin.elapsed() >= SECOND, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_only_busy_is_reported_as_busy_whatever_the_extensions_own_wait_is() {
    let fake = Fake::start();
    let locks = fake.locks();
    let refuse = async {
        let mut peer = fake.accept().await;
        let (id, request) = peer.acquire().await;
        // The extension's own setting: a lease of 60 s and 5 s.
        tokio::time::sleep(Duration::from_millis(request.wait_ms.unwrap_or(65_000))).await;
        peer.error(id, Failure::new(Code::Busy, "held by other")).await;
    };
    let (error, ()) = tokio::join!(async { locks.acquire("k").await.expect_err("busy") }, refuse);
    assert_eq!(error.code(), Code::Busy);
}

#[tokio::test]
async fn dropping_an_acquire_takes_it_back() {
    let fake = Fake::start();
    let locks = fake.locks();
    let mut peer = tokio::select! {
        _ = async { locks.acquire("k").await } => panic!("nobody granted it"),
        peer = async { let mut peer = fake.accept().await; peer.acquire().await; peer } => peer,
    };
    peer.closed().await;
}
