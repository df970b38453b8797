//! The environment's life: init, one invocation from its begin to idle or reset, freeze and thaw, spin-down.

use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};
use uuid::Uuid;

use super::builder::Plan;
use super::env::{FUNCTION_ARN, platform, visible};
use super::process::{Logs, Process, Role};
use super::state::{Exit, OpenCall, Posted, RuntimeEvent, Shared, State};
use super::{Invocation, Outcome, Shutdown, ShutdownReason};

/// What handles share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) logs: Logs,
    pub(super) tmp: TempDir,
    pub(super) frozen: AtomicBool,
    pub(super) invoke_offset: AtomicI64,
    pub(super) timeout: Mutex<Duration>,
    pub(super) shutdowns: Mutex<Vec<Shutdown>>,
    pub(super) plan: Plan,
    /// The APIs' `host:port`.
    pub(super) api: String,
    pub(super) server: AbortHandle,
    pub(super) processes: Mutex<Processes>,
    /// Held by whoever changes the environment's phase; without Managed Instances, for a whole invocation.
    pub(super) turn: tokio::sync::Mutex<()>,
}

/// The processes of the current generation.
#[derive(Debug, Default)]
pub(super) struct Processes {
    pub(super) extension: Option<Arc<Process>>,
    pub(super) runtime: Option<Arc<Process>>,
    pub(super) extension_starts: usize,
    pub(super) runtime_starts: usize,
}

/// Why an invocation, or an init, ended otherwise than well.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    Timeout,
    Exit(Exit),
}

impl Trouble {
    pub(super) fn outcome(self) -> Outcome {
        let Self::Exit(exit) = self else { return Outcome::TimedOut };
        let kind = match exit.role {
            Role::Runtime => "Runtime.ExitError",
            Role::Extension => "Extension.Crash",
        };
        Outcome::Error { kind: kind.into(), message: format!("{:?} ended with {}", exit.role, exit.status) }
    }

    fn reason(self) -> ShutdownReason {
        match self {
            Self::Timeout => ShutdownReason::Timeout,
            Self::Exit(_) => ShutdownReason::Failure,
        }
    }
}

/// An invocation under way.
#[derive(Debug)]
pub struct Call {
    /// The request id.
    pub id: String,
    early: oneshot::Receiver<Outcome>,
    over: JoinHandle<Invocation>,
}

impl Call {
    pub(super) fn begin(inner: &Arc<Inner>, body: String) -> Self {
        let id = Uuid::new_v4().to_string();
        let (sender, early) = oneshot::channel();
        let over = tokio::spawn(Arc::clone(inner).invoke(id.clone(), body, sender));
        Self { id, early, over }
    }

    /// Waits for what the caller gets, which may come long before the environment is idle. To be asked once.
    pub async fn outcome(&mut self) -> Outcome {
        (&mut self.early).await.expect("every invocation sends one outcome")
    }

    /// Waits until the environment is idle again, or reset.
    pub async fn over(self) -> Invocation {
        self.over.await.expect("the invocation's task does not panic")
    }
}

impl Inner {
    async fn invoke(self: Arc<Self>, id: String, body: String, early: oneshot::Sender<Outcome>) -> Invocation {
        let asked = Instant::now();
        let turn = self.turn.lock().await;
        let deadline = Instant::now() + *self.timeout.lock().expect("no holder panics");
        let begun = Instant::now();
        let starts = !self.live();
        let ready = self.make_ready(deadline).await;
        let init = if starts { begun.elapsed() } else { Duration::ZERO };
        // Managed Instances: others may begin while this one runs.
        let turn = Some(turn).filter(|_| self.plan.concurrency.is_none());
        let generation = self.shared.look(|state| state.generation);
        let delivered = Instant::now();
        let answer = match ready {
            Ok(()) => {
                self.deliver(&id, body, deadline);
                self.answer(&id, generation, deadline).await
            }
            Err(trouble) => Err(trouble),
        };
        let outcome = match &answer {
            Ok(posted) => posted_outcome(posted),
            Err(trouble) => trouble.outcome(),
        };
        let (answered, ended) = match &answer {
            Ok(posted) => (posted.at, posted.ended),
            Err(_) => (Instant::now(), Instant::now()),
        };
        // The caller may not care for the early answer.
        let _ = early.send(outcome.clone());
        let (trouble, afterwards) = match answer {
            Ok(_) => {
                let trouble = self.idle(&id, generation, deadline).await.err();
                (trouble, trouble.map(Trouble::outcome))
            }
            Err(trouble) => (Some(trouble), None),
        };
        self.shared.modify(|state| state.calls.remove(&id));
        self.finish(trouble, turn.is_some(), generation).await;
        drop(turn);
        Invocation { id, outcome, afterwards, asked, init, delivered, answered, ended, over: Instant::now() }
    }

