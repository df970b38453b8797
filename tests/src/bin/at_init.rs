//! The tests' Rust function that asks for a lock where there is no invocation: in `main`, and in the hooks of SnapStart.

use lambda_runtime::{BoxFuture, Error, LambdaEvent, Runtime, SnapStartResource};
use leasekeeper::{Lease, Locks};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// Asks, and keeps what it is told.
struct Asking {
    locks: Locks,
    told: Mutex<Vec<Value>>,
}

impl Asking {
    async fn ask(&self, when: &str) {
        let told = match self.locks.acquire("init").await {
            Ok(_) => json!({"when": when}),
            Err(error) => json!({"when": when, "code": error.code().to_string(), "message": error.to_string()}),
        };
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }
}

impl SnapStartResource for Asking {
    fn before_snapshot(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            self.ask("before the snapshot").await;
            Ok(())
        })
    }

    fn after_restore(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            self.ask("after the restore").await;
            Ok(())
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = Locks::from_env();
    let asking = Arc::new(Asking { locks: locks.clone(), told: Mutex::default() });
    asking.ask("init").await;
    let answering = asking.clone();
    let handler = move |_: LambdaEvent<Value>, lease: Lease| {
        let told = answering.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        async move { Ok::<_, Error>(json!({"owner": lease.owner(), "told": told})) }
    };
    let key = |event: &LambdaEvent<Value>| event.payload["key"].as_str().unwrap_or_default().to_owned();
    Runtime::new(locks.locked_handler(key, handler)).register_snapstart_resource(asking).run().await
}
