//! A sidecar's life: until a signal, and then until its clients have finished.

use super::signals::Signals;
use super::{give_back, milliseconds};
use crate::driver::Command;
use crate::server::Recheck;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How often it looks whether its socket is still there; under Lambda each invocation makes it look.
const RECHECK: Duration = Duration::from_secs(5);

/// How long it stays after its clients were told that their locks are lost: who lets go of one frees its row at once.
const AFTER_DRAIN: Duration = Duration::from_secs(1);

/// How long connections have to write what was said last: a client whose release was the last one waits for its answer.
const LAST_REPLIES: Duration = Duration::from_millis(10);

/// Lives until a signal and then for no longer than `within` and a second; a second signal is obeyed at once, and is a failure.
pub(super) async fn live(driver: &UnboundedSender<Command>, recheck: &Recheck, within: Duration) -> ExitCode {
    let mut signals = Signals::listen();
    loop {
        tokio::select! {
            signal = signals.next() => {
                tracing::info!(
                    signal,
                    within_ms = milliseconds(within),
                    "ending: no new locks; what is held is renewed until it is given back; a second signal ends it at once"
                );
                break;
            }
            () = sleep(RECHECK) => recheck.ask(),
        }
    }
    tokio::select! {
        // What is done is done, though a signal comes at the same moment.
        biased;
        () = drain(driver, within) => {}
        signal = signals.next() => {
            tracing::warn!(signal, "ended at once: locks that are not given back expire with their leases");
            return ExitCode::FAILURE;
        }
    }
    sleep(LAST_REPLIES).await;
    ExitCode::SUCCESS
}

/// Lets clients finish, for no longer than `within`.
async fn drain(driver: &UnboundedSender<Command>, within: Duration) {
    let (done, told) = oneshot::channel();
    if driver.send(Command::Drain { within, done }).is_err() {
        return tracing::error!("nothing is given back: the lock driver has failed");
    }
    match timeout(within, told).await {
        Ok(Ok(())) => tracing::info!("every lock has been given back"),
        Ok(Err(_)) => tracing::error!("the lock driver failed while clients finished"),
        Err(_) => {
            tracing::warn!(
                within_ms = milliseconds(within),
                "clients have not finished in time (LEASEKEEPER_DRAIN_MS): their locks are lost"
            );
            give_back(driver, AFTER_DRAIN).await;
        }
    }
}
