//! `ping`: does a sidecar answer on the lock socket? For a container's health check, so every build can.

use leasekeeper_extension::settings;
use leasekeeper_wire::{MAX_LINE, Op, Request, ServerLine};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// As the commands exit: nobody answers, or the setting is wrong.
const UNAVAILABLE: u8 = 69;
const WRONG_SETTING: u8 = 78;

/// How long an answer may take that needs nothing but the process.
const WITHIN: Duration = Duration::from_secs(2);

pub(crate) fn perform() -> ExitCode {
    let (bootstrap, settings) = settings::read_env();
    let (code, text) = match settings {
        Err(wrong) if wrong.names("LEASEKEEPER_SOCKET") => (WRONG_SETTING, wrong.to_string()),
        _ => match hello(&bootstrap.socket) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(why) => (
                UNAVAILABLE,
                format!(
                    "no sidecar answers on the socket {} ({why}): start `leasekeeper serve`, or set LEASEKEEPER_SOCKET",
                    bootstrap.socket.display()
                ),
            ),
        },
    };
    let _ = io::stderr().write_all(format!("leasekeeper: {text}\n").as_bytes());
    ExitCode::from(code)
}

fn hello(socket: &Path) -> Result<(), String> {
    match ask(socket).map_err(|error| error.to_string())? {
        ServerLine::Reply { answer: Ok(_), .. } => Ok(()),
        ServerLine::Reply { answer: Err(failure), .. } => Err(failure.message),
        ServerLine::Event(_) | ServerLine::Unknown => Err("an answer to something else".into()),
    }
}

fn ask(socket: &Path) -> io::Result<ServerLine> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    stream.write_all(Request { id: 1, op: Op::Hello }.encode().as_bytes())?;
    let mut line = Vec::new();
    BufReader::new(stream).take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
    Ok(ServerLine::decode(&line)?)
}
