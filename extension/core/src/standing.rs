//! How an invocation stands with its locks: what decides whether its environment may be frozen.

use crate::lease::Phase;
use crate::{Core, Symbol};

/// How an invocation stands with its locks: the greatest that holds for any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It has none, or only such as it was told to be lost.
    Idle,
    /// What it held is being given back.
    GivingBack,
    /// It holds a lock or waits for one.
    Locked,
}

impl<S: Symbol> Core<S> {
    /// How the invocation `scope` stands with its locks.
    pub fn standing(&self, scope: &S) -> Standing {
        let own = self.leases.values().filter(|entry| entry.scope.as_ref() == Some(scope));
        let standings = own.map(|entry| match entry.phase {
            Phase::Waiting(_) | Phase::Holding(_) => Standing::Locked,
            Phase::Cleaning(_) => Standing::GivingBack,
            // Nobody works under it any more, and its row is safe with time alone.
            Phase::Lapsing { .. } => Standing::Idle,
        });
        standings.max().unwrap_or(Standing::Idle)
    }
}
