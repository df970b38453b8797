//! A scripted extension: each test plays the other side of the socket, line by line.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses its own part")]

use lambda_runtime::{Context, LambdaEvent};
use leasekeeper::{Guard, Locks};
use leasekeeper_wire::{Acquire, Code, Event, EventKind, Failure, Granted, LostReason, Metrics, Op, Released};
use leasekeeper_wire::{Reply, Request};
use serde::Serialize;
use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

pub const HOUR: Duration = Duration::from_secs(3_600);
pub const LEASE: u64 = 7;

/// A listening socket in a directory of its own.
pub struct Fake {
    directory: tempfile::TempDir,
    listener: UnixListener,
}

impl Fake {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("lock.sock")).expect("a socket");
        Self { directory, listener }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("lock.sock")
    }

    pub fn locks(&self) -> Locks {
        Locks::at(self.path())
    }

    pub async fn accept(&self) -> Peer {
        Peer::new(self.listener.accept().await.expect("a connection").0)
    }

    /// Accepts, expects an acquire and grants it.
    pub async fn grant(&self) -> Peer {
        self.grant_for(18_000).await.0
    }

    pub async fn grant_for(&self, valid_ms: u64) -> (Peer, Acquire) {
        let mut peer = self.accept().await;
        let (id, acquire) = peer.acquire().await;
        peer.ok(id, &granted(valid_ms)).await;
        (peer, acquire)
    }

    /// A guard with its other side.
    pub async fn held(&self) -> (Guard, Peer) {
        let acquire = async { self.locks().acquire("k").invocation("request-1", SystemTime::now() + HOUR).await };
        let (guard, peer) = tokio::join!(acquire, self.grant());
        (guard.expect("granted"), peer)
    }
}

pub fn granted(valid_ms: u64) -> Granted {
    Granted {
        lease: LEASE,
        valid_ms,
        lease_ms: 20_000,
        owner: "owner-1".into(),
        table: "locks".into(),
        token: None,
        waited_ms: 12,
    }
}

/// The extension's end of one connection.
pub struct Peer {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Peer {
    fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: BufReader::new(reader), writer }
    }

    /// The next request, decoded as strictly as the extension does; `None` at the connection's end.
    pub async fn next(&mut self) -> Option<Request> {
        let mut line = String::new();
        match self.reader.read_line(&mut line).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(Request::decode(line.as_bytes()).expect("a version 1 request")),
        }
    }

    pub async fn acquire(&mut self) -> (u64, Acquire) {
        match self.next().await {
            Some(Request { id, op: Op::Acquire(acquire) }) => (id, acquire),
            other => panic!("an acquire was expected, not {other:?}"),
        }
    }

    pub async fn check(&mut self) -> u64 {
        match self.next().await {
            Some(Request { id, op: Op::Check { lease: LEASE } }) => id,
            other => panic!("a check was expected, not {other:?}"),
        }
    }

    pub async fn metrics(&mut self) -> u64 {
        match self.next().await {
            Some(Request { id, op: Op::Metrics { lease: LEASE } }) => id,
            other => panic!("a question for the figures was expected, not {other:?}"),
        }
    }

    pub async fn release(&mut self) -> u64 {
        match self.next().await {
            Some(Request { id, op: Op::Release { lease: LEASE } }) => id,
            other => panic!("a release was expected, not {other:?}"),
        }
    }

    /// Expects a release, confirms it, and expects the connection's end.
    pub async fn let_go(mut self) {
        let id = self.release().await;
        self.ok(id, &Released { metrics: Metrics { write_requests: 2, ..Metrics::default() } }).await;
        self.closed().await;
    }

    pub async fn closed(&mut self) {
        assert_eq!(self.next().await, None, "nothing more was expected");
    }

    pub async fn line(&mut self, line: &str) {
        self.writer.write_all(line.as_bytes()).await.expect("the client reads");
    }

    pub async fn ok(&mut self, id: u64, answer: &impl Serialize) {
        self.line(&Reply::ok(id, answer).encode()).await;
    }

    pub async fn error(&mut self, id: u64, failure: Failure) {
        self.line(&Reply::error(Some(id), failure).encode()).await;
    }

    pub async fn event(&mut self, kind: EventKind) {
        self.line(&Event { lease: LEASE, kind }.encode()).await;
    }

    /// Says that the lease is lost without letting any other task run.
    pub fn lose_now(&self, reason: LostReason) {
        let line = Event { lease: LEASE, kind: EventKind::Lost { reason } }.encode();
        assert_eq!(self.writer.try_write(line.as_bytes()).expect("room in the socket"), line.len());
    }

    pub async fn lose(&mut self, reason: LostReason) {
        self.event(EventKind::Lost { reason }).await;
    }
}

/// The lock's error of a call that failed for it.
#[cfg(feature = "lambda")]
pub fn lock_error<T, E: std::fmt::Debug>(response: Result<T, leasekeeper::HandlerError<E>>) -> leasekeeper::LockError {
    match response {
        Err(leasekeeper::HandlerError::Lock(error)) => error,
        Err(leasekeeper::HandlerError::Handler(error)) => panic!("the lock's error was expected, not {error:?}"),
        Ok(_) => panic!("an error was expected"),
    }
}

/// Polls once.
pub async fn is_pending<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

pub fn lost(reason: LostReason) -> Failure {
    Failure { reason: Some(reason), ..Failure::new(Code::Lost, "lost") }
}

/// An event of an invocation that has `left` to run.
pub fn event<T>(payload: T, left: Duration) -> LambdaEvent<T> {
    let mut context = Context::default();
    context.request_id = "request-1".into();
    let deadline = SystemTime::now() + left;
    context.deadline =
        u64::try_from(deadline.duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("in range");
    LambdaEvent::new(payload, context)
}
