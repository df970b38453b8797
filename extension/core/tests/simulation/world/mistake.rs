//! Wrong protocols: rules that the core itself gets wrong, and what can be wrong around it.

use leasekeeper_core::WrongRule;

/// A mistake made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// The protocol as it is.
    None,
    /// The core breaks one of its rules.
    Rule(WrongRule),
    /// All three readings are those of one clock: 0 boot, 1 mono, 2 wall.
    OneClock(usize),
    /// The maximum between two endpoints in place of the sum over readings.
    EndpointMaximum,
    /// A wall clock that steps back counts as time that has passed.
    WallStepBackIsTime,
    /// A guard is valid for the whole lease.
    NoMargin,
    /// A contender waits for its own lease, not for the stored one.
    OwnLease,
    /// Renewals go without a condition.
    RenewUnconditional,
    /// Renewals go on the owner alone.
    RenewOnOwner,
    /// Deletes go without a condition.
    DeleteUnconditional,
    /// Takeovers go without a condition.
    TakeoverUnconditional,
    /// Takeovers go on the owner alone.
    TakeoverOnOwner,
    /// A contender counts from when it sent the request that showed the row.
    ObserveFromSend,
    /// Every reading of a row starts its observation anew.
    ObserveAnew,
    /// Validity counts from the reply.
    ValidFromReply,
    /// The client believes until its release is answered.
    ValidUntilReleased,
    /// The observation goes on when only the version has changed.
    TimerKeyedByOwner,
    /// A retried renewal carries the version of the attempt before, and counts from the last send.
    SameVersionOnRetry,
    /// Answers are taken before the clocks are read: late success revives a guard.
    AnswerBeforeTime,
    /// A renewal that finds its own earlier version calls it another's.
    NoAdoption,
    /// A renewal that fails for whatever cause is not tried again.
    NoRenewalRetry,
    /// One throttle ends an acquire.
    ThrottleIsFinal,
    /// The clean-up is tried once.
    CleanOnce,
    /// What is given up for a cause of ours is released, though its client still believes.
    EarlyDelete,
    /// SHUTDOWN releases what clients that are still there hold.
    ShutdownDeletes,
    /// The extension does not look at the invocation's id.
    RequestIdIgnored,
    /// The extension does not look at what is left of the invocation.
    DeadlineIgnored,
    /// The longest hold is not looked at.
    MaxHoldIgnored,
    /// An acquire waits for longer than its client asked.
    WaitsTooLong,
}
