//! Acquires for an invocation that seems to be over: a repeated invocation carries its old id, and may be ahead of its INVOKE.

use crate::timing::INVOKE_WAIT;
use crate::{Acquire, Core, Entropy, LeaseId, Micros, Output, Refused, Symbol};

/// An acquire that waits for the INVOKE that would make its invocation the present one again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Deferred<S> {
    ask: Acquire<S>,
    /// On the timer clock.
    since: Micros,
}

impl<S> Deferred<S> {
    fn until(&self) -> Micros {
        self.since + INVOKE_WAIT
    }
}

impl<S: Symbol> Core<S> {
    pub(crate) fn defer(&mut self, ask: Acquire<S>) {
        let since = self.clock.timer;
        self.deferred.insert(ask.lease, Deferred { ask, since });
    }

    /// Ends a deferred acquire; false if there is none of this name.
    pub(crate) fn drop_deferred(&mut self, id: LeaseId, refused: Refused<S>) -> bool {
        let dropped = self.deferred.remove(&id).is_some();
        if dropped {
            self.emit(Output::Refused(id, refused));
        }
        dropped
    }

    /// No INVOKE came: what asked is left over from an invocation that is over.
    pub(crate) fn expire_deferred(&mut self) {
        let now = self.clock.timer;
        let late: Vec<_> = self.deferred.iter().filter(|(_, held)| held.until() <= now).map(|(id, _)| *id).collect();
        for id in late {
            self.deferred.remove(&id);
            self.emit(Output::Refused(id, Refused::BudgetExhausted));
        }
    }

    /// The INVOKE came: its acquires begin, with what is left of their time.
    pub(crate) fn begin_deferred<E: Entropy<S>>(&mut self, scope: &S, entropy: &mut E) {
        let of_scope = |held: &Deferred<S>| held.ask.scope.as_ref() == Some(scope);
        let ready: Vec<_> = self.deferred.iter().filter(|(_, held)| of_scope(held)).map(|(id, _)| *id).collect();
        for id in ready {
            let Some(Deferred { mut ask, since }) = self.deferred.remove(&id) else { continue };
            let waited = self.clock.timer - since;
            ask.wait = ask.wait.saturating_sub(waited);
            ask.remaining = ask.remaining.map(|remaining| remaining.saturating_sub(waited));
            self.acquire(ask, entropy);
        }
    }

    pub(crate) fn deferred_wakeups(&self) -> impl Iterator<Item = Micros> {
        self.deferred.values().map(|held| held.until().saturating_sub(self.clock.timer))
    }
}
