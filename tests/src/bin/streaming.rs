//! The tests' function that streams: writes the event's `parts` under the lock `key`, with a pause after each, and ends.

use lambda_runtime::streaming::{Body, Response, channel};
use lambda_runtime::{Error, LambdaEvent};
use leasekeeper::{Lease, Locks};
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize)]
struct Work {
    key: String,
    parts: Vec<String>,
    pause_ms: u64,
    /// Does the body break off after its parts?
    #[serde(default)]
    fails: bool,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = Locks::from_env();
    let key = |event: &LambdaEvent<Work>| event.payload.key.clone();
    lambda_runtime::run(locks.locked_handler(key, stream)).await
}

/// Returns at once: the body is written while it is read.
async fn stream(event: LambdaEvent<Work>, _: Lease) -> Result<Response<Body>, Error> {
    let (mut sender, body) = channel();
    let Work { parts, pause_ms, fails, .. } = event.payload;
    tokio::spawn(async move {
        for part in parts {
            if sender.send_data(part.into()).await.is_err() {
                // Nobody reads any more: the lock was lost.
                return;
            }
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        if fails {
            sender.abort();
        }
    });
    Ok(Response::from(body))
}
