//! A worker for the campaign of `tests/tests/processes`: takes one lock again and again, counts under it, and tells each thing
//! it believes when it believes it, so that whoever kills or stops it knows what it held.
//!
//! `contender SOCKET KEY LEASE_MS SEED`; one line for each thing told, times in microseconds of the boot-time clock:
//! `waits AT`, `granted AT UNTIL`, `valid AT UNTIL`, `over AT`, `plain N`, `guarded N`, `refused`, `unknown`.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use fastrand::Rng;
use leasekeeper::{Guard, LockError, Locks};
use std::error::Error;
use std::time::Duration;
use testkit::moments::boot_us;
use tokio::time::sleep;

/// The application's table.
const COUNTERS: &str = "counters";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, key, lease_ms, seed] = arguments.as_slice() else {
        return Err("usage: contender SOCKET KEY LEASE_MS SEED".into());
    };
    let lease = Duration::from_millis(lease_ms.parse()?);
    let mut rng = Rng::with_seed(seed.parse()?);
    let http = aws_smithy_http_client::Builder::new().build_http();
    let config = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    let counters = Client::new(&config);
    let locks = Locks::at(socket);
    loop {
        println!("waits {}", boot_us());
        match locks.acquire(key.as_str()).lease(lease).wait(Duration::from_secs(10)).await {
            Ok(guard) => {
                visit(&guard, lease, &counters, key, &mut rng).await;
                println!("over {}", boot_us());
                // What is not given back is given back when the connection ends.
                if rng.u8(0..5) > 0 {
                    let _ = guard.release().await;
                }
            }
            // The extension was killed, or DynamoDB was out of reach: as an application does, again.
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Counts under the lock, twice: with the ownership check in the transaction, and without any.
async fn visit(guard: &Guard, lease: Duration, counters: &Client, key: &str, rng: &mut Rng) {
    told("granted", boot_us(), guard.remaining());
    let (plain, guarded) = (format!("{key} plain"), format!("{key} guarded"));
    let (Some(seen_plain), Some(seen_guarded)) = (read(counters, &plain).await, read(counters, &guarded).await) else {
        return;
    };
    if checked(guard).await.is_err() {
        return;
    }
    // Between the check and the write: here a pause is what no lease can see.
    sleep(Duration::from_millis(rng.u64(5..60))).await;
    match write(counters, &plain, seen_plain + 1).send().await {
        Ok(_) => println!("plain {}", seen_plain + 1),
        Err(_) => println!("unknown"),
    }
    let transaction = counters
        .transact_write_items()
        .transact_items(guard.condition_check())
        .transact_items(put(&guarded, seen_guarded + 1));
    match transaction.send().await {
        Ok(_) => println!("guarded {}", seen_guarded + 1),
        Err(error) if error.as_service_error().is_some_and(|error| error.is_transaction_canceled_exception()) => {
            println!("refused");
        }
        Err(_) => println!("unknown"),
    }
    // Now and then beyond the lease, which only renewals make possible.
    let rest = if rng.u8(0..4) == 0 { lease * 3 / 2 } else { lease / 6 };
    let end = boot_us() + u64::try_from(rest.as_micros()).unwrap_or(0);
    while boot_us() < end {
        if checked(guard).await.is_err() {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn checked(guard: &Guard) -> Result<(), LockError> {
    let asked = boot_us();
    told("valid", asked, guard.check().await?);
    Ok(())
}

fn told(what: &str, at: u64, valid: Duration) {
    println!("{what} {at} {}", at + u64::try_from(valid.as_micros()).unwrap_or(0));
}

async fn read(counters: &Client, name: &str) -> Option<u64> {
    let read =
        counters.get_item().table_name(COUNTERS).consistent_read(true).key("key", text(name)).send().await.ok()?;
    let Some(item) = read.item else { return Some(0) };
    item.get("n")?.as_n().ok()?.parse().ok()
}

fn write(counters: &Client, name: &str, n: u64) -> PutItemFluentBuilder {
    counters.put_item().table_name(COUNTERS).item("key", text(name)).item("n", AttributeValue::N(n.to_string()))
}

fn put(name: &str, n: u64) -> TransactWriteItem {
    let put = Put::builder().table_name(COUNTERS).item("key", text(name)).item("n", AttributeValue::N(n.to_string()));
    TransactWriteItem::builder().put(put.build().expect("table and item are set")).build()
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}
