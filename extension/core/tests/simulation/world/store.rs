//! A table with DynamoDB's conditions: every write is atomic, and a failed condition shows the row that stood there.

use leasekeeper_core::{Answer, Op, Row, Seen};

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

/// What stands under a key, and since when nothing does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) stored: Option<Stored>,
    pub(crate) free_since: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    places: [Place; 2],
    /// Owners whose row was deleted or replaced: none of them may come back.
    pub(crate) gone: Vec<u64>,
}

impl Store {
    pub(crate) fn place(&self, key: u64) -> &Place {
        &self.places[key as usize]
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Stored> {
        self.places.iter().filter_map(|place| place.stored.as_ref())
    }

    /// Somebody deletes the row by hand.
    pub(crate) fn delete_by_hand(&mut self, t: u64, key: u64) {
        self.places[key as usize] = Place { stored: None, free_since: t };
    }

    pub(crate) fn apply(&mut self, t: u64, key: u64, op: &Op<u64>, condition: Condition) -> Effect {
        let place = &mut self.places[key as usize];
        let stored = place.stored.as_ref();
        let seen = |stored: Option<&Stored>| stored.map_or(Seen::Nothing, |stored| Seen::Row(stored.row.clone()));
        let whole = match op {
            Op::Read => {
                return Effect { answer: Answer::Found(seen(stored)), removed: None, unconditional: false };
            }
            Op::Create { .. } => stored.is_none(),
            Op::Replace { owner, version, .. } => is(stored, *owner, Some(*version)),
            Op::Renew { owner, last, .. } => is(stored, *owner, Some(*last)),
            Op::Delete { owner } => is(stored, *owner, None),
        };
        let passes = whole
            || match (condition, op) {
                (Condition::Whole, _) | (_, Op::Create { .. } | Op::Read) => false,
                (Condition::OwnerOnly, Op::Replace { owner, .. } | Op::Renew { owner, .. } | Op::Delete { owner }) => {
                    is(stored, *owner, None)
                }
                (Condition::None, _) => stored.is_some(),
            };
        if !passes {
            return Effect { answer: Answer::Failed(seen(stored)), removed: None, unconditional: false };
        }
        let removed = match op {
            Op::Create { row } | Op::Replace { row, .. } => {
                place.stored.replace(Stored { row: row.clone(), written: t })
            }
            Op::Delete { .. } => {
                place.free_since = t;
                place.stored.take()
            }
            Op::Renew { new, .. } => {
                if let Some(stored) = &mut place.stored {
                    stored.row.version = *new;
                    stored.written = t;
                }
                None
            }
            Op::Read => None,
        };
        self.gone.extend(removed.as_ref().map(|stored| stored.row.owner));
        Effect { answer: Answer::Done, removed, unconditional: !whole }
    }
}

fn is(stored: Option<&Stored>, owner: u64, version: Option<u64>) -> bool {
    stored
        .is_some_and(|stored| stored.row.owner == owner && version.is_none_or(|version| stored.row.version == version))
}
