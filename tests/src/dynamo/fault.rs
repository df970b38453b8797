//! What can be done to a request, and to which.

use std::time::Duration;

/// An operation that a lock client may send, or a command that a person runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Acquire and takeover.
    PutItem,
    /// The contended read.
    GetItem,
    /// Renewal.
    UpdateItem,
    /// Release.
    DeleteItem,
    /// An application's transaction.
    TransactWriteItems,
    /// A command's list of all rows.
    Scan,
    /// A command's new table.
    CreateTable,
    /// A command's look at a table.
    DescribeTable,
    /// The same, at its time to live.
    DescribeTimeToLive,
    /// The same, at its backups.
    DescribeContinuousBackups,
    /// A command turns a table's backups on.
    UpdateContinuousBackups,
    /// In a rule: each of them. No request is recorded as this.
    Any,
}

impl Operation {
    /// Is a request of the operation `other` meant?
    pub fn matches(self, other: Self) -> bool {
        self == Self::Any || self == other
    }

    /// Has no lock client, but only a person who runs a command, use for it?
    pub(super) fn is_for_people(self) -> bool {
        matches!(
            self,
            Self::Scan
                | Self::CreateTable
                | Self::DescribeTable
                | Self::DescribeTimeToLive
                | Self::DescribeContinuousBackups
                | Self::UpdateContinuousBackups
        )
    }

    pub(super) fn of_target(target: &str) -> Option<Self> {
        match target.rsplit_once('.')?.1 {
            "PutItem" => Some(Self::PutItem),
            "GetItem" => Some(Self::GetItem),
            "UpdateItem" => Some(Self::UpdateItem),
            "DeleteItem" => Some(Self::DeleteItem),
            "TransactWriteItems" => Some(Self::TransactWriteItems),
            "Scan" => Some(Self::Scan),
            "CreateTable" => Some(Self::CreateTable),
            "DescribeTable" => Some(Self::DescribeTable),
            "DescribeTimeToLive" => Some(Self::DescribeTimeToLive),
            "DescribeContinuousBackups" => Some(Self::DescribeContinuousBackups),
            "UpdateContinuousBackups" => Some(Self::UpdateContinuousBackups),
            _ => None,
        }
    }
}

/// What happens to a request. Unless a name says `Commit` or `Delay`, the store never sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// HTTP 400, `ProvisionedThroughputExceededException`.
    Throttle,
    /// HTTP 400, `TransactionConflictException`.
    TransactionConflict,
    /// HTTP 500, `InternalServerError`.
    InternalError,
    /// HTTP 503, `ServiceUnavailable`.
    Unavailable,
    /// HTTP 400, `AccessDeniedException`.
    AccessDenied,
    /// Another error of the service: its HTTP status, code and message.
    Error(u16, &'static str, &'static str),
    /// HTTP 200 and this JSON: what the emulator cannot be made to say.
    Answer(&'static str),
    /// An answer that is not DynamoDB's: this HTTP status and an HTML page.
    Alien(u16),
    /// The connection is closed before anything happens.
    Drop,
    /// Never answered; the connection stays open.
    Hang,
    /// Committed; then the connection is closed without a reply.
    CommitThenDrop,
    /// Committed; then HTTP 500, `InternalServerError`.
    CommitThenError,
    /// Committed; never answered.
    CommitThenHang,
    /// Committed; half of the reply's body comes, then the connection is closed.
    CommitThenTear,
    /// Forwarded after this time, even if the client has gone away meanwhile.
    DelayBefore(Duration),
    /// Forwarded at once, answered after this time.
    DelayAfter(Duration),
}

impl Fault {
    /// The error that a client is told, with its HTTP status.
    pub(super) fn error(self) -> Option<(u16, &'static str, &'static str)> {
        match self {
            Self::Throttle => Some((400, "ProvisionedThroughputExceededException", "The request rate is too high.")),
            Self::TransactionConflict => Some((400, "TransactionConflictException", "A transaction holds the item.")),
            Self::InternalError | Self::CommitThenError => Some((500, "InternalServerError", "An internal error.")),
            Self::Unavailable => Some((503, "ServiceUnavailable", "The service is not available.")),
            Self::AccessDenied => Some((400, "AccessDeniedException", "No policy allows the action.")),
            Self::Error(status, code, message) => Some((status, code, message)),
            _ => None,
        }
    }

    /// Does the store get to see the request?
    pub fn commits(self) -> bool {
        matches!(
            self,
            Self::CommitThenDrop
                | Self::CommitThenError
                | Self::CommitThenHang
                | Self::CommitThenTear
                | Self::DelayBefore(_)
                | Self::DelayAfter(_)
        )
    }
}
