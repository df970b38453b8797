//! Asks for the next event, over and over: parked in "next" is where an extension belongs.

use super::backoff::Backoff;
use super::event::{Event, remaining, shutdown_budget};
use super::{give_back, hold};
use crate::clock;
use crate::driver::Command;
use crate::server::Recheck;
use http::Method;
use http_body_util::{BodyExt, Limited};
use lambda_runtime_api_client::body::Body;
use lambda_runtime_api_client::{PooledClient, build_request};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

const PATH: &str = "/2020-01-01/extension/event/next";

/// Announced events are a few hundred bytes.
const MAX_BODY: usize = 1024 * 1024;

/// Returns once SHUTDOWN has been dealt with. Nothing else ends it: a torn answer, an error, an unknown event is logged, and the
/// next one is asked for. `first_lock` is how long an invocation may take to ask for the lock that its freeze then waits for.
pub(super) async fn serve(
    client: Arc<PooledClient>,
    id: Arc<str>,
    driver: UnboundedSender<Command>,
    recheck: Recheck,
    first_lock: Duration,
) {
    let mut backoff = Backoff::default();
    loop {
        match next(&client, &id).await {
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
                tracing::error!(fault, "no event could be read from the Extensions API: asking again");
                backoff.wait().await;
            }
        }
    }
}

/// One event. It takes as long as it takes: a time-out here would leave the environment waiting for us for ever.
async fn next(client: &PooledClient, id: &str) -> Result<Event, String> {
    let request = build_request()
        .method(Method::GET)
        .uri(PATH)
        .header("Lambda-Extension-Identifier", id)
        .body(Body::empty())
        .map_err(|error| error.to_string())?;
    let response = client.call(request).await.map_err(|error| chain(&*error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
    let body = body.map_err(|error| format!("{status}, and then {}", chain(&*error)))?.to_bytes();
    if !status.is_success() {
        let begins: String = String::from_utf8_lossy(&body).chars().take(200).collect();
        return Err(format!("{status}: {begins:?}"));
    }
    Event::decode(&body)
}

/// An error with its causes, which alone say what went wrong.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
