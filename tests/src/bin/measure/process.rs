//! One start of the extension under an Extensions API that answers at once and announces nothing.

use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::process::{Child, Command};

const REGISTERED: &str =
    "HTTP/1.1 200 OK\r\nlambda-extension-identifier: id\r\ncontent-length: 23\r\n\r\n{\"functionName\":\"name\"}";

/// A running extension, killed when dropped.
pub(super) struct Extension {
    child: Child,
    /// From before its process was made to the answer to its registration.
    pub(super) registered: Duration,
    client: BufReader<UnixStream>,
    last_id: u64,
    /// Where it waits for an event that never comes.
    _next: TcpStream,
    _home: TempDir,
}

impl Extension {
    pub(super) async fn start(program: &Path, settings: &[(&'static str, String)]) -> io::Result<Self> {
        let home = TempDir::new()?;
        let socket: PathBuf = home.path().join("leasekeeper/lock.sock");
        let api = TcpListener::bind(("127.0.0.1", 0)).await?;
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("AWS_LAMBDA_RUNTIME_API", api.local_addr()?.to_string())
            .env("LEASEKEEPER_SOCKET", &socket)
            .envs(settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let began = Instant::now();
        let child = command.spawn()?;
        let (mut next, _) = api.accept().await?;
        read_request(&mut next).await?;
        next.write_all(REGISTERED.as_bytes()).await?;
        let registered = began.elapsed();
        let client = BufReader::new(UnixStream::connect(&socket).await?);
        Ok(Self { child, registered, client, last_id: 0, _next: next, _home: home })
    }

    /// Acquires a lock and gives it back; how long the acquire took.
    pub(super) async fn acquire(&mut self) -> io::Result<Duration> {
        let began = Instant::now();
        let granted = self
            .ask(json!({"op": "acquire", "key": "k", "wait_ms": 3_000, "request_id": "r", "remaining_ms": 20_000}))
            .await?;
        let took = began.elapsed();
        self.ask(json!({"op": "release", "lease": granted["lease"]})).await?;
        Ok(took)
    }

    async fn ask(&mut self, mut request: Value) -> io::Result<Value> {
        self.last_id += 1;
        request["v"] = 1.into();
        request["id"] = self.last_id.into();
        self.client.get_mut().write_all(format!("{request}\n").as_bytes()).await?;
        loop {
            let mut line = String::new();
            self.client.read_line(&mut line).await?;
            let mut reply: Value = serde_json::from_str(&line)?;
            match reply["ok"].take() {
                Value::Null if reply["event"].is_null() => return Err(io::Error::other(reply.to_string())),
                Value::Null => {}
                ok => return Ok(ok),
            }
        }
    }

    pub(super) fn resident_kib(&self) -> io::Result<u64> {
        let id = self.child.id().ok_or_else(|| io::Error::other("it has ended"))?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        resident.trim().trim_end_matches(" kB").parse().map_err(io::Error::other)
    }
}

/// Reads a request with a body of known length.
async fn read_request(stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::Error::other("it hung up before it registered"));
        }
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        if body.len() >= length.trim().parse().map_err(io::Error::other)? {
            return Ok(());
        }
    }
}
