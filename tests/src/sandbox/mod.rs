//! A Lambda execution environment for tests: the extension and the runtime as real processes, every phase under control.
//!
//! The crate `lambda-simulator` (0.2.0) was looked at first. It freezes processes and answers early, but it neither restarts
//! them nor ends them at the function's time-out or on a crash, cannot place INVOKE before or after the runtime's event,
//! has no Managed Instances mode and no torn replies, so this small server does those things itself.
//!
//! What it does like Lambda, as far as documentation and AWS's own emulator show (real Lambda was not compared):
//! the runtime starts once the extension has registered; INVOKE goes to both; the caller gets the response when it is posted;
//! the environment may freeze when the runtime and every extension subscribed to INVOKE have asked for their next event;
//! at the time-out or after a crash the runtime is killed first, then the extension gets SHUTDOWN and two seconds; both start
//! anew inside the next invocation, and the temporary directory stays. A streamed response reaches the caller piece by piece,
//! and its error in the trailers; under SnapStart the runtime asks for the restore, which comes with the first invocation.

mod api;
mod builder;
mod drive;
mod end;
mod env;
mod process;
mod state;

pub use builder::Builder;
pub use drive::Call;
pub use process::{LogLine, Program, Role};
pub use state::{End, Fault, ShutdownReason};

use drive::Inner;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How an invocation ended for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The runtime posted a response.
    Response(String),
    /// The runtime posted an error, or its process or the extension's ended.
    Error {
        /// The error's type: what the runtime posted, `Runtime.ExitError` or `Extension.Crash`.
        kind: String,
        /// The whole error document, or a sentence.
        message: String,
    },
    /// The function's time-out came first.
    TimedOut,
}

impl Outcome {
    /// The response as JSON.
    ///
    /// # Panics
    /// The invocation had no response, or one that is not JSON: a test that expected one has failed.
    pub fn json(&self) -> serde_json::Value {
        match self {
            Self::Response(body) => serde_json::from_str(body).expect("the response is JSON"),
            other => panic!("a response was expected, not {other:?}"),
        }
    }
}

/// One invocation, seen from its begin to the moment when the environment was idle or reset.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The request id.
    pub id: String,
    /// What the caller got.
    pub outcome: Outcome,
    /// What befell the environment although the caller had its response already.
    pub afterwards: Option<Outcome>,
    /// When the caller asked.
    pub asked: Instant,
    /// How long its processes took to start; nothing where they ran.
    pub init: Duration,
    /// When the runtime's event was ready for it.
    pub delivered: Instant,
    /// When the caller had its outcome; of a streamed response, its begin.
    pub answered: Instant,
    /// When the response's last byte was there.
    pub ended: Instant,
    /// When runtime and extension were back at "next", or the environment was reset.
    pub over: Instant,
}

/// One SHUTDOWN and what the extension made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// What it was told.
    pub reason: ShutdownReason,
    /// False if the extension was not parked in "next", so that the event could not reach it.
    pub delivered: bool,
    /// When it was handed out.
    pub at: Instant,
    /// From SHUTDOWN to its exit.
    pub took: Duration,
    /// It had to be killed at the deadline.
    pub killed: bool,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
}

/// A running environment. Dropping it kills every process it started.
#[derive(Debug)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

impl Sandbox {
    /// Begins the description of an environment.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Invokes the function and waits until the environment is idle again, or reset.
    pub async fn invoke(&self, event: serde_json::Value) -> Invocation {
        self.begin(event).over().await
    }

    /// Invokes the function; the returned call can be waited for in two steps.
    pub fn begin(&self, event: serde_json::Value) -> Call {
        Call::begin(&self.inner, event.to_string())
    }

    /// Ends the environment as an idle one ends: thaw, SIGTERM to the runtime, SHUTDOWN (SPINDOWN) to the extension.
    /// `None` if there was no live environment or no extension.
    pub async fn shutdown(&self) -> Option<Shutdown> {
        self.inner.spin_down().await
    }

    /// Waits until the call's streamed response, as far as it has come, contains `needle`; it is empty at its head.
    ///
    /// # Errors
    /// It did not within five seconds, or the call was over before.
    pub async fn streamed(&self, call: &Call, needle: &str) -> io::Result<()> {
        let come = |open: &state::OpenCall| open.streamed.as_ref().is_some_and(|text| text.contains(needle));
        self.inner
            .shared
            .wait("a part of a streamed response", |state| state.calls.get(&call.id).is_some_and(come))
            .await
    }

