//! Sessions at the socket, drawn from bytes: connections that open, ask, send nonsense, close, half-close and fall silent, and
//! what must hold whatever they do.
//!
//! The fuzzer's targets and `tests/tests/sessions.rs` both compile this file.

use arbitrary::{Arbitrary, Unstructured};
use leasekeeper_extension::driver::{self, Command, Surroundings};
use leasekeeper_extension::server::{self, Limits, Socket};
use leasekeeper_extension::settings::Settings;
use leasekeeper_extension::store::MemoryStore;
use leasekeeper_wire::{Acquire, Op, Request};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Beyond any wait that a session asks for: an answer that has not come by then never comes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections, keys and invocations are few, so that sessions meet.
const FEW: usize = 4;

/// One thing that a client, or Lambda, does.
#[derive(Arbitrary, Clone, Debug)]
enum Step {
    Open,
    /// Well-formed, on the connection of this number.
    Ask(u8, Ask),
    /// Several requests in one write, cut anywhere.
    Burst(u8, Vec<Ask>, u8),
    /// Bytes as they are: what comes after them on this connection is nobody's to foresee.
    Raw(u8, Vec<u8>),
    /// A line in JSON with fields of its own.
    Alien(u8, String, i64),
    HalfClose(u8),
    Close(u8),
    Read(u8),
    Invoke(u8, u16),
}

#[derive(Arbitrary, Clone, Debug)]
enum Ask {
    Hello,
    Acquire { key: u8, request: Option<u8>, remaining: Option<u16>, wait: u8, lease: u8 },
    Release(u8),
    Check(u8),
    Metrics(u8),
}

impl Ask {
    fn op(&self) -> Op {
        let lease = |number: &u8| u64::from(*number % 16);
        match self {
            Self::Hello => Op::Hello,
            Self::Acquire { key, request, remaining, wait, lease } => Op::Acquire(Acquire {
                key: name("k", *key),
                request_id: request.map(|request| name("r", request)),
                remaining_ms: remaining.map(u64::from),
                // Up to 15 ms: a session is over soon.
                wait_ms: Some(u64::from(*wait % 16)),
                lease_ms: Some(100 + u64::from(*lease)),
            }),
            Self::Release(number) => Op::Release { lease: lease(number) },
            Self::Check(number) => Op::Check { lease: lease(number) },
            Self::Metrics(number) => Op::Metrics { lease: lease(number) },
        }
    }
}

fn name(kind: &str, number: u8) -> String {
    format!("{kind}{}", usize::from(number) % FEW)
}

/// A client's end, and which of its requests wait for an answer.
struct Connection {
    stream: BufReader<UnixStream>,
    last_id: u64,
    waiting: BTreeSet<u64>,
    /// It has sent what is no request, or closed its side: its answers are not counted.
    wild: bool,
}

/// Runs the session that these bytes stand for.
///
/// # Panics
/// Something did not hold; the message says what.
pub async fn run(bytes: &[u8]) {
    let mut draw = Unstructured::new(bytes);
    let under_lambda = bool::arbitrary(&mut draw).unwrap_or(false);
    let next = |draw: &mut Unstructured<'_>| if draw.is_empty() { None } else { Step::arbitrary(draw).ok() };
    let steps: Vec<Step> = std::iter::from_fn(|| next(&mut draw)).take(64).collect();
    let home = tempfile::tempdir().expect("a directory for the socket");
    let path = home.path().join("s/lock.sock");
    let mut socket = Socket::new(&path, false);
    socket.bind().expect("a directory of our own");
    let variable = |name: &str| (name == "LEASEKEEPER_STORE").then(|| "memory".to_owned());
    let settings = Settings::from_lookup(variable).map_err(|error| error.to_string());
    let surroundings = Surroundings { invocations: under_lambda, freezes: under_lambda, ..Surroundings::default() };
    let driver = driver::start(settings, surroundings, MemoryStore::new());
    let server = tokio::spawn(server::run(socket, driver.clone(), Limits::default(), std::future::pending()));
    let mut connections: Vec<Option<Connection>> = Vec::new();
    for step in steps {
        step.act(&path, &mut connections, &driver).await;
    }
    for connection in connections.iter_mut().flatten().filter(|connection| !connection.wild) {
        connection.all_answered().await;
    }
    connections.clear();
    nothing_is_left_behind(&path, under_lambda).await;
    assert!(!server.is_finished() && !driver.is_closed(), "the server or its driver has ended");
    server.abort();
}

