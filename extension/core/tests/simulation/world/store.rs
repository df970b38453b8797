//! A table with DynamoDB's conditions: every write is atomic, and a failed condition shows the row that stood there.

use leasekeeper_core::{Answer, Op, Row, Seen};
use std::collections::BTreeMap;

/// A row and when it was last written.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) row: Row<u64>,
    pub(crate) written: u64,
}

/// How much of a write's condition is sent: less than all of it only as a mistake on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Whole,
    OwnerOnly,
    None,
}

/// What a request did.
pub(crate) struct Effect {
    pub(crate) answer: Answer<u64>,
    /// The row whose owner lost its place by this write.
    pub(crate) removed: Option<Stored>,
    /// The write was committed though its whole condition did not hold.
    pub(crate) unconditional: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    pub(crate) rows: BTreeMap<u64, Stored>,
}

impl Store {
    pub(crate) fn seen(&self, key: u64) -> Seen<u64> {
        self.rows.get(&key).map_or(Seen::Nothing, |stored| Seen::Row(stored.row.clone()))
    }

    pub(crate) fn apply(&mut self, t: u64, key: u64, op: &Op<u64>, condition: Condition) -> Effect {
        let stored = self.rows.get(&key).cloned();
        let whole = match op {
            Op::Read => {
                return Effect { answer: Answer::Found(self.seen(key)), removed: None, unconditional: false };
            }
            Op::Create { .. } => stored.is_none(),
            Op::Replace { owner, version, .. } => is(&stored, *owner, Some(*version)),
            Op::Renew { owner, last, .. } => is(&stored, *owner, Some(*last)),
            Op::Delete { owner } => is(&stored, *owner, None),
        };
        let passes = whole
            || match (condition, op) {
                (Condition::Whole, _) | (_, Op::Create { .. } | Op::Read) => false,
                (Condition::OwnerOnly, Op::Replace { owner, .. } | Op::Renew { owner, .. } | Op::Delete { owner }) => {
                    is(&stored, *owner, None)
                }
                (Condition::None, _) => stored.is_some(),
            };
        if !passes {
            return Effect { answer: Answer::Failed(self.seen(key)), removed: None, unconditional: false };
        }
        let removed = match op {
            Op::Renew { .. } => None,
            _ => stored.clone(),
        };
        match op {
            Op::Create { row } | Op::Replace { row, .. } => {
                self.rows.insert(key, Stored { row: row.clone(), written: t });
            }
            Op::Renew { new, .. } => {
                if let Some(stored) = self.rows.get_mut(&key) {
                    stored.row.version = *new;
                    stored.written = t;
                }
            }
            Op::Delete { .. } => {
                self.rows.remove(&key);
            }
            Op::Read => {}
        }
        Effect { answer: Answer::Done, removed, unconditional: !whole }
    }
}

fn is(stored: &Option<Stored>, owner: u64, version: Option<u64>) -> bool {
    stored
        .as_ref()
        .is_some_and(|stored| stored.row.owner == owner && version.is_none_or(|version| stored.row.version == version))
}
