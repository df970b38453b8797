//! What is to happen, in the order of time; what comes at the same instant keeps the order in which it was planned.

use super::Event;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Default)]
pub(crate) struct Queue {
    planned: u64,
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// The events themselves, which the heap need not move; places are used again.
    events: Vec<Option<Event>>,
    free: Vec<usize>,
}

impl Queue {
    /// The next number in the order of planning.
    pub(crate) fn number(&mut self) -> u64 {
        self.planned += 1;
        self.planned
    }

    pub(crate) fn push(&mut self, t: u64, event: Event) {
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place] = Some(event);
                place
            }
            None => {
                self.events.push(Some(event));
                self.events.len() - 1
            }
        };
        let number = self.number();
        self.heap.push(Reverse((t, number, place)));
    }

    /// When the first event is due, and its number.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.heap.peek().map(|Reverse((t, number, _))| (*t, *number))
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        let Reverse((_, _, place)) = self.heap.pop()?;
        self.free.push(place);
        self.events[place].take()
    }
}
