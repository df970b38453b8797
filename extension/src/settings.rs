//! The settings: environment variables, checked, never replaced in silence.

use std::path::PathBuf;
use std::time::Duration;

/// Everything that can be set from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `LEASEKEEPER_TABLE`
    pub table: String,
    /// `LEASEKEEPER_LEASE_MS`: what an acquire writes unless it says otherwise.
    pub lease: Duration,
    /// `LEASEKEEPER_WAIT_MS`: how long an acquire waits unless it says otherwise; `None` is the rule min(5 s, remaining − reserve).
    pub wait: Option<Duration>,
    /// `LEASEKEEPER_RESERVE_MS`: kept of the invocation for the work; `None` is the rule max(1 s, remaining / 4), at most 30 s.
    pub reserve: Option<Duration>,
    /// `LEASEKEEPER_MAX_HOLD_MS`
    pub max_hold: Option<Duration>,
    /// `LEASEKEEPER_SOCKET`
    pub socket: PathBuf,
    /// `LEASEKEEPER_PEER_UIDS`: users besides our own that may connect.
    pub peer_uids: Vec<u32>,
    /// `LEASEKEEPER_PLAIN_KEYS`: keys in logs as they are instead of hashed.
    pub plain_keys: bool,
    /// `LEASEKEEPER_STORE`
    pub store: StoreKind,
}

/// Where leases live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// In DynamoDB.
    DynamoDb,
    /// In this process's memory: for tests of an application.
    Memory,
}
