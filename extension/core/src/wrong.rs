//! Rules got wrong on purpose, to see that the proofs find them. No release build can be made to break one.

use crate::timing::Lease;
use crate::{Core, LeaseId, Symbol};

/// A rule of the protocol, got wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(not(debug_assertions), expect(unreachable_pub, reason = "only tests name it"))]
pub enum WrongRule {
    /// A committed renewal counts from the send of the latest attempt, not of the one that the row names.
    AdoptFromLatest,
    /// A contender observes on the wall clock.
    ObserveOnWall,
    /// All Puts of one process carry one owner.
    OneOwner,
    /// All Puts of one acquire carry one owner.
    SameOwnerOnRetry,
    /// An acquire ends when its own row turns out too old, with budget left.
    ExpiredRowEnds,
    /// An attempt may take a third of the lease.
    SlowTimeouts,
    /// A delete that finds no row settles the matter, though a Put of unknown outcome may still land.
    NothingSettles,
    /// A row that an attempt of this process wrote is taken for somebody else's.
    OwnRowIsForeign,
    /// What was seen of a row is forgotten when the acquire ends.
    ForgetsObservations,
    /// A row that has ripened is taken over at the next poll.
    TakeoverAtNextPoll,
    /// A Put may start after the wait budget.
    PutsAfterBudget,
    /// Renewals do not wait after a thaw for the INVOKE that may end their invocation.
    NoThawWait,
}

/// What a core gets wrong: nothing, unless a test says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wrong<S> {
    rule: Option<WrongRule>,
    /// The owner of every Put, where there is only one.
    owner: Option<S>,
}

impl<S> Default for Wrong<S> {
    fn default() -> Self {
        Self { rule: None, owner: None }
    }
}

impl<S: Symbol> Core<S> {
    /// Breaks `rule` from now on. Exists only where debug assertions are on.
    #[cfg(debug_assertions)]
    pub fn get_wrong(&mut self, rule: WrongRule) {
        self.wrong.rule = Some(rule);
    }

    pub(crate) fn breaks(&self, rule: WrongRule) -> bool {
        cfg!(debug_assertions) && self.wrong.rule == Some(rule)
    }

    /// The lease that time-outs follow from.
    pub(crate) fn timed_by(&self, lease: Lease) -> Lease {
        if self.breaks(WrongRule::SlowTimeouts) { Lease::from_ms(lease.full() / 500) } else { lease }
    }

    /// The owner of this lease's next Put, if it is not to be a fresh one.
    pub(crate) fn wrong_owner(&mut self, id: LeaseId, fresh: &S) -> Option<S> {
        if self.breaks(WrongRule::SameOwnerOnRetry) {
            return self.leases.get(&id)?.puts.last().map(|put| put.owner.clone());
        }
        let one = self.breaks(WrongRule::OneOwner);
        one.then(|| self.wrong.owner.get_or_insert_with(|| fresh.clone()).clone())
    }
}
