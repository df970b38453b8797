//! The extension's process: settings, socket, driver and lifecycle, put together.

use crate::driver::{self, Command};
use crate::lifecycle::{self, Mode};
use crate::server::{self, Limits, Socket};
use crate::settings::{self, Bootstrap, Settings, SettingsError, StoreKind};
use crate::store::{DynamoStore, MemoryStore};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// Lives until the environment ends, or a sidecar is told to: afterwards the process is to exit with what this returns. The log
/// must be set up by now.
pub fn run(mode: Mode, bootstrap: Bootstrap, settings: Result<Settings, SettingsError>) -> ExitCode {
    for name in settings::unknown_in_env() {
        tracing::warn!(name, "unknown variable: is it misspelt?");
    }
    if let Err(error) = &settings {
        // Clients look for it at the place that they were given, which is not the default's. Under Lambda leaving would fail
        // the function.
        if mode == Mode::Standalone && error.names("LEASEKEEPER_SOCKET") {
            tracing::error!(%error, "LEASEKEEPER_SOCKET is wrong, so there is nowhere to listen");
            return ExitCode::FAILURE;
        }
        tracing::error!(%error, "settings are missing or wrong: every lock request is answered with this error");
    }
    if mode != Mode::Standalone && matches!(settings, Ok(Settings { store: StoreKind::Memory, .. })) {
        tracing::warn!("locks are kept in this process's memory: no other environment or process is excluded");
    }
    // One thread: nothing here computes for long, and what blocks (host names, certificates) runs on threads beside it.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the asynchronous runtime cannot be started");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(live(mode, bootstrap, settings));
    // A look-up of a host name must not hold the end back.
    runtime.shutdown_background();
    code
}

/// One of the process's environment variables.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

async fn live(mode: Mode, bootstrap: Bootstrap, settings: Result<Settings, SettingsError>) -> ExitCode {
    let mut socket = Socket::new(&bootstrap.socket, !bootstrap.peer_uids.is_empty());
    match socket.bind() {
        Ok(()) => announce(socket.path(), mode, settings.as_ref().ok()),
        Err(error) => {
            tracing::error!(%error, "the lock socket cannot be opened: no lock can be acquired");
            // Under Lambda leaving would fail the function; each invocation makes the server try again.
            if mode == Mode::Standalone {
                return ExitCode::FAILURE;
            }
        }
    }
    let recheck = socket.recheck();
    let hold = settings.as_ref().map(|settings| settings.hold).unwrap_or_default();
    let (driver, warm) = start_driver(settings, mode.surroundings(environment));
    let limits = Limits { peer_uids: bootstrap.peer_uids, ..Limits::default() };
    tokio::spawn(server::run(socket, driver.clone(), limits, std::future::pending()));
    let registered = move || {
        if mode.may_connect_ahead(environment) {
            warm();
        }
    };
    lifecycle::run(mode, driver, recheck, hold, bootstrap.drain, registered).await
}

/// Says what runs, and with what: the first line that anybody looks for.
fn announce(path: &Path, mode: Mode, settings: Option<&Settings>) {
    tracing::info!(
        path = %path.display(),
        version = env!("CARGO_PKG_VERSION"),
        ?mode,
        store = settings.map(|settings| tracing::field::display(settings.store)),
        table = settings.map(|settings| settings.table.as_str()).filter(|table| !table.is_empty()),
        lease_ms = settings.map(|settings| u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX)),
        "listening"
    );
}

type Warm = Box<dyn FnOnce()>;

/// Also returns what is to be done once nobody waits for us.
fn start_driver(
    settings: Result<Settings, SettingsError>,
    surroundings: driver::Surroundings,
) -> (UnboundedSender<Command>, Warm) {
    let settings = settings.map_err(|error| error.to_string());
    match &settings {
        Ok(Settings { store: StoreKind::DynamoDb, table, .. }) => {
            let store = Arc::new(DynamoStore::new(table));
            let driver = driver::start(settings, surroundings, store.clone());
            (driver, Box::new(|| drop(tokio::spawn(async move { store.warm().await }))))
        }
        // With wrong settings nothing gets as far as a store.
        Ok(_) | Err(_) => (driver::start(settings, surroundings, MemoryStore::new()), Box::new(|| ())),
    }
}
