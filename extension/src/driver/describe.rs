//! The core's outcomes in the socket's words, with what a person can do about them.

use crate::store::Text;
use leasekeeper_core::{LostReason as CoreReason, Refusal, Refused};
use leasekeeper_wire::{Code, Failure, LostReason};
use std::time::Duration;

pub(super) fn reason(reason: CoreReason) -> LostReason {
    match reason {
        CoreReason::Stolen => LostReason::Stolen,
        CoreReason::Expired => LostReason::Expired,
        CoreReason::Deleted => LostReason::Deleted,
        CoreReason::Denied => LostReason::Denied,
        CoreReason::Throttled => LostReason::Throttled,
        CoreReason::Deadline => LostReason::Deadline,
        CoreReason::Thaw => LostReason::Thaw,
        CoreReason::Shutdown => LostReason::Shutdown,
        CoreReason::ExtensionFailed => LostReason::ExtensionFailed,
        CoreReason::MaxHold => LostReason::MaxHold,
    }
}

/// `late_ms` is how late this process got its turns on the CPU, where that is much of an attempt's time.
pub(super) fn refused(refused: &Refused<Text>, lease_ms: u64, late_ms: Option<u64>) -> Failure {
    match refused {
        Refused::Busy { retry_after, .. } => Failure {
            retry_after_ms: Some(retry_after.div_ceil(1_000)),
            ..Failure::new(Code::Busy, "another owner holds the lock and the wait is over")
        },
        Refused::Unavailable(last) => Failure::new(Code::Unavailable, unavailable(last, lease_ms, late_ms)),
        Refused::BudgetExhausted => budget_exhausted(),
        Refused::Denied(Refusal::Denied, text) => Failure::new(Code::Denied, text.clone()),
        Refused::Denied(Refusal::Config, text) => Failure::new(Code::Config, text.clone()),
        Refused::Foreign(text) => Failure::new(
            Code::ForeignRow,
            format!("the row under this key is not a lock of protocol version 1 and is left alone: {text}"),
        ),
        Refused::GivenUp(CoreReason::Deadline | CoreReason::Thaw) => budget_exhausted(),
        Refused::GivenUp(CoreReason::Shutdown) => Failure::new(
            Code::Unavailable,
            "Leasekeeper is ending here and grants no new locks: ask again once it runs anew",
        ),
        // Nobody is left to read this: it goes to the log.
        Refused::TakenBack => Failure::new(Code::Unavailable, "the client closed its connection while it waited"),
        Refused::GivenUp(reason) => {
            Failure::new(Code::Unavailable, format!("the wait was ended from this side: {}", self::reason(*reason)))
        }
    }
}

fn unavailable(last: &str, lease_ms: u64, late_ms: Option<u64>) -> String {
    let what = match late_ms {
        None => "DynamoDB gave no useful answer within the wait".into(),
        Some(late_ms) => format!(
            "no useful answer of DynamoDB was seen within the wait, and Leasekeeper's own process may be why: it got its turn on the CPU up to {late_ms} ms late, so it has too little CPU or was stopped"
        ),
    };
    format!(
        "{what}; the last attempt: {last}. An attempt's time-out is a sixth of the lease ({lease_ms} ms), at most 1 s, or 3 s where a connection has to be made"
    )
}

/// Of an invocation with `remaining` left, `kept` are not there to wait in.
pub(super) fn too_late(remaining: Duration, kept: Duration) -> Failure {
    let message = format!(
        "{} ms are left of the invocation, of which {} ms are kept for the work and for giving back (LEASEKEEPER_RESERVE_MS, at least 200 ms): nothing is sent",
        remaining.as_millis(),
        kept.as_millis()
    );
    Failure::new(Code::BudgetExhausted, message)
}

fn budget_exhausted() -> Failure {
    Failure::new(Code::BudgetExhausted, "the invocation has no time left, or is over: nothing more is sent for it")
}

/// `cause` is what DynamoDB said, if it refused for good.
pub(super) fn lost(reason: LostReason, cause: Option<&str>) -> Failure {
    let what = match reason {
        LostReason::Stolen => "another owner's row stands under the key",
        LostReason::Expired => "no renewal was confirmed in time",
        LostReason::Deleted => "the row is gone though it was not given back",
        LostReason::Denied => "DynamoDB refused the renewal",
        LostReason::Throttled => "DynamoDB throttled the renewals until the lease was over",
        LostReason::Deadline => "the invocation's deadline has passed",
        LostReason::Thaw => "the environment woke for another invocation",
        LostReason::Shutdown => "the environment or the sidecar is shutting down",
        LostReason::ExtensionFailed => "the extension failed",
        LostReason::MaxHold => "the longest time to hold a lock (LEASEKEEPER_MAX_HOLD_MS) is over",
        _ => "the lease is over",
    };
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure { reason: Some(reason), ..Failure::new(Code::Lost, format!("the lock was lost: {what}{cause}")) }
}

/// `cause` is what DynamoDB said, if it refused for good.
pub(super) fn unconfirmed(lease_ms: u64, cause: Option<&str>) -> Failure {
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::new(
        Code::ReleaseUnconfirmed,
        format!(
            "DynamoDB has not confirmed that the row is gone; at the latest it can be taken over after its lease of {lease_ms} ms{cause}"
        ),
    )
}

pub(super) fn driver_failed() -> Failure {
    Failure::new(
        Code::Unavailable,
        "the extension failed and grants no more locks in this environment; its log has the cause",
    )
}

pub(super) fn no_such_lease(lease: u64) -> Failure {
    Failure::new(
        Code::Protocol,
        format!(
            "lease {lease} is not held on this connection: it was given back, lost long ago, or is another connection's"
        ),
    )
}
