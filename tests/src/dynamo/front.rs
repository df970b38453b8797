//! The fault front: a proxy before the emulator that a test can order about.

use super::emulator::{listen, serve};
use super::fault::{Fault, Operation};
use super::reply::{Reply, error, page, success};
use super::rules::{Rule, Rules};
use super::strict;
use super::{COMMANDS, PYDYNOX};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task;
use tokio::time::{sleep, timeout};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// When it arrived, counted from the front's start.
    pub at: Duration,
    /// On which connection, counted from 1.
    pub connection: u64,
    /// The name of its client: the path of its endpoint.
    pub client: String,
    /// What it is.
    pub operation: Operation,
    /// The key of its item; none for a transaction.
    pub key: Option<String>,
    /// Its body.
    pub body: Value,
    /// The fault that it met.
    pub fault: Option<Fault>,
    /// The HTTP status that the client was sent, if it was sent one.
    pub status: Option<u16>,
    /// When the store's answer was there, counted from the front's start.
    pub answered: Option<Duration>,
    /// The HTTP status of the store's own answer, whatever the client was sent and even if it has gone: 200 is committed.
    pub stored: Option<u16>,
}

/// A running proxy.
pub struct Front {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    upstream: SocketAddr,
    table: &'static str,
    started: Instant,
    rules: Rules,
    state: Mutex<State>,
    /// Told at each change of the log.
    logged: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    log: Vec<Recorded>,
    violations: Vec<String>,
    accepted: u64,
    open: HashMap<u64, task::JoinHandle<()>>,
    /// Connections up to this one are never answered again.
    dead_up_to: u64,
}

impl Front {
    pub(super) fn start(upstream: SocketAddr, table: &'static str) -> Self {
        let listener = listen();
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            upstream,
            table,
            started: Instant::now(),
            rules: Rules::default(),
            state: Mutex::default(),
            logged: watch::Sender::new(()),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let served = shared.clone();
        let thread = std::thread::Builder::new()
            .name("fault front".to_owned())
            .spawn(move || {
                serve(async move {
                    let listener = TcpListener::from_std(listener).expect("the listener is non-blocking");
                    tokio::select! {
                        () = accept(listener, served) => {}
                        _ = stopped => {}
                    }
                });
            })
            .expect("a thread starts");
        Self { shared, address, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The moment that a request's `at` or `answered` means.
    pub fn moment(&self, since_start: Duration) -> Instant {
        self.shared.started + since_start
    }

    /// What clients sent that the emulator would let pass and a lock client must not send.
    pub fn violations(&self) -> Vec<String> {
        self.shared.state().violations.clone()
    }

    /// The same, and forgets them.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().violations)
    }

    /// How many connections were made so far.
    pub fn accepted(&self) -> u64 {
        self.shared.state().accepted
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.state().open.len()
    }

    /// Closes every open connection; they are closed when it returns.
    pub async fn close_connections(&self) {
        let open = std::mem::take(&mut self.shared.state().open);
        for (_, connection) in open {
            connection.abort();
            // Cancelled, as was asked for, or over already.
            let _ = connection.await;
        }
    }

    /// Every connection that is open now stays open and is never answered again, as after a freeze.
    pub fn kill_connections(&self) {
        let mut state = self.shared.state();
        state.dead_up_to = state.accepted;
    }

    pub(super) fn fail(&self, operation: Operation, fault: Fault) -> Rule {
        self.shared.rules.add(operation, fault)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.shared.started.elapsed()
    }

    pub(super) fn requests(&self) -> Vec<Recorded> {
        self.shared.state().log.clone()
    }

    pub(super) async fn until(&self, limit: Duration, wanted: impl Fn(&[Recorded]) -> bool) -> bool {
        let mut logged = self.shared.logged.subscribe();
        // The sender lives in `self`: waiting ends only because the log is as wanted.
        let waited = logged.wait_for(|()| wanted(&self.shared.state().log));
        timeout(limit, waited).await.is_ok()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; a second one here would hide the test's own.
            let _ = thread.join();
        }
        let violations = self.violations();
        assert!(std::thread::panicking() || violations.is_empty(), "lock clients broke the rules: {violations:#?}");
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let upstream = Client::builder(TokioExecutor::new()).build_http();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let mut state = shared.state();
        state.accepted += 1;
        let number = state.accepted;
        let session = Session { shared: shared.clone(), upstream: upstream.clone(), connection: number };
        let task = tokio::spawn(session.run(stream));
        state.open.insert(number, task);
    }
}

/// The connection is to be closed without an answer.
#[derive(Debug)]
struct Hangup;

impl fmt::Display for Hangup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closed on purpose")
    }
}

impl std::error::Error for Hangup {}

/// One connection of a client.
#[derive(Clone)]
struct Session {
    shared: Arc<Shared>,
    upstream: Client<HttpConnector, Full<Bytes>>,
    connection: u64,
}

