//! Holding a lock: asking how it stands, giving it back, losing it, working under it.

mod common;

use common::{Fake, lost};
use leasekeeper::{Code, LockError, LostReason, Metrics, OnLost};
use leasekeeper_wire::{Checked, EventKind, Failure};
use std::time::Duration;
use tokio::time::Instant;

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
async fn everything_can_go_to_another_thread() {
    fn shared<T: Send + Sync>(value: T) -> T {
        value
    }
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    let (lease, guard) = (shared(guard.lease()), shared(guard));
    drop((
        sent(lease.check()),
        sent(lease.lost()),
        sent(lease.metrics()),
        sent(lease.release()),
        sent(guard.release()),
    ));
    peer.closed().await;
    let locks = shared(fake.locks());
    drop(sent(locks.acquire("k").run(async |_| Ok::<_, LockError>(()))));
    drop(sent(shared(locks.acquire("k")).into_future()));
    drop(sent(locks.acquire_all(["k"], |acquire| acquire)));
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
async fn a_lease_whose_guard_was_dropped_confirms_nothing() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    let lease = guard.lease();
    drop(guard);
    let error = lease.release().await.expect_err("nobody confirmed it");
    assert_eq!(error.code(), Code::ReleaseUnconfirmed);
    assert!(error.to_string().contains("guard was dropped"), "{error}");
    peer.closed().await;

    // Dropped while the release was on its way.
    let (guard, mut peer) = fake.held().await;
    let lease = guard.lease();
    let releasing = tokio::spawn(async move { lease.release().await });
    peer.release().await;
    drop(guard);
    assert_eq!(releasing.await.expect("no panic").expect_err("unconfirmed").code(), Code::ReleaseUnconfirmed);
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
        let id = peer.metrics().await;
        peer.ok(id, &Metrics { renewals: 3, ..Metrics::default() }).await;
    });
    assert_eq!(metrics.expect("an answer").renewals, 3);
    drop(peer);
    assert_eq!(guard.metrics().await.expect("the last figures").renewals, 3);
}

#[tokio::test]
async fn a_lost_leases_figures_are_still_the_extensions_to_tell() {
    let fake = Fake::start();
    let (guard, mut peer) = fake.held().await;
    peer.lose(LostReason::Stolen).await;
    guard.lost().await;
    let (metrics, ()) = tokio::join!(guard.metrics(), async {
        let id = peer.metrics().await;
        peer.ok(id, &Metrics { renewals: 3, lost: 1, ..Metrics::default() }).await;
    });
    let told = metrics.expect("an answer");
    assert_eq!((told.renewals, told.lost), (3, 1));
    // Without an answer they are the last that were told: the lease is over, so there is nothing to fail for.
    let (metrics, ()) = tokio::join!(guard.metrics(), async {
        let id = peer.metrics().await;
        peer.error(id, Failure::new(Code::Protocol, "no such lease")).await;
    });
    assert_eq!(metrics, Ok(told));
    tokio::time::pause();
    assert_eq!(guard.metrics().await, Ok(told));
    drop(peer);
    assert_eq!(guard.metrics().await, Ok(told));
}

#[tokio::test]
async fn figures_that_a_held_leases_extension_does_not_tell_are_an_error() {
    let fake = Fake::start();
    let (guard, _peer) = fake.held().await;
    tokio::time::pause();
    assert_eq!(guard.metrics().await.expect_err("no answer").code(), Code::Unavailable);
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
async fn the_debug_forms_tell_how_it_stands_and_hide_the_key() {
    let fake = Fake::start();
    let locks = fake.locks();
    let acquire = async { locks.acquire("customer:secret").await.expect("granted") };
    let (guard, (mut peer, _)) = tokio::join!(acquire, fake.grant_for(18_000));
    let shown = r#"key: Key(15 bytes), owner: "owner-1", table: "locks", phase: Held }"#;
    assert_eq!(format!("{guard:?}"), format!("Guard {{ {shown}"));
    assert_eq!(format!("{:?}", guard.lease()), format!("Lease {{ {shown}"));
    peer.lose(LostReason::Stolen).await;
    guard.lost().await;
    assert!(format!("{guard:?}").ends_with("phase: Lost(Stolen) }"), "{guard:?}");
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
