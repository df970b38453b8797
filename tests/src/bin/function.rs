//! The tests' Rust function: holds a lock for a while, idle or with every thread busy, and tells what it saw.

use lambda_runtime::{Error, LambdaEvent};
use leasekeeper::{Lease, LockError, Locks, OnLost};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

#[derive(Deserialize)]
struct Work {
    key: String,
    /// How long to hold the lock.
    work_ms: u64,
    /// How many threads compute all that time, pinned wherever the process is; 0 sleeps.
    #[serde(default)]
    busy_threads: usize,
}

#[derive(Serialize)]
struct Report {
    owner: String,
    waited_ms: u128,
    renewals: u64,
    /// What `check` said at the end.
    valid_ms: u128,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let locks = Locks::from_env();
    let key = |event: &LambdaEvent<Work>| event.payload.key.clone();
    lambda_runtime::run(locks.locked_handler(key, work).on_lost(OnLost::Cancel)).await
}

async fn work(event: LambdaEvent<Work>, lease: Lease) -> Result<Report, LockError> {
    let time = Duration::from_millis(event.payload.work_ms);
    if event.payload.busy_threads == 0 {
        tokio::time::sleep(time).await;
    } else {
        // Joined on this very thread: nothing in this process runs but the computation.
        let threads: Vec<_> =
            (0..event.payload.busy_threads).map(|_| std::thread::spawn(move || compute(time))).collect();
        for thread in threads {
            thread.join().expect("computing does not panic");
        }
    }
    let valid = lease.check().await?;
    let renewals = lease.metrics().await?.renewals;
    let (owner, waited) = (lease.owner().to_owned(), lease.waited());
    Ok(Report { owner, waited_ms: waited.as_millis(), renewals, valid_ms: valid.as_millis() })
}

fn compute(time: Duration) -> u64 {
    let end = Instant::now() + time;
    let mut sum = 0_u64;
    while Instant::now() < end {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
    }
    sum
}
