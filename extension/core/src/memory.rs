//! What the core remembers between acquires, all of it bounded: rows seen, owners given up, invocations that are over.

use crate::timing::{ABANDONED_FOR, Lease};
use crate::{Micros, Row, Symbol};
use std::collections::{BTreeMap, VecDeque};

/// A row as it was first seen in its present form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Observation<S> {
    pub(crate) row: Row<S>,
    /// When the first reply that showed it was received, on the contender's clock.
    pub(crate) since: Micros,
    /// Orders evictions.
    used: u64,
}

impl<S> Observation<S> {
    /// For how long the row has been seen unchanged.
    pub(crate) fn unchanged(&self, seen_clock: Micros) -> Micros {
        seen_clock - self.since
    }

    /// What is left until the row may be taken over, if it stays as it is.
    pub(crate) fn ripe_in(&self, seen_clock: Micros) -> Micros {
        Lease::from_ms(self.row.lease_ms).full().saturating_sub(self.unchanged(seen_clock))
    }
}

/// The rows seen under foreign ownership; the least recently used ones are forgotten first, one by one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Observations<S> {
    by_key: BTreeMap<S, Observation<S>>,
    by_use: BTreeMap<u64, S>,
    limit: usize,
}

impl<S: Symbol> Observations<S> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { by_key: BTreeMap::new(), by_use: BTreeMap::new(), limit }
    }

    /// Notes that `row` stands under `key`; any change restarts the observation.
    pub(crate) fn note(&mut self, key: &S, row: &Row<S>, seen_clock: Micros) {
        let since = match self.by_key.get(key) {
            Some(old) if old.row == *row => old.since,
            _ => seen_clock,
        };
        self.forget(key);
        // No count of its own: two memories of the same rows in the same order are equal.
        let used = self.by_use.last_key_value().map_or(0, |(last, _)| last + 1);
        self.by_use.insert(used, key.clone());
        self.by_key.insert(key.clone(), Observation { row: row.clone(), since, used });
        if self.by_key.len() > self.limit
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
    }

    pub(crate) fn forget(&mut self, key: &S) {
        if let Some(old) = self.by_key.remove(key) {
            self.by_use.remove(&old.used);
        }
    }

    pub(crate) fn get(&self, key: &S) -> Option<&Observation<S>> {
        self.by_key.get(key)
    }
}

/// Owners of ours whose guard is over while their row may still stand, or may yet appear: nobody believes in them any more,
/// so a row that shows one is taken over without waiting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Abandoned<S> {
    until: BTreeMap<S, Micros>,
    order: VecDeque<(Micros, S)>,
    limit: usize,
}

impl<S: Symbol> Abandoned<S> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { until: BTreeMap::new(), order: VecDeque::new(), limit }
    }

    pub(crate) fn remember(&mut self, owner: &S, timer_clock: Micros) {
        let until = timer_clock + ABANDONED_FOR;
        if self.until.insert(owner.clone(), until).is_none() {
            self.order.push_back((until, owner.clone()));
        }
        while self.order.front().is_some_and(|(until, _)| *until <= timer_clock) || self.order.len() > self.limit {
            if let Some((_, owner)) = self.order.pop_front() {
                self.until.remove(&owner);
            }
        }
    }

    pub(crate) fn contains(&self, owner: &S, timer_clock: Micros) -> bool {
        self.until.get(owner).is_some_and(|until| timer_clock < *until)
    }

    /// The owner's row is known to be gone for good.
    pub(crate) fn forget(&mut self, owner: &S) {
        if self.until.remove(owner).is_some() {
            self.order.retain(|(_, remembered)| remembered != owner);
        }
    }
}

/// The invocation that was announced last and those that it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Invocations<S> {
    current: Option<S>,
    over: VecDeque<S>,
    limit: usize,
}

impl<S: Symbol> Invocations<S> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { current: None, over: VecDeque::new(), limit }
    }

    pub(crate) fn began(&mut self, scope: &S) {
        self.over.retain(|old| old != scope);
        if let Some(old) = self.current.replace(scope.clone())
            && old != *scope
        {
            self.over.push_back(old);
            if self.over.len() > self.limit {
                self.over.pop_front();
            }
        }
    }

    /// Was this invocation announced, and another one after it?
    pub(crate) fn is_over(&self, scope: &S) -> bool {
        self.over.contains(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(version: u32) -> Row<u32> {
        Row { owner: 1, version, lease_ms: 1 }
    }

    #[test]
    fn a_change_restarts_the_observation_and_a_repeat_does_not() {
        let mut seen = Observations::new(8);
        seen.note(&7, &row(1), 100);
        seen.note(&7, &row(1), 600);
        assert_eq!(seen.get(&7).map(|o| (o.unchanged(900), o.ripe_in(900))), Some((800, 200)));
        seen.note(&7, &row(2), 900);
        assert_eq!(seen.get(&7).map(|o| o.ripe_in(1_000)), Some(900));
    }

    #[test]
    fn the_least_recently_seen_key_is_forgotten_alone() {
        let mut seen = Observations::new(2);
        for key in [1, 2, 1, 3] {
            seen.note(&key, &row(1), 0);
        }
        assert!(seen.get(&2).is_none());
        assert!(seen.get(&1).is_some() && seen.get(&3).is_some());
        assert_eq!(seen.by_use.len(), 2);
    }

    #[test]
    fn owners_given_up_are_remembered_for_a_while_and_a_number() {
        let mut abandoned = Abandoned::new(2);
        for owner in [1, 2, 3] {
            abandoned.remember(&owner, 0);
        }
        assert!(!abandoned.contains(&1, 1) && abandoned.contains(&2, 1) && abandoned.contains(&3, 1));
        assert!(!abandoned.contains(&3, ABANDONED_FOR));
        abandoned.forget(&3);
        assert!(!abandoned.contains(&3, 1));
        assert_eq!(abandoned.order, [(ABANDONED_FOR, 2)]);
    }

    #[test]
    fn an_invocation_is_over_when_another_one_was_announced_after_it() {
        let mut invocations = Invocations::new(2);
        invocations.began(&1);
        assert!(!invocations.is_over(&1) && !invocations.is_over(&2));
        invocations.began(&2);
        assert!(invocations.is_over(&1) && !invocations.is_over(&2));
        invocations.began(&1);
        assert!(!invocations.is_over(&1), "a retried invocation carries its old id");
        invocations.began(&3);
        invocations.began(&4);
        assert_eq!(invocations.over, [1, 3], "two are remembered, as it was told");
    }
}
