//! Requests that wait for a place: renewals before all others, each kind in the order in which it came.

use crate::store::Text;
use leasekeeper_core::{Now, Op, StoreRequest};
use std::collections::VecDeque;

type Waiting = (StoreRequest<Text>, Now);

#[derive(Debug, Default)]
pub(super) struct Queue {
    renewals: VecDeque<Waiting>,
    others: VecDeque<Waiting>,
}

impl Queue {
    pub(super) fn push(&mut self, request: StoreRequest<Text>, now: Now) {
        let queue = if matches!(request.op, Op::Renew { .. }) { &mut self.renewals } else { &mut self.others };
        queue.push_back((request, now));
    }

    /// The next one, with the moment since when it waits.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        self.renewals.pop_front().or_else(|| self.others.pop_front())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.renewals.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_go_first_and_nothing_overtakes_its_kind() {
        let text = || Text::from("x");
        let renew = || Op::Renew { owner: text(), last: text(), new: text() };
        let mut queue = Queue::default();
        for (no, op) in [(1, Op::Read), (2, renew()), (3, Op::Delete { owner: text() }), (4, renew()), (5, renew())] {
            let request = StoreRequest { no, lease: no, key: text(), op, timeout: 1, connect_timeout: 1 };
            queue.push(request, Now { boot: 0, mono: no, wall: 0 });
        }
        let order: Vec<_> =
            std::iter::from_fn(|| queue.pop()).map(|(request, since)| (request.no, since.mono)).collect();
        assert_eq!(order, [(2, 2), (4, 4), (5, 5), (1, 1), (3, 3)]);
        assert!(queue.is_empty());
    }
}
