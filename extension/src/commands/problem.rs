//! Why a command fails, and what its process then exits with.

use crate::store::Text;
use leasekeeper_core::{Answer, Refusal};
use leasekeeper_wire::{Code, Failure};
use std::fmt;

/// What scripts branch on: the exit code. Most of them are those of `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The command line is wrong.
    Usage,
    /// What stands under the key is not what was named: no row, another version, or no lock row at all.
    Row,
    /// DynamoDB, or the sidecar, cannot be reached or gave no useful answer.
    Unavailable,
    /// A fault of this program, or of the system that it runs on.
    Fault,
    /// Somebody else holds the lock.
    Busy,
    /// The lock was lost while the command ran.
    Lost,
    /// A permission or the credentials are missing.
    Denied,
    /// A setting or the table is not what it must be.
    Config,
}

impl Kind {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Row => 65,
            Self::Unavailable => 69,
            Self::Fault => 70,
            Self::Busy => 75,
            Self::Lost => 76,
            Self::Denied => 77,
            Self::Config => 78,
        }
    }

    /// What helps against it, where the text does not say.
    fn advice(self) -> Option<&'static str> {
        match self {
            Self::Unavailable => Some("check the Region, the endpoint and the network, and try again"),
            Self::Denied => Some(
                "check the credentials, as `aws sts get-caller-identity` shows them, and that their policy allows the action on this table",
            ),
            Self::Config => Some(
                "check the table's name (--table or LEASEKEEPER_TABLE), the Region (--region or AWS_REGION) and the endpoint, if one is set; `leasekeeper table check` looks at the table, `leasekeeper table create` makes one",
            ),
            Self::Usage | Self::Row | Self::Fault | Self::Busy | Self::Lost => None,
        }
    }
}

/// One sentence for people, and what it is for scripts.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) kind: Kind,
    text: String,
    advice: Option<&'static str>,
}

impl Problem {
    /// The text says what to do, too.
    pub(super) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), advice: None }
    }

    /// What helps against its kind is said with it.
    pub(super) fn advised(kind: Kind, text: impl Into<String>) -> Self {
        Self { advice: kind.advice(), ..Self::new(kind, text) }
    }

    /// DynamoDB gave no answer that the command can work with.
    pub(super) fn unanswered(answer: Answer<Text>) -> Self {
        let (kind, text) = match answer {
            Answer::Throttled(text) | Answer::Unavailable(text) | Answer::Unknown(text) => (Kind::Unavailable, text),
            Answer::Denied(Refusal::Denied, text) => (Kind::Denied, text),
            Answer::Denied(Refusal::Config, text) => (Kind::Config, text),
            Answer::Done | Answer::Found(_) | Answer::Failed(_) => (Kind::Fault, "an unexpected answer".into()),
        };
        Self::advised(kind, text)
    }

    /// A lock request failed.
    pub(super) fn refused(failure: &Failure) -> Self {
        Self::advised(Self::kind_of(failure), &failure.message)
    }

    /// The same, by a sidecar: Region, network, credentials and table are its own.
    pub(super) fn refused_by_sidecar(failure: &Failure) -> Self {
        let kind = Self::kind_of(failure);
        let advice = match kind {
            Kind::Unavailable => Some("this is what the sidecar says: see its log, and try again"),
            Kind::Denied | Kind::Config => {
                Some("this is what the sidecar says: its own settings and credentials are meant, and its log says more")
            }
            _ => None,
        };
        Self { advice, ..Self::new(kind, &failure.message) }
    }

    fn kind_of(failure: &Failure) -> Kind {
        match failure.code {
            Code::Busy => Kind::Busy,
            Code::Lost => Kind::Lost,
            Code::Unavailable | Code::BudgetExhausted | Code::ExtensionMissing | Code::ReleaseUnconfirmed => {
                Kind::Unavailable
            }
            Code::Denied => Kind::Denied,
            Code::Config => Kind::Config,
            Code::ForeignRow => Kind::Row,
            _ => Kind::Fault,
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The same with words before it.
    pub(super) fn context(mut self, before: &str) -> Self {
        self.text = format!("{before}: {}", self.text);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.advice {
            Some(advice) => write!(f, "\n{advice}"),
            None => Ok(()),
        }
    }
}
