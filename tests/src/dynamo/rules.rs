//! Which requests meet which fault.

use super::fault::{Fault, Operation};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A fault that waits for its requests. Says once, of any key, unless told otherwise; stays when this handle is dropped.
#[derive(Clone, Debug)]
pub struct Rule {
    rules: Rules,
    number: usize,
}

impl Rule {
    /// It meets so many requests.
    pub fn times(self, times: usize) -> Self {
        self.change(|entry| entry.left = times);
        self
    }

    /// It meets every request until [`Rule::lift`].
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }

    /// It lets so many of its requests pass first.
    pub fn after(self, pass: usize) -> Self {
        self.change(|entry| entry.pass = pass);
        self
    }

    /// It meets requests for this key only.
    pub fn key(self, key: &str) -> Self {
        self.change(|entry| entry.key = Some(key.to_owned()));
        self
    }

    /// It meets no more requests.
    pub fn lift(&self) {
        self.change(|entry| entry.left = 0);
    }

    /// How many requests it has met.
    pub fn hits(&self) -> usize {
        self.change(|entry| entry.hits)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Entry) -> T) -> T {
        change(&mut self.rules.entries()[self.number])
    }
}

/// All rules of a front, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    operation: Operation,
    fault: Fault,
    key: Option<String>,
    pass: usize,
    left: usize,
    hits: usize,
}

impl Rules {
    pub(super) fn add(&self, operation: Operation, fault: Fault) -> Rule {
        let mut entries = self.entries();
        entries.push(Entry { operation, fault, key: None, pass: 0, left: 1, hits: 0 });
        Rule { rules: self.clone(), number: entries.len() - 1 }
    }

    /// The fault that this request meets, by the oldest rule that is for it.
    pub(super) fn meet(&self, operation: Operation, key: Option<&str>) -> Option<Fault> {
        for entry in self.entries().iter_mut() {
            let meant = entry.operation.matches(operation) && (entry.key.is_none() || entry.key.as_deref() == key);
            if !meant || entry.left == 0 {
                continue;
            }
            if entry.pass > 0 {
                entry.pass -= 1;
                continue;
            }
            entry.left -= 1;
            entry.hits += 1;
            return Some(entry.fault);
        }
        None
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
