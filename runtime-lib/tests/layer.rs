//! The layer in stacks of tower's own layers, over services of Lambda events.

mod common;

use bytes::Bytes;
use common::{Fake, HOUR, Peer, event, is_pending, lock_error, lost};
use futures_core::Stream;
use lambda_runtime::layers::TracingLayer;
use lambda_runtime::streaming::{Body, Response, channel};
use lambda_runtime::{Diagnostic, Error, LambdaEvent, Runtime, StreamResponse, service_fn};
use leasekeeper::{Code, HandlerError, HeldStream, Lease, LockError, Locks, LostReason, OnLost, key};
use leasekeeper_wire::{Failure, Metrics, Released};
use std::future::{Future, Ready, pending, poll_fn, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tower::timeout::error::Elapsed;
use tower::{Service, ServiceBuilder, ServiceExt};

type Event = LambdaEvent<u32>;

fn key_of(event: &Event) -> String {
    format!("customer:{}", event.payload)
}

async fn double(event: Event) -> Result<u32, String> {
    Ok(event.payload * 2)
}

async fn never_ends(_: Event) -> Result<(), Error> {
    pending().await
}

async fn confirm(peer: &mut Peer, id: u64) {
    peer.ok(id, &Released { metrics: Metrics::default() }).await;
}

#[tokio::test]
async fn the_lock_is_held_around_the_service_and_given_back_before_its_response() {
    let fake = Fake::start();
    let service = ServiceBuilder::new().layer(fake.locks().layer(key_of)).service(service_fn(async |event: Event| {
        let lease = Lease::current().expect("under the lock");
        tokio::task::yield_now().await;
        assert_eq!(Lease::current().expect("still").key(), lease.key());
        assert_eq!(lease.key(), "customer:5");
        Ok::<_, String>(event.payload + 1)
    }));
    let mut call = pin!(service.oneshot(event(5, HOUR)));
    let (mut peer, request) = tokio::select! {
        _ = &mut call => panic!("no lock yet"),
        granted = fake.grant_for(18_000) => granted,
    };
    assert_eq!((request.key.as_str(), request.request_id.as_deref()), ("customer:5", Some("request-1")));
    assert!(request.remaining_ms.is_some());
    let id = tokio::select! {
        _ = &mut call => panic!("not given back yet"),
        id = peer.release() => id,
    };
    assert!(is_pending(call.as_mut()).await, "the hand-back is not confirmed yet");
    assert!(Lease::current().is_none(), "outside");
    confirm(&mut peer, id).await;
    assert_eq!(call.await.expect("no error"), 6);
    peer.closed().await;
}

#[tokio::test]
async fn options_are_sent_and_calls_of_a_clone_have_them_too() {
    let fake = Fake::start();
    let lock = fake.locks().layer(key_of).wait(Duration::from_secs(2)).lease(Duration::from_secs(9));
    let service = ServiceBuilder::new().layer(lock).service(service_fn(double));
    for service in [service.clone(), service] {
        let (served, request) = tokio::join!(service.oneshot(event(5, HOUR)), async {
            let (peer, request) = fake.grant_for(8_000).await;
            peer.let_go().await;
            request
        });
        assert_eq!(served.expect("no error"), 10);
        assert_eq!((request.wait_ms, request.lease_ms), (Some(2_000), Some(9_000)));
    }
}

#[tokio::test]
async fn without_a_lock_the_service_is_never_called() {
    let nowhere = Locks::at("/nonexistent/lock.sock");
    let never = service_fn(|_: Event| -> Ready<Result<(), String>> { panic!("there is no lock") });
    let locked = ServiceBuilder::new().layer(nowhere.layer(key_of)).service(never);
    let error = lock_error(locked.clone().oneshot(event(5, HOUR)).await);
    assert_eq!(error.code(), Code::ExtensionMissing);
    let error = lock_error(locked.oneshot(event(5, Duration::ZERO)).await);
    assert_eq!(error.code(), Code::BudgetExhausted);
    let no_key = nowhere.layer(|_: &Event| key!("{customer}", customer = ""));
    let error = lock_error(ServiceBuilder::new().layer(no_key).service(never).oneshot(event(5, HOUR)).await);
    assert_eq!(error.to_string(), "the lock request is invalid: the key is empty");
}

#[tokio::test]
async fn the_services_own_error_is_never_replaced() {
    let fake = Fake::start();
    let service = ServiceBuilder::new()
        .layer(fake.locks().layer(key_of).strict_release(true))
        .service(service_fn(async |_: Event| Err::<(), _>(String::from("own"))));
    let (served, ()) = tokio::join!(service.oneshot(event(5, HOUR)), async {
        let mut peer = fake.grant().await;
        let id = peer.release().await;
        peer.error(id, Failure::new(Code::ReleaseUnconfirmed, "")).await;
    });
    assert!(matches!(served, Err(HandlerError::Handler(own)) if own == "own"));
}

#[tokio::test]
async fn a_lost_lock_cancels_the_service_or_tells_it() {
    let fake = Fake::start();
    let cancelled = ServiceBuilder::new().layer(fake.locks().layer(key_of)).service(service_fn(never_ends));
    let told = ServiceBuilder::new().layer(fake.locks().layer(key_of).on_lost(OnLost::Notify)).service(service_fn(
        async |_: Event| {
            assert_eq!(Lease::current().expect("under the lock").lost().await, LostReason::Stolen);
            Ok::<_, Error>(())
        },
    ));
    async fn lose(served: impl Future<Output = Result<(), HandlerError<Error>>>, fake: &Fake) {
        let (served, ()) = tokio::join!(served, async {
            let mut peer = fake.grant().await;
            peer.lose(LostReason::Stolen).await;
            // There is nothing to give back.
            peer.closed().await;
        });
        let error = served.expect_err("lost");
        assert_eq!(Diagnostic::from(error).error_type, "Leasekeeper.Lost");
    }
    lose(cancelled.oneshot(event(5, HOUR)), &fake).await;
    lose(told.oneshot(event(5, HOUR)), &fake).await;
}

#[tokio::test]
async fn a_panic_of_the_service_is_resumed_after_the_lock_was_given_back() {
    let fake = Fake::start();
    let at_once = service_fn(|event: Event| {
        assert_ne!(event.payload, 5, "at once");
        ready(Ok::<_, String>(()))
    });
    let service = ServiceBuilder::new().layer(fake.locks().layer(key_of)).service(at_once);
    let call = tokio::spawn(service.oneshot(event(5, HOUR)));
    fake.grant().await.let_go().await;
    let panic = call.await.expect_err("a panic").into_panic();
    assert!(panic.downcast_ref::<String>().expect("a text").contains("at once"));
}

/// Is ready only when it was asked, and only for one call; its clones have to be asked themselves.
#[derive(Default)]
struct Exact {
    asked: bool,
}

impl Clone for Exact {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Event> for Exact {
    type Response = u32;
    type Error = String;
    type Future = Ready<Result<u32, String>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        if std::mem::replace(&mut self.asked, true) {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, event: Event) -> Self::Future {
        assert!(std::mem::take(&mut self.asked), "called without being ready");
        ready(Ok(event.payload))
    }
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let fake = Fake::start();
    let mut service = ServiceBuilder::new().layer(fake.locks().layer(key_of)).service(Exact::default());
    let first = poll_fn(|cx| Poll::Ready(service.poll_ready(cx).is_pending())).await;
    assert!(first, "not before the inner one is");
    let mut calls = Vec::new();
    for payload in [1, 2] {
        calls.push(service.ready().await.expect("no error").call(event(payload, HOUR)));
    }
    // Both wait for their locks at once.
    let (second, first) = (calls.pop().expect("two"), calls.pop().expect("two"));
    let extension = async {
        let (one, other) = (fake.grant().await, fake.grant().await);
        tokio::join!(one.let_go(), other.let_go());
    };
    let (first, second, ()) = tokio::join!(first, second, extension);
    assert_eq!((first.expect("no error"), second.expect("no error")), (1, 2));
}

#[tokio::test]
async fn a_service_that_fails_to_become_ready_fails_with_its_own_error() {
    #[derive(Clone)]
    struct Broken;
    impl Service<Event> for Broken {
        type Response = ();
        type Error = String;
        type Future = Ready<Result<(), String>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
            Poll::Ready(Err("broken".into()))
        }
        fn call(&mut self, _: Event) -> Self::Future {
            panic!("it was not ready")
        }
    }
    let locked = ServiceBuilder::new().layer(Locks::at("/nonexistent/lock.sock").layer(key_of)).service(Broken);
    assert!(matches!(locked.oneshot(event(5, HOUR)).await, Err(HandlerError::Handler(own)) if own == "broken"));
}

#[tokio::test]
async fn a_timeout_above_the_layer_answers_only_when_the_lock_is_given_back() {
    let fake = Fake::start();
    let service = ServiceBuilder::new()
        .timeout(Duration::from_millis(100))
        .layer(fake.locks().layer(key_of))
        .service(service_fn(never_ends));
    // On a runtime of its own: the hand-back blocks it, and here is the extension.
    let call = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(service.oneshot(event(5, HOUR)))
    });
    let mut peer = fake.grant().await;
    let id = peer.release().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!call.is_finished(), "the hand-back is not confirmed yet");
    confirm(&mut peer, id).await;
    let error = call.await.expect("no panic").expect_err("too late");
    assert!(error.is::<Elapsed>(), "{error}");
    peer.closed().await;
}