    /// Sends SIGKILL to the runtime's process group.
    ///
    /// # Errors
    /// It is not running.
    pub fn kill_runtime(&self) -> io::Result<()> {
        self.inner.signal(Role::Runtime, rustix::process::Signal::KILL)
    }

    /// Sends SIGKILL to the extension's process group.
    ///
    /// # Errors
    /// It is not running.
    pub fn kill_extension(&self) -> io::Result<()> {
        self.inner.signal(Role::Extension, rustix::process::Signal::KILL)
    }

    /// Sends a signal to a process group.
    ///
    /// # Errors
    /// It is not running.
    pub fn signal(&self, role: Role, signal: rustix::process::Signal) -> io::Result<()> {
        self.inner.signal(role, signal)
    }

    /// The live process's id.
    pub fn pid(&self, role: Role) -> Option<u32> {
        self.inner.pid(role)
    }

    /// How often a process of this role was started.
    pub fn starts(&self, role: Role) -> usize {
        self.inner.starts(role)
    }

    /// True from the freeze to the next invocation's thaw.
    pub fn is_frozen(&self) -> bool {
        self.inner.frozen.load(Ordering::SeqCst)
    }

    /// From now on INVOKE reaches the extension this many milliseconds after the runtime's event; below zero: before it.
    pub fn set_invoke_offset(&self, milliseconds: i64) {
        self.inner.invoke_offset.store(milliseconds, Ordering::SeqCst);
    }

    /// The time-out of invocations that begin from now on, as after a change of the function's configuration.
    pub fn set_timeout(&self, timeout: Duration) {
        *self.inner.timeout.lock().expect("no holder panics") = timeout;
    }

    /// Answers the extension's parked (or else its next) request for an event with this instead.
    pub fn inject(&self, fault: Fault) {
        self.inner.shared.modify(|state| state.next_faults.push_back(fault));
    }

    /// Waits until every injected fault was sent.
    ///
    /// # Errors
    /// The extension did not ask within five seconds.
    pub async fn faults_sent(&self) -> io::Result<()> {
        self.inner.shared.wait("the injected faults to be sent", |state| state.next_faults.is_empty()).await
    }

    /// Waits until the extension is parked in "next" with no event left for it.
    ///
    /// # Errors
    /// It was not within five seconds.
    pub async fn extension_parked(&self) -> io::Result<()> {
        self.inner.shared.wait("the extension to ask for its next event", |state| state.extensions_parked()).await
    }

    /// Waits until the extension has been handed an event and has not come back for the next one.
    ///
    /// # Errors
    /// There was none within five seconds.
    pub async fn extension_told(&self) -> io::Result<()> {
        self.inner.shared.wait("an event for the extension", |state| !state.extensions_parked()).await
    }

    /// What extensions posted to `init/error` and `exit/error`.
    pub fn extension_errors(&self) -> Vec<String> {
        self.inner.shared.look(|state| state.extension_errors.clone())
    }

    /// Every SHUTDOWN so far, in order.
    pub fn shutdowns(&self) -> Vec<Shutdown> {
        self.inner.shutdowns.lock().expect("no holder panics").clone()
    }

    /// Every end of a process so far, in order.
    pub fn ends(&self) -> Vec<End> {
        self.inner.shared.look(|state| state.ends.clone())
    }

    /// What the processes wrote so far, in order of arrival.
    pub fn logs(&self) -> Vec<LogLine> {
        self.inner.logs.snapshot()
    }

    /// What the processes of one role wrote so far, as text.
    pub fn log_text(&self, role: Role) -> String {
        self.logs().iter().filter(|line| line.role == role).map(|line| format!("{}\n", line.text)).collect()
    }

    /// Waits for a line that contains `needle`.
    ///
    /// # Errors
    /// None came within five seconds; the error carries the whole log.
    pub async fn wait_for_log(&self, role: Role, needle: &str) -> io::Result<LogLine> {
        self.inner.logs.wait_for(role, needle).await
    }

    /// The environment's temporary directory: both processes' `TMPDIR`, kept across restarts.
    pub fn tmp(&self) -> &Path {
        self.inner.tmp.path()
    }

    /// The lock socket's path, as both processes see it in `LEASEKEEPER_SOCKET`.
    pub fn socket(&self) -> PathBuf {
        env::socket(self.inner.tmp.path())
    }

    /// Removes everything in the temporary directory, as a handler that tidies `/tmp` does.
    ///
    /// # Errors
    /// The file system's.
    pub fn empty_tmp(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(self.tmp())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.inner.kill_all();
        self.inner.server.abort();
    }
}
