//! What the sandbox knows at one moment: who is parked in "next", which events wait for whom, what was posted.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::watch;

use super::Role;

/// How long the sandbox waits for something that a test says must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A reply that the Extensions API never gives, or gives once in a blue moon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Status 200 with a body that is not JSON.
    Garbage,
    /// Status 200 with an event of a type that does not exist.
    UnknownEvent,
    /// The connection closes without a reply.
    Closed,
    /// The reply breaks off in the middle of its body.
    Torn,
    /// An error status with an error document.
    Status(u16),
}

/// Why an environment ends, in the documented words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownReason {
    /// It was idle for long enough.
    Spindown,
    /// The function's time-out.
    Timeout,
    /// A process ended that should not have.
    Failure,
}

impl ShutdownReason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Spindown => "spindown",
            Self::Timeout => "timeout",
            Self::Failure => "failure",
        }
    }
}

/// A registered extension.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) id: String,
    /// Subscribed to INVOKE: the environment is not idle before it asks for its next event.
    pub(super) invoke: bool,
    /// Subscribed to SHUTDOWN.
    pub(super) shutdown: bool,
    /// Requests for the next event that wait now; above one for a moment when a client reconnects.
    pub(super) parked: usize,
    /// Event bodies not yet fetched.
    pub(super) events: VecDeque<String>,
}

/// An invocation's event for the runtime.
#[derive(Clone, Debug)]
pub(super) struct RuntimeEvent {
    pub(super) id: String,
    pub(super) deadline_ms: u64,
    pub(super) body: String,
}

/// What the runtime posted for an invocation.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) body: String,
    /// The error's type if it is an error.
    pub(super) error: Option<String>,
    /// When the response's head arrived: with streaming, the caller's first sight of it.
    pub(super) at: Instant,
    /// When its last byte had arrived.
    pub(super) ended: Instant,
}

/// An invocation that is under way.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCall {
    /// What has arrived of a streamed response; absent before its head.
    pub(super) streamed: Option<String>,
    pub(super) posted: Option<Posted>,
    /// Both events are out: before that the environment cannot be idle.
    pub(super) delivered: bool,
}

/// A process that ended by itself or by a signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    pub(super) role: Role,
    pub(super) status: std::process::ExitStatus,
}

/// A process's end, as the test is told of it.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Whose.
    pub role: Role,
    /// Its process id.
    pub pid: u32,
    /// When it was reaped: at its death or a little later.
    pub at: Instant,
}

/// Everything the API handlers and the invocations share.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Counts starts of the environment, so that what belongs to dead processes is told apart.
    pub(super) generation: u64,
    pub(super) agents: Vec<Agent>,
    pub(super) runtime_parked: usize,
    /// SnapStart: requests of the runtime that wait for the restore.
    pub(super) awaiting_restore: usize,
    /// The first invocation has come since the snapshot.
    pub(super) restored: bool,
    pub(super) runtime_events: VecDeque<RuntimeEvent>,
    /// By request id; an entry exists while its invocation is open.
    pub(super) calls: BTreeMap<String, OpenCall>,
    /// Of every generation.
    pub(super) ends: Vec<End>,
    /// Of this generation, and noticed.
    pub(super) exits: Vec<Exit>,
    /// What ended the previous generation, if an exit did.
    pub(super) last_exit: Option<Exit>,
    pub(super) next_faults: VecDeque<Fault>,
    pub(super) register_faults: VecDeque<Fault>,
    pub(super) extension_errors: Vec<String>,
}

impl State {
    pub(super) fn agent(&mut self, id: &str) -> Option<&mut Agent> {
        self.agents.iter_mut().find(|agent| agent.id == id)
    }

    pub(super) fn extensions_parked(&self) -> bool {
        self.agents.iter().all(|agent| agent.parked > 0 && agent.events.is_empty())
    }

    /// Runtime and INVOKE subscribers wait for their next event.
    pub(super) fn idle(&self) -> bool {
        let runtime = self.runtime_parked > 0 && self.runtime_events.is_empty();
        runtime && self.agents.iter().all(|agent| !agent.invoke || (agent.parked > 0 && agent.events.is_empty()))
    }

    /// Forgets what belonged to the processes that are dead now.
    pub(super) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.agents.clear();
        self.runtime_parked = 0;
        self.awaiting_restore = 0;
        self.restored = false;
        self.runtime_events.clear();
        self.last_exit = self.exits.first().copied();
        self.exits.clear();
        self.generation
    }
}

/// The state behind its lock, with a way to wait for a change.
#[derive(Debug)]
pub(super) struct Shared {
    state: watch::Sender<State>,
    /// Registering for INVOKE is refused.
    pub(super) managed: bool,
}

impl Shared {
    pub(super) fn new(managed: bool, register_faults: VecDeque<Fault>) -> Self {
        Self { state: watch::Sender::new(State { register_faults, ..State::default() }), managed }
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.borrow())
    }

    pub(super) fn modify<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut result = None;
        self.state.send_modify(|state| result = Some(change(state)));
        result.expect("the closure ran")
    }

    /// Waits until `pick` finds something.
    pub(super) async fn until<T>(&self, mut pick: impl FnMut(&State) -> Option<T>) -> T {
        let mut changes = self.state.subscribe();
        loop {
            if let Some(found) = pick(&changes.borrow_and_update()) {
                return found;
            }
            changes.changed().await.expect("the sender lives in self");
        }
    }

    /// Waits until `take` takes something; unlike [`Self::until`] it may change the state when it does.
    pub(super) async fn take<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut changes = self.state.subscribe();
        loop {
            let mut taken = None;
            changes.mark_unchanged();
            self.state.send_if_modified(|state| {
                taken = take(state);
                taken.is_some()
            });
            if let Some(taken) = taken {
                return taken;
            }
            changes.changed().await.expect("the sender lives in self");
        }
    }

    pub(super) async fn wait(&self, what: &str, condition: impl Fn(&State) -> bool) -> io::Result<()> {
        let met = self.until(|state| condition(state).then_some(()));
        tokio::time::timeout(PATIENCE, met)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("waited {PATIENCE:?} in vain for {what}")))
    }
}