#[tokio::test]
async fn a_timeout_above_the_layer_ends_the_wait_for_the_lock_too() {
    let fake = Fake::start();
    let service = ServiceBuilder::new()
        .timeout(Duration::from_millis(50))
        .layer(fake.locks().layer(key_of))
        .service(service_fn(double));
    let (served, ()) = tokio::join!(service.oneshot(event(5, HOUR)), async {
        let mut peer = fake.accept().await;
        peer.acquire().await;
        peer.closed().await;
    });
    assert!(served.expect_err("no lock").is::<Elapsed>());
}

#[tokio::test]
async fn a_timeout_below_the_layer_is_the_services_own_error() {
    let fake = Fake::start();
    let service = ServiceBuilder::new()
        .layer(fake.locks().layer(key_of))
        .timeout(Duration::from_millis(20))
        .service(service_fn(never_ends));
    let (served, ()) = tokio::join!(service.oneshot(event(5, HOUR)), async { fake.grant().await.let_go().await });
    assert!(matches!(served, Err(HandlerError::Handler(error)) if error.is::<Elapsed>()));
}

#[tokio::test]
async fn a_concurrency_limit_counts_a_call_until_its_service_is_done_on_either_side_of_the_layer() {
    async fn one_at_a_time<S>(mut service: S, fake: &Fake)
    where
        S: Service<Event, Response = u32, Error = HandlerError<String>>,
    {
        let mut call = Box::pin(service.ready().await.expect("no error").call(event(5, HOUR)));
        assert!(is_pending(call.as_mut()).await);
        assert!(poll_fn(|cx| Poll::Ready(service.poll_ready(cx).is_pending())).await, "it waits for its lock");
        let (served, ()) = tokio::join!(call, async { fake.grant().await.let_go().await });
        assert_eq!(served.expect("no error"), 10);
        let call = service.ready().await.expect("no error").call(event(6, HOUR));
        let (served, ()) = tokio::join!(call, async { fake.grant().await.let_go().await });
        assert_eq!(served.expect("no error"), 12);
    }
    let fake = Fake::start();
    let lock = fake.locks().layer(key_of);
    let below = ServiceBuilder::new().layer(lock.clone()).concurrency_limit(1).service(service_fn(double));
    one_at_a_time(below, &fake).await;
    let above = ServiceBuilder::new().concurrency_limit(1).layer(lock).service(service_fn(double));
    one_at_a_time(above, &fake).await;
}

