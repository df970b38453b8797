//! Tells how the present invocation stands with its locks, where the environment's freeze waits for them.

use super::ClientId;
use super::task::Driver;
use crate::store::{Store, Text};
use leasekeeper_core::Standing;
use std::collections::BTreeSet;
use tokio::sync::watch;

/// How an invocation stands with its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// It has asked for none.
    Unasked,
    /// It holds one, or waits for one.
    Locked,
    /// What it held is being given back.
    GivingBack,
    /// None is left, but a client that had one is still there: it may have yet to hear that.
    Told,
    /// None is left, nor a client that had one.
    Over,
}

/// The invocation that is told of.
pub(super) struct Followed {
    request_id: Text,
    told: watch::Sender<Locks>,
    /// Connections that asked for its locks, as long as they are open.
    clients: BTreeSet<ClientId>,
}

impl Followed {
    pub(super) fn new(request_id: Text, told: watch::Sender<Locks>) -> Self {
        Self { request_id, told, clients: BTreeSet::new() }
    }
}

impl<S: Store> Driver<S> {
    pub(super) fn follow(&mut self) {
        let Some(mut followed) = self.followed.take_if(|followed| !followed.told.is_closed()) else {
            self.followed = None;
            return;
        };
        let book = self.book();
        followed.clients.extend(book.clients_of(&followed.request_id));
        followed.clients.retain(|client| book.is_open(*client));
        drop(book);
        // A lock that was refused, or given back, before anybody could look was asked for all the same.
        let asked_last = self.asked_last.as_ref() == Some(&followed.request_id);
        let asked = asked_last || *followed.told.borrow() != Locks::Unasked;
        let locks = match self.core.standing(&followed.request_id) {
            Standing::Locked => Locks::Locked,
            Standing::GivingBack => Locks::GivingBack,
            Standing::Idle if !followed.clients.is_empty() => Locks::Told,
            Standing::Idle if asked => Locks::Over,
            Standing::Idle => Locks::Unasked,
        };
        followed.told.send_if_modified(|told| std::mem::replace(told, locks) != locks);
        self.followed = Some(followed);
    }
}
