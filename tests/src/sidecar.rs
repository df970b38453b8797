//! The extension as a process of its own, outside Lambda, and a client of its socket.

use crate::dynamo::Dynamo;
use crate::programs::built;
use crate::sandbox::Program;
use leasekeeper::Locks;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
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
    /// `settings` are further variables for it, or other values for those that lead it here.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(dynamo: &Dynamo, name: &str, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
        Self::start_with(dynamo.env_as(name).into_iter().chain(settings)).await
    }

    /// Starts one with these variables and its socket's path, and nothing else in its environment.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_with<'n>(variables: impl IntoIterator<Item = (&'n str, String)>) -> Self {
        Self::start_program(&Program::new(built("leasekeeper")), variables).await
    }

    /// The same, run by another program that changes its surroundings first: `prlimit`, `unshare`.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_in<'n>(around: Program, variables: impl IntoIterator<Item = (&'n str, String)>) -> Self {
        Self::start_program(&around.arg(built("leasekeeper")), variables).await
    }

    async fn start_program<'n>(program: &Program, variables: impl IntoIterator<Item = (&'n str, String)>) -> Self {
        let home = TempDir::new().expect("a directory for the socket");
        let socket = home.path().join("leasekeeper/lock.sock");
        let log = File::create(home.path().join(LOG)).expect("a file for the log");
        let child = Command::new(program.path())
            .args(program.arguments())
            .env_clear()
            .env("LEASEKEEPER_SOCKET", &socket)
            .envs(variables)
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
        SocketClient::at(&self.socket).await
    }

    /// Where its socket is.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process's id: its own, or that of what was run around it and did not make way.
    ///
    /// # Panics
    /// It has ended.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it still runs")
    }

    /// The helper crate's way to it.
    pub fn locks(&self) -> Locks {
        Locks::at(&self.socket)
    }

    /// Waits until it has logged a line of this level that contains `part`, and returns all lines of the level. A line is
    /// written by a thread of its own, a little after a client has its answer.
    ///
    /// # Panics
    /// None comes within two seconds.
    pub async fn logged(&self, level: &str, part: &str) -> String {
        let end = Instant::now() + Duration::from_secs(2);
        loop {
            let log = self.log();
            let lines: Vec<&str> = log.lines().filter(|line| line.contains(&format!(" {level} "))).collect();
            if lines.iter().any(|line| line.contains(part)) {
                return lines.join("\n");
            }
            assert!(Instant::now() < end, "no {level} line contains {part:?}: {log}");
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join(LOG)).unwrap_or_default()
    }

    /// How much memory it occupies, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id().expect("it still runs"));
        let status = std::fs::read_to_string(status).expect("it still runs");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel tells");
        resident.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Does it still run?
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours can be asked for").is_none()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it still runs");
        kill_process(pid, signal).expect("a child of ours can be signalled");
    }

    /// How it ended, once it has.
    pub async fn ended(&mut self) -> ExitStatus {
        timeout(PATIENCE, self.child.wait()).await.expect("it ends").expect("a child of ours can be waited for")
    }

    /// Kills it at once.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child of ours can be killed");
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the extension at {}:\n{}", self.socket.display(), self.log());
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
    /// A new connection to the extension that listens there.
    ///
    /// # Panics
    /// None does.
    pub async fn at(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).await.expect("the extension listens");
        let (read, write) = stream.into_split();
        Self { lines: BufReader::new(read).lines(), write, events: VecDeque::new(), last_id: 0 }
    }

    /// Sends a request and returns its `ok`, or its `error`.
    ///
    /// # Panics
    /// If the extension has gone.
    pub async fn ask(&mut self, request: Value) -> Result<Value, Value> {
        self.try_ask(request).await.expect("the extension lives")
    }

    /// The same; nothing if the extension has gone.
    pub async fn try_ask(&mut self, mut request: Value) -> Option<Result<Value, Value>> {
        self.last_id += 1;
        request["v"] = 1.into();
        request["id"] = self.last_id.into();
        self.write(format!("{request}\n").as_bytes()).await.ok()?;
        let mut reply = self.reply().await?;
        assert_eq!(reply["id"], self.last_id, "{reply}");
        Some(if reply["error"].is_null() { Ok(reply["ok"].take()) } else { Err(reply["error"].take()) })
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// If the extension has closed the connection.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(PATIENCE, self.write.write_all(bytes)).await.expect("the extension reads")
    }

    /// The next line that is no event; nothing if the extension has gone.
    pub async fn reply(&mut self) -> Option<Value> {
        loop {
            let line = self.line().await?;
            if line["event"].is_null() {
                return Some(line);
            }
            self.events.push_back(line);
        }
    }

    /// Acquires a lock, with both times in milliseconds.
    pub async fn acquire(&mut self, key: &str, lease_ms: u64, wait_ms: u64) -> Result<Grant, Value> {
        let request = json!({"op": "acquire", "key": key, "lease_ms": lease_ms, "wait_ms": wait_ms});
        let granted = self.ask(request).await?;
        let lease = granted["lease"].as_u64().expect("a grant has a number");
        Ok(Grant { lease, owner: granted["owner"].as_str().expect("a grant has an owner").to_owned() })
    }

    /// For how many milliseconds the lease is valid, at least, from before this was sent.
    pub async fn check(&mut self, lease: u64) -> Result<u64, Value> {
        let checked = self.ask(json!({"op": "check", "lease": lease})).await?;
        Ok(checked["valid_ms"].as_u64().expect("a whole number"))
    }

    /// Gives a lease back.
    pub async fn release(&mut self, lease: u64) -> Result<Value, Value> {
        self.ask(json!({"op": "release", "lease": lease})).await
    }

    /// The losses that came while replies were waited for, without waiting for more.
    pub fn losses(&self) -> Vec<&Value> {
        self.events.iter().filter(|event| event["event"] == "lost").collect()
    }

    /// The next event.
    ///
    /// # Panics
    /// If the extension has gone.
    pub async fn event(&mut self) -> Value {
        match self.events.pop_front() {
            Some(event) => event,
            None => self.line().await.expect("the extension lives"),
        }
    }

    /// The reason why the lease was lost, once it is; other events are passed over.
    pub async fn lost(&mut self, lease: u64) -> String {
        loop {
            let event = self.event().await;
            if event["event"] == "lost" && event["lease"] == lease {
                return event["reason"].as_str().expect("a loss has a reason").to_owned();
            }
        }
    }

    async fn line(&mut self) -> Option<Value> {
        let line = timeout(PATIENCE, self.lines.next_line()).await.expect("the extension answers in time");
        Some(serde_json::from_str(&line.ok()??).expect("the extension writes JSON"))
    }
}