#[tokio::test]
async fn what_maps_responses_and_errors_runs_under_the_lock_below_the_layer_and_without_it_above() {
    let fake = Fake::start();
    let held = |number: u32| (number + 1, Lease::current().map(|lease| lease.key().to_owned()));
    let below = ServiceBuilder::new().layer(fake.locks().layer(key_of)).map_response(held).service(service_fn(double));
    let (served, ()) = tokio::join!(below.oneshot(event(5, HOUR)), async { fake.grant().await.let_go().await });
    assert_eq!(served.expect("no error"), (11, Some("customer:5".into())));
    let above = ServiceBuilder::new().map_response(held).layer(fake.locks().layer(key_of)).service(service_fn(double));
    let (served, ()) = tokio::join!(above.oneshot(event(5, HOUR)), async { fake.grant().await.let_go().await });
    assert_eq!(served.expect("no error"), (11, None));
    let nowhere = Locks::at("/nonexistent/lock.sock").layer(key_of);
    let named = ServiceBuilder::new()
        .map_err(|error: HandlerError<String>| Diagnostic::from(error).error_type)
        .layer(nowhere.clone())
        .service(service_fn(double));
    assert_eq!(named.oneshot(event(5, HOUR)).await, Err("Leasekeeper.ExtensionMissing".into()));
    let named = ServiceBuilder::new()
        .map_err(HandlerError::<String>::diagnostic)
        .timeout(HOUR)
        .layer(nowhere)
        .service(service_fn(double));
    let error = named.oneshot(event(5, HOUR)).await.expect_err("nothing listens");
    assert_eq!(error.error_type, "Leasekeeper.ExtensionMissing");
}

