//! `ping`: does a sidecar answer on the lock socket? For a container's health check, so every build can.

use leasekeeper_extension::{clock, settings};
use leasekeeper_wire::{Code, MAX_LINE, Op, Request, ServerLine};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// As the commands exit: nobody answers, or a setting is wrong.
const UNAVAILABLE: u8 = 69;
const WRONG_SETTING: u8 = 78;

/// How long an answer may take that needs nothing but the process.
const WITHIN: Duration = Duration::from_secs(2);

pub(crate) fn perform() -> ExitCode {
    let (bootstrap, settings) = settings::read_env();
    let (code, text) = match settings {
        Err(wrong) if wrong.names("LEASEKEEPER_SOCKET") => (WRONG_SETTING, wrong.to_string()),
        _ => match health(ask(&bootstrap.socket)) {
            None => return ExitCode::SUCCESS,
            Some((code, what)) => (code, format!("on the socket {} {what}", bootstrap.socket.display())),
        },
    };
    let _ = io::stderr().write_all(format!("leasekeeper: {text}\n").as_bytes());
    ExitCode::from(code)
}

/// What the answer tells, and what to do; nothing if all is well.
fn health(answer: io::Result<ServerLine>) -> Option<(u8, String)> {
    Some(match answer {
        Ok(ServerLine::Reply { answer: Ok(hello), .. }) => {
            let problem = hello.get("problem")?.as_str()?;
            (
                WRONG_SETTING,
                format!("a sidecar answers that grants no lock until it runs with other settings: {problem}"),
            )
        }
        // It lives: to kill it would lose the locks that it holds.
        Ok(ServerLine::Reply { id: None, answer: Err(full) }) if full.code == Code::Unavailable => {
            (0, format!("a sidecar answers that has no place for one more connection: {}", full.message))
        }
        Ok(ServerLine::Reply { id: None, answer: Err(refused) }) => {
            (WRONG_SETTING, format!("a sidecar refuses this connection: {}", refused.message))
        }
        Ok(ServerLine::Reply { answer: Err(failure), .. }) => {
            (UNAVAILABLE, format!("a sidecar answers that has failed: {}", failure.message))
        }
        Ok(ServerLine::Event(_) | ServerLine::Unknown) => (UNAVAILABLE, "something answers that is no sidecar".into()),
        Err(error) => match error.kind() {
            ErrorKind::PermissionDenied => (
                WRONG_SETTING,
                format!("this user may not connect ({error}): list its id in the sidecar's LEASEKEEPER_PEER_UIDS"),
            ),
            ErrorKind::WouldBlock => {
                (UNAVAILABLE, "no sidecar answers in time: is its process stopped? Then start it anew".into())
            }
            _ => (
                UNAVAILABLE,
                format!("no sidecar answers ({error}): start `leasekeeper serve`, or set LEASEKEEPER_SOCKET"),
            ),
        },
    })
}

fn ask(socket: &Path) -> io::Result<ServerLine> {
    let by = since_boot() + WITHIN;
    // A queue of connections that is full is an error then, and not a wait without end.
    let connection = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    rustix::net::connect(&connection, &SocketAddrUnix::new(socket)?)?;
    let mut stream = UnixStream::from(connection);
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WITHIN))?;
    // Whoever refuses may have closed its side already, and what it said can still be read.
    let sent = stream.write_all(Request { id: 1, op: Op::Hello }.encode().as_bytes());
    let mut line = Vec::new();
    let read = BufReader::new(InTime { stream, by }).take(MAX_LINE as u64).read_until(b'\n', &mut line);
    if line.is_empty() {
        sent?;
    }
    read?;
    Ok(ServerLine::decode(&line)?)
}

fn since_boot() -> Duration {
    Duration::from_micros(clock::now().boot)
}

/// All of an answer has to come by then, however many reads it takes.
struct InTime {
    stream: UnixStream,
    by: Duration,
}

impl Read for InTime {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.by.saturating_sub(since_boot());
        if left.is_zero() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}
