//! The command that runs under the lock: its process, and the signals for it.

use super::signals::asks_for_an_end;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpgrp, getpid, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
    test_kill_process_group,
};
use rustix::termios::tcgetpgrp;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// The pauses between looks at the group once its leader has ended, for nothing tells of the others' end: each reads all of
/// /proc, so they grow.
const LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_millis(200);

/// A running command.
pub(super) struct Job {
    child: Child,
    pid: Pid,
    /// It leads a process group of its own, so that what it starts hears of its signals too. On a terminal it stays in ours:
    /// else it could not read from it, and Ctrl-Z would stop one of us alone.
    leads_group: bool,
}

impl Job {
    /// Starts `command` with these variables beside our own, or without them.
    pub(super) fn start(command: &[OsString], variables: &[(&str, Option<&str>)]) -> io::Result<Self> {
        let leads_group = !io::stdin().is_terminal() && !has_terminal();
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).kill_on_drop(true);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if leads_group {
            command.process_group(0);
        }
        die_with_us(&mut command);
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, pid: pid.ok_or(io::ErrorKind::NotFound)?, leads_group })
    }

    /// Waits for its end. May be dropped and asked again.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Waits until nothing of its group works any more. May be dropped and asked again.
    pub(super) async fn gone(&mut self) {
        // That it cannot be waited for is told by who asks for its status.
        let _ = self.ended().await;
        let mut pause = LOOK;
        while self.has_left_others() {
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_LOOK);
        }
    }

    /// Once it has ended itself: does anything that it started work on in its group?
    pub(super) fn has_left_others(&self) -> bool {
        self.leads_group && test_kill_process_group(self.pid) != Err(Errno::SRCH) && !only_zombies(self.pid)
    }

    /// Hands on a signal that we got.
    pub(super) fn pass_on(&self, signal: Signal) {
        // The terminal sends these to its whole foreground group, so it has got them.
        let has_it = !self.leads_group && matches!(signal, Signal::INT | Signal::QUIT);
        if !has_it {
            self.signal(signal);
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.send(signal);
        if asks_for_an_end(signal) {
            // Where it is stopped, it hears of that once it goes on.
            self.send(Signal::CONT);
        }
    }

    fn send(&self, signal: Signal) {
        // Its number stays its own until it has been waited for, its group's for as long as anything is in that. That both have
        // ended already is no fault.
        let _ = match self.leads_group {
            true => kill_process_group(self.pid, signal),
            false => kill_process(self.pid, signal),
        };
    }
}

/// Has our process group a terminal's keys, wherever its input comes from?
fn has_terminal() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal) == Ok(getpgrp()))
}

/// Has everything in the group ended, though nobody has waited for it? In a container often nobody ever does.
fn only_zombies(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let stats = processes.flatten().filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    let mut states = stats.filter_map(|stat| {
        // The name before may hold anything; behind it are state, parent and group.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.to_owned();
        (fields.nth(1)?.parse() == Ok(group.as_raw_nonzero().get())).then_some(state)
    });
    // Those that cannot be seen may work.
    states.next().is_some_and(|state| state == "Z") && states.all(|state| state == "Z")
}

/// As a shell would tell it: the code, or 128 and the signal's number.
pub(super) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(u8::MAX));
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

/// Nobody renews the lock once this process is killed: then the command must end too.
#[expect(unsafe_code, reason = "what runs between fork and exec makes system calls and nothing else")]
fn die_with_us(command: &mut Command) {
    let us = getpid();
    let die_with_us = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // It could have happened before the signal was asked for.
        if getppid() == Some(us) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
    };
    // SAFETY: it allocates nothing, takes no lock, and touches no memory that another thread may have left half changed.
    unsafe {
        command.pre_exec(die_with_us);
    }
}