#[tokio::test]
async fn two_layers_take_their_locks_from_the_outside_in() {
    let fake = Fake::start();
    let service = ServiceBuilder::new()
        .layer(fake.locks().layer(|_: &Event| "outer"))
        .layer(fake.locks().layer(|_: &Event| "inner"))
        .service(service_fn(async |_: Event| Ok::<_, String>(Lease::current().expect("two").key().to_owned())));
    let (served, ()) = tokio::join!(service.oneshot(event(5, HOUR)), async {
        let (outer, request) = fake.grant_for(18_000).await;
        assert_eq!(request.key, "outer");
        let (inner, request) = fake.grant_for(18_000).await;
        assert_eq!(request.key, "inner");
        inner.let_go().await;
        outer.let_go().await;
    });
    assert_eq!(served.expect("no error"), "inner");
}

async fn stream_one(_: Event) -> Result<Response<Body>, Error> {
    let (mut sender, body) = channel();
    tokio::spawn(async move { sender.send_data(Bytes::from_static(b"a")).await.expect("the body is read") });
    Ok(Response::from(body))
}

async fn next(stream: &mut HeldStream<Body>) -> Option<Result<Bytes, Error>> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}

#[tokio::test]
async fn a_streamed_response_holds_its_lock_to_its_end() {
    let fake = Fake::start();
    let service = ServiceBuilder::new().layer(fake.locks().layer(key_of).streaming()).service(service_fn(stream_one));
    let (served, mut peer) = tokio::join!(service.oneshot(event(5, HOUR)), fake.grant());
    let StreamResponse { mut stream, .. } = served.expect("no error");
    assert_eq!(next(&mut stream).await.expect("a chunk").expect("no error"), "a");
    let id = tokio::select! {
        _ = next(&mut stream) => panic!("not given back yet"),
        id = peer.release() => id,
    };
    peer.error(id, lost(LostReason::Expired)).await;
    let error = next(&mut stream).await.expect("no silent end").expect_err("lost");
    assert_eq!(error.downcast_ref::<LockError>().and_then(LockError::reason), Some(LostReason::Expired));
    assert!(next(&mut stream).await.is_none());
    peer.closed().await;
}

/// Never called: that it compiles is the test.
#[allow(dead_code, reason = "only compiled")]
async fn the_runtime_takes_every_stack(locks: Locks) -> Result<(), Error> {
    let lock = locks.layer(key_of);
    lambda_runtime::run(ServiceBuilder::new().layer(lock.clone()).service(service_fn(double))).await?;
    lambda_runtime::run_concurrent(ServiceBuilder::new().layer(lock.clone()).service(service_fn(double))).await?;
    let streaming = ServiceBuilder::new().layer(lock.clone().streaming()).service(service_fn(stream_one));
    lambda_runtime::run(streaming.clone()).await?;
    lambda_runtime::run_concurrent(streaming).await?;
    let timed = ServiceBuilder::new().timeout(HOUR).layer(lock.clone()).concurrency_limit(1).service_fn(double);
    lambda_runtime::run_concurrent(timed).await?;
    let traced = Runtime::new(ServiceBuilder::new().layer(lock).service_fn(double)).layer(TracingLayer::new());
    traced.run_concurrent().await
}
