//! The store's row of the one key, with DynamoDB's conditions, and what may yet become of it.

use super::bounds::{Bounds, Broken, Mistake};
use super::client::{Client, Message};
use super::ids::Id;
use super::{Locks, Moments, Rule, State};
use leasekeeper_core::{Answer, Op, Row, Seen};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The row, and which of the ids under way have had their time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    pub(crate) row: Option<Row<Id>>,
    /// Owners that were replaced, or whose release was confirmed: a write checked under one must be refused.
    pub(crate) closed: BTreeSet<Id>,
    /// Versions that were committed.
    pub(crate) committed: BTreeSet<Id>,
}

/// Does the condition hold, or as much of it as is sent?
fn passes(row: Option<&Row<Id>>, op: &Op<Id>, mistake: Option<Mistake>) -> bool {
    let is = |owner: &Id| row.is_some_and(|row| row.owner == *owner);
    let at = |owner: &Id, version: &Id| row.is_some_and(|row| row.owner == *owner && row.version == *version);
    match (op, mistake) {
        (Op::Read, _) => false,
        (Op::Replace { .. }, Some(Mistake::TakeoverUnconditional))
        | (Op::Delete { .. }, Some(Mistake::DeleteUnconditional)) => row.is_some(),
        (Op::Replace { owner, .. }, Some(Mistake::TakeoverOnOwner))
        | (Op::Renew { owner, .. }, Some(Mistake::RenewOnOwner)) => is(owner),
        (Op::Create { .. }, _) => row.is_none(),
        (Op::Replace { owner, version, .. }, _) => at(owner, version),
        (Op::Renew { owner, last, .. }, _) => at(owner, last),
        (Op::Delete { owner }, _) => is(owner),
    }
}

/// The owner and version that a write would leave behind.
fn writes(op: &Op<Id>) -> Option<(Id, Id)> {
    match op {
        Op::Create { row } | Op::Replace { row, .. } => Some((row.owner, row.version)),
        Op::Renew { owner, new, .. } => Some((*owner, *new)),
        Op::Read | Op::Delete { .. } => None,
    }
}

impl Table {
    pub(crate) fn apply(&mut self, op: &Op<Id>, mistake: Option<Mistake>) -> (Answer<Id>, Option<Rule>) {
        let seen = self.row.clone().map_or(Seen::Nothing, Seen::Row);
        if *op == Op::Read {
            return (Answer::Found(seen), None);
        }
        if !passes(self.row.as_ref(), op, mistake) {
            return (Answer::Failed(seen), None);
        }
        let mut broken = None;
        match op {
            Op::Create { row } | Op::Replace { row, .. } => {
                let replaced = self.row.replace(row.clone()).map(|old| old.owner).filter(|old| *old != row.owner);
                self.closed.extend(replaced);
                broken = self.closed.contains(&row.owner).then_some(Rule::Effect);
            }
            Op::Renew { new, .. } => {
                if let Some(row) = &mut self.row {
                    row.version = *new;
                }
            }
            Op::Delete { .. } => self.row = None,
            Op::Read => {}
        }
        if let Some((_, version)) = writes(op)
            && !self.committed.insert(version)
        {
            broken = broken.or(Some(Rule::Order));
        }
        (Answer::Done, broken)
    }

    /// The release of `owner` was confirmed to its client.
    pub(crate) fn close(&mut self, owner: Id) -> Option<Rule> {
        self.closed.insert(owner);
        self.row.as_ref().is_some_and(|row| row.owner == owner).then_some(Rule::Effect)
    }

    /// Forgets ids that can never stand in the row again, and messages that can never do anything again.
    pub(crate) fn prune(&mut self, clients: &mut [Arc<Client>; 2], mistake: Option<Mistake>) {
        loop {
            let mut rows: Vec<_> = self.row.iter().map(|row| (row.owner, row.version)).collect();
            rows.extend(clients.iter().flat_map(|client| &client.messages).filter_map(pending));
            let any = |owner: &Id| rows.iter().any(|(stands, _)| stands == owner);
            let moot = |message: &Message| {
                !message.awaited()
                    && match (&message.op, mistake) {
                        (Op::Read, _) => true,
                        (Op::Create { .. }, _) => false,
                        (Op::Replace { .. }, Some(Mistake::TakeoverUnconditional))
                        | (Op::Delete { .. }, Some(Mistake::DeleteUnconditional)) => false,
                        (Op::Replace { owner, .. }, Some(Mistake::TakeoverOnOwner))
                        | (Op::Renew { owner, .. }, Some(Mistake::RenewOnOwner))
                        | (Op::Delete { owner }, _) => !any(owner),
                        (Op::Replace { owner, version, .. }, _) => !rows.contains(&(*owner, *version)),
                        (Op::Renew { owner, last, .. }, _) => !rows.contains(&(*owner, *last)),
                    }
            };
            let mut pruned = false;
            for client in clients.iter_mut() {
                if client.messages.iter().any(moot) {
                    Arc::make_mut(client).messages.retain(|message| !moot(message));
                    pruned = true;
                }
            }
            if !pruned {
                let known = |id: &Id| rows.iter().any(|(owner, version)| owner == id || version == id);
                self.closed.retain(known);
                return self.committed.retain(known);
            }
        }
    }
}

/// What a message that has not arrived may yet write.
fn pending(message: &Message) -> Option<(Id, Id)> {
    message.answer.is_none().then(|| writes(&message.op)).flatten()
}

/// May this request arrive a second time?
pub(crate) fn may_come_twice(bounds: &Bounds, op: &Op<Id>) -> bool {
    match op {
        Op::Read => false,
        Op::Create { .. } => bounds.broken == Some(Broken::PutSentTwice),
        _ => bounds.broken != Some(Broken::PutSentTwice),
    }
}

impl State {
    /// A request reaches the store; `twice` leaves a copy of it under way.
    pub(crate) fn arrive(&mut self, model: &Locks, n: usize, at: usize, twice: bool) -> Option<()> {
        let message = self.clients[n].messages.get(at).filter(|message| message.answer.is_none())?;
        let (op, awaited) = (message.op.clone(), message.awaited());
        let before = self.table.row.clone();
        let (answer, broken) = self.table.apply(&op, model.bounds.mistake);
        self.fail(model, broken);
        if answer == Answer::Done {
            self.note(n, &op, awaited, before.map(|row| row.owner), &model.moments);
        }
        let client = Arc::make_mut(&mut self.clients[n]);
        if awaited {
            client.messages[at].answer = Some(answer);
        } else {
            client.messages.remove(at);
        }
        if twice {
            model.moments.resent.count();
            client.messages.push(Message { no: 0, op, answer: None, due: 0 });
        }
        Some(())
    }

    /// Counts what the search has come to see.
    fn note(&self, n: usize, op: &Op<Id>, awaited: bool, before: Option<Id>, moments: &Moments) {
        if !awaited {
            moments.late.count();
        }
        match op {
            Op::Renew { .. } => moments.renewed.count(),
            Op::Replace { .. } => {
                let other = &self.clients[1 - n];
                let old = other.guards.iter().find(|guard| guard.owner.is_some() && guard.owner == before);
                match old {
                    Some(guard) => {
                        moments.taken_over.count();
                        if guard.belief > 0 && guard.belief == other.unread() {
                            moments.met.count();
                        }
                    }
                    None => moments.replaced.count(),
                }
            }
            _ => {}
        }
    }
}
