//! `run`: holds a lock while a command runs, and stops the command if the lock is lost.

mod job;
mod lock;
mod signals;

use super::arguments::{Common, Run};
use super::problem::{Kind, Problem};
use super::shown::printable;
use super::{note, table};
use crate::lifecycle::Mode;
use crate::log;
use crate::settings::{self, Settings, StoreKind};
use job::Job;
use leasekeeper_wire::{Acquire, Failure, Granted, LostReason};
use lock::{Lock, Released, Told};
use signals::Signals;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::time::sleep;

/// As shells exit when a command is there and cannot be executed, or is not there.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs the command under its lock; what it exits with is our own exit code.
pub(super) async fn perform(run: &Run, common: &Common) -> Result<ExitCode, Problem> {
    let mut signals = Signals::listen()
        .map_err(|error| Problem::new(Kind::Fault, format!("signals cannot be listened to: {error}")))?;
    let (mut lock, _log) = lock_of(run, common).await?;
    let acquire = Acquire { key: run.key.clone(), wait_ms: run.wait_ms, lease_ms: run.lease_ms, ..Acquire::default() };
    let granted = tokio::select! {
        granted = lock.acquire(acquire) => granted,
        signal = signals.next() => {
            lock.leave().await;
            return Ok(ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)));
        }
    };
    let granted = match granted {
        Ok(granted) => granted,
        Err(failure) => {
            lock.leave().await;
            return Err(not_had(&run.key, &failure));
        }
    };
    let ended = under_lock(run, &granted, &mut lock, &mut signals).await;
    let released = lock.release().await;
    lock.leave().await;
    outcome(run, ended, released)
}

/// How the command's run ended.
enum Ended {
    NotStarted(io::Error),
    ByItself(io::Result<ExitStatus>),
    /// It was stopped, as its lock was lost.
    Stopped(LostReason),
}

async fn under_lock(run: &Run, granted: &Granted, lock: &mut Lock, signals: &mut Signals) -> Ended {
    let variables = [
        (settings::GIVEN_TO_COMMANDS[0], run.key.as_str()),
        (settings::GIVEN_TO_COMMANDS[1], &granted.owner),
        ("LEASEKEEPER_TABLE", &granted.table),
    ];
    let mut job = match Job::start(&run.command, &variables) {
        Ok(job) => job,
        Err(error) => return Ended::NotStarted(error),
    };
    loop {
        tokio::select! {
            ended = job.ended() => return Ended::ByItself(ended),
            signal = signals.next() => job.pass_on(signal),
            told = lock.told() => match told {
                Told::Danger => note("no renewal of the lock was confirmed for most of its lease"),
                Told::Recovered => note("the lock's renewals are confirmed again"),
                Told::Ending(within_ms) => {
                    note(&format!("the sidecar is ending: the lock is renewed for {within_ms} ms more at most"));
                }
                Told::Lost(reason) => {
                    note(&format!("the lock {} is lost ({reason}): the command is being stopped", printable(&run.key)));
                    // Whatever it still exits with: it ran without its lock.
                    let _ = stop(&mut job, signals, run.kill_after).await;
                    return Ended::Stopped(reason);
                }
            },
        }
    }
}

/// SIGTERM, and SIGKILL if that is not enough.
async fn stop(job: &mut Job, signals: &mut Signals, kill_after: Duration) -> io::Result<ExitStatus> {
    job.signal(rustix::process::Signal::TERM);
    let mut patience = pin!(sleep(kill_after));
    let mut killed = false;
    loop {
        tokio::select! {
            ended = job.ended() => return ended,
            signal = signals.next() => job.pass_on(signal),
            () = &mut patience, if !killed => {
                killed = true;
                job.signal(rustix::process::Signal::KILL);
            }
        }
    }
}

fn outcome(run: &Run, ended: Ended, released: Released) -> Result<ExitCode, Problem> {
    let code = match ended {
        Ended::Stopped(reason) => {
            let why = if let Released::Lost(failure) = released {
                failure.message
            } else {
                format!("the lock was lost: {reason}")
            };
            return Err(Problem::new(Kind::Lost, format!("{why}; the command was stopped")));
        }
        Ended::NotStarted(error) => {
            let program = run.command.first().map(|program| program.display().to_string()).unwrap_or_default();
            note(&format!("{} cannot be run: {error}", printable(&program)));
            if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
        }
        Ended::ByItself(Ok(status)) => job::code(status),
        Ended::ByItself(Err(error)) => {
            return Err(Problem::new(Kind::Fault, format!("the command cannot be waited for: {error}")));
        }
    };
    match released {
        Released::Confirmed => {}
        Released::Unconfirmed(why) => {
            note(&format!("the command has ended; its lock is not known to be given back: {why}"))
        }
        Released::Lost(failure) => {
            let text = format!("{}, before the command had ended (with {code})", failure.message);
            return Err(Problem::new(Kind::Lost, text));
        }
    }
    Ok(ExitCode::from(code))
}

fn not_had(key: &str, failure: &Failure) -> Problem {
    let mut text = format!("no lock on {}, so the command was not run", printable(key));
    if let Some(holder) = &failure.holder {
        let words = [("function ", &holder.function), ("request ", &holder.request_id), ("", &holder.host)];
        let words = words.iter().filter_map(|(what, value)| Some(format!("{what}{}", printable(value.as_deref()?))));
        let words: Vec<String> = words.chain([format!("owner {}", printable(&holder.owner))]).collect();
        text.push_str(&format!("; it is held by {}", words.join(", ")));
    }
    Problem::refused(failure).context(&text)
}

/// Nothing is asked for yet. What is logged goes to standard error, if `LEASEKEEPER_LOG` is set: standard output is the command's.
async fn lock_of(run: &Run, common: &Common) -> Result<(Lock, Option<log::Writer>), Problem> {
    if run.sidecar {
        return Ok((Lock::sidecar(&socket()?).await?, None));
    }
    let lookup = |name: &str| match (name, &common.table) {
        ("LEASEKEEPER_TABLE", Some(table)) => Some(table.clone()),
        _ => settings::environment(name),
    };
    let (bootstrap, settings) = settings::read(lookup);
    let settings = settings.map_err(|wrong| match wrong.names("LEASEKEEPER_TABLE") {
        true => Problem::advised(Kind::Config, wrong.to_string()),
        false => Problem::new(Kind::Config, wrong.to_string()),
    })?;
    let log = settings::environment("LEASEKEEPER_LOG").map(|_| log::init_on(&bootstrap, io::stderr()));
    if settings.store == StoreKind::Memory {
        note("LEASEKEEPER_STORE is memory: no other process is excluded");
    }
    let store = table::store(settings.table.clone(), common);
    Ok((own(settings, store), log))
}

fn own(settings: Settings, store: crate::store::DynamoStore) -> Lock {
    Lock::own(settings, Mode::Standalone.surroundings(settings::environment), store)
}

/// Where a sidecar listens.
fn socket() -> Result<PathBuf, Problem> {
    let (bootstrap, settings) = settings::read(settings::environment);
    match settings {
        Err(wrong) if wrong.names("LEASEKEEPER_SOCKET") => Err(Problem::new(Kind::Config, wrong.to_string())),
        _ => Ok(bootstrap.socket),
    }
}
