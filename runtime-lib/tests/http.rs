//! The layer over services of HTTP requests: keys from paths, whole and streamed bodies, and answers for who gets no lock.

mod common;

use common::{Fake, HOUR, event, is_pending, lock_error};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use lambda_http::http::header::{CONTENT_TYPE, RETRY_AFTER};
use lambda_http::http::{HeaderMap, Request, Response, StatusCode};
use lambda_http::{Body, Error, IntoResponse, RequestExt, service_fn};
use leasekeeper::{Code, HandlerError, Lease, LockError, Locks, LostReason, OnLost, http_answers, key, path_key};
use leasekeeper_wire::{Failure, Metrics, Released};
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tower::{ServiceBuilder, ServiceExt};

type Frames = mpsc::UnboundedSender<Frame<&'static [u8]>>;

/// A request for this order, of an invocation that has `left` to run.
fn request(order: &str, left: Duration) -> lambda_http::Request {
    let parameters = HashMap::from([("order_id".to_owned(), vec![order.to_owned()])]);
    Request::new(Body::Empty).with_path_parameters(parameters).with_lambda_context(event((), left).context)
}

/// A body whose frames are sent by hand.
struct Fed(mpsc::UnboundedReceiver<Frame<&'static [u8]>>);

impl futures_core::Stream for Fed {
    type Item = Result<Frame<&'static [u8]>, Error>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

fn fed() -> (Frames, Response<StreamBody<Fed>>) {
    let (frames, body) = mpsc::unbounded_channel();
    (frames, Response::new(StreamBody::new(Fed(body))))
}

async fn done(_: lambda_http::Request) -> Result<&'static str, Infallible> {
    Ok("done")
}

#[tokio::test]
async fn a_request_is_served_under_the_lock_of_its_path_and_carries_its_lease() {
    let fake = Fake::start();
    let service = ServiceBuilder::new().layer(fake.locks().layer(path_key("order:{order_id}"))).service(service_fn(
        async |request: lambda_http::Request| {
            let lease = request.extensions().get::<Lease>().expect("it carries it");
            assert_eq!(Lease::current().expect("under the lock").key(), lease.key());
            Ok::<_, Infallible>(lease.key().to_owned())
        },
    ));
    let (served, request) = tokio::join!(service.oneshot(request("7", HOUR)), async {
        let (peer, request) = fake.grant_for(18_000).await;
        peer.let_go().await;
        request
    });
    assert_eq!((request.key.as_str(), request.request_id.as_deref()), ("order:7", Some("request-1")));
    assert!(request.remaining_ms.is_some());
    assert_eq!(served.expect("no error").0.body(), &Body::Text("order:7".into()));
}

#[tokio::test]
async fn a_body_that_is_made_while_it_is_read_is_read_under_the_lock() {
    let fake = Fake::start();
    let (frames, response) = fed();
    let response = std::sync::Mutex::new(Some(response));
    let response = std::sync::Arc::new(response);
    let service = ServiceBuilder::new().layer(fake.locks().layer(path_key("order:{order_id}"))).service_fn(
        move |_: lambda_http::Request| {
            let response = response.lock().expect("no panic").take().expect("one call");
            async { Ok::<_, Infallible>(response) }
        },
    );
    let (served, ()) = tokio::join!(service.oneshot(request("7", HOUR)), async {
        let mut peer = fake.grant().await;
        frames.send(Frame::data(b"late")).expect("it is read");
        let early = tokio::time::timeout(Duration::from_millis(50), peer.release()).await;
        assert!(early.is_err(), "the body is not over");
        drop(frames);
        peer.let_go().await;
    });
    assert_eq!(served.expect("no error").0.body(), &Body::Text("late".into()));
}

#[tokio::test]
async fn responses_are_what_they_are_without_the_layer() {
    async fn same<R: IntoResponse + Send + 'static>(response: fn() -> R) {
        let fake = Fake::start();
        let service = ServiceBuilder::new()
            .layer(fake.locks().layer(path_key("order:{order_id}")))
            .service(service_fn(move |_: lambda_http::Request| async move { Ok::<_, Infallible>(response()) }));
        let (served, ()) =
            tokio::join!(service.oneshot(request("7", HOUR)), async { fake.grant().await.let_go().await });
        let (with, without) =
            tokio::join!(served.expect("no error").into_response(), async { response().into_response().await });
        assert_eq!((with.status(), with.headers()), (without.status(), without.headers()));
        assert_eq!(with.body(), without.body());
    }
    same(|| vec![0_u8, 159, 146, 150]).await;
    same(|| (StatusCode::CREATED, serde_json::json!({"a": "é"}))).await;
    // In a text of another encoding.
    same(|| {
        let latin = Response::builder().header(CONTENT_TYPE, "text/plain; charset=iso-8859-1");
        latin.body(http_body_util::Full::new(bytes::Bytes::from_static(&[0xe9]))).expect("a response")
    })
    .await;
}

