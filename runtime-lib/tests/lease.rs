//! Acquiring, asking and giving back over the socket, with every way an extension can fail.

mod common;

use common::{Fake, HOUR, lost};
use leasekeeper::{Code, Holder, LockError, Locks, LostReason, Metrics, OnLost};
use leasekeeper_wire::{Checked, EventKind, Failure, Op, Reply, Request};
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
    assert!(error.to_string().contains("LEASEKEEPER_SOCKET"), "{error}");
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
    assert_eq!(error.code(), Code::ExtensionMissing);
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
    assert_eq!(error.code(), Code::ExtensionMissing);
    assert!(begin.elapsed() <= Duration::from_millis(1_801), "{:?}", begin.elapsed());
    assert!(begin.elapsed() >= SECOND, "{:?}", begin.elapsed());
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

#[tokio::test]
async fn dropping_a_guard_closes_its_connection_whatever_handles_are_left() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    let lease = guard.lease();
    assert!(!lease.remaining().is_zero());
    drop(guard);
    assert!(lease.remaining().is_zero());
    peer.closed().await;
    assert_eq!(lease.check().await.expect_err("given back").code(), Code::Protocol);
    assert!(!lease.is_lost());
}

#[tokio::test]
async fn dropping_a_lease_does_nothing() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    drop(guard.lease().clone());
    let (checked, ()) = tokio::join!(guard.check(), async {
        let id = peer.check().await;
        peer.ok(id, &Checked { valid_ms: 5_000 }).await;
    });
    checked.expect("held");
}

#[tokio::test]
async fn a_release_is_sent_once_and_confirmed() {
    let fake = Fake::start();
    let (guard, peer) = fake.held().await;
    let lease = guard.lease();
    let release = async {
        lease.release().await.expect("confirmed");
        lease.release().await.expect("still confirmed");
        guard.release().await.expect("still confirmed");
    };
    tokio::join!(release, peer.let_go());
    assert!(lease.remaining().is_zero());
    assert_eq!(lease.metrics().await.expect("the last figures").write_requests, 2);
}

#[tokio::test]
async fn a_lease_is_not_valid_from_before_its_release_is_sent() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    let lease = guard.lease();
    let release = tokio::spawn(guard.release());
    let id = peer.release().await;
    assert!(lease.remaining().is_zero());
    assert_eq!(lease.check().await.expect_err("on its way back").code(), Code::Protocol);
    peer.ok(id, &leasekeeper_wire::Released { metrics: Metrics::default() }).await;
    release.await.expect("no panic").expect("confirmed");
}

#[tokio::test]
async fn a_release_without_an_answer_costs_at_most_a_second() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    tokio::time::pause();
    let begin = Instant::now();
    assert_eq!(guard.release().await, Err(LockError::from(Failure::new(Code::ReleaseUnconfirmed, ""))));
    assert_eq!(begin.elapsed().as_millis() / 10, 100);
    // It was asked for, so the extension goes on trying.
    peer.release().await;
    peer.closed().await;
}

#[tokio::test]
async fn an_extension_that_goes_away_during_the_release_leaves_it_unconfirmed() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    let (released, ()) = tokio::join!(guard.release(), async {
        peer.release().await;
        drop(peer);
    });
    assert_eq!(released.expect_err("no answer").code(), Code::ReleaseUnconfirmed);
}

#[tokio::test]
async fn an_extension_that_went_away_before_the_release_has_lost_the_lease() {
    let fake = Fake::start();
    let (guard, peer) = fake.held().await;
    drop(peer);
    let error = guard.release().await.expect_err("gone");
    assert_eq!(error.reason(), Some(LostReason::ExtensionFailed));
}

#[tokio::test]
async fn remaining_looks_at_the_socket_first() {
    let fake = Fake::start();
    let (guard, peer) = fake.held().await;
    assert!(!guard.remaining().is_zero());
    // No other task runs between these lines: only the socket can tell.
    peer.lose_now(LostReason::Stolen);
    assert!(guard.remaining().is_zero());
    assert!(guard.is_lost());

    let (guard, peer) = fake.held().await;
    drop(peer);
    assert!(guard.remaining().is_zero());
    assert_eq!(guard.lost().await, LostReason::ExtensionFailed);
}

#[tokio::test]
async fn remaining_is_a_lower_bound_that_renewals_keep_fresh() {
    let fake = Fake::start();
    let locks = fake.locks();
    let (guard, (mut peer, _)) = tokio::join!(async { locks.acquire("k").await }, fake.grant_for(5_000));
    let guard = guard.expect("granted");
    assert!(guard.remaining() <= Duration::from_secs(5));
    for kind in [EventKind::Renewed, EventKind::Recovered] {
        // The hint has no duration: it is asked for, without any timer.
        peer.event(kind).await;
        let id = peer.check().await;
        peer.ok(id, &Checked { valid_ms: 60_000 }).await;
    }
    let remaining = guard.remaining();
    assert!(remaining > Duration::from_secs(5) && remaining <= Duration::from_secs(60), "{remaining:?}");
    // An answer that promises less takes nothing back.
    let (checked, ()) = tokio::join!(guard.check(), async {
        let id = peer.check().await;
        peer.ok(id, &Checked { valid_ms: 1 }).await;
    });
    assert!(checked.expect("held") > Duration::from_secs(5));
}

#[tokio::test]
async fn a_check_is_asked_of_the_extension() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    let (checked, ()) = tokio::join!(guard.check(), async {
        let id = peer.check().await;
        peer.error(id, lost(LostReason::Expired)).await;
    });
    assert_eq!(checked.expect_err("lost").reason(), Some(LostReason::Expired));
    assert!(guard.is_lost());
    assert_eq!(guard.lost().await, LostReason::Expired);
    // Final: nothing is asked any more.
    assert_eq!(guard.check().await.expect_err("still lost").reason(), Some(LostReason::Expired));
    assert_eq!(guard.release().await.expect_err("still lost").reason(), Some(LostReason::Expired));
    peer.closed().await;
}

