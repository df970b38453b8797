//! What can go wrong, as something callers branch on and as a text that says what to do.

use leasekeeper_wire::{Code, Failure, Holder, LostReason, Metrics};
use std::fmt;
use std::time::Duration;

/// Why there is no lock, or why it is not held any more.
///
/// The texts go to whoever invoked the function, so they never tell what [`LockError::Busy`] knows of the holder: ask
/// [`LockError::holder`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LockError {
    /// Someone else holds the lock and the wait budget is over.
    #[non_exhaustive]
    Busy {
        /// No later than this the row can be free or taken over, unless its holder renews it.
        retry_after: Option<Duration>,
        /// What the row says of its holder.
        holder: Option<Box<Holder>>,
        /// The figures of the acquire.
        metrics: Option<Box<Metrics>>,
    },
    /// The invocation has no time left to wait in.
    #[non_exhaustive]
    BudgetExhausted {},
    /// The lease is over. Final.
    #[non_exhaustive]
    Lost {
        /// Why.
        reason: LostReason,
        /// The extension's words; empty where it could only tell the reason.
        message: String,
        /// The lease's figures at its end, where the extension could still tell.
        metrics: Option<Box<Metrics>>,
    },
    /// DynamoDB or the extension did not answer in time, or the extension takes no more requests.
    #[non_exhaustive]
    Unavailable {
        /// What was seen.
        message: String,
    },
    /// A permission or the credentials are missing.
    #[non_exhaustive]
    Denied {
        /// Which.
        message: String,
    },
    /// A setting is missing or wrong, or the table is not what it must be.
    #[non_exhaustive]
    Config {
        /// Names the setting and what was expected.
        message: String,
    },
    /// The row under this key was not written by lock protocol version 1.
    #[non_exhaustive]
    ForeignRow {
        /// What is foreign about it.
        message: String,
    },
    /// The request itself is wrong: a key, a template, a range, or a lease that was already given back.
    #[non_exhaustive]
    Protocol {
        /// What was expected.
        message: String,
    },
    /// The lock was given back, but DynamoDB has not confirmed that the row is gone. The extension goes on trying.
    #[non_exhaustive]
    ReleaseUnconfirmed {
        /// The extension's words; empty if it did not answer in time.
        message: String,
    },
    /// Nothing listens on the socket, or the connection was closed without an answer.
    #[non_exhaustive]
    ExtensionMissing {
        /// What was tried, and what to do.
        message: String,
    },
    /// An answer that this crate does not understand, as of an extension that is newer.
    #[non_exhaustive]
    Unknown {
        /// The extension's words.
        message: String,
    },
}

impl LockError {
    /// The one word that is the same in every language.
    pub fn code(&self) -> Code {
        match self {
            Self::Busy { .. } => Code::Busy,
            Self::BudgetExhausted {} => Code::BudgetExhausted,
            Self::Lost { .. } => Code::Lost,
            Self::Unavailable { .. } => Code::Unavailable,
            Self::Denied { .. } => Code::Denied,
            Self::Config { .. } => Code::Config,
            Self::ForeignRow { .. } => Code::ForeignRow,
            Self::Protocol { .. } => Code::Protocol,
            Self::ReleaseUnconfirmed { .. } => Code::ReleaseUnconfirmed,
            Self::ExtensionMissing { .. } => Code::ExtensionMissing,
            Self::Unknown { .. } => Code::Unknown,
        }
    }

