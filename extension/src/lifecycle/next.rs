//! Asks for the next event, over and over: parked in "next" is where an extension belongs.

use super::api::Api;
use super::backoff::Backoff;
use super::event::{Event, remaining, shutdown_budget};
use super::{give_back, hold};
use crate::clock;
use crate::driver::Command;
use crate::server::Recheck;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Returns once SHUTDOWN has been dealt with. Nothing else ends it: a torn answer, an error, an unknown event is logged, and the
/// next one is asked for. `first_lock` is how long an invocation may take to ask for the lock that its freeze then waits for.
pub(super) async fn serve(
    api: Api,
    id: Arc<str>,
    driver: UnboundedSender<Command>,
    recheck: Recheck,
    first_lock: Duration,
) {
    let mut backoff = Backoff::default();
    loop {
        match api.next(&id).await {
            Ok(Event::Invoke { request_id, deadline_ms }) => {
                backoff.reset();
                recheck.ask();
                let remaining = remaining(deadline_ms, clock::now().wall);
                // A driver that is gone has been logged, and requests are answered with the error.
                let _ = driver.send(Command::InvocationBegan { request_id: request_id.clone(), remaining });
                hold::over(first_lock, request_id, remaining, &driver).await;
            }
            Ok(Event::Shutdown { reason, deadline_ms }) => {
                let within = shutdown_budget(deadline_ms, clock::now().wall);
                tracing::info!(reason, "the environment ends: giving locks back");
                return give_back(&driver, within).await;
            }
            Err(fault) => {
                tracing::error!(%fault, "no event could be read from the Extensions API: asking again");
                backoff.wait().await;
            }
        }
    }
}