    /// Freezes or resets, whichever the invocation's end asks for.
    async fn finish(&self, trouble: Option<Trouble>, have_turn: bool, generation: u64) {
        match trouble {
            None if have_turn && self.plan.freeze => self.freeze().await,
            None => {}
            Some(trouble) if have_turn => {
                self.reset(trouble.reason()).await;
            }
            // Managed Instances: a time-out is the request's own affair.
            Some(Trouble::Timeout) => {}
            Some(Trouble::Exit(_)) => {
                let _turn = self.turn.lock().await;
                // Of several invocations that saw the same exit, the first resets.
                if self.live() && self.shared.look(|state| state.generation) == generation {
                    self.reset(ShutdownReason::Failure).await;
                }
            }
        }
    }

    /// Thaws the environment, or starts it anew.
    async fn make_ready(&self, deadline: Instant) -> Result<(), Trouble> {
        if !self.live() {
            self.init(deadline).await.map_err(|(trouble, _)| trouble)?;
        } else if self.thaw() {
            tokio::time::sleep(self.plan.thaw_lead).await;
        }
        self.restore(deadline).await
    }

    /// SnapStart: tells a runtime that waits for it that it was restored, and waits until it asks for its first event.
    async fn restore(&self, deadline: Instant) -> Result<(), Trouble> {
        let (generation, awaits) = self.shared.modify(|state| {
            let awaits = state.awaiting_restore > 0 && !state.restored;
            state.restored = true;
            (state.generation, awaits)
        });
        match awaits {
            true => self.unless_trouble(generation, deadline, |s| (s.runtime_parked > 0).then_some(())).await,
            false => Ok(()),
        }
    }

    /// Starts extension and runtime; the error says what was waited for. A failed init leaves no process behind.
    pub(super) async fn init(&self, deadline: Instant) -> Result<(), (Trouble, &'static str)> {
        let done = self.init_phases(deadline).await;
        if done.is_err() {
            self.kill_all();
            self.forget_processes();
        }
        done
    }

    async fn init_phases(&self, deadline: Instant) -> Result<(), (Trouble, &'static str)> {
        let generation = self.shared.modify(State::next_generation);
        if self.plan.extension.is_some() {
            self.start(Role::Extension, generation);
            let registered = self.unless_trouble(generation, deadline, |s| (!s.agents.is_empty()).then_some(()));
            registered.await.map_err(|trouble| (trouble, "the extension to register"))?;
        }
        self.start(Role::Runtime, generation);
        let parked = |s: &State| (s.runtime_parked + s.awaiting_restore > 0 && s.extensions_parked()).then_some(());
        let parked = self.unless_trouble(generation, deadline, parked);
        parked.await.map_err(|trouble| (trouble, "runtime and extension to ask for their first event"))
    }

    fn start(&self, role: Role, generation: u64) {
        let plan = &self.plan;
        let program = match role {
            Role::Extension => plan.extension.as_ref().expect("asked for only if there is one"),
            Role::Runtime => &plan.runtime,
        };
        let mut environment = platform(role, &self.api, self.tmp.path(), plan.concurrency);
        environment.extend(plan.env.iter().filter(|(name, _)| visible(role, name)).cloned());
        let started =
            Process::start(role, program, environment, plan.cpu, (&self.shared, generation), plan.notice, &self.logs);
        let process = Some(Arc::new(started.expect("setpriv and taskset (util-linux) are installed")));
        let mut processes = self.processes.lock().expect("no holder panics");
        match role {
            Role::Extension => {
                processes.extension = process;
                processes.extension_starts += 1;
            }
            Role::Runtime => {
                processes.runtime = process;
                processes.runtime_starts += 1;
            }
        }
    }