impl Session {
    async fn run(self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let service = service_fn(|request| self.clone().request(request));
        // Ends with an error whenever a fault closes the connection.
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        self.shared.state().open.remove(&self.connection);
    }

    async fn request(self, request: Request<Incoming>) -> Result<Response<Reply>, Hangup> {
        if self.connection <= self.shared.state().dead_up_to {
            return pending().await;
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Hangup)?.to_bytes();
        let forwarded = Request::from_parts(head, Full::new(body.clone()));
        if forwarded.method() == Method::GET {
            return self.forward(forwarded, Duration::ZERO, None).await;
        }
        let target = forwarded.headers().get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or("");
        let client = forwarded.uri().path().trim_matches('/').to_owned();
        let permitted = |operation: &Operation| client == COMMANDS || !operation.is_for_people();
        let Some(operation) = Operation::of_target(target).filter(permitted) else {
            self.shared.state().violations.push(format!("{target}: not among the permissions"));
            return Ok(error(400, "AccessDeniedException", "The operation is not among a lock client's permissions."));
        };
        let body: Value = serde_json::from_slice(&body).map_err(|_| Hangup)?;
        let key = strict::key(operation, &body);
        let fault = self.shared.rules.meet(operation, key.as_deref());
        let checked = strict::check(operation, &body, self.shared.table, client != PYDYNOX);
        let number = self.log(client, operation, key, body, fault);
        if let Err(broken) = checked {
            self.shared.state().violations.push(format!("{operation:?}: {broken}"));
            return Ok(error(400, "ValidationException", &broken));
        }
        let answer = self.meet(fault, forwarded, number).await;
        let answered = self.shared.started.elapsed();
        let status = answer.as_ref().ok().map(|answer| answer.status().as_u16());
        {
            // Let go before the change is told: who waits for it looks at the log with the channel's lock held.
            let recorded = &mut self.shared.state().log[number];
            (recorded.status, recorded.answered) = (status, Some(answered));
        }
        self.shared.logged.send_replace(());
        answer
    }

    fn log(
        &self,
        client: String,
        operation: Operation,
        key: Option<String>,
        body: Value,
        fault: Option<Fault>,
    ) -> usize {
        let mut state = self.shared.state();
        state.log.push(Recorded {
            at: self.shared.started.elapsed(),
            connection: self.connection,
            client,
            operation,
            key,
            body,
            fault,
            status: None,
            answered: None,
            stored: None,
        });
        let number = state.log.len() - 1;
        drop(state);
        self.shared.logged.send_replace(());
        number
    }

    async fn meet(
        &self,
        fault: Option<Fault>,
        request: Request<Full<Bytes>>,
        number: usize,
    ) -> Result<Response<Reply>, Hangup> {
        let Some(fault) = fault else { return self.forward(request, Duration::ZERO, Some(number)).await };
        let before = if let Fault::DelayBefore(delay) = fault { delay } else { Duration::ZERO };
        let committed = if fault.commits() { Some(self.forward(request, before, Some(number)).await?) } else { None };
        match (fault, committed) {
            (Fault::Drop | Fault::CommitThenDrop, _) => Err(Hangup),
            (Fault::Hang | Fault::CommitThenHang, _) => pending().await,
            (Fault::Alien(status), _) => Ok(page(status)),
            (Fault::Answer(json), _) => Ok(success(json)),
            (Fault::CommitThenTear, Some(answer)) => Ok(answer.map(Reply::torn)),
            (Fault::DelayAfter(delay), Some(answer)) => {
                sleep(delay).await;
                Ok(answer)
            }
            (Fault::DelayBefore(_), Some(answer)) => Ok(answer),
            _ => {
                let (status, code, message) = fault.error().expect("what is left are errors");
                Ok(error(status, code, message))
            }
        }
    }

    /// Hands the request on, in a task of its own: a client that goes away does not undo what it has sent. What the store
    /// answered is noted under `number`.
    async fn forward(
        &self,
        mut request: Request<Full<Bytes>>,
        delay: Duration,
        number: Option<usize>,
    ) -> Result<Response<Reply>, Hangup> {
        *request.uri_mut() = format!("http://{}/", self.shared.upstream).parse().map_err(|_| Hangup)?;
        let (upstream, shared) = (self.upstream.clone(), self.shared.clone());
        let exchange = tokio::spawn(async move {
            sleep(delay).await;
            let (head, body) = upstream.request(request).await.ok()?.into_parts();
            if let Some(number) = number {
                shared.state().log[number].stored = Some(head.status.as_u16());
                shared.logged.send_replace(());
            }
            let body = body.collect().await.ok()?.to_bytes();
            Some(Response::from_parts(head, Reply::whole(body)))
        });
        exchange.await.ok().flatten().ok_or(Hangup)
    }
}
