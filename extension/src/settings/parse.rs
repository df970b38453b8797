//! Reads single values: what is right, and what is said of a value that is not.

use super::{LogFormat, StoreKind};
use leasekeeper_wire::{MAX_LEASE_MS, MAX_WAIT_MS, MIN_LEASE_MS};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// What `LEASEKEEPER_TABLE` must be.
pub(super) const TABLE: &str = "the name (3 to 255 of a-z A-Z 0-9 _ - .) or the ARN of the lock table";
pub(super) const LEASE_MS: RangeInclusive<u64> = MIN_LEASE_MS..=MAX_LEASE_MS;
pub(super) const WAIT_MS: RangeInclusive<u64> = 0..=MAX_WAIT_MS;
pub(super) const DRAIN_MS: RangeInclusive<u64> = 0..=MAX_WAIT_MS;
pub(super) const RESERVE_MS: RangeInclusive<u64> = 0..=MAX_WAIT_MS;
/// Up to a year: more is "unlimited", which is the default.
pub(super) const MAX_HOLD_MS: RangeInclusive<u64> = MIN_LEASE_MS..=31_536_000_000;
/// Up to the longest time-out of a function.
pub(super) const HOLD_MS: RangeInclusive<u64> = 0..=900_000;

/// The longest path that a Unix socket's address holds, its closing zero byte excluded.
const MAX_SOCKET_PATH: usize = 107;

/// One variable that is missing or wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its name.
    pub name: &'static str,
    /// Its value, if it has one.
    pub value: Option<String>,
    /// What it must be.
    pub expected: String,
}

/// Every variable that is missing or wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// In the order in which they were read; never empty.
    pub wrong: Vec<Wrong>,
}

impl SettingsError {
    /// Is this variable among them?
    pub fn names(&self, name: &str) -> bool {
        self.wrong.iter().any(|wrong| wrong.name == name)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} is {:?}: it must be {}", self.name, shortened(value), self.expected),
            None => write!(f, "{} is not set: it must be {}", self.name, self.expected),
        }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, wrong) in self.wrong.iter().enumerate() {
            write!(f, "{}{wrong}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsError {}

/// A value goes into every error reply: a whole script pasted into a variable must not.
fn shortened(value: &str) -> String {
    const MOST: usize = 200;
    match value.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.into(),
    }
}

/// Reads variables and collects what is wrong with them.
pub(super) struct Reader<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    wrong: Vec<Wrong>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { lookup, wrong: Vec::new() }
    }

    /// The parsed value; `None` if it is not set or wrong.
    pub(super) fn get<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = (self.lookup)(name)?;
        let parsed = match value.contains(char::REPLACEMENT_CHARACTER) {
            true => Err("valid UTF-8".into()),
            false => parse(&value),
        };
        parsed.map_err(|expected| self.wrong.push(Wrong { name, value: Some(value), expected })).ok()
    }

    /// Notes that a variable is missing, unless it is already noted as wrong.
    pub(super) fn required(&mut self, name: &'static str, expected: &str) {
        if !self.wrong.iter().any(|wrong| wrong.name == name) {
            self.wrong.push(Wrong { name, value: None, expected: expected.into() });
        }
    }

    pub(super) fn finish<T>(self, settings: T) -> Result<T, SettingsError> {
        if self.wrong.is_empty() { Ok(settings) } else { Err(SettingsError { wrong: self.wrong }) }
    }
}

pub(crate) fn milliseconds(range: RangeInclusive<u64>) -> impl FnOnce(&str) -> Result<Duration, String> {
    move |value| match whole(value) {
        Some(ms) if range.contains(&ms) => Ok(Duration::from_millis(ms)),
        _ => Err(format!("a whole number of milliseconds from {} to {}", range.start(), range.end())),
    }
}

/// Digits only: the parser of the standard library also takes a plus sign.
fn whole(value: &str) -> Option<u64> {
    if value.bytes().all(|byte| byte.is_ascii_digit()) { value.parse().ok() } else { None }
}

pub(crate) fn table(value: &str) -> Result<String, String> {
    let name = |name: &str| {
        (3..=255).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    // arn:partition:dynamodb:region:account:table/name
    let arn = |value: &str| match value.split(':').collect::<Vec<_>>()[..] {
        ["arn", partition, "dynamodb", region, account, resource] => {
            partition.starts_with("aws")
                && !region.is_empty()
                && account.len() == 12
                && account.bytes().all(|byte| byte.is_ascii_digit())
                && resource.strip_prefix("table/").is_some_and(name)
        }
        _ => false,
    };
    if name(value) || arn(value) { Ok(value.into()) } else { Err(TABLE.into()) }
}

pub(super) fn socket(value: &str) -> Result<PathBuf, String> {
    let path = Path::new(value);
    let right = path.is_absolute()
        && !value.ends_with('/')
        && !value.contains('\0')
        && value.len() <= MAX_SOCKET_PATH
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        // A file in the root directory would have the root directory as its own.
        && path.components().count() >= 3;
    if right {
        Ok(path.into())
    } else {
        Err(format!("an absolute path of at most {MAX_SOCKET_PATH} bytes, without \"..\", in a directory of its own"))
    }
}

pub(super) fn uids(value: &str) -> Result<Vec<u32>, String> {
    let uid = |text: &str| whole(text.trim()).and_then(|uid| u32::try_from(uid).ok()).filter(|uid| *uid != u32::MAX);
    if value.trim().is_empty() {
        return Ok(Vec::new());
    }
    value.split(',').map(uid).collect::<Option<_>>().ok_or_else(|| "numeric user ids separated by commas".into())
}

pub(super) fn flag(value: &str) -> Result<bool, String> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("true, false, 1 or 0".into()),
    }
}

pub(super) fn store(value: &str) -> Result<StoreKind, String> {
    match value {
        "dynamodb" => Ok(StoreKind::DynamoDb),
        "memory" => Ok(StoreKind::Memory),
        _ => Err("dynamodb or memory".into()),
    }
}

pub(super) fn log_filter(value: &str) -> Result<String, String> {
    // Stricter than the filter's own parser, which takes a misspelt level for a target.
    let right = |directive: &str| {
        let (target, level) = directive.rsplit_once('=').unwrap_or(("all", directive));
        let named = !target.is_empty() && target.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c));
        named && level.parse::<LevelFilter>().is_ok() && !level.is_empty()
    };
    let right = value.split(',').all(right) && value.parse::<Targets>().is_ok();
    if right { Ok(value.into()) } else { Err("levels, such as info or warn,leasekeeper_extension=debug".into()) }
}

pub(super) fn log_format(value: &str) -> Result<LogFormat, String> {
    match value {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err("json or text".into()),
    }
}
