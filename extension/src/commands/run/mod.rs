//! `run`: holds a lock while a command runs, and stops the command if the lock is lost.

mod job;
mod lock;
mod signals;
mod validity;

use super::arguments::{Common, Run};
use super::problem::{Kind, Problem};
use super::shown::printable;
use super::{note, table};
use crate::lifecycle::Mode;
use crate::log;
use crate::settings::{self, Settings, StoreKind};
use job::Job;
use leasekeeper_wire::{Acquire, Failure, Granted};
use lock::{Lock, Released, SILENT, Told};
use rustix::process::Signal;
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

/// What SIGKILL ends is gone within this, unless the kernel itself is in its way.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// Runs the command under its lock; what it exits with is our own exit code.
pub(super) async fn perform(run: &Run, common: &Common) -> Result<ExitCode, Problem> {
    let mut signals = Signals::listen()
        .map_err(|error| Problem::new(Kind::Fault, format!("signals cannot be listened to: {error}")))?;
    let (mut lock, _log) = tokio::select! {
        lock = lock_of(run, common) => lock?,
        signal = signals.next_end() => return Ok(ended_by(signal)),
    };
    let acquire = Acquire { key: run.key.clone(), wait_ms: run.wait_ms, lease_ms: run.lease_ms, ..Acquire::default() };
    let granted = tokio::select! {
        granted = lock.acquire(acquire) => granted,
        signal = signals.next_end() => {
            leave(lock, &mut signals).await;
            return Ok(ended_by(signal));
        }
    };
    let granted = match granted {
        Ok(granted) => granted,
        Err(failure) => {
            leave(lock, &mut signals).await;
            return Err(not_had(run, &failure));
        }
    };
    let (ended, asked_to_end) = under_lock(run, &granted, &mut lock, &mut signals).await;
    let asked_to_end = signals.pass_over().await || asked_to_end;
    let released = give_back(lock, &mut signals, asked_to_end).await;
    outcome(run, ended, released)
}

/// As a shell would tell it.
fn ended_by(signal: Signal) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX))
}

/// How the command's run ended.
enum Ended {
    NotStarted(io::Error),
    ByItself(io::Result<ExitStatus>),
    /// It was stopped, as its lock was lost: why.
    Stopped(String),
}

/// Also tells whether a signal asked for an end meanwhile.
async fn under_lock(run: &Run, granted: &Granted, lock: &mut Lock, signals: &mut Signals) -> (Ended, bool) {
    let variables = [
        (settings::GIVEN_TO_COMMANDS[0], Some(run.key.as_str())),
        (settings::GIVEN_TO_COMMANDS[1], Some(granted.owner.as_str())),
        // A lock that is kept in memory has none.
        ("LEASEKEEPER_TABLE", Some(granted.table.as_str()).filter(|table| !table.is_empty())),
    ];
    let mut job = match Job::start(&run.command, &variables) {
        Ok(job) => job,
        Err(error) => return (Ended::NotStarted(error), false),
    };
    let mut asked_to_end = false;
    let (why, kill_after) = loop {
        tokio::select! {
            ended = job.ended() => {
                // What it leaves running by itself is its own affair; what a signal should have ended works on its lock's matter.
                if !(asked_to_end && job.has_left_others()) {
                    return (Ended::ByItself(ended), asked_to_end);
                }
                tokio::select! {
                    () = see_off(&mut job, signals, run.kill_after) => return (Ended::ByItself(ended), asked_to_end),
                    // It has had a signal to stop, and stays.
                    why = lost(lock) => break (why, Duration::ZERO),
                }
            }
            signal = signals.next() => {
                asked_to_end |= signals::asks_for_an_end(signal);
                job.pass_on(signal);
            }
            why = lost(lock) => break (why, run.kill_after),
        }
    };
    note(&format!("the lock {} is lost ({why}): the command is being stopped", printable(&run.key)));
    job.signal(Signal::TERM);
    // Whatever it still exits with: it ran without its lock.
    see_off(&mut job, signals, kill_after).await;
    (Ended::Stopped(why), asked_to_end)
}

/// Waits until the lock is lost: why. Tells of what else happens to it. May be dropped and asked again.
async fn lost(lock: &mut Lock) -> String {
    loop {
        match lock.told().await {
            Told::Danger => note("no renewal of the lock was confirmed for most of its lease"),
            Told::Recovered => note("the lock's renewals are confirmed again"),
            Told::Ending(within_ms) => {
                note(&format!("the sidecar is ending: the lock is renewed for {within_ms} ms more at most"));
            }
            Told::Lost(reason) => return reason.to_string(),
            Told::Silent => return SILENT.into(),
        }
    }
}

/// Waits until the command and all that it started have ended, with SIGKILL if SIGTERM was not enough.
async fn see_off(job: &mut Job, signals: &mut Signals, kill_after: Duration) {
    let mut patience = pin!(sleep(kill_after));
    let mut killed = false;
    loop {
        tokio::select! {
            () = job.gone() => return,
            signal = signals.next() => job.pass_on(signal),
            () = &mut patience => {
                if std::mem::replace(&mut killed, true) {
                    return note("some of what the command started cannot be killed, and may work on");
                }
                job.signal(Signal::KILL);
                patience.set(sleep(AFTER_KILL));
            }
        }
    }
}

/// Gives the lock back, and leaves: that can take ten seconds and more where DynamoDB does not answer. A signal after another,
/// which may have ended the command, cuts it short.
async fn give_back(mut lock: Lock, signals: &mut Signals, asked_to_end: bool) -> Released {
    let giving_back = async {
        let released = lock.release().await;
        lock.leave().await;
        released
    };
    let cut_short = async {
        if !asked_to_end {
            signals.next_end().await;
            note("the lock is being given back: another signal ends this at once");
        }
        signals.next_end().await;
    };
    tokio::select! {
        biased;
        released = giving_back => released,
        () = cut_short => Released::Unconfirmed("a second signal ended that, and its row stands until its lease is over".into()),
    }
}

/// Ends what may be left of a wait, unless another signal comes.
async fn leave(lock: Lock, signals: &mut Signals) {
    tokio::select! {
        () = lock.leave() => {}
        _ = signals.next_end() => note("ended at once: a row that a request may have left stands until its lease is over"),
    }
}

fn outcome(run: &Run, ended: Ended, released: Released) -> Result<ExitCode, Problem> {
    let code = match ended {
        Ended::Stopped(why) => {
            let why = match released {
                Released::Lost(why) => why,
                _ => format!("the lock was lost: {why}"),
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
        Released::Lost(why) => {
            return Err(Problem::new(Kind::Lost, format!("{why}, before the command had ended (with {code})")));
        }
    }
    Ok(ExitCode::from(code))
}

fn not_had(run: &Run, failure: &Failure) -> Problem {
    let mut text = format!("no lock on {}, so the command was not run", printable(&run.key));
    if let Some(holder) = &failure.holder {
        let words = [("function ", &holder.function), ("request ", &holder.request_id), ("", &holder.host)];
        let words = words.iter().filter_map(|(what, value)| Some(format!("{what}{}", printable(value.as_deref()?))));
        let words: Vec<String> = words.chain([format!("owner {}", printable(&holder.owner))]).collect();
        text.push_str(&format!("; it is held by {}", words.join(", ")));
    }
    let problem = if run.sidecar { Problem::refused_by_sidecar(failure) } else { Problem::refused(failure) };
    problem.context(&text)
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
