//! The tests' function for Managed Instances: many invocations at once, each under a lock of its own.

use lambda_runtime::{Error, LambdaEvent};
use leasekeeper::{Lease, Locks};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Deserialize)]
struct Work {
    key: String,
    /// How long to hold the lock.
    work_ms: u64,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = Locks::from_env();
    let key = |event: &LambdaEvent<Work>| event.payload.key.clone();
    lambda_runtime::run_concurrent(locks.locked_handler(key, work)).await
}

async fn work(event: LambdaEvent<Work>, lease: Lease) -> Result<Value, Error> {
    tokio::time::sleep(Duration::from_millis(event.payload.work_ms)).await;
    lease.check().await?;
    Ok(json!({"owner": lease.owner(), "pid": std::process::id()}))
}
