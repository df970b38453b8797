//! The real `leasekeeper` process, and an Extensions API that says what a test wants it to say.

use super::{Client, socket_in, soon};
use leasekeeper_wire::{Acquire, Op};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};

/// A running extension; killed when it is dropped.
pub(crate) struct Extension {
    pub(crate) dir: tempfile::TempDir,
    child: Child,
    log: Option<Lines<BufReader<ChildStdout>>>,
}

impl Extension {
    /// Starts it with these variables and no others but a store in memory, a socket in a directory of its own and JSON logs.
    pub(crate) fn start(variables: &[(&str, &str)]) -> Self {
        Self::start_with(&[], variables)
    }

    /// The same with command line arguments.
    pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasekeeper"));
        command.arg0("/opt/extensions/leasekeeper").args(arguments).env_clear();
        command.env("LEASEKEEPER_STORE", "memory").env("LEASEKEEPER_LOG_FORMAT", "json");
        command.env("LEASEKEEPER_SOCKET", socket_in(dir.path())).envs(variables.iter().copied());
        let mut command = Command::from(command);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let log = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { dir, child, log: Some(log) }
    }

    /// Starts it as Lambda would.
    pub(crate) fn under(api: &Api, variables: &[(&str, &str)]) -> Self {
        let endpoint = api.endpoint();
        let mut all = vec![("AWS_LAMBDA_RUNTIME_API", endpoint.as_str())];
        all.extend(variables);
        Self::start(&all)
    }

    pub(crate) fn path(&self) -> PathBuf {
        socket_in(self.dir.path())
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(&self.path()).await
    }

    /// The next log line that says `message`; lines before it are passed over.
    pub(crate) async fn logged(&mut self, message: &str) -> Value {
        let found = async {
            loop {
                let log = self.log.as_mut().expect("the log was not closed");
                let line = log.next_line().await.unwrap().expect("the process lives");
                let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
                if line["message"].as_str().is_some_and(|said| said.contains(message)) {
                    return line;
                }
            }
        };
        soon(message, found).await
    }

    /// Nobody will ever read it again.
    pub(crate) fn close_log(&mut self) {
        self.log = None;
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = self.child.id().expect("the process lives").try_into().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        soon("the process's end", self.child.wait()).await.unwrap()
    }

    pub(crate) fn assert_lives(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "the process has ended");
    }
}

/// An acquire as a client inside an invocation sends it.
pub(crate) fn acquire(key: &str, request_id: &str) -> Op {
    Op::Acquire(Acquire {
        key: key.into(),
        request_id: Some(request_id.into()),
        remaining_ms: Some(60_000),
        wait_ms: Some(0),
        lease_ms: None,
    })
}

/// An Extensions API. Each request comes on a connection of its own, and is answered by the test.
pub(crate) struct Api {
    listener: TcpListener,
}

/// One request, waiting for its answer.
pub(crate) struct Asked {
    /// Method and path.
    pub(crate) what: String,
    /// In lower case.
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
    stream: TcpStream,
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(crate) fn endpoint(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    pub(crate) async fn asked(&self) -> Asked {
        let (mut stream, _) = soon("a request", self.listener.accept()).await.unwrap();
        let mut bytes = Vec::new();
        let head = loop {
            assert_ne!(soon("a request's head", stream.read_buf(&mut bytes)).await.unwrap(), 0, "torn request");
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break String::from_utf8(bytes.drain(..end + 4).take(end).collect()).unwrap();
            }
        };
        let mut lines = head.split("\r\n").map(str::to_lowercase);
        let what = lines.next().unwrap().replace(" http/1.1", "");
        let headers: Vec<String> = lines.collect();
        let length = headers.iter().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while bytes.len() < length {
            assert_ne!(soon("a request's body", stream.read_buf(&mut bytes)).await.unwrap(), 0, "torn request");
        }
        Asked { what, headers, body: String::from_utf8(bytes).unwrap(), stream }
    }

    /// The next request, which must be for the next event.
    pub(crate) async fn parked(&self) -> Asked {
        let asked = self.asked().await;
        assert_eq!(asked.what, "get /2020-01-01/extension/event/next");
        assert!(asked.headers.contains(&"lambda-extension-identifier: the-id".into()), "{:?}", asked.headers);
        asked
    }

    /// Registers what asks for it, and waits until it is parked.
    pub(crate) async fn registered(&self) -> Asked {
        self.asked().await.register().await;
        self.parked().await
    }
}

impl Asked {
    pub(crate) async fn register(self) {
        assert_eq!(self.what, "post /2020-01-01/extension/register");
        let body = r#"{"functionName":"f","functionVersion":"1","handler":"h"}"#;
        self.answer("200 OK\r\nlambda-extension-identifier: the-id", body).await;
    }

    pub(crate) async fn invoke(self, request_id: &str) {
        let event = serde_json::json!({
            "eventType": "INVOKE", "requestId": request_id, "deadlineMs": in_ms(60_000), "invokedFunctionArn": "arn",
        });
        self.answer("200 OK", &event.to_string()).await;
    }

    pub(crate) async fn shutdown(self, reason: &str, in_how_many_ms: u64) {
        let deadline = in_ms(in_how_many_ms);
        let event = serde_json::json!({"eventType": "SHUTDOWN", "shutdownReason": reason, "deadlineMs": deadline});
        self.answer("200 OK", &event.to_string()).await;
    }

    /// `head` is the status with any more header lines.
    pub(crate) async fn answer(self, head: &str, body: &str) {
        let length = body.len();
        self.say(&format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")).await;
    }

    /// Sends these bytes and closes the connection.
    pub(crate) async fn say(mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).await.unwrap();
        self.stream.shutdown().await.unwrap();
    }
}

/// Milliseconds of the epoch, `ms` from now.
fn in_ms(ms: u64) -> u64 {
    leasekeeper_extension::clock::now().wall / 1_000 + ms
}
