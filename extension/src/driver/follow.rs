//! Tells how the present invocation stands with its locks, where the environment's freeze waits for them.

use super::task::Driver;
use crate::store::{Store, Text};
use leasekeeper_core::Standing;
use tokio::sync::watch;

/// The invocation that is told of.
pub(super) struct Followed {
    request_id: Text,
    told: watch::Sender<Option<Standing>>,
}

impl Followed {
    pub(super) fn new(request_id: Text, told: watch::Sender<Option<Standing>>) -> Self {
        Self { request_id, told }
    }
}

impl<S: Store> Driver<S> {
    pub(super) fn follow(&mut self) {
        let Some(followed) = &self.followed else { return };
        if followed.told.is_closed() {
            self.followed = None;
            return;
        }
        let standing = self.core.standing(&followed.request_id);
        // A lock that was refused, or given back, before anybody could look was asked for all the same.
        let asked = standing != Standing::Idle || self.asked_last.as_ref() == Some(&followed.request_id);
        let standing = asked.then_some(standing);
        followed.told.send_if_modified(|told| std::mem::replace(told, standing) != standing);
    }
}
