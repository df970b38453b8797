//! The extension as a process of its own, outside Lambda, and a client of its socket.

use crate::dynamo::Dynamo;
use crate::programs::built;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Longer than any wait that a test asks for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the extension writes, printed when a test fails.
const LOG: &str = "log";

/// A `leasekeeper` process without Lambda, killed when dropped.
#[derive(Debug)]
pub struct Sidecar {
    child: Child,
    socket: PathBuf,
    /// Holds the socket and the log.
    home: TempDir,
}

impl Sidecar {
    /// Starts one on this DynamoDB's lock table and waits until its socket answers. `name` is its name in the request log;
    /// `settings` are further variables for it.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(dynamo: &Dynamo, name: &str, settings: &[(&str, &str)]) -> Self {
        let home = TempDir::new().expect("a directory for the socket");
        let socket = home.path().join("leasekeeper/lock.sock");
        let log = File::create(home.path().join(LOG)).expect("a file for the log");
        let child = Command::new(built("leasekeeper"))
            .env_clear()
            .envs(dynamo.env_as(name))
            .env("LEASEKEEPER_SOCKET", &socket)
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a file can be shared"))
            .stdout(log)
            .kill_on_drop(true)
            .spawn()
            .expect("the extension starts");
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(&socket).await.is_err() {
            assert!(Instant::now() < deadline, "the extension does not listen at {}", socket.display());
            sleep(Duration::from_millis(5)).await;
        }
        Self { child, socket, home }
    }

    /// A new connection to its socket.
    pub async fn connect(&self) -> SocketClient {
        let stream = UnixStream::connect(&self.socket).await.expect("the extension listens");
        let (read, write) = stream.into_split();
        SocketClient { lines: BufReader::new(read).lines(), write, events: VecDeque::new(), last_id: 0 }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it still runs");
        kill_process(pid, signal).expect("a child of ours can be signalled");
    }

    /// Kills it at once.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child of ours can be killed");
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.home.path().join(LOG)).unwrap_or_default();
            eprintln!("the log of the extension at {}:\n{log}", self.socket.display());
        }
    }
}

/// One connection to an extension's socket; its leases are given back when it is dropped.
#[derive(Debug)]
pub struct SocketClient {
    lines: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
    /// Events that came while a reply was waited for.
    events: VecDeque<Value>,
    last_id: u64,
}

/// What a grant says.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The lease's number on this connection.
    pub lease: u64,
    /// The row's owner.
    pub owner: String,
}

impl SocketClient {
    /// Sends a request and returns its `ok`, or its `error`.
    pub async fn ask(&mut self, mut request: Value) -> Result<Value, Value> {
        self.last_id += 1;
        request["v"] = 1.into();
        request["id"] = self.last_id.into();
        self.write.write_all(format!("{request}\n").as_bytes()).await.expect("the extension reads");
        loop {
            let mut line = self.line().await;
            if line["id"] != self.last_id {
                self.events.push_back(line);
            } else if line["error"].is_null() {
                return Ok(line["ok"].take());
            } else {
                return Err(line["error"].take());
            }
        }
    }

    /// Acquires a lock, with both times in milliseconds.
    pub async fn acquire(&mut self, key: &str, lease_ms: u64, wait_ms: u64) -> Result<Grant, Value> {
        let request = json!({"op": "acquire", "key": key, "lease_ms": lease_ms, "wait_ms": wait_ms});
        let granted = self.ask(request).await?;
        let lease = granted["lease"].as_u64().expect("a grant has a number");
        Ok(Grant { lease, owner: granted["owner"].as_str().expect("a grant has an owner").to_owned() })
    }

    /// Gives a lease back.
    pub async fn release(&mut self, lease: u64) -> Result<Value, Value> {
        self.ask(json!({"op": "release", "lease": lease})).await
    }

    /// The next event.
    pub async fn event(&mut self) -> Value {
        match self.events.pop_front() {
            Some(event) => event,
            None => self.line().await,
        }
    }

    async fn line(&mut self) -> Value {
        let line = timeout(PATIENCE, self.lines.next_line()).await.expect("the extension answers in time");
        let line = line.expect("the extension writes text").expect("the extension lives");
        serde_json::from_str(&line).expect("the extension writes JSON")
    }
}
