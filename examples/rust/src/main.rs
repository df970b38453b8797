//! A small function that does its work under the lock of one customer.

use lambda_runtime::{Error, LambdaEvent};
use leasekeeper::{Lease, Locks, key};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the function is invoked with.
#[derive(Debug, Deserialize)]
struct Order {
    customer_id: String,
    /// How long the work takes, in milliseconds.
    #[serde(default)]
    work_ms: u64,
}

/// What the function answers.
#[derive(Debug, Serialize)]
struct Summary {
    customer_id: String,
    /// The lock row's owner while the work ran.
    owner: String,
    /// How long the lock was waited for, in milliseconds.
    waited_ms: u64,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Lambda's log stamps each line itself.
    tracing_subscriber::fmt().without_time().with_ansi(false).init();
    let locks = Locks::from_env();
    lambda_runtime::run(locks.locked_handler(
        |event: &LambdaEvent<Order>| key!("customer:{customer_id}", customer_id = event.payload.customer_id),
        handle,
    ))
    .await
}

async fn handle(event: LambdaEvent<Order>, lease: Lease) -> Result<Summary, Error> {
    let Order { customer_id, work_ms } = event.payload;
    tokio::time::sleep(Duration::from_millis(work_ms)).await;
    // The moment before an effect: is the lock still ours? An effect in DynamoDB would carry `lease.condition_check()`.
    lease.check().await?;
    let waited_ms = u64::try_from(lease.waited().as_millis())?;
    Ok(Summary { customer_id, owner: lease.owner().to_owned(), waited_ms })
}