impl Step {
    async fn act(
        self,
        path: &Path,
        connections: &mut Vec<Option<Connection>>,
        driver: &tokio::sync::mpsc::UnboundedSender<Command>,
    ) {
        match self {
            Self::Open if connections.len() < FEW => {
                let stream = BufReader::new(UnixStream::connect(path).await.expect("the server listens"));
                connections.push(Some(Connection { stream, last_id: 0, waiting: BTreeSet::new(), wild: false }));
            }
            Self::Open => {}
            Self::Ask(number, ask) => {
                if let Some(Some(connection)) = slot(connections, number) {
                    connection.ask(&[ask], usize::MAX).await;
                }
            }
            Self::Burst(number, asks, cut) => {
                if let Some(Some(connection)) = slot(connections, number) {
                    connection.ask(&asks[..asks.len().min(20)], usize::from(cut)).await;
                }
            }
            Self::Raw(number, bytes) => {
                if let Some(Some(connection)) = slot(connections, number) {
                    connection.wild = true;
                    connection.write(&bytes).await;
                }
            }
            Self::Alien(number, field, value) => {
                if let Some(Some(connection)) = slot(connections, number) {
                    connection.wild = true;
                    let line = json!({"v": 1, "id": 1, "op": field, field: value});
                    connection.write(format!("{line}\n").as_bytes()).await;
                }
            }
            Self::HalfClose(number) => {
                if let Some(Some(connection)) = slot(connections, number) {
                    connection.wild = true;
                    let _ = connection.stream.get_mut().shutdown().await;
                }
            }
            Self::Close(number) => drop(slot(connections, number).and_then(Option::take)),
            Self::Read(number) => {
                if let Some(Some(connection)) = slot(connections, number)
                    && !connection.wild
                {
                    connection.all_answered().await;
                }
            }
            Self::Invoke(number, remaining) => {
                let remaining = Duration::from_millis(remaining.into());
                let _ = driver.send(Command::InvocationBegan { request_id: name("r", number), remaining });
            }
        }
    }
}

fn slot(connections: &mut [Option<Connection>], number: u8) -> Option<&mut Option<Connection>> {
    let count = connections.len().max(1);
    connections.get_mut(usize::from(number) % count)
}

impl Connection {
    async fn ask(&mut self, asks: &[Ask], cut: usize) {
        let mut text = String::new();
        for ask in asks {
            self.last_id += 1;
            self.waiting.insert(self.last_id);
            text.push_str(&Request { id: self.last_id, op: ask.op() }.encode());
        }
        let (head, tail) = text.as_bytes().split_at(cut.min(text.len()));
        self.write(head).await;
        tokio::task::yield_now().await;
        self.write(tail).await;
    }

    /// The server may have closed a wild connection; no other.
    async fn write(&mut self, bytes: &[u8]) {
        let written = timeout(PATIENCE, self.stream.get_mut().write_all(bytes)).await.expect("the server reads");
        assert!(written.is_ok() || self.wild, "{written:?}");
    }

    /// Each request is answered once, with its own id; what else comes are events.
    async fn all_answered(&mut self) {
        while !self.waiting.is_empty() {
            let mut line = String::new();
            let read = timeout(PATIENCE, self.stream.read_line(&mut line)).await;
            let read = read.unwrap_or_else(|_| panic!("never answered: {:?}", self.waiting)).expect("lines are text");
            assert!(read > 0, "closed with requests unanswered: {:?}", self.waiting);
            let line: Value = serde_json::from_str(&line).expect("each line is JSON");
            if line["event"].is_null() {
                let id = line["id"].as_u64().expect("an answer has an id");
                assert!(self.waiting.remove(&id), "answered twice, or never asked: {line}");
                assert!(line["ok"].is_object() ^ line["error"].is_object(), "{line}");
            }
        }
    }
}

/// Every key can be had once all of them have gone: at once, or when the last lease that somebody may believe in is over.
async fn nothing_is_left_behind(path: &Path, under_lambda: bool) {
    let stream = BufReader::new(UnixStream::connect(path).await.expect("the server listens"));
    let mut last = Connection { stream, last_id: 0, waiting: BTreeSet::new(), wild: false };
    for key in 0..FEW {
        let (request_id, remaining_ms) = (under_lambda.then(|| "last".into()), under_lambda.then_some(60_000));
        let acquire =
            Acquire { key: format!("k{key}"), request_id, remaining_ms, wait_ms: Some(5_000), lease_ms: Some(10_000) };
        last.write(Request { id: 1, op: Op::Acquire(acquire) }.encode().as_bytes()).await;
        let mut line = String::new();
        timeout(PATIENCE, last.stream.read_line(&mut line)).await.expect("it is answered").expect("lines are text");
        let line: Value = serde_json::from_str(&line).expect("each line is JSON");
        assert!(line["ok"]["lease"].is_u64(), "k{key} is left behind: {line}");
    }
}
