//! One lease's state: it waits, is held, lapses, is cleaned up.

use crate::timing::{Backoff, Lease};
use crate::{LeaseId, LostReason, Micros, RequestNo, Row};

/// Everything known of one acquire and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry<S> {
    pub(crate) key: S,
    pub(crate) lease_ms: u64,
    pub(crate) scope: Option<S>,
    /// The invocation's end, on the held clock: the lease does not outlive it.
    pub(crate) deadline: Option<Micros>,
    /// How long it may be held once granted.
    pub(crate) max_hold: Option<Micros>,
    /// Every Put that may stand in the table or may yet appear there.
    pub(crate) puts: Vec<Put<S>>,
    pub(crate) phase: Phase<S>,
}

impl<S> Entry<S> {
    pub(crate) fn lease(&self) -> Lease {
        Lease::from_ms(self.lease_ms)
    }

    pub(crate) fn waiting(&self) -> Option<&Waiting<S>> {
        match &self.phase {
            Phase::Waiting(waiting) => Some(waiting),
            _ => None,
        }
    }

    pub(crate) fn waiting_mut(&mut self) -> Option<&mut Waiting<S>> {
        match &mut self.phase {
            Phase::Waiting(waiting) => Some(waiting),
            _ => None,
        }
    }

    pub(crate) fn holding(&self) -> Option<&Holding<S>> {
        match &self.phase {
            Phase::Holding(holding) => Some(holding),
            _ => None,
        }
    }

    pub(crate) fn holding_mut(&mut self) -> Option<&mut Holding<S>> {
        match &mut self.phase {
            Phase::Holding(holding) => Some(holding),
            _ => None,
        }
    }

    /// Is it held by a client that was told so?
    pub(crate) fn is_granted(&self) -> bool {
        self.holding().is_some_and(|holding| holding.ungranted.is_none())
    }

    pub(crate) fn flying(&self) -> bool {
        self.puts.iter().any(|put| put.state == PutState::Flying)
    }

    /// Is it held, or could a Put of it still prove to have landed in time to be granted? Then the clocks are read often.
    pub(crate) fn may_be_held(&self, held_clock: Micros) -> bool {
        match &self.phase {
            Phase::Holding(_) => true,
            Phase::Waiting(_) => self.puts.iter().any(|put| held_clock - put.sent < self.lease().validity()),
            Phase::Lapsing { .. } | Phase::Cleaning(_) => false,
        }
    }

    /// What time alone has ended of it, the weightiest first.
    pub(crate) fn end(&self, held_clock: Micros) -> Option<End> {
        let passed = |end: Option<Micros>| end.is_some_and(|end| held_clock >= end);
        let holding = self.holding();
        if holding.is_some_and(|holding| held_clock - holding.start >= self.lease().validity()) {
            Some(End::Validity)
        } else if passed(self.deadline) {
            Some(End::Invocation)
        } else {
            passed(holding.and_then(|holding| holding.hold_until)).then_some(End::LongestHold)
        }
    }

    /// Is it waiting for the key's poller, with nothing of its own under way?
    pub(crate) fn is_parked(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting.retry_at.is_none()) && !self.flying()
    }
}

/// What time can end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Validity,
    Invocation,
    LongestHold,
}