#[tokio::test]
async fn a_check_without_an_answer_is_no_loss_and_ends_in_time() {
    let fake = Fake::start();
    let (guard, _peer) = fake.held().await;
    tokio::time::pause();
    let begin = Instant::now();
    assert_eq!(guard.check().await.expect_err("no answer").code(), Code::Unavailable);
    assert_eq!(begin.elapsed().as_millis() / 10, 300);
    assert!(!guard.is_lost());
}

#[tokio::test]
async fn metrics_are_a_snapshot_at_any_time() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    let (metrics, ()) = tokio::join!(guard.metrics(), async {
        match peer.next().await {
            Some(Request { id, op: Op::Metrics { lease: 7 } }) => {
                peer.ok(id, &Metrics { renewals: 3, ..Metrics::default() }).await;
            }
            other => panic!("a question for the figures was expected, not {other:?}"),
        }
    });
    assert_eq!(metrics.expect("an answer").renewals, 3);
    drop(peer);
    assert_eq!(guard.metrics().await.expect("the last figures").renewals, 3);
}

#[tokio::test]
async fn what_the_client_does_not_know_is_ignored_and_what_is_no_line_ends_the_lease() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    peer.line("{\"event\":\"moon\",\"lease\":7}\n{\"news\":1}\n{\"id\":999,\"ok\":{}}\n").await;
    peer.line("{\"event\":\"lost\",\"lease\":8,\"reason\":\"stolen\"}\n{\"event\":\"danger\",\"lease\":7}\n").await;
    assert!(!guard.is_lost());
    assert!(!guard.remaining().is_zero());
    peer.line("nonsense\n").await;
    assert_eq!(guard.lost().await, LostReason::ExtensionFailed);

    let (guard, mut peer) = fake.held().await;
    peer.line(&"x".repeat(leasekeeper_wire::MAX_LINE + 1)).await;
    assert_eq!(guard.lost().await, LostReason::ExtensionFailed);
}

#[tokio::test]
async fn a_line_may_come_in_pieces() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    peer.line("{\"event\":\"lost\",\"lea").await;
    assert!(!guard.is_lost());
    peer.line("se\":7,\"reason\":\"deleted\"}\n").await;
    assert_eq!(guard.lost().await, LostReason::Deleted);
}

#[tokio::test]
async fn an_extension_that_reads_nothing_is_not_fed_without_bound() {
    let fake = Fake::start();
    let (guard, _peer) = fake.held().await;
    tokio::time::pause();
    let mut refused = 0;
    for _ in 0..50_000 {
        // Polled once: the request is queued and its answer given up.
        let polled = tokio::select! {
            biased;
            answer = guard.metrics() => Some(answer),
            () = std::future::ready(()) => None,
        };
        if let Some(Err(error)) = polled {
            assert_eq!(error.code(), Code::Unavailable);
            refused += 1;
        }
    }
    assert!(refused > 0);
}

#[tokio::test]
async fn work_runs_under_the_lock_once_and_the_lock_is_back_before_its_result() {
    let fake = Fake::start();
    let locks = fake.locks();
    let mut runs = 0;
    let work = locks.acquire("k").run(async |lease| {
        runs += 1;
        assert!(!lease.remaining().is_zero());
        Ok::<_, LockError>(5)
    });
    let (result, ()) = tokio::join!(work, async { fake.grant().await.let_go().await });
    assert_eq!(result, Ok(5));
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn work_is_cancelled_or_told_when_the_lock_is_lost() {
    let fake = Fake::start();
    let locks = fake.locks();
    let lose = async {
        let mut peer = fake.grant().await;
        peer.lose(LostReason::Stolen).await;
        peer.closed().await;
    };
    let work = locks.acquire("k").run(async |_| std::future::pending::<Result<(), LockError>>().await);
    let (result, ()) = tokio::join!(work, lose);
    assert_eq!(result.expect_err("lost").reason(), Some(LostReason::Stolen));

    let lose = async {
        let mut peer = fake.grant().await;
        peer.lose(LostReason::Throttled).await;
        peer.closed().await;
    };
    let mut told = None;
    let work = locks.acquire("k").on_lost(OnLost::Notify).run(async |lease| {
        told = Some(lease.lost().await);
        Ok::<_, LockError>(())
    });
    let (result, ()) = tokio::join!(work, lose);
    assert_eq!(result.expect_err("lost").reason(), Some(LostReason::Throttled));
    assert_eq!(told, Some(LostReason::Throttled));
}

#[cfg(feature = "aws-sdk-dynamodb")]
#[tokio::test]
async fn the_condition_check_compares_the_owner() {
    use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
    let fake = Fake::start();
    let (guard, _peer) = fake.held().await;
    let item = guard.condition_check();
    let check = item.condition_check().expect("a condition check");
    assert_eq!(check.table_name(), "locks");
    assert_eq!(check.key().get("key"), Some(&AttributeValue::S("k".into())));
    assert_eq!(check.condition_expression(), "#owner = :mine");
    let names = check.expression_attribute_names().expect("names");
    assert_eq!(names.get("#owner").map(String::as_str), Some("owner"));
    let values = check.expression_attribute_values().expect("values");
    assert_eq!(values.get(":mine"), Some(&AttributeValue::S("owner-1".into())));
    assert_eq!(check.return_values_on_condition_check_failure(), Some(&ReturnValuesOnConditionCheckFailure::AllOld));
}
