//! Wrong protocols, made from the right one by what reaches the core, what leaves it, or what a client believes.

/// A mistake made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The protocol as it is.
    None,
    /// All three readings are those of one clock: 0 boot, 1 mono, 2 wall.
    OneClock(usize),
    /// The maximum between two endpoints in place of the sum over readings.
    EndpointMaximum,
    /// A guard is valid for the whole lease.
    NoMargin,
    /// A contender waits for its own lease, not for the stored one.
    OwnLease,
    /// Renewals go without a condition.
    RenewUnconditional,
    /// Deletes go without a condition.
    DeleteUnconditional,
    /// Takeovers go without a condition.
    TakeoverUnconditional,
    /// Takeovers go on the owner alone.
    TakeoverOnOwner,
    /// A contender counts from when it sent the request that showed the row.
    ObserveFromSend,
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
    /// One throttle ends an acquire.
    ThrottleIsFinal,
    /// The clean-up is tried once.
    CleanOnce,
    /// What is given up for a cause of ours is released, though its client still believes.
    EarlyDelete,
    /// The extension does not look at the invocation's id.
    RequestIdIgnored,
}
