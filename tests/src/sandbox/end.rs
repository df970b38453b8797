//! How an environment pauses and ends: freeze, thaw, signals, reset, spin-down.

use rustix::process::Signal;
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::drive::{Inner, epoch_ms};
use super::process::{Process, Role, runs};
use super::state::PATIENCE;
use super::{Shutdown, ShutdownReason};

/// How long processes have from the begin of a reset to their deadline.
const SHUTDOWN_TIME: Duration = Duration::from_secs(2);
/// The runtime's part of it, between SIGTERM and SIGKILL.
const RUNTIME_SHARE: Duration = Duration::from_millis(600);
/// How long the reset looks for an extension that is just about to ask for its next event.
const ABOUT_TO_PARK: Duration = Duration::from_millis(100);

impl Inner {
    pub(super) fn process(&self, role: Role) -> Option<Arc<Process>> {
        let processes = self.processes.lock().expect("no holder panics");
        match role {
            Role::Extension => processes.extension.clone(),
            Role::Runtime => processes.runtime.clone(),
        }
    }

    pub(super) fn pid(&self, role: Role) -> Option<u32> {
        self.process(role).filter(|process| process.status().is_none()).map(|process| process.pid)
    }

    pub(super) fn starts(&self, role: Role) -> usize {
        let processes = self.processes.lock().expect("no holder panics");
        match role {
            Role::Extension => processes.extension_starts,
            Role::Runtime => processes.runtime_starts,
        }
    }

    pub(super) fn live(&self) -> bool {
        self.process(Role::Runtime).is_some()
    }

    pub(super) fn signal(&self, role: Role, signal: Signal) -> io::Result<()> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{role:?} is not running"));
        self.process(role).ok_or_else(missing)?.signal(signal)
    }

    fn signal_both(&self, signal: Signal) {
        for role in [Role::Extension, Role::Runtime] {
            // One that has ended needs no signal.
            let _ = self.signal(role, signal);
        }
    }

    pub(super) fn kill_all(&self) {
        self.signal_both(Signal::KILL);
    }

    /// Stops both processes and waits until their threads stand.
    pub(super) async fn freeze(&self) {
        self.signal_both(Signal::STOP);
        let stand = async {
            while [Role::Extension, Role::Runtime].into_iter().filter_map(|role| self.pid(role)).any(runs) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, stand).await.expect("SIGSTOP stops every process");
        self.frozen.store(true, Ordering::SeqCst);
    }

    /// True if there was something to thaw.
    pub(super) fn thaw(&self) -> bool {
        let was_frozen = self.frozen.swap(false, Ordering::SeqCst);
        if was_frozen {
            self.signal_both(Signal::CONT);
        }
        was_frozen
    }

    pub(super) fn forget_processes(&self) {
        let mut processes = self.processes.lock().expect("no holder panics");
        processes.extension = None;
        processes.runtime = None;
    }

    pub(super) async fn spin_down(&self) -> Option<Shutdown> {
        let _turn = self.turn.lock().await;
        if !self.live() {
            return None;
        }
        self.thaw();
        self.reset(ShutdownReason::Spindown).await
    }

    /// Ends both processes, the runtime first. The next invocation starts them anew.
    pub(super) async fn reset(&self, reason: ShutdownReason) -> Option<Shutdown> {
        let deadline = Instant::now() + SHUTDOWN_TIME;
        if let Some(runtime) = self.process(Role::Runtime)
            && runtime.signal(Signal::TERM).is_ok()
            && runtime.wait(RUNTIME_SHARE).await.is_none()
        {
            runtime.kill().await;
        }
        let shutdown = match self.process(Role::Extension) {
            Some(extension) if extension.status().is_none() => Some(self.end(&extension, reason, deadline).await),
            _ => None,
        };
        self.shutdowns.lock().expect("no holder panics").extend(shutdown);
        self.forget_processes();
        shutdown
    }

    async fn end(&self, extension: &Process, reason: ShutdownReason, deadline: Instant) -> Shutdown {
        let begun = Instant::now();
        let parked = self.shared.until(|state| state.extensions_parked().then_some(()));
        let mut delivered = tokio::time::timeout(ABOUT_TO_PARK, parked).await.is_ok();
        let at = Instant::now();
        let event =
            json!({"eventType": "SHUTDOWN", "shutdownReason": reason.as_str(), "deadlineMs": epoch_ms(deadline)});
        self.shared.modify(|state| {
            delivered &= state.agents.iter().any(|agent| agent.shutdown);
            for agent in state.agents.iter_mut().filter(|agent| delivered && agent.shutdown) {
                agent.events.push_back(event.to_string());
            }
        });
        let status = extension.wait(deadline.saturating_duration_since(Instant::now())).await;
        let killed = status.is_none();
        let status = match status {
            Some(status) => Some(status),
            None => extension.kill().await,
        };
        let code = status.and_then(|status| status.code());
        Shutdown { reason, delivered, at, took: begun.elapsed(), killed, code }
    }
}
