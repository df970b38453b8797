//! A server on a socket of its own, with the driver's end of its channel in the test's hands.

// Each test file uses a part of it.
#![allow(dead_code)]

pub(crate) mod process;

use leasekeeper_extension::driver::{ClientId, Command, Gone};
use leasekeeper_extension::outbox::Outbox;
use leasekeeper_extension::server::{self, Limits, Recheck, Socket};
use leasekeeper_wire::{Op, Reply, Request};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// What anything here may take before the test fails; nothing waits this long when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Fails the test instead of hanging.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// A running server and its driver's ears.
pub(crate) struct Served {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) commands: Option<mpsc::UnboundedReceiver<Command>>,
    pub(crate) recheck: Recheck,
    pub(crate) shutdown: Option<oneshot::Sender<()>>,
    pub(crate) task: JoinHandle<()>,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::with(Limits::default(), false)
    }

    pub(crate) fn with(limits: Limits, shared: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut socket = Socket::new(socket_in(dir.path()), shared);
        socket.bind().unwrap();
        Self::serve(dir, socket, limits)
    }

    pub(crate) fn serve(dir: tempfile::TempDir, socket: Socket, limits: Limits) -> Self {
        let (driver, commands) = mpsc::unbounded_channel();
        let (shutdown, over) = oneshot::channel();
        let recheck = socket.recheck();
        let over = async {
            let _ = over.await;
        };
        let task = tokio::spawn(server::run(socket, driver, limits, over));
        Self { dir, commands: Some(commands), recheck, shutdown: Some(shutdown), task }
    }

    pub(crate) fn path(&self) -> PathBuf {
        socket_in(self.dir.path())
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(&self.path()).await
    }

    pub(crate) async fn command(&mut self) -> Command {
        let commands = self.commands.as_mut().expect("the driver lives");
        soon("a command for the driver", commands.recv()).await.expect("the server lives")
    }

    pub(crate) async fn opened(&mut self) -> (ClientId, Outbox) {
        match self.command().await {
            Command::Open { client, outbox } => (client, outbox),
            other => panic!("expected a connection to begin, not {other:?}"),
        }
    }

    pub(crate) async fn request(&mut self) -> (ClientId, u64, Op) {
        match self.command().await {
            Command::Request { client, id, op } => (client, id, op),
            other => panic!("expected a request, not {other:?}"),
        }
    }

    pub(crate) async fn closed(&mut self) -> (ClientId, Gone) {
        match self.command().await {
            Command::Close { client, how } => (client, how),
            other => panic!("expected a connection to end, not {other:?}"),
        }
    }

    /// Nothing is left for the driver to hear, once every task has had its turn.
    pub(crate) async fn assert_quiet(&mut self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let heard = self.commands.as_mut().expect("the driver lives").try_recv();
        assert!(heard.is_err(), "heard {heard:?}");
    }
}

/// Where the tests put the socket.
pub(crate) fn socket_in(dir: &Path) -> PathBuf {
    dir.join("leasekeeper/lock.sock")
}

/// A client that speaks lines.
pub(crate) struct Client {
    pub(crate) stream: BufReader<UnixStream>,
}

impl Client {
    pub(crate) async fn connect(path: &Path) -> Self {
        Self { stream: BufReader::new(UnixStream::connect(path).await.unwrap()) }
    }

    /// To a process that may not listen yet.
    pub(crate) async fn patiently(path: &Path) -> Self {
        loop {
            match UnixStream::connect(path).await {
                Ok(stream) => return Self { stream: BufReader::new(stream) },
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon("writing", self.stream.get_mut().write_all(bytes.as_ref())).await.unwrap();
    }

    pub(crate) async fn ask(&mut self, id: u64, op: Op) {
        self.send(Request { id, op }.encode()).await;
    }

    /// The next line; null at the stream's end.
    pub(crate) async fn line(&mut self) -> Value {
        let mut line = String::new();
        let read = soon("a line", self.stream.read_line(&mut line)).await;
        match read {
            Ok(0) => Value::Null,
            Ok(_) => serde_json::from_str(&line).unwrap(),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Value::Null,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn half_close(&mut self) {
        self.stream.get_mut().shutdown().await.unwrap();
    }
}

/// The line that answers request `id`.
pub(crate) fn answer(id: u64) -> String {
    Reply::ok(id, &json!({"answer": id})).encode()
}

/// What [`answer`] says.
pub(crate) fn answered(id: u64) -> Value {
    json!({"id": id, "ok": {"answer": id}})
}

/// A file's permissions, special bits included.
pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Binds a socket as the extension does, for its own user alone.
pub(crate) fn bind(dir: &tempfile::TempDir) -> Result<Socket, String> {
    let mut socket = Socket::new(socket_in(dir.path()), false);
    socket.bind().map(|()| socket).map_err(|error| error.to_string())
}

/// Makes the directory as a previous run would have.
pub(crate) fn directory(dir: &tempfile::TempDir, mode: u32) {
    let path = dir.path().join("leasekeeper");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

/// The tests about users need to become one: they run as root, as the check script does.
pub(crate) fn require_root() {
    assert!(rustix::process::geteuid().is_root(), "run this test as root: it becomes another user");
}
