//! Streaming responses hold their lock to the end, and `lambda_runtime` takes every form of the wrapped handler.

mod common;

use bytes::Bytes;
use common::{Fake, HOUR, Peer, event, lost};
use futures_core::Stream;
use lambda_runtime::streaming::{Body, Response, channel};
use lambda_runtime::{Diagnostic, Error, FunctionResponse, LambdaEvent, Service, StreamResponse};
use leasekeeper::{Code, HeldStream, Lease, LockError, Locks, LostReason, OnLost, key};
use leasekeeper_wire::{Failure, Metrics, Released};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

type Event = LambdaEvent<u32>;

async fn stream_two(_: Event, _: Lease) -> Result<Response<Body>, Error> {
    let (mut sender, body) = channel();
    tokio::spawn(async move {
        for chunk in ["a", "b"] {
            sender.send_data(Bytes::from_static(chunk.as_bytes())).await.expect("the body is read");
        }
    });
    Ok(Response::from(body))
}

async fn stream_on(_: Event, _: Lease) -> Result<Response<Body>, Error> {
    let (mut sender, body) = channel();
    tokio::spawn(async move { while sender.send_data(Bytes::from_static(b"x")).await.is_ok() {} });
    Ok(Response::from(body))
}

/// Calls the handler and gives its stream and the extension's end.
macro_rules! open {
    ($fake:expr, $handler:expr) => {{
        let (response, peer) = tokio::join!($handler.call(event(5, HOUR)), $fake.grant());
        match response.expect("no error") {
            FunctionResponse::StreamingResponse(StreamResponse { stream, .. }) => (stream, peer),
            FunctionResponse::BufferedResponse(()) => panic!("a stream was expected"),
        }
    }};
}

async fn next(stream: &mut HeldStream<Body>) -> Option<Result<Bytes, Error>> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}

async fn chunk(stream: &mut HeldStream<Body>) -> Bytes {
    next(stream).await.expect("a chunk").expect("no error")
}

async fn confirm(peer: &mut Peer) {
    let id = peer.release().await;
    peer.ok(id, &Released { metrics: Metrics::default() }).await;
}

fn lock_error(error: &Error) -> &LockError {
    error.downcast_ref::<LockError>().expect("the lock's error")
}

#[tokio::test]
async fn the_lock_is_given_back_before_the_streams_end_is_seen() {
    let fake = Fake::start();
    let mut handler = fake.locks().locked_handler(|_: &Event| "k", stream_two);
    let (mut stream, mut peer) = open!(fake, handler);
    assert_eq!(chunk(&mut stream).await, "a");
    assert_eq!(chunk(&mut stream).await, "b");
    let id = tokio::select! {
        _ = next(&mut stream) => panic!("not given back yet"),
        id = peer.release() => id,
    };
    let end = poll_fn(|cx| Poll::Ready(Pin::new(&mut stream).poll_next(cx).is_pending())).await;
    assert!(end, "the hand-back is not confirmed yet");
    peer.ok(id, &Released { metrics: Metrics::default() }).await;
    assert!(next(&mut stream).await.is_none());
    assert!(next(&mut stream).await.is_none());
    peer.closed().await;
}

#[tokio::test]
async fn the_streams_prelude_is_passed_on() {
    let fake = Fake::start();
    let with_cookie = async |event: Event, lease: Lease| {
        let mut response = stream_two(event, lease).await?;
        response.metadata_prelude.cookies.push("a=b".into());
        Ok::<_, Error>(response)
    };
    let mut handler = fake.locks().locked_handler(|_: &Event| "k", with_cookie);
    let (response, _peer) = tokio::join!(handler.call(event(5, HOUR)), fake.grant());
    match response.expect("no error") {
        FunctionResponse::StreamingResponse(response) => assert_eq!(response.metadata_prelude.cookies, ["a=b"]),
        FunctionResponse::BufferedResponse(()) => panic!("a stream was expected"),
    }
}

#[tokio::test]
async fn a_lost_lock_ends_the_stream_with_an_error() {
    let fake = Fake::start();
    let mut handler = fake.locks().locked_handler(|_: &Event| "k", stream_on);
    let (mut stream, mut peer) = open!(fake, handler);
    assert_eq!(chunk(&mut stream).await, "x");
    peer.lose(LostReason::Stolen).await;
    let error = loop {
        if let Err(error) = next(&mut stream).await.expect("no silent end") {
            break error;
        }
    };
    assert_eq!(lock_error(&error).reason(), Some(LostReason::Stolen));
    assert!(next(&mut stream).await.is_none());
    peer.closed().await;
}