/// One Put attempt, each with an owner and a version of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Put<S> {
    pub(crate) no: RequestNo,
    pub(crate) owner: S,
    pub(crate) version: S,
    /// When it was sent, on the held clock: validity counts from here.
    pub(crate) sent: Micros,
    /// The owner and version it replaces; a plain Put has none and can land whenever the key is free.
    pub(crate) over: Option<(S, S)>,
    pub(crate) state: PutState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PutState {
    /// Its answer is still to come.
    Flying,
    /// It may have landed, or may yet land.
    Unknown,
    /// It is known to have landed.
    Landed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase<S> {
    Waiting(Waiting<S>),
    Holding(Holding<S>),
    /// Lost, and its client was told, but may still believe until the validity is over.
    Lapsing {
        until: Micros,
    },
    Cleaning(Cleaning<S>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting<S> {
    /// No Put starts after this, on the timer clock.
    pub(crate) until: Micros,
    /// In the one attempt of a zero wait, which it gets whole: a second request that follows at once from the first's answer.
    pub(crate) first: bool,
    /// When to try again after an answer that said nothing, on the timer clock.
    pub(crate) retry_at: Option<Micros>,
    pub(crate) backoff: Backoff,
    /// The foreign row that was seen last: what `busy` tells.
    pub(crate) saw: Option<Row<S>>,
    /// The last answer that said nothing: what `unavailable` tells.
    pub(crate) trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding<S> {
    pub(crate) owner: S,
    /// The version that the row had last, as far as is known.
    pub(crate) last: S,
    /// The send of the committed write that the validity counts from, on the held clock.
    pub(crate) start: Micros,
    /// Renewals that may have been committed: version and send time.
    pub(crate) renewals: Vec<(S, Micros)>,
    pub(crate) in_flight: Option<RequestNo>,
    /// When to try again after a failed renewal, on the timer clock.
    pub(crate) retry_at: Option<Micros>,
    /// Renew now, whatever the schedule says.
    pub(crate) renew_now: bool,
    pub(crate) in_danger: bool,
    /// What the last renewal ran into: the reason, should the validity end.
    pub(crate) trouble: Option<LostReason>,
    /// The acquire's state while the row is ours but too old to be granted.
    pub(crate) ungranted: Option<Waiting<S>>,
    /// The longest hold's end, on the held clock.
    pub(crate) hold_until: Option<Micros>,
}

impl<S> Holding<S> {
    /// Most of the validity has gone, and nobody was told yet.
    pub(crate) fn newly_in_danger(&self, lease: Lease, held_clock: Micros) -> bool {
        self.ungranted.is_none() && !self.in_danger && held_clock - self.start >= lease.danger_after()
    }

    /// The next renewal, or another attempt at it, is to be sent.
    pub(crate) fn renewal_is_due(&self, lease: Lease, held_clock: Micros, timer: Micros) -> bool {
        let due = match self.retry_at {
            Some(at) => timer >= at,
            None => self.renew_now || held_clock - self.start >= lease.renew_after(),
        };
        due && self.in_flight.is_none()
    }
}

/// Giving back every row that an acquire may have left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cleaning<S> {
    /// The owner whose end `Released` tells, until it was told.
    pub(crate) report: Option<S>,
    /// When to stop, on the timer clock.
    pub(crate) until: Micros,
    pub(crate) in_flight: Option<RequestNo>,
    /// When to send the next request, on the timer clock.
    pub(crate) next: Micros,
    pub(crate) backoff: Backoff,
    /// How many owners are still to be asked for in this round: the puts stand in the order of their turns.
    pub(crate) round: usize,
    /// A waiter of this environment is replacing the row: its Put stands in for the delete.
    pub(crate) handed_to: Option<RequestNo>,
}

/// Who waits for one key in this environment, first come first served, with the one poller they share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contest {
    pub(crate) waiters: Vec<LeaseId>,
    pub(crate) poll: Option<RequestNo>,
    /// When to poll next, on the timer clock.
    pub(crate) next: Micros,
    pub(crate) backoff: Backoff,
    /// Hand-overs inside this environment in a row: remote contenders get their turn after a few.
    pub(crate) handed: u32,
}

/// A request that was sent and not answered yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pending<S> {
    pub(crate) lease: LeaseId,
    pub(crate) key: S,
    pub(crate) kind: Kind<S>,
    /// When its outcome is called unknown, on the timer clock.
    pub(crate) expires: Micros,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind<S> {
    Put,
    Poll,
    Renew { version: S, sent: Micros },
    Delete { owner: S },
}