    /// With [`LockError::Busy`]: what the row says of its holder.
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Busy { holder, .. } => holder.as_deref(),
            _ => None,
        }
    }

    /// With [`LockError::Busy`]: no later than this the row can be free or taken over, unless its holder renews it.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// With [`LockError::Lost`]: why.
    pub fn reason(&self) -> Option<LostReason> {
        match self {
            Self::Lost { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// The figures of the acquire that failed or of the lease that was lost, where the extension gave them.
    pub fn metrics(&self) -> Option<Metrics> {
        match self {
            Self::Busy { metrics, .. } | Self::Lost { metrics, .. } => metrics.as_deref().copied(),
            _ => None,
        }
    }

    /// The error's name as Lambda reports it: `Leasekeeper.Busy`, `Leasekeeper.Lost` and so on.
    pub fn error_type(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "Leasekeeper.Busy",
            Self::BudgetExhausted {} => "Leasekeeper.BudgetExhausted",
            Self::Lost { .. } => "Leasekeeper.Lost",
            Self::Unavailable { .. } => "Leasekeeper.Unavailable",
            Self::Denied { .. } => "Leasekeeper.Denied",
            Self::Config { .. } => "Leasekeeper.Config",
            Self::ForeignRow { .. } => "Leasekeeper.ForeignRow",
            Self::Protocol { .. } => "Leasekeeper.Protocol",
            Self::ReleaseUnconfirmed { .. } => "Leasekeeper.ReleaseUnconfirmed",
            Self::ExtensionMissing { .. } => "Leasekeeper.ExtensionMissing",
            Self::Unknown { .. } => "Leasekeeper.Unknown",
        }
    }

    pub(crate) fn lost(reason: LostReason) -> Self {
        Self::Lost { reason, message: String::new(), metrics: None }
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::Protocol { message: message.into() }
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::Config { message: message.into() }
    }
}

impl From<Failure> for LockError {
    fn from(failure: Failure) -> Self {
        let Failure { code, message, retry_after_ms, holder, reason, metrics } = failure;
        let metrics = metrics.map(Box::new);
        match code {
            Code::Busy => Self::Busy {
                retry_after: retry_after_ms.map(Duration::from_millis),
                holder: holder.map(Box::new),
                metrics,
            },
            Code::BudgetExhausted => Self::BudgetExhausted {},
            Code::Lost => Self::Lost { reason: reason.unwrap_or(LostReason::Unknown), message, metrics },
            Code::Unavailable => Self::Unavailable { message },
            Code::Denied => Self::Denied { message },
            Code::Config => Self::Config { message },
            Code::ForeignRow => Self::ForeignRow { message },
            Code::Protocol => Self::Protocol { message },
            Code::ReleaseUnconfirmed => Self::ReleaseUnconfirmed { message },
            Code::ExtensionMissing => Self::ExtensionMissing { message },
            _ => Self::Unknown { message },
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { .. } => f.write_str(
                "the lock is held by someone else and the wait for it is over: try again later, or allow a longer wait \
                 (`wait` or LEASEKEEPER_WAIT_MS)",
            ),
            Self::BudgetExhausted {} => f.write_str(
                "the invocation has no time left to wait for the lock: raise the function's timeout, or reserve less \
                 of it for the work (`reserve` or LEASEKEEPER_RESERVE_MS)",
            ),
            Self::Lost { reason, message, .. } => {
                write!(f, "the lock was lost ({reason}): {}{}", advice(*reason), words(not_repeated(message)))
            }
            Self::Unavailable { message } => {
                write!(f, "Leasekeeper is unavailable at the moment; try again: {message}")
            }
            Self::Denied { message } => {
                write!(f, "access to the lock table was refused; check the function's role and credentials: {message}")
            }
            Self::Config { message } => write!(f, "Leasekeeper is misconfigured: {message}"),
            Self::ForeignRow { message } => write!(
                f,
                "the key is used for something other than a lock; use another key or another table: {message}"
            ),
            Self::Protocol { message } => write!(f, "the lock request is invalid: {message}"),
            Self::ReleaseUnconfirmed { message } => write!(
                f,
                "the lock was given back, but this is not confirmed: others may find it held until the extension \
                 succeeds or the lease ends{}",
                words(message)
            ),
            Self::ExtensionMissing { message } => f.write_str(message),
            Self::Unknown { message } => {
                let what = "this version of the crate does not understand the extension's answer; update the crate";
                write!(f, "{what}: {message}")
            }
        }
    }
}

impl std::error::Error for LockError {}

/// What the extension said, if it said anything.
fn words(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

/// The words on a loss begin as this crate's do.
fn not_repeated(message: &str) -> &str {
    message.strip_prefix("the lock was lost: ").unwrap_or(message)
}

fn advice(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Stolen => "another owner has taken it over",
        LostReason::Expired => "no renewal was confirmed: DynamoDB or the extension could not be reached in time",
        LostReason::Deleted => "its row was removed by someone else",
        LostReason::Denied => "a renewal was refused; check the role's permissions on the lock table",
        LostReason::Throttled => "its renewals were throttled for too long; check the lock table's capacity",
        LostReason::Deadline => "the invocation's deadline has passed",
        LostReason::Thaw => "the environment was frozen and resumed for another invocation",
        LostReason::Shutdown => "the environment or the sidecar is shutting down",
        LostReason::ExtensionFailed => "the extension failed or went away; see its log",
        LostReason::MaxHold => "it was held for the longest time that LEASEKEEPER_MAX_HOLD_MS allows",
        _ => "see the extension's log",
    }
}

#[cfg(feature = "lambda")]
impl From<LockError> for lambda_runtime::Diagnostic {
    fn from(error: LockError) -> Self {
        Self { error_type: error.error_type().to_owned(), error_message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_busy_knows_of_the_holder_is_not_in_its_text() {
        let mut failure = Failure::new(Code::Busy, "held by arn:secret");
        failure.retry_after_ms = Some(900);
        failure.holder = Some(Holder {
            owner: "owner-secret".into(),
            function: Some("arn:secret".into()),
            request_id: Some("request-secret".into()),
            log_stream: Some("stream-secret".into()),
            host: Some("host-secret".into()),
            ..Holder::default()
        });
        let error = LockError::from(failure);
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(error.holder().map(|holder| holder.owner.as_str()), Some("owner-secret"));
        assert_eq!(error.retry_after(), Some(Duration::from_millis(900)));
    }

    #[test]
    fn every_code_survives_the_way_from_the_wire_and_names_its_type() {
        let codes = [
            Code::Busy,
            Code::BudgetExhausted,
            Code::Lost,
            Code::Unavailable,
            Code::Denied,
            Code::Config,
            Code::ForeignRow,
            Code::Protocol,
            Code::ReleaseUnconfirmed,
            Code::ExtensionMissing,
            Code::Unknown,
        ];
        for code in codes {
            let error = LockError::from(Failure::new(code, "words"));
            assert_eq!(error.code(), code);
            let name: String = error.error_type().trim_start_matches("Leasekeeper.").to_owned();
            assert_eq!(name.to_lowercase(), code.as_str().replace('_', ""));
        }
    }

    #[test]
    fn an_expired_lease_names_both_that_could_have_been_out_of_reach() {
        let text = LockError::lost(LostReason::Expired).to_string();
        assert!(text.contains("DynamoDB or the extension could not be reached in time"), "{text}");
    }

    #[test]
    fn every_text_says_what_happened_and_what_to_do() {
        let text = |code: Code, message: &str| LockError::from(Failure::new(code, message)).to_string();
        assert_eq!(
            text(Code::Busy, "x"),
            "the lock is held by someone else and the wait for it is over: try again later, or allow a longer wait \
             (`wait` or LEASEKEEPER_WAIT_MS)"
        );
        assert_eq!(
            text(Code::BudgetExhausted, "x"),
            "the invocation has no time left to wait for the lock: raise the function's timeout, or reserve less of it \
             for the work (`reserve` or LEASEKEEPER_RESERVE_MS)"
        );
        assert_eq!(text(Code::Unavailable, "x"), "Leasekeeper is unavailable at the moment; try again: x");
        assert_eq!(
            text(Code::Denied, "x"),
            "access to the lock table was refused; check the function's role and credentials: x"
        );
        assert_eq!(text(Code::Config, "x"), "Leasekeeper is misconfigured: x");
        assert_eq!(
            text(Code::ForeignRow, "x"),
            "the key is used for something other than a lock; use another key or another table: x"
        );
        assert_eq!(text(Code::Protocol, "x"), "the lock request is invalid: x");
        assert_eq!(
            text(Code::ReleaseUnconfirmed, "x"),
            "the lock was given back, but this is not confirmed: others may find it held until the extension succeeds \
             or the lease ends (x)"
        );
        assert_eq!(text(Code::ExtensionMissing, "x"), "x");
        assert_eq!(
            text(Code::Unknown, "x"),
            "this version of the crate does not understand the extension's answer; update the crate: x"
        );
    }

    #[test]
    fn the_extensions_words_on_a_loss_are_not_repeated() {
        let mut failure = Failure::new(Code::Lost, "the lock was lost: DynamoDB refused the renewal: no such table");
        failure.reason = Some(LostReason::Denied);
        assert_eq!(
            LockError::from(failure).to_string(),
            "the lock was lost (denied): a renewal was refused; check the role's permissions on the lock table \
             (DynamoDB refused the renewal: no such table)"
        );
        assert_eq!(
            LockError::lost(LostReason::Stolen).to_string(),
            "the lock was lost (stolen): another owner has taken it over"
        );
    }
}