#[tokio::test]
async fn a_stream_that_goes_on_under_a_lost_lock_still_ends_with_an_error() {
    let fake = Fake::start();
    let mut handler = fake.locks().locked_handler(|_: &Event| "k", stream_two).on_lost(OnLost::Notify);
    let (mut stream, mut peer) = open!(fake, handler);
    peer.lose(LostReason::Stolen).await;
    assert_eq!(chunk(&mut stream).await, "a");
    assert_eq!(chunk(&mut stream).await, "b");
    let error = next(&mut stream).await.expect("no silent end").expect_err("lost");
    assert_eq!(lock_error(&error).reason(), Some(LostReason::Stolen));
    assert!(next(&mut stream).await.is_none());
}

#[tokio::test]
async fn a_streams_hand_back_is_reported_as_a_buffered_responses_is() {
    let fake = Fake::start();
    for (strict, failure, code) in [
        (false, Failure::new(Code::ReleaseUnconfirmed, ""), None),
        (true, Failure::new(Code::ReleaseUnconfirmed, ""), Some(Code::ReleaseUnconfirmed)),
        (false, lost(LostReason::Expired), Some(Code::Lost)),
    ] {
        let mut handler = fake.locks().locked_handler(|_: &Event| "k", stream_two).strict_release(strict);
        let (mut stream, mut peer) = open!(fake, handler);
        chunk(&mut stream).await;
        chunk(&mut stream).await;
        let (end, ()) = tokio::join!(next(&mut stream), async {
            let id = peer.release().await;
            peer.error(id, failure).await;
        });
        let reported = end.map(|item| lock_error(&item.expect_err("only an error can follow")).code());
        assert_eq!(reported, code);
    }
}

#[tokio::test]
async fn a_stream_that_nobody_reads_to_its_end_gives_the_lock_back() {
    let fake = Fake::start();
    let mut handler = fake.locks().locked_handler(|_: &Event| "k", stream_on);
    let (mut stream, mut peer) = open!(fake, handler);
    chunk(&mut stream).await;
    drop(stream);
    peer.closed().await;
}

#[tokio::test]
async fn a_stream_that_a_handler_failed_to_make_is_a_plain_error() {
    let fake = Fake::start();
    let mut handler =
        fake.locks().locked_handler(|_: &Event| "k", async |_: Event, _| Err::<Response<Body>, _>(String::from("own")));
    let (response, ()) = tokio::join!(handler.call(event(5, HOUR)), async {
        let mut peer = fake.grant().await;
        confirm(&mut peer).await;
        peer.closed().await;
    });
    assert_eq!(response.err().map(|error| error.to_string()).as_deref(), Some("own"));
}

#[derive(serde::Deserialize)]
struct Order {
    customer_id: String,
}

#[derive(serde::Serialize)]
struct Summary {
    customer_id: String,
}

#[derive(Debug)]
struct OwnError;

impl From<OwnError> for Diagnostic {
    fn from(_: OwnError) -> Self {
        Self { error_type: "Own".into(), error_message: "words".into() }
    }
}

impl From<LockError> for OwnError {
    fn from(_: LockError) -> Self {
        Self
    }
}

async fn summarise(event: LambdaEvent<Order>, lease: Lease) -> Result<Summary, OwnError> {
    lease.check().await?;
    Ok(Summary { customer_id: event.payload.customer_id })
}

/// Never called: that it compiles is the test.
#[allow(dead_code, reason = "only compiled")]
async fn the_runtime_takes_every_form(locks: Locks) -> Result<(), Error> {
    let by_customer = |event: &LambdaEvent<Order>| key!("customer:{id}", id = event.payload.customer_id);
    lambda_runtime::run(locks.locked_handler(by_customer, summarise)).await?;
    lambda_runtime::run_concurrent(locks.locked_handler(by_customer, summarise).try_once()).await?;
    lambda_runtime::run(locks.locked_handler(|_: &Event| "k", stream_two)).await?;
    lambda_runtime::run_concurrent(locks.locked_handler(|_: &Event| "k", stream_on)).await?;

    // A closure that owns state, an event of any form, a boxed error.
    let table = String::from("orders");
    let count = std::sync::atomic::AtomicU32::new(0);
    let owning = move |event: LambdaEvent<serde_json::Value>, lease: Lease| {
        let table = table.clone();
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            lease.check().await?;
            Ok::<_, Error>(format!("{table}: {}", event.payload))
        }
    };
    lambda_runtime::run_concurrent(locks.locked_handler(|_: &LambdaEvent<serde_json::Value>| "k", owning)).await?;

    // `run` alone takes a handler that cannot change threads.
    let local = Rc::new(Cell::new(0));
    let not_send = move |_: Event, _: Lease| {
        let local = local.clone();
        async move {
            tokio::task::yield_now().await;
            local.set(local.get() + 1);
            Ok::<_, Error>(local.get())
        }
    };
    lambda_runtime::run(locks.locked_handler(|_: &Event| "k", not_send)).await
}
