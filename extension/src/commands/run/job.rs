//! The command that runs under the lock: its process, and the signals for it.

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tokio::process::{Child, Command};

/// A running command.
pub(super) struct Job {
    child: Child,
    pid: Pid,
    /// It leads a process group of its own, so that what it starts hears of its signals too. On a terminal it stays in ours:
    /// else it could not read from it, and Ctrl-Z would stop one of us alone.
    leads_group: bool,
}

impl Job {
    /// Starts `command` with these variables beside our own.
    pub(super) fn start(command: &[OsString], variables: &[(&str, &str)]) -> io::Result<Self> {
        let leads_group = !io::stdin().is_terminal();
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().copied()).kill_on_drop(true);
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

    /// Hands on a signal that we got.
    pub(super) fn pass_on(&self, signal: Signal) {
        // The terminal sends these to its whole foreground group, so it has got them.
        let has_it = !self.leads_group && matches!(signal, Signal::INT | Signal::QUIT);
        if !has_it {
            self.signal(signal);
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        // It has not been waited for, so its number is still its own. That it has ended already is no fault.
        let _ = match self.leads_group {
            true => kill_process_group(self.pid, signal),
            false => kill_process(self.pid, signal),
        };
    }
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
