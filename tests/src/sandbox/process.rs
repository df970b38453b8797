//! The environment's processes: each in a group of its own, its output kept, its end noticed, its death ours to order.

use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::state::{End, Exit, PATIENCE, Shared};

/// Which of the environment's two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The extension.
    Extension,
    /// The function's runtime with its handler.
    Runtime,
}

/// A program with its arguments: started again and again, so not a `std::process::Command`.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// The program at this path, or found on PATH.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: Vec::new() }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// A Python script, run by the `python3` on PATH.
    ///
    /// # Panics
    /// There is no `python3`.
    pub fn python(script: impl AsRef<Path>) -> Self {
        // A version manager's `python3` may be a slow script in front of the interpreter, with other signals and other pids.
        let found = std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        let found = found.expect("python3 is on PATH");
        let path = String::from_utf8(found.stdout).expect("the interpreter's path is UTF-8");
        Self::new(path.trim()).arg("-u").arg(script.as_ref())
    }

    /// A Node script, run by the `node` on PATH.
    pub fn node(script: impl AsRef<Path>) -> Self {
        Self::new("node").arg(script.as_ref())
    }

    /// The program's own path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The program's arguments.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }
}

impl<P: Into<PathBuf>> From<P> for Program {
    fn from(path: P) -> Self {
        Self::new(path)
    }
}

/// One line that a process wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Who wrote it.
    pub role: Role,
    /// Its process id.
    pub pid: u32,
    /// When it was read.
    pub at: Instant,
    /// The line without its newline.
    pub text: String,
}

/// What all processes wrote.
#[derive(Clone, Debug)]
pub(super) struct Logs(watch::Sender<Vec<LogLine>>);

impl Logs {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Vec::new()))
    }

    pub(super) fn snapshot(&self) -> Vec<LogLine> {
        self.0.borrow().clone()
    }

    /// Everything, for people.
    pub(super) fn text(&self) -> String {
        self.snapshot().iter().map(|line| format!("{:?} {}: {}\n", line.role, line.pid, line.text)).collect()
    }

    pub(super) async fn wait_for(&self, role: Role, needle: &str) -> io::Result<LogLine> {
        let mut lines = self.0.subscribe();
        let found = |all: &Vec<LogLine>| all.iter().find(|l| l.role == role && l.text.contains(needle)).cloned();
        let wait = async {
            loop {
                if let Some(line) = found(&lines.borrow_and_update()) {
                    return line;
                }
                lines.changed().await.expect("the sender lives in self");
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.map_err(|_| {
            let text = format!("{role:?} did not log {needle:?} within {PATIENCE:?}:\n{}", self.text());
            io::Error::new(io::ErrorKind::TimedOut, text)
        })
    }

    fn follow(&self, role: Role, pid: u32, stream: impl AsyncRead + Unpin + Send + 'static) {
        let sender = self.0.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(text)) = lines.next_line().await {
                sender.send_modify(|all| all.push(LogLine { role, pid, at: Instant::now(), text }));
            }
        });
    }
}

/// A process that runs, or ran.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    status: watch::Receiver<Option<ExitStatus>>,
    /// False as soon as the process is reaped: a later signal could meet a stranger of the same number.
    alive: Arc<Mutex<bool>>,
}

impl Process {
    /// Starts a program. Its end is noted in the shared state: for the test at once, and after `notice` for the platform, while
    /// `generation` is current.
    pub(super) fn start(
        role: Role,
        program: &Program,
        environment: impl IntoIterator<Item = (String, String)>,
        cpu: Option<usize>,
        (shared, generation): (&Arc<Shared>, u64),
        notice: Duration,
        logs: &Logs,
    ) -> io::Result<Self> {
        // A killed test run leaves no orphans behind: the kernel ends the child when the thread that started it ends (a worker
        // of the runtime or the test's own, never a short-lived one for blocking work).
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(cpu) = cpu {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        command.arg(&program.path).args(&program.arguments).env_clear().envs(environment);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|e| io::Error::new(e.kind(), format!("setpriv (util-linux): {e}")))?;
        let pid = child.id().expect("not yet waited for");
        logs.follow(role, pid, child.stdout.take().expect("piped above"));
        logs.follow(role, pid, child.stderr.take().expect("piped above"));
        let (sender, status) = watch::channel(None);
        let alive = Arc::new(Mutex::new(true));
        let (shared, reaped) = (Arc::clone(shared), reap(child, pid, Arc::clone(&alive), sender));
        tokio::spawn(async move {
            let Some((at, status)) = reaped.await else { return };
            shared.modify(|state| state.ends.push(End { role, pid, at }));
            if !notice.is_zero() {
                tokio::time::sleep(notice).await;
            }
            shared.modify(|state| {
                if state.generation == generation {
                    state.exits.push(Exit { role, status });
                }
            });
        });
        Ok(Self { pid, status, alive })
    }

    pub(super) fn status(&self) -> Option<ExitStatus> {
        *self.status.borrow()
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        let alive = self.alive.lock().expect("no holder panics");
        match *alive {
            true => Ok(kill_process_group(group(self.pid), signal)?),
            false => Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended")),
        }
    }

    /// Waits for its end; `None` if it did not come in time.
    pub(super) async fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let mut status = self.status.clone();
        let ended = status.wait_for(Option::is_some);
        tokio::time::timeout(limit, ended).await.ok().and_then(|seen| seen.ok().and_then(|status| *status))
    }

    /// Kills the group and waits until the process is gone.
    pub(super) async fn kill(&self) -> Option<ExitStatus> {
        // An error means that it has ended already.
        let _ = self.signal(Signal::KILL);
        self.wait(PATIENCE).await
    }
}

/// Waits for a process's end and ends what it has started; tells when that was.
async fn reap(
    mut child: Child,
    pid: u32,
    alive: Arc<Mutex<bool>>,
    status: watch::Sender<Option<ExitStatus>>,
) -> Option<(Instant, ExitStatus)> {
    let exit = child.wait().await.ok()?;
    let at = Instant::now();
    {
        let mut alive = alive.lock().expect("no holder panics");
        *alive = false;
        // What the process had started goes with it; most often there is nothing.
        let _ = kill_process_group(group(pid), Signal::KILL);
    }
    status.send_replace(Some(exit));
    Some((at, exit))
}

fn group(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the kernel's process ids are above zero")
}

/// Whether any thread of the process is neither stopped nor gone.
pub(super) fn runs(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before it may hold anything but ends with the line's last parenthesis.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| !"TZX".contains(state))
    })
}
