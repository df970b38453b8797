//! What goes into the core and what comes out of it.

use std::fmt::Debug;
use std::hash::Hash;

/// A duration or a clock's reading, in microseconds.
pub type Micros = u64;

/// Names a lease, from its acquire on; chosen by the driver, never reused.
pub type LeaseId = u64;

/// Names a store request; chosen by the core, never reused.
pub type RequestNo = u64;

/// Keys, owners, versions and invocation ids: strings in production, small integers under a model checker.
pub trait Symbol: Clone + Ord + Hash + Debug {}
impl<T: Clone + Ord + Hash + Debug> Symbol for T {}

/// What is random, drawn by the driver's own means.
pub trait Entropy<S> {
    /// A fresh id that was never drawn before: an owner or a version.
    fn id(&mut self) -> S;
    /// Uniform in 0..=1000: spreads retries and polls.
    fn jitter(&mut self) -> u64;
}

/// One reading of the three clocks. Each may stop or step; the core trusts none alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Now {
    /// `CLOCK_BOOTTIME`: goes on over a suspend.
    pub boot: Micros,
    /// `CLOCK_MONOTONIC`: may stop over a freeze.
    pub mono: Micros,
    /// `CLOCK_REALTIME`: may step.
    pub wall: Micros,
}

/// A lock row as far as the protocol goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row<S> {
    /// The acquisition that wrote it.
    pub owner: S,
    /// The write that was last committed.
    pub version: S,
    /// The holder's lease, in milliseconds.
    pub lease_ms: u64,
}

/// What stands under a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seen<S> {
    /// No row.
    Nothing,
    /// A row of lock protocol version 1.
    Row(Row<S>),
    /// Something that another library wrote, with what is foreign about it.
    Foreign(String),
}

/// A request to the store. Every write is conditional.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op<S> {
    /// Put `row` if the key has none.
    Create {
        /// The row to write.
        row: Row<S>,
    },
    /// Put `row` over the row that has exactly this owner and version.
    Replace {
        /// The row to write.
        row: Row<S>,
        /// The owner it replaces.
        owner: S,
        /// The version it replaces.
        version: S,
    },
    /// Read the row, consistently.
    Read,
    /// Move the version of `owner`'s row from `last` to `new`.
    Renew {
        /// The row's owner.
        owner: S,
        /// The version it must have.
        last: S,
        /// The version it gets.
        new: S,
    },
    /// Delete the row if it is `owner`'s.
    Delete {
        /// The row's owner.
        owner: S,
    },
}

/// A store request to be sent once, now, and never re-sent below the core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreRequest<S> {
    /// Comes back with the answer.
    pub no: RequestNo,
    /// The lease it is sent for: figures go by it.
    pub lease: LeaseId,
    /// The row's key.
    pub key: S,
    /// What to do.
    pub op: Op<S>,
    /// When to give up on an open connection.
    pub timeout: Micros,
    /// When to give up where a connection has to be made first.
    pub connect_timeout: Micros,
}

/// Why the store refuses for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A permission or the credentials are missing.
    Denied,
    /// The table is missing or not what it must be, or the request does not fit it.
    Config,
}

/// The store's answer to one request. The texts are for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer<S> {
    /// The write is committed.
    Done,
    /// The read found this.
    Found(Seen<S>),
    /// The condition did not hold; this stood there.
    Failed(Seen<S>),
    /// Not applied: throttled, or in conflict with a transaction.
    Throttled(String),
    /// Not applied: it never reached the store.
    Unavailable(String),
    /// Nobody knows: the write may have been committed, or may yet be.
    Unknown(String),
    /// Not applied, and asking again does not help.
    Denied(Refusal, String),
}

/// What an acquire asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire<S> {
    /// The lease's name from now on.
    pub lease: LeaseId,
    /// The lock.
    pub key: S,
    /// The lease to write, in milliseconds.
    pub lease_ms: u64,
    /// How long attempts may start; 0 tries once.
    pub wait: Micros,
    /// The invocation it belongs to, if any.
    pub scope: Option<S>,
    /// What is left of the invocation: then the lease is given up.
    pub remaining: Option<Micros>,
    /// How long it may be held at most.
    pub max_hold: Option<Micros>,
}

/// What happens to the core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input<S> {
    /// A client wants a lock.
    Acquire(Acquire<S>),
    /// The client asked to give it back, closed its side, or its process is proven dead: the row may be deleted early.
    Release(LeaseId),
    /// The lease ends for a cause of ours while its client may still believe: the row is deleted only when that is over.
    GiveUp(LeaseId, LostReason),
    /// The store answered.
    Answer(RequestNo, Answer<S>),
    /// Time has passed.
    Tick,
    /// An invocation began: leases of other invocations are given up.
    InvocationBegan {
        /// Its id.
        scope: S,
        /// What is left of it.
        remaining: Option<Micros>,
    },
    /// The end is near: no new locks, and whoever waits is told so; what is held stays until it is given back.
    Drain,
    /// The environment ends: no new locks; what is held by clients that are still there is given up.
    Shutdown,
}

/// Why a lease ended before its holder gave it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LostReason {
    /// Another owner's row stands under the key.
    Stolen,
    /// No renewal was confirmed in time.
    Expired,
    /// The row is gone though nobody here gave it back.
    Deleted,
    /// The store refused the renewal for good.
    Denied,
    /// No renewal was confirmed in time, the last answers being throttles.
    Throttled,
    /// The invocation's deadline has passed.
    Deadline,
    /// The environment woke for another invocation.
    Thaw,
    /// The environment is shutting down.
    Shutdown,
    /// A part of the extension failed.
    ExtensionFailed,
    /// The longest time to hold a lease is over.
    MaxHold,
}

/// Why an acquire ended without the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refused<S> {
    /// Somebody else holds it and the wait budget is over.
    Busy {
        /// The row that was seen last.
        holder: Row<S>,
        /// For how long it has been seen unchanged.
        unchanged: Micros,
        /// When it can be taken over at the earliest, if it stays unchanged.
        retry_after: Micros,
    },
    /// The wait budget is over and the store never gave a useful answer.
    Unavailable(String),
    /// The invocation has no time left, or is over: nothing was sent.
    BudgetExhausted,
    /// The store refuses for good.
    Denied(Refusal, String),
    /// The row is another library's.
    Foreign(String),
    /// It was given up from this side while it waited.
    GivenUp(LostReason),
    /// Its client took it back, or is gone, while it waited.
    TakenBack,
}

/// What the core wants done or told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output<S> {
    /// Send this to the store.
    Send(StoreRequest<S>),
    /// The lease is held.
    Granted {
        /// Which.
        lease: LeaseId,
        /// The row's owner.
        owner: S,
        /// How long it is valid from now without another renewal.
        valid: Micros,
    },
    /// The acquire ended without the lock. Final.
    Refused(LeaseId, Refused<S>),
    /// A renewal was confirmed.
    Renewed(LeaseId),
    /// Most of the lease has passed without a confirmed renewal; reversible.
    Danger(LeaseId),
    /// A renewal was confirmed after danger.
    Recovered(LeaseId),
    /// The lease is over. Final.
    Lost(LeaseId, LostReason),
    /// Giving it back is over: is the row known to be gone? Final.
    Released {
        /// Which.
        lease: LeaseId,
        /// False when the clean-up budget ended first.
        confirmed: bool,
    },
    /// Time has jumped while leases were held: connections that were open before it may be dead.
    Thawed,
}
