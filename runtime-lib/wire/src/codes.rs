//! Error codes and reasons of loss: the same lower_snake words in every language.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What went wrong, in the one word that callers branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// Someone else holds the lock and the wait budget is over.
    Busy,
    /// The invocation has no time left to wait in; nothing was sent.
    BudgetExhausted,
    /// The lease is over; the error's reason says why.
    Lost,
    /// DynamoDB could not be reached, or kept throttling, until the wait budget was over.
    Unavailable,
    /// A permission or the credentials are missing.
    Denied,
    /// A setting is missing or wrong, or the table is not what it must be.
    Config,
    /// The row under this key was not written by lock protocol version 1.
    ForeignRow,
    /// The request itself is wrong: its form, a field, a key, a range.
    Protocol,
    /// The body finished, but DynamoDB has not confirmed that the row is gone.
    ReleaseUnconfirmed,
    /// Nothing answers on the socket.
    ExtensionMissing,
    /// A code of a newer extension.
    #[serde(other)]
    Unknown,
}

impl Code {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::BudgetExhausted => "budget_exhausted",
            Self::Lost => "lost",
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::Config => "config",
            Self::ForeignRow => "foreign_row",
            Self::Protocol => "protocol",
            Self::ReleaseUnconfirmed => "release_unconfirmed",
            Self::ExtensionMissing => "extension_missing",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a lease ended before its holder gave it back. Final: a lost lease never comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LostReason {
    /// Another owner's row stands under the key.
    Stolen,
    /// No renewal was confirmed in time.
    Expired,
    /// The row is gone though nobody here gave it back.
    Deleted,
    /// DynamoDB refused the renewal for good: a permission, the table, the credentials.
    Denied,
    /// No renewal was confirmed in time, the last answers being throttles.
    Throttled,
    /// The invocation's deadline has passed.
    Deadline,
    /// The environment was frozen and woke for another invocation.
    Thaw,
    /// The environment is shutting down.
    Shutdown,
    /// The extension failed or went away.
    ExtensionFailed,
    /// The lease was held for the longest time that the settings allow.
    MaxHold,
    /// A reason of a newer extension.
    #[serde(other)]
    Unknown,
}

impl LostReason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stolen => "stolen",
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Denied => "denied",
            Self::Throttled => "throttled",
            Self::Deadline => "deadline",
            Self::Thaw => "thaw",
            Self::Shutdown => "shutdown",
            Self::ExtensionFailed => "extension_failed",
            Self::MaxHold => "max_hold",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