#[tokio::test]
async fn a_request_that_names_no_lock_is_refused_in_plain_words() {
    let nowhere = Locks::at("/nonexistent/lock.sock");
    let refused = async |template: &str, request: lambda_http::Request| {
        let service = ServiceBuilder::new().layer(nowhere.layer(path_key(template))).service(service_fn(done));
        let error = lock_error(service.oneshot(request).await);
        assert_eq!(error.code(), Code::Protocol);
        error.to_string()
    };
    assert_eq!(
        refused("order:{order_id}", Request::new(Body::Empty)).await,
        "the lock request is invalid: the request carries no Lambda context, so its deadline is not known: serve it by \
         `lambda_http::run`, or give it one by `RequestExt::with_lambda_context`"
    );
    assert_eq!(
        refused("{tenant}:{order_id}", request("7", HOUR)).await,
        "the lock request is invalid: the request has no path parameter \"tenant\", which the key template asks for"
    );
    assert_eq!(
        refused("order:{order_id", request("7", HOUR)).await,
        "the lock request is invalid: the key template has a `{` without its `}`: write `{{` for a literal one"
    );
    assert_eq!(refused("{order_id}", request("", HOUR)).await, "the lock request is invalid: the key is empty");
}

#[tokio::test]
async fn who_gets_no_lock_is_answered_if_that_is_asked_for() {
    let fake = Fake::start();
    let stack = |locks: &Locks| {
        let key = |request: &lambda_http::Request| key!("tenant:{tenant}", tenant = request.uri().path());
        ServiceBuilder::new().map_result(http_answers).layer(locks.layer(key)).service(service_fn(done))
    };
    for (retry_after_ms, seconds) in [(Some(1_700), Some("2")), (Some(2_000), Some("2")), (None, None)] {
        let (served, ()) = tokio::join!(stack(&fake.locks()).oneshot(request("7", HOUR)), async {
            let mut peer = fake.accept().await;
            let (id, acquire) = peer.acquire().await;
            assert_eq!(acquire.key, "tenant:/");
            peer.error(id, Failure { retry_after_ms, ..Failure::new(Code::Busy, "held by arn:secret") }).await;
        });
        let answer = served.expect("an answer").0;
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        assert_eq!(answer.headers().get(RETRY_AFTER).map(|value| value.to_str().expect("a text")), seconds);
        assert_eq!(answer.body(), &Body::Text(r#"{"error":"busy"}"#.into()));
    }
    let answer = stack(&fake.locks()).oneshot(request("7", Duration::ZERO)).await.expect("an answer").0;
    assert_eq!(
        (answer.status(), &answer.headers()[RETRY_AFTER]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    assert_eq!(answer.body(), &Body::Text(r#"{"error":"budget_exhausted"}"#.into()));
    // A function without its layer is broken, and nothing that a client could wait for.
    let nowhere = Locks::at("/nonexistent/lock.sock");
    assert_eq!(lock_error(stack(&nowhere).oneshot(request("7", HOUR)).await).code(), Code::ExtensionMissing);
    let (served, ()) = tokio::join!(stack(&fake.locks()).oneshot(request("7", HOUR)), async {
        let mut peer = fake.grant().await;
        let id = peer.release().await;
        peer.error(id, common::lost(LostReason::Stolen)).await;
    });
    assert_eq!(lock_error(served).code(), Code::Lost);
}

#[tokio::test]
async fn of_two_layers_each_has_its_answers_above_it() {
    let fake = Fake::start();
    let locks = fake.locks();
    let (outer, inner) =
        (locks.layer(|_: &lambda_http::Request| key!("outer")), locks.layer(|_: &lambda_http::Request| key!("inner")));
    let answers_of = || ServiceBuilder::new().map_result(http_answers);
    let first_only = answers_of().layer(outer.clone()).layer(inner.clone()).service_fn(done);
    let both = answers_of().layer(outer.clone()).map_result(http_answers).layer(inner.clone()).service_fn(done);
    let busy_inside = async || {
        let mut first = fake.grant().await;
        let mut second = fake.accept().await;
        let (id, acquire) = second.acquire().await;
        assert_eq!(acquire.key, "inner");
        second.error(id, Failure::new(Code::Busy, "")).await;
        let id = first.release().await;
        first.ok(id, &Released { metrics: Metrics::default() }).await;
    };
    let (served, ()) = tokio::join!(first_only.oneshot(request("7", HOUR)), busy_inside());
    assert!(matches!(served, Err(HandlerError::Handler(HandlerError::Lock(LockError::Busy { .. })))));
    let (served, ()) = tokio::join!(both.clone().oneshot(request("7", HOUR)), busy_inside());
    assert_eq!(served.expect("an answer").0.status(), StatusCode::CONFLICT);
    let busy_outside = async {
        let mut peer = fake.accept().await;
        let (id, acquire) = peer.acquire().await;
        assert_eq!(acquire.key, "outer");
        peer.error(id, Failure::new(Code::Busy, "")).await;
    };
    let (served, ()) = tokio::join!(both.oneshot(request("7", HOUR)), busy_outside);
    assert_eq!(served.expect("an answer").0.status(), StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_streamed_body_holds_its_lock_to_its_end_and_leaves_its_trailers_out() {
    let fake = Fake::start();
    let (mut body, frames, mut peer) = open(&fake, OnLost::Cancel).await;
    frames.send(Frame::data(b"one")).expect("it is read");
    let frame = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.into_data().expect("data"), b"one");
    frames.send(Frame::trailers(HeaderMap::new())).expect("it is read");
    drop(frames);
    let mut end = pin!(body.frame());
    let id = tokio::select! {
        _ = &mut end => panic!("not given back yet"),
        id = peer.release() => id,
    };
    assert!(is_pending(end.as_mut()).await, "the hand-back is not confirmed yet");
    peer.ok(id, &Released { metrics: Metrics::default() }).await;
    assert!(end.await.is_none());
    peer.closed().await;
}

#[tokio::test]
async fn a_streamed_body_ends_with_an_error_if_its_lock_is_lost() {
    for on_lost in [OnLost::Cancel, OnLost::Notify] {
        let fake = Fake::start();
        let (mut body, frames, mut peer) = open(&fake, on_lost).await;
        peer.lose(LostReason::Stolen).await;
        if on_lost == OnLost::Notify {
            frames.send(Frame::data(b"one")).expect("it is read");
            assert!(body.frame().await.expect("a frame").is_ok(), "it goes on");
            drop(frames);
        }
        let error = body.frame().await.expect("no silent end").expect_err("lost");
        assert_eq!(error.downcast_ref::<LockError>().and_then(LockError::reason), Some(LostReason::Stolen));
        assert!(body.frame().await.is_none());
        peer.closed().await;
    }
}

/// A streamed response under its lock, with what feeds it and the extension's end.
async fn open(fake: &Fake, on_lost: OnLost) -> (leasekeeper::HeldStream<StreamBody<Fed>>, Frames, common::Peer) {
    let (frames, response) = fed();
    let response = std::sync::Arc::new(std::sync::Mutex::new(Some(response)));
    let lock = fake.locks().layer(path_key("order:{order_id}")).on_lost(on_lost).streaming();
    let service = ServiceBuilder::new().layer(lock).service_fn(move |_: lambda_http::Request| {
        let response = response.lock().expect("no panic").take().expect("one call");
        async { Ok::<_, Infallible>(response) }
    });
    let (served, peer) = tokio::join!(service.oneshot(request("7", HOUR)), fake.grant());
    (served.expect("no error").into_body(), frames, peer)
}

/// Never called: that it compiles is the test.
#[allow(dead_code, reason = "only compiled")]
async fn the_runtime_takes_every_stack(locks: Locks) -> Result<(), Error> {
    let lock = locks.layer(path_key("order:{order_id}"));
    lambda_http::run(ServiceBuilder::new().layer(lock.clone()).service(service_fn(done))).await?;
    let answering = ServiceBuilder::new().map_result(http_answers).layer(lock.clone()).service(service_fn(done));
    lambda_http::run(answering.clone()).await?;
    lambda_http::run_concurrent(answering).await?;
    let two = ServiceBuilder::new().map_result(http_answers).layer(lock.clone()).map_result(http_answers);
    lambda_http::run(two.layer(lock.clone()).service(service_fn(done))).await?;
    lambda_http::run(ServiceBuilder::new().timeout(HOUR).layer(lock.clone()).service(service_fn(done))).await?;
    let stream = async |_: lambda_http::Request| {
        let whole = http_body_util::Full::new(bytes::Bytes::from_static(b"x"));
        Ok::<_, Infallible>(Response::new(whole))
    };
    let streaming = ServiceBuilder::new().layer(lock.streaming()).service(service_fn(stream));
    lambda_http::run_with_streaming_response(streaming.clone()).await?;
    lambda_http::run_with_streaming_response_concurrent(streaming).await
}
