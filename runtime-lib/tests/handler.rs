//! The wrapped handler: the hand-back before the response, loss, panics, and whose error is reported.

mod common;

use common::{Fake, HOUR, Peer, event, is_pending, lock_error, lost};
use lambda_runtime::{Diagnostic, FunctionResponse, LambdaEvent, Service};
use leasekeeper::{Code, HandlerError, Lease, LockError, Locks, LostReason, OnLost};
use leasekeeper_wire::{Failure, Metrics, Released};
use std::future::{Future, pending, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

type Event = LambdaEvent<u32>;

fn key(event: &Event) -> String {
    format!("customer:{}", event.payload)
}

fn body<B, S, E: std::fmt::Debug>(response: Result<FunctionResponse<B, S>, HandlerError<E>>) -> B {
    match response.expect("no error") {
        FunctionResponse::BufferedResponse(body) => body,
        FunctionResponse::StreamingResponse(_) => panic!("a buffered response was expected"),
    }
}

#[tokio::test]
async fn the_lock_is_given_back_before_the_response() {
    let fake = Fake::start();
    let mut handler = fake.locks().locked_handler(key, async |event: Event, lease: Lease| {
        assert_eq!(lease.key(), "customer:5");
        Ok::<_, String>(event.payload + 1)
    });
    let mut call = pin!(handler.call(event(5, HOUR)));
    let (mut peer, request) = tokio::select! {
        _ = &mut call => panic!("no lock yet"),
        granted = fake.grant_for(18_000) => granted,
    };
    assert_eq!(request.key, "customer:5");
    assert_eq!(request.request_id.as_deref(), Some("request-1"));
    assert!(request.remaining_ms.is_some());
    let id = tokio::select! {
        _ = &mut call => panic!("not given back yet"),
        id = peer.release() => id,
    };
    assert!(is_pending(call.as_mut()).await, "the hand-back is not confirmed yet");
    peer.ok(id, &Released { metrics: Metrics::default() }).await;
    assert_eq!(body(call.await), 6);
    peer.closed().await;
}

#[tokio::test]
async fn options_are_sent() {
    let fake = Fake::start();
    let mut handler = fake
        .locks()
        .locked_handler(key, async |_: Event, _| Ok::<_, String>(()))
        .wait(Duration::from_secs(2))
        .lease(Duration::from_secs(9))
        .reserve(Duration::from_secs(3));
    let (response, request) = tokio::join!(handler.call(event(5, HOUR)), async {
        let (peer, request) = fake.grant_for(8_000).await;
        peer.let_go().await;
        request
    });
    body(response);
    assert_eq!((request.wait_ms, request.lease_ms), (Some(2_000), Some(9_000)));
    let mut handler = handler.try_once();
    let (response, request) = tokio::join!(handler.call(event(5, HOUR)), async {
        let (peer, request) = fake.grant_for(8_000).await;
        peer.let_go().await;
        request
    });
    body(response);
    assert_eq!(request.wait_ms, Some(0));
}

#[tokio::test]
async fn without_a_lock_the_handler_never_runs() {
    let nowhere = Locks::at("/nonexistent/lock.sock");
    let never = |_: Event, _: Lease| -> std::future::Ready<Result<(), String>> { panic!("there is no lock") };
    let error = lock_error(nowhere.locked_handler(key, never).call(event(5, HOUR)).await);
    assert_eq!(error.code(), Code::ExtensionMissing);
    let error = lock_error(nowhere.locked_handler(key, never).call(event(5, Duration::ZERO)).await);
    assert_eq!(error.code(), Code::BudgetExhausted);
    let no_key = |_: &Event| leasekeeper::key!("{customer}", customer = "");
    let error = lock_error(nowhere.locked_handler(no_key, never).call(event(5, HOUR)).await);
    assert_eq!(error.code(), Code::Protocol);
}

#[tokio::test]
async fn the_handlers_own_error_is_never_replaced_and_the_handler_never_retried() {
    let runs = Arc::new(AtomicU32::new(0));
    let handler = |fake: &Fake| {
        let runs = runs.clone();
        fake.locks().locked_handler(key, move |_: Event, _| {
            runs.fetch_add(1, Ordering::Relaxed);
            ready(Err::<(), _>(String::from("own")))
        })
    };
    let fake = Fake::start();
    let (response, ()) = tokio::join!(handler(&fake).call(event(5, HOUR)), async { fake.grant().await.let_go().await });
    assert!(matches!(response, Err(HandlerError::Handler(own)) if own == "own"));
    for failure in [lost(LostReason::Stolen), Failure::new(Code::ReleaseUnconfirmed, "")] {
        let mut handler = handler(&fake).strict_release(true);
        let (response, ()) = tokio::join!(handler.call(event(5, HOUR)), async {
            let mut peer = fake.grant().await;
            let id = peer.release().await;
            peer.error(id, failure).await;
        });
        assert!(matches!(response, Err(HandlerError::Handler(own)) if own == "own"));
    }
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn success_under_a_lost_lock_is_an_error() {
    let fake = Fake::start();
    let mut handler = fake.locks().locked_handler(key, async |_: Event, _| Ok::<_, String>(()));
    let (response, ()) = tokio::join!(handler.call(event(5, HOUR)), async {
        let mut peer = fake.grant().await;
        let id = peer.release().await;
        peer.error(id, lost(LostReason::Expired)).await;
    });
    assert_eq!(lock_error(response).reason(), Some(LostReason::Expired));
}

#[tokio::test]
async fn an_unconfirmed_hand_back_is_success_unless_it_is_strict() {
    let fake = Fake::start();
    for strict in [false, true] {
        let mut handler =
            fake.locks().locked_handler(key, async |_: Event, _| Ok::<_, String>(5)).strict_release(strict);
        let (response, ()) = tokio::join!(handler.call(event(5, HOUR)), async {
            let mut peer = fake.grant().await;
            let id = peer.release().await;
            peer.error(id, Failure::new(Code::ReleaseUnconfirmed, "")).await;
        });
        if strict {
            assert_eq!(lock_error(response).code(), Code::ReleaseUnconfirmed);
        } else {
            assert_eq!(body(response), 5);
        }
    }
}

#[tokio::test]
async fn an_extension_that_stops_before_the_hand_back_costs_a_second_and_no_result() {
    let fake = Fake::start();
    let (pause, paused) = tokio::sync::oneshot::channel::<()>();
    let paused = std::sync::Mutex::new(Some(paused));
    let mut handler = fake.locks().locked_handler(key, move |_: Event, _| {
        let paused = paused.lock().expect("no panic").take().expect("one call");
        async move {
            paused.await.expect("sent below");
            Ok::<_, String>(5)
        }
    });
    let mut call = pin!(handler.call(event(5, HOUR)));
    let _peer = tokio::select! {
        _ = &mut call => panic!("no lock yet"),
        peer = fake.grant() => peer,
    };
    assert!(is_pending(call.as_mut()).await);
    tokio::time::pause();
    let begin = Instant::now();
    pause.send(()).expect("the handler waits");
    assert_eq!(body(call.await), 5);
    assert_eq!(begin.elapsed().as_millis() / 10, 100);
}

/// Tells whether it was dropped.
struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_lost_lock_cancels_the_handler() {
    let fake = Fake::start();
    let drops = Arc::new(AtomicU32::new(0));
    let counter = drops.clone();
    let mut handler = fake.locks().locked_handler(key, move |_: Event, _| {
        let dropped = Dropped(counter.clone());
        async move {
            let _dropped = dropped;
            pending::<Result<(), String>>().await
        }
    });
    for kill in [false, true] {
        let (response, ()) = tokio::join!(handler.call(event(5, HOUR)), async {
            let mut peer = fake.grant().await;
            if !kill {
                peer.lose(LostReason::Stolen).await;
                // There is nothing to give back.
                peer.closed().await;
            }
        });
        let error = lock_error(response);
        assert_eq!(error.reason(), Some(if kill { LostReason::ExtensionFailed } else { LostReason::Stolen }));
        assert_eq!(Diagnostic::from(error).error_type, "Leasekeeper.Lost");
    }
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_handlers_future_is_gone_before_the_release_is_sent() {
    let fake = Fake::start();
    let drops = Arc::new(AtomicU32::new(0));
    let counter = drops.clone();
    // A future that is over but still owns something until it is dropped.
    struct Owning(Dropped);
    impl Future for Owning {
        type Output = Result<(), String>;
        fn poll(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Self::Output> {
            assert_eq!(self.0.0.load(Ordering::Relaxed), 0);
            Poll::Ready(Ok(()))
        }
    }
    let mut handler = fake.locks().locked_handler(key, move |_: Event, _| Owning(Dropped(counter.clone())));
    let (response, ()) = tokio::join!(handler.call(event(5, HOUR)), async {
        let mut peer = fake.grant().await;
        let id = peer.release().await;
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        peer.ok(id, &Released { metrics: Metrics::default() }).await;
    });
    body(response);
}

#[tokio::test]
async fn a_handler_can_be_told_instead() {
    let fake = Fake::start();
    let told = Arc::new(AtomicU32::new(0));
    let seen = told.clone();
    let mut handler = fake
        .locks()
        .locked_handler(key, move |_: Event, lease: Lease| {
            let seen = seen.clone();
            async move {
                assert_eq!(lease.lost().await, LostReason::Deadline);
                seen.fetch_add(1, Ordering::Relaxed);
                Ok::<_, String>(())
            }
        })
        .on_lost(OnLost::Notify);
    let (response, ()) = tokio::join!(handler.call(event(5, HOUR)), async {
        let mut peer = fake.grant().await;
        peer.lose(LostReason::Deadline).await;
        peer.closed().await;
    });
    assert_eq!(lock_error(response).reason(), Some(LostReason::Deadline));
    assert_eq!(told.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_panic_is_resumed_after_the_lock_was_given_back() {
    let fake = Fake::start();
    let in_body = fake.locks().locked_handler(key, async |event: Event, _| {
        assert_ne!(event.payload, 5, "in the body");
        Ok::<_, String>(())
    });
    let outside = fake.locks().locked_handler(key, |event: Event, _| {
        assert_ne!(event.payload, 5, "outside the body");
        ready(Ok::<_, String>(()))
    });
    async fn run<F>(call: F, fake: &Fake) -> String
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let call = tokio::spawn(call);
        fake.grant().await.let_go().await;
        let panic = call.await.err().expect("a panic").into_panic();
        panic.downcast_ref::<String>().expect("a text").clone()
    }
    assert!(
        run(
            {
                let mut h = in_body;
                h.call(event(5, HOUR))
            },
            &fake
        )
        .await
        .contains("in the body")
    );
    assert!(
        run(
            {
                let mut h = outside;
                h.call(event(5, HOUR))
            },
            &fake
        )
        .await
        .contains("outside the body")
    );
}

#[tokio::test]
async fn a_handler_may_give_the_lock_back_early() {
    let fake = Fake::start();
    let mut handler = fake.locks().locked_handler(key, async |_: Event, lease: Lease| {
        lease.release().await?;
        assert!(lease.remaining().is_zero());
        Ok::<_, LockError>(5)
    });
    let (response, ()) = tokio::join!(handler.call(event(5, HOUR)), async { fake.grant().await.let_go().await });
    assert_eq!(body(response), 5);
}

/// A call whose handler works under its lock for ever, and will be dropped; with the other side of its connection.
async fn held_call(fake: &Fake, left: Duration) -> (impl Send + 'static, Peer) {
    let working = Arc::new(tokio::sync::Notify::new());
    let begun = working.clone();
    let mut handler = fake.locks().locked_handler(key, move |_: Event, _| {
        begun.notify_one();
        pending::<Result<(), String>>()
    });
    let mut call = Box::pin(handler.call(event(5, left)));
    let peer = tokio::select! {
        _ = &mut call => panic!("it never ends"),
        peer = async {
            let peer = fake.grant().await;
            working.notified().await;
            peer
        } => peer,
    };
    (call, peer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_is_gone_only_when_its_lock_is_given_back() {
    let fake = Fake::start();
    let (call, mut peer) = held_call(&fake, HOUR).await;
    let dropped = tokio::task::spawn_blocking(move || drop(call));
    let id = peer.release().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!dropped.is_finished(), "the hand-back is not confirmed yet");
    peer.ok(id, &Released { metrics: Metrics::default() }).await;
    dropped.await.expect("no panic");
    peer.closed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_costs_no_more_than_its_hand_back_may() {
    let fake = Fake::start();
    let (call, mut peer) = held_call(&fake, Duration::from_millis(600)).await;
    let begun = std::time::Instant::now();
    tokio::task::spawn_blocking(move || drop(call)).await.expect("no panic");
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(450), "400 ms were left, less 200 ms: {took:?}");
    peer.release().await;
    peer.closed().await;
}

#[tokio::test]
async fn a_call_that_is_dropped_after_its_lock_was_lost_waits_for_nothing() {
    let fake = Fake::start();
    let (call, mut peer) = held_call(&fake, HOUR).await;
    peer.lose(LostReason::Stolen).await;
    let begun = std::time::Instant::now();
    drop(call);
    assert!(begun.elapsed() < Duration::from_millis(500));
    peer.closed().await;
}

#[test]
fn errors_keep_readable_names() {
    let lost = || LockError::from(lost(LostReason::Stolen));
    let name = |error: HandlerError<lambda_runtime::Error>| Diagnostic::from(error).error_type;
    assert_eq!(name(HandlerError::Lock(lost())), "Leasekeeper.Lost");
    // As `lease.check().await?` leaves it in a handler with a boxed error.
    assert_eq!(name(HandlerError::Handler(lost().into())), "Leasekeeper.Lost");
    let own = Diagnostic { error_type: "Own".into(), error_message: "words".into() };
    assert_eq!(Diagnostic::from(HandlerError::Handler(own.clone())), own);
    let text = HandlerError::<String>::Lock(lost()).to_string();
    assert!(text.contains("stolen"), "{text}");
}
