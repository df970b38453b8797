//! Requests that wait for a place: renewals before all others, the most urgent first.

use crate::store::Text;
use leasekeeper_core::{Micros, Now, Op, RequestNo, StoreRequest};
use std::collections::{BTreeMap, VecDeque};

/// A request, and since when it waits.
type Waiting = (StoreRequest<Text>, Now);

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By the end of what is known to be valid: where there are more than can be served in time, none is passed over again and again.
    renewals: BTreeMap<(Micros, RequestNo), Waiting>,
    /// In the order in which they came.
    others: VecDeque<Waiting>,
}

impl Queue {
    /// `valid_until` is when the request's lease is over unless it is renewed, on the monotonic clock.
    pub(super) fn push(&mut self, request: StoreRequest<Text>, valid_until: Micros, now: Now) {
        match request.op {
            Op::Renew { .. } => drop(self.renewals.insert((valid_until, request.no), (request, now))),
            _ => self.others.push_back((request, now)),
        }
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        self.renewals.pop_first().map(|(_, waiting)| waiting).or_else(|| self.others.pop_front())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.renewals.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_go_first_by_their_urgency_and_all_others_in_their_order() {
        let text = || Text::from("x");
        let renew = || Op::Renew { owner: text(), last: text(), new: text() };
        let mut queue = Queue::default();
        for (no, op, until) in [
            (1, Op::Read, 0),
            (2, renew(), 700),
            (3, Op::Delete { owner: text() }, 0),
            (4, renew(), 500),
            (5, renew(), 700),
        ] {
            let request = StoreRequest { no, lease: no, key: text(), op, timeout: 1, connect_timeout: 1 };
            queue.push(request, until, Now { boot: 0, mono: no, wall: 0 });
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(request, at)| (request.no, at.mono)).collect();
        assert_eq!(order, [(4, 4), (2, 2), (5, 5), (1, 1), (3, 3)]);
        assert!(queue.is_empty());
    }
}
