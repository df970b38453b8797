//! The description of an environment, before it is started.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

use super::drive::Inner;
use super::process::{Logs, Program};
use super::state::{Fault, Shared};
use super::{Sandbox, api};

/// On-demand functions have this long for their init.
const INIT_TIME: Duration = Duration::from_secs(10);

/// What an environment is made of.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) extension: Option<Program>,
    pub(super) runtime: Program,
    pub(super) env: Vec<(String, String)>,
    pub(super) freeze: bool,
    pub(super) thaw_lead: Duration,
    pub(super) notice: Duration,
    pub(super) cpu: Option<usize>,
    /// Managed Instances: how many invocations at once.
    pub(super) concurrency: Option<usize>,
}

/// Describes an environment; see [`Sandbox::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    extension: Option<Program>,
    runtime: Option<Program>,
    env: Vec<(String, String)>,
    timeout: Duration,
    freeze: bool,
    thaw_lead: Duration,
    notice: Duration,
    cpu: Option<usize>,
    concurrency: Option<usize>,
    invoke_offset: i64,
    register_faults: VecDeque<Fault>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            extension: None,
            runtime: None,
            env: Vec::new(),
            timeout: Duration::from_secs(3),
            freeze: false,
            thaw_lead: Duration::ZERO,
            notice: Duration::ZERO,
            cpu: None,
            concurrency: None,
            invoke_offset: 0,
            register_faults: VecDeque::new(),
        }
    }
}

impl Builder {
    /// The extension; without one the environment has none.
    pub fn extension(mut self, program: impl Into<Program>) -> Self {
        self.extension = Some(program.into());
        self
    }

    /// The runtime with its handler.
    pub fn runtime(mut self, program: impl Into<Program>) -> Self {
        self.runtime = Some(program.into());
        self
    }

    /// One of the function's environment variables; the extension sees it unless Lambda hides its like.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Several of the function's environment variables.
    pub fn envs<N: Into<String>, V: Into<String>>(mut self, pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        self.env.extend(pairs.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// The function's time-out; 3 s unless set, as in Lambda.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether the processes are stopped between invocations; not unless set.
    pub fn freeze(mut self, freeze: bool) -> Self {
        self.freeze = freeze;
        self
    }

    /// How long the processes run after a thaw before any event reaches them.
    pub fn thaw_lead(mut self, lead: Duration) -> Self {
        self.thaw_lead = lead;
        self
    }

    /// How long the platform takes to notice that a process has ended; no time unless set. Until then nobody is told, and nothing
    /// is reset: what must happen without the platform's help shows.
    pub fn notice(mut self, notice: Duration) -> Self {
        self.notice = notice;
        self
    }

    /// Pins both processes to this one CPU.
    pub fn cpu(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Pins both processes to one CPU of those that this process may use.
    ///
    /// # Panics
    /// The kernel does not tell.
    pub fn one_cpu(self) -> Self {
        let allowed = rustix::thread::sched_getaffinity(None).expect("every process may ask for its CPUs");
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu));
        self.cpu(first.expect("a process that runs may use a CPU"))
    }

    /// Managed Instances: up to this many invocations at once, no INVOKE for extensions, a time-out that kills nothing.
    pub fn managed_instances(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// SnapStart: a runtime that knows of it asks for the restore, which comes with the first invocation. With
    /// [`Builder::freeze`] its processes stand still meanwhile; one snapshot is restored once.
    pub fn snap_start(self) -> Self {
        self.env("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")
    }

    /// INVOKE reaches the extension this many milliseconds after the runtime's event; below zero: before it.
    pub fn invoke_offset(mut self, milliseconds: i64) -> Self {
        self.invoke_offset = milliseconds;
        self
    }

    /// Answers a request to register with this instead; several are used up in order.
    pub fn register_fault(mut self, fault: Fault) -> Self {
        self.register_faults.push_back(fault);
        self
    }

    /// Starts the extension, then, once it has registered, the runtime, and waits until both ask for their first event.
    ///
    /// # Errors
    /// A process ended or was not ready within ten seconds: the error carries its output.
    ///
    /// # Panics
    /// No runtime was named.
    pub async fn start(self) -> io::Result<Sandbox> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let api = listener.local_addr()?.to_string();
        let shared = Arc::new(Shared::new(self.concurrency.is_some(), self.register_faults));
        let server = tokio::spawn(api::serve(listener, Arc::clone(&shared))).abort_handle();
        let plan = Plan {
            extension: self.extension,
            runtime: self.runtime.expect("an environment has a runtime"),
            env: self.env,
            freeze: self.freeze,
            thaw_lead: self.thaw_lead,
            notice: self.notice,
            cpu: self.cpu,
            concurrency: self.concurrency,
        };
        let inner = Inner {
            shared,
            logs: Logs::new(),
            tmp: tempfile::Builder::new().prefix("sandbox-").tempdir()?,
            frozen: AtomicBool::new(false),
            invoke_offset: AtomicI64::new(self.invoke_offset),
            timeout: Mutex::new(self.timeout),
            shutdowns: Mutex::new(Vec::new()),
            plan,
            api,
            server,
            processes: Mutex::default(),
            turn: tokio::sync::Mutex::new(()),
        };
        let sandbox = Sandbox { inner: Arc::new(inner) };
        let failed = sandbox.inner.init(Instant::now() + INIT_TIME).await.err();
        match failed {
            None => {
                // Like the first invocation's end: what is idle may be frozen.
                if sandbox.inner.plan.freeze {
                    sandbox.inner.freeze().await;
                }
                Ok(sandbox)
            }
            Some((trouble, what)) => {
                let text =
                    format!("waited for {what}: {:?}; output:\n{}", trouble.outcome(), sandbox.inner.logs.text());
                Err(io::Error::other(text))
            }
        }
    }
}
