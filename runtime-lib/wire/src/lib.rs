//! The messages of Leasekeeper's local lock socket, version 1: one JSON object a line, requests strict, replies lenient.
//!
//! `docs/SOCKET.md` describes the protocol for people; this crate is what both ends run. It depends on `serde` and
//! `serde_json` alone: no runtime, no sockets, no clocks.

mod codes;
mod reply;
mod request;

pub use codes::{Code, LostReason};
pub use reply::{
    Checked, Event, EventKind, Failure, Granted, Hello, Holder, Metrics, Outcome, Released, Reply, ServerLine,
};
pub use request::{Acquire, Op, Rejected, Request};

/// The protocol's version, the value of every request's `v`.
pub const VERSION: u64 = 1;

/// The longest line in either direction, in bytes, its newline included.
pub const MAX_LINE: usize = 64 * 1024;

/// The longest key, in UTF-8 bytes: DynamoDB's limit for a partition key.
pub const MAX_KEY: usize = 2_048;

/// The longest `request_id`, in bytes. Lambda's are UUIDs of 36; the bound keeps memory bounded.
pub const MAX_REQUEST_ID: usize = 256;

/// The shortest lease a row may carry, in milliseconds (lock protocol version 1).
pub const MIN_LEASE_MS: u64 = 100;

/// The longest lease a row may carry, in milliseconds (lock protocol version 1).
pub const MAX_LEASE_MS: u64 = 86_400_000;

/// The longest wait budget, in milliseconds.
pub const MAX_WAIT_MS: u64 = 86_400_000;

/// Where the socket is unless `LEASEKEEPER_SOCKET` says otherwise.
pub const DEFAULT_SOCKET: &str = "/tmp/leasekeeper/lock.sock";
