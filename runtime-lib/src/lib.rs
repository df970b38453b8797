//! Distributed locks for AWS Lambda handlers, kept alive outside the handler.
//!
//! A handler asks the Leasekeeper extension, which runs beside it in the same environment, for a lock over a Unix socket.
//! The extension acquires it in DynamoDB, renews it however busy the handler is, tells the handler if it is ever lost, and
//! gives it back before the response is posted, on a crash and on a time-out.
//!
//! # Quick start
//!
//! Add the Leasekeeper layer to the function, set `LEASEKEEPER_TABLE`, and wrap the handler:
//!
#![cfg_attr(feature = "lambda", doc = "```no_run")]
#![cfg_attr(not(feature = "lambda"), doc = "```ignore")]
//! use lambda_runtime::{Error, LambdaEvent};
//! use leasekeeper::{Lease, Locks, key};
//! # #[derive(serde::Deserialize)]
//! # struct Order { customer_id: String }
//! # #[derive(serde::Serialize)]
//! # struct Summary {}
//! # async fn import(_: &Order) -> Result<Summary, Error> { Ok(Summary {}) }
//! # async fn store(_: &Summary) -> Result<(), Error> { Ok(()) }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let locks = Locks::from_env();
//!     lambda_runtime::run(locks.locked_handler(
//!         |event: &LambdaEvent<Order>| key!("customer:{customer_id}", customer_id = event.payload.customer_id),
//!         handle,
//!     ))
//!     .await
//! }
//!
//! async fn handle(event: LambdaEvent<Order>, lease: Lease) -> Result<Summary, Error> {
//!     let summary = import(&event.payload).await?;
//!     lease.check().await?; // asked of the extension, not guessed
//!     store(&summary).await?;
//!     Ok(summary)
//! }
//! ```
//!
//! Outside a handler, or for a part of one:
//!
//! ```no_run
//! # async fn example(locks: leasekeeper::Locks) -> Result<(), leasekeeper::LockError> {
//! let guard = locks.acquire("nightly-report").await?;
//! // … the work …
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything that waits needs a Tokio runtime with I/O and time enabled.
//!
//! # What a lease cannot promise
//!
//! Between a check and an effect a process can be paused for longer than its lease. An effect in DynamoDB is safe with
//! `Lease::condition_check` (feature `aws-sdk-dynamodb`) in its transaction; any other effect must be able to refuse a
//! late writer by itself.
//!
//! # SnapStart
//!
//! No lock can be taken in init, and `Locks` keeps no connection between locks: nothing of it has to be closed before a
//! snapshot or opened after it. An AWS SDK client is another matter: the idempotency tokens of its transactions come from a
//! generator that is seeded when the client is made, so clients made in init repeat each other's tokens in every clone of
//! the snapshot. Make the client after the restore (`lambda_runtime::SnapStartResource`), or set each transaction's
//! `client_request_token`. Read in the source of `aws-sdk-dynamodb` 1.136; not checked on AWS.
//!
//! # Features
//!
//! - `lambda` (default): `Locks::locked_handler`, `Locks::layer` for stacks of `tower` layers, and the errors' conversions for
//!   `lambda_runtime`.
//! - `http`: the layer for `lambda_http`, with keys from a path and answers for who gets no lock. It turns on `lambda_http`'s
//!   `apigw_http`, since that crate does not compile without any kind of event; turn on those that your function has. Rust
//!   before 1.88 does not take `encoding_rs` 0.8.44 below it: `cargo update encoding_rs --precise 0.8.35`.
//! - `aws-sdk-dynamodb`: `Lease::condition_check`.

mod acquire;
mod budget;
#[cfg(feature = "lambda")]
mod call;
mod check;
mod clock;
mod connection;
mod error;
#[cfg(feature = "lambda")]
mod handler;
#[cfg(feature = "http")]
mod http;
mod key;
#[cfg(feature = "lambda")]
mod layer;
mod lease;
mod locks;
mod section;
mod settings;
mod several;
mod state;
#[cfg(feature = "lambda")]
mod stream;
#[cfg(test)]
mod vectors;

pub use acquire::Acquire;
#[cfg(feature = "lambda")]
pub use call::{HandlerError, Invocation, LockedFuture};
pub use error::LockError;
#[cfg(feature = "lambda")]
pub use handler::LockedHandler;
#[cfg(feature = "http")]
pub use http::{WholeResponse, http_answers, path_key};
pub use key::{IntoKey, Key, KeyTemplate};
#[cfg(feature = "lambda")]
pub use layer::{Buffered, LockLayer, LockService, Streaming};
pub use lease::{Guard, Lease};
pub use leasekeeper_wire::{Code, Holder, LostReason, Metrics};
pub use locks::Locks;
pub use section::OnLost;
pub use several::Guards;
#[cfg(feature = "lambda")]
pub use stream::HeldStream;

/// What `key!` expands to; no part of the interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::check::{check, name};
}