    /// Waits for `pick`, a process's exit or the deadline; what was picked goes before an exit seen at the same time.
    async fn unless_trouble<T>(
        &self,
        generation: u64,
        deadline: Instant,
        pick: impl Fn(&State) -> Option<T>,
    ) -> Result<T, Trouble> {
        let found = self.shared.until(|state| {
            if let Some(found) = pick(state) {
                return Some(Ok(found));
            }
            if state.generation != generation {
                // Another invocation of this environment saw the exit and reset it.
                return Some(Err(Trouble::Exit(state.last_exit?)));
            }
            state.exits.first().map(|exit| Err(Trouble::Exit(*exit)))
        });
        tokio::time::timeout_at(deadline.into(), found).await.unwrap_or(Err(Trouble::Timeout))
    }

    /// Hands the events out: the first at once, the other after the offset, in a task of its own.
    fn deliver(&self, id: &str, body: String, deadline: Instant) {
        let deadline_ms = epoch_ms(deadline);
        let event = RuntimeEvent { id: id.to_owned(), deadline_ms, body };
        let invoke = json!({
            "eventType": "INVOKE", "deadlineMs": deadline_ms, "requestId": id, "invokedFunctionArn": FUNCTION_ARN,
            "tracing": {"type": "X-Amzn-Trace-Id", "value": "Root=1-00000000-000000000000000000000000"},
        });
        let offset = self.invoke_offset.load(Ordering::SeqCst);
        let to_runtime = |state: &mut State, event| state.runtime_events.push_back(event);
        let to_extension = move |state: &mut State| {
            for agent in state.agents.iter_mut().filter(|agent| agent.invoke) {
                agent.events.push_back(invoke.to_string());
            }
        };
        let id = id.to_owned();
        self.shared.modify(|state| {
            state.calls.insert(id.clone(), OpenCall { delivered: offset == 0, ..OpenCall::default() });
            if offset >= 0 {
                to_runtime(state, event.clone());
            }
            if offset <= 0 {
                to_extension(state);
            }
        });
        if offset == 0 {
            return;
        }
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(offset.unsigned_abs())).await;
            shared.modify(|state| {
                // Over before it began for the other side: a crash, a time-out.
                let Some(call) = state.calls.get_mut(&id) else { return };
                call.delivered = true;
                match offset > 0 {
                    true => to_extension(state),
                    false => to_runtime(state, event),
                }
            });
        });
    }

    async fn answer(&self, id: &str, generation: u64, deadline: Instant) -> Result<Posted, Trouble> {
        self.unless_trouble(generation, deadline, |state| state.calls.get(id).and_then(|call| call.posted.clone()))
            .await
    }

    async fn idle(&self, id: &str, generation: u64, deadline: Instant) -> Result<(), Trouble> {
        if self.plan.concurrency.is_some() {
            return Ok(());
        }
        let idle = |state: &State| (state.idle() && state.calls.get(id)?.delivered).then_some(());
        self.unless_trouble(generation, deadline, idle).await
    }
}

fn posted_outcome(posted: &Posted) -> Outcome {
    match &posted.error {
        Some(kind) => Outcome::Error { kind: kind.clone(), message: posted.body.clone() },
        None => Outcome::Response(posted.body.clone()),
    }
}

/// An instant as milliseconds of the wall clock, the form in which Lambda gives deadlines.
pub(super) fn epoch_ms(instant: Instant) -> u64 {
    let wall = SystemTime::now() + instant.saturating_duration_since(Instant::now());
    let since = wall.duration_since(UNIX_EPOCH).expect("the wall clock is past 1970");
    u64::try_from(since.as_millis()).expect("the wall clock is before the year 500 million")
}
