//! The process's life: registered and parked in "next" under Lambda, or a sidecar until a signal.

mod api;
mod backoff;
mod event;
mod hold;
mod next;
mod register;
mod sidecar;
mod signals;

use crate::driver::{Command, Surroundings};
use crate::server::Recheck;
use crate::store::Note;
use api::Api;
use backoff::Backoff;
use signals::Signals;
#[cfg(feature = "commands")]
pub(crate) use signals::is_ignored;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// Where we run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// An on-demand function's environment: one invocation at a time, frozen in between.
    OnDemand,
    /// An environment of Lambda Managed Instances: many invocations at a time, never frozen, not announced to extensions.
    ManagedInstances,
    /// No Lambda at all.
    Standalone,
}

impl Mode {
    /// Reads the variables that Lambda sets.
    pub fn detect(lookup: impl Fn(&str) -> Option<String>) -> Self {
        if lookup("AWS_LAMBDA_RUNTIME_API").is_none() {
            Self::Standalone
        } else if lookup("AWS_LAMBDA_INITIALIZATION_TYPE").as_deref() == Some("lambda-managed-instances") {
            Self::ManagedInstances
        } else {
            Self::OnDemand
        }
    }

    /// May a connection be made before anybody asks for a lock? Not into a snapshot: all its clones would take it for theirs.
    pub fn may_connect_ahead(self, lookup: impl Fn(&str) -> Option<String>) -> bool {
        lookup("AWS_LAMBDA_INITIALIZATION_TYPE").as_deref() != Some("snap-start")
    }

    /// What the driver must know of it.
    pub fn surroundings(self, lookup: impl Fn(&str) -> Option<String>) -> Surroundings {
        let note = Note {
            function: lookup("AWS_LAMBDA_FUNCTION_NAME"),
            request_id: None,
            log_stream: lookup("AWS_LAMBDA_LOG_STREAM_NAME"),
            host: (self == Self::Standalone).then(this_process),
            acquired_at: None,
        };
        Surroundings { invocations: self != Self::Standalone, freezes: self == Self::OnDemand, note }
    }
}

/// Lives until the environment ends: afterwards the process is to exit. The socket must be bound by now, as functions start
/// once all extensions have registered. `registered` runs when nobody waits for us any more. `hold` is `LEASEKEEPER_HOLD_MS`,
/// and `drain` is `LEASEKEEPER_DRAIN_MS`.
///
/// Returns what to exit with: a failure if a second signal cut the giving back short.
pub async fn run(
    mode: Mode,
    driver: UnboundedSender<Command>,
    recheck: Recheck,
    hold: Duration,
    drain: Duration,
    registered: impl FnOnce(),
) -> ExitCode {
    if mode != Mode::OnDemand && !hold.is_zero() {
        tracing::info!(?mode, "LEASEKEEPER_HOLD_MS changes nothing here: nothing is frozen");
    }
    match mode {
        Mode::Standalone => {
            registered();
            sidecar::live(&driver, &recheck, drain).await
        }
        Mode::OnDemand | Mode::ManagedInstances => {
            under_lambda(mode, driver, recheck, hold, registered).await;
            ExitCode::SUCCESS
        }
    }
}

async fn under_lambda(
    mode: Mode,
    driver: UnboundedSender<Command>,
    recheck: Recheck,
    hold: Duration,
    registered: impl FnOnce(),
) {
    tokio::spawn(ignore(Signals::listen()));
    let Some(api) = Api::new(std::env::var("AWS_LAMBDA_RUNTIME_API").ok()) else {
        tracing::error!("AWS_LAMBDA_RUNTIME_API is not a host and port: the extension cannot register");
        return std::future::pending().await;
    };
    let id: Arc<str> = register::register(&api, mode).await.into();
    registered();
    let mut backoff = Backoff::default();
    loop {
        // A task of its own: a panic in it must not end the process, which would fail the invocation.
        let events = next::serve(api.clone(), id.clone(), driver.clone(), recheck.clone(), hold);
        match tokio::spawn(events).await {
            Ok(()) => return,
            Err(fault) => {
                tracing::error!(%fault, "the event loop failed and is restarted");
                backoff.wait().await;
            }
        }
    }
}

/// Under Lambda the end is SHUTDOWN: an extension that leaves earlier fails the invocation.
async fn ignore(mut signals: Signals) {
    loop {
        let signal = signals.next().await;
        tracing::warn!(signal, "a signal is ignored: the extension ends with SHUTDOWN");
    }
}

/// For people who look at a row: a function's log stream says more than its sandbox's host.
fn this_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "unknown host" } else { host.trim() };
    format!("{host}, process {}", std::process::id())
}

/// Has everything given back that can be, within `within`.
async fn give_back(driver: &UnboundedSender<Command>, within: Duration) {
    let (done, told) = oneshot::channel();
    if driver.send(Command::Shutdown { done }).is_err() {
        return tracing::error!("nothing is given back: the lock driver has failed");
    }
    match tokio::time::timeout(within, told).await {
        Ok(Ok(())) => tracing::info!("every lock has been given back"),
        Ok(Err(_)) => tracing::error!("the lock driver failed while giving locks back"),
        Err(_) => tracing::warn!(
            within_ms = milliseconds(within),
            "some locks could not be given back in time: their leases expire"
        ),
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_read_from_what_lambda_sets() {
        let mode = |api: Option<&str>, kind: Option<&str>| {
            Mode::detect(|name| match name {
                "AWS_LAMBDA_RUNTIME_API" => api.map(String::from),
                "AWS_LAMBDA_INITIALIZATION_TYPE" => kind.map(String::from),
                _ => None,
            })
        };
        let api = Some("127.0.0.1:9001");
        assert_eq!(mode(None, None), Mode::Standalone);
        assert_eq!(mode(None, Some("lambda-managed-instances")), Mode::Standalone);
        assert_eq!(mode(api, Some("lambda-managed-instances")), Mode::ManagedInstances);
        for kind in [None, Some("on-demand"), Some("provisioned-concurrency"), Some("snap-start"), Some("new")] {
            assert_eq!(mode(api, kind), Mode::OnDemand, "{kind:?}");
        }
    }

    #[test]
    fn the_driver_is_told_what_its_surroundings_are() {
        let lookup = |name: &str| (name == "AWS_LAMBDA_FUNCTION_NAME").then(|| String::from("import"));
        let told = |mode: Mode| {
            let surroundings = mode.surroundings(lookup);
            assert_eq!(surroundings.note.function.as_deref(), Some("import"));
            (surroundings.invocations, surroundings.freezes)
        };
        assert_eq!(told(Mode::Standalone), (false, false));
        assert_eq!(told(Mode::OnDemand), (true, true));
        assert_eq!(told(Mode::ManagedInstances), (true, false));
        let host = |mode: Mode| mode.surroundings(lookup).note.host;
        assert_eq!((host(Mode::OnDemand), host(Mode::ManagedInstances)), (None, None));
        let process = format!(", process {}", std::process::id());
        assert!(host(Mode::Standalone).is_some_and(|host| host.ends_with(&process) && host != process));
    }
}
