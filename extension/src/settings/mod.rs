//! The settings: environment variables, checked, never replaced in silence.

mod parse;
mod variables;

pub use parse::{SettingsError, Wrong};
pub use variables::{GIVEN_TO_COMMANDS, PREFIX, VARIABLES, Variable};

/// How single values are read: for the command line.
#[cfg(feature = "commands")]
pub(crate) mod values {
    pub(crate) use super::parse::{milliseconds, table};
}

use parse::{
    DRAIN_MS, HOLD_MS, LEASE_MS, MAX_HOLD_MS, RESERVE_MS, Reader, TABLE, WAIT_MS, flag, log_filter, log_format,
    milliseconds, socket, store, table, uids,
};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What an acquire writes unless it or `LEASEKEEPER_LEASE_MS` says otherwise.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(20);

/// How long a sidecar's end waits for its clients unless `LEASEKEEPER_DRAIN_MS` says otherwise: with what follows, less than the
/// 10 s after which Docker kills it.
pub const DEFAULT_DRAIN: Duration = Duration::from_secs(8);

/// Everything that can be set from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `LEASEKEEPER_TABLE`; empty for [`StoreKind::Memory`] unless set.
    pub table: String,
    /// `LEASEKEEPER_LEASE_MS`: what an acquire writes unless it says otherwise.
    pub lease: Duration,
    /// `LEASEKEEPER_WAIT_MS`: how long an acquire waits unless it says otherwise; `None` is the rule min(5 s, remaining − reserve).
    pub wait: Option<Duration>,
    /// `LEASEKEEPER_RESERVE_MS`: kept of the invocation for the work; `None` is the rule max(1 s, remaining / 4), at most 30 s.
    pub reserve: Option<Duration>,
    /// `LEASEKEEPER_MAX_HOLD_MS`
    pub max_hold: Option<Duration>,
    /// `LEASEKEEPER_HOLD_MS`: how long the freeze waits for an invocation's first lock, and then for the end of all its locks; zero
    /// if it waits for nothing.
    pub hold: Duration,
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

impl fmt::Display for StoreKind {
    /// As `LEASEKEEPER_STORE` names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DynamoDb => "dynamodb",
            Self::Memory => "memory",
        })
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text an event.
    Text,
    /// One JSON object an event.
    Json,
}

/// What is needed before, and whether or not, the settings as a whole are right: the extension comes up either way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// Where to listen; the default where the setting is wrong, so that under Lambda a request still gets its `config` error. A
    /// sidecar ends instead.
    pub socket: PathBuf,
    /// Who may connect besides ourselves; nobody where the setting is wrong.
    pub peer_uids: Vec<u32>,
    /// `LEASEKEEPER_DRAIN_MS`: how long a sidecar's end waits for its clients; the default where the setting is wrong.
    pub drain: Duration,
    /// `LEASEKEEPER_LOG`; `info` where the setting is wrong.
    pub log_filter: String,
    /// `LEASEKEEPER_LOG_FORMAT`
    pub log_format: LogFormat,
}

impl Settings {
    /// Reads this process's environment.
    ///
    /// # Errors
    /// Names every variable that is missing or wrong.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::from_lookup(environment)
    }

    /// Reads the variables through `lookup`.
    ///
    /// # Errors
    /// Names every variable that is missing or wrong.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        read(lookup).1
    }
}

/// Reads this process's environment: see [`read`].
pub fn read_env() -> (Bootstrap, Result<Settings, SettingsError>) {
    read(environment)
}

/// Reads the variables through `lookup`: what the extension needs in any case, and the settings if all of them are right.
pub fn read(lookup: impl Fn(&str) -> Option<String>) -> (Bootstrap, Result<Settings, SettingsError>) {
    let mut reader = Reader::new(&lookup);
    let store = reader.get("LEASEKEEPER_STORE", store).unwrap_or(StoreKind::DynamoDb);
    let table = reader.get("LEASEKEEPER_TABLE", table);
    if table.is_none() && store == StoreKind::DynamoDb {
        reader.required("LEASEKEEPER_TABLE", TABLE);
    }
    let under_lambda = lookup("AWS_LAMBDA_RUNTIME_API").is_some();
    let default_format = if under_lambda { LogFormat::Json } else { LogFormat::Text };
    let bootstrap = Bootstrap {
        socket: reader.get("LEASEKEEPER_SOCKET", socket).unwrap_or_else(|| leasekeeper_wire::DEFAULT_SOCKET.into()),
        peer_uids: reader.get("LEASEKEEPER_PEER_UIDS", uids).unwrap_or_default(),
        drain: reader.get("LEASEKEEPER_DRAIN_MS", milliseconds(DRAIN_MS)).unwrap_or(DEFAULT_DRAIN),
        log_filter: reader.get("LEASEKEEPER_LOG", log_filter).unwrap_or_else(|| "info".into()),
        log_format: reader.get("LEASEKEEPER_LOG_FORMAT", log_format).unwrap_or(default_format),
    };
    let settings = Settings {
        table: table.unwrap_or_default(),
        lease: reader.get("LEASEKEEPER_LEASE_MS", milliseconds(LEASE_MS)).unwrap_or(DEFAULT_LEASE),
        wait: reader.get("LEASEKEEPER_WAIT_MS", milliseconds(WAIT_MS)),
        reserve: reader.get("LEASEKEEPER_RESERVE_MS", milliseconds(RESERVE_MS)),
        max_hold: reader.get("LEASEKEEPER_MAX_HOLD_MS", milliseconds(MAX_HOLD_MS)),
        hold: reader.get("LEASEKEEPER_HOLD_MS", milliseconds(HOLD_MS)).unwrap_or_default(),
        socket: bootstrap.socket.clone(),
        peer_uids: bootstrap.peer_uids.clone(),
        plain_keys: reader.get("LEASEKEEPER_PLAIN_KEYS", flag).unwrap_or(false),
        store,
    };
    (bootstrap, reader.finish(settings))
}

/// Variables that look like ours but are not: a misspelt setting would otherwise be passed over in silence.
pub fn unknown_in_env() -> Vec<String> {
    unknown(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
}

/// As [`unknown_in_env`], of `names`.
pub fn unknown(names: impl Iterator<Item = String>) -> Vec<String> {
    let known = |name: &str| GIVEN_TO_COMMANDS.contains(&name) || VARIABLES.iter().any(|known| known.name == name);
    let mut unknown: Vec<String> = names.filter(|name| name.starts_with(PREFIX) && !known(name)).collect();
    unknown.sort();
    unknown
}

/// A variable of this process. A value that is not UTF-8 keeps a replacement character, which every parser refuses.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
