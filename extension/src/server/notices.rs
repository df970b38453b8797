//! What the log is told once and not with every connection: how clients are watched, and that none can be accepted.

use super::peer::Watch;
use leasekeeper_core::{Micros, Now};
use std::collections::BTreeSet;
use std::io;

/// So long nothing may fail before it is said that all is well again.
const CALM: Micros = 1_000_000;

/// What was said already.
#[derive(Debug, Default)]
pub(super) struct Notices {
    watched_by: BTreeSet<&'static str>,
    trouble: Option<Trouble>,
}

/// No connection could be accepted, and that was said.
#[derive(Debug)]
struct Trouble {
    failures: u64,
    /// When the last one was.
    last: Micros,
}

impl Notices {
    /// Where the kernel does not tell of deaths, how soon a dead client's lock is free depends on what tells instead.
    pub(super) fn watched(&mut self, watch: &Watch) {
        let by = watch.by();
        if !matches!(watch, Watch::PidFd(_)) && self.watched_by.insert(by) {
            tracing::info!(by, "the kernel does not tell of a client's death: it is noticed by other means");
        }
    }

    pub(super) fn accepted(&mut self, now: Now) {
        // While descriptors come free one by one, success and failure take turns.
        if let Some(Trouble { failures, .. }) = self.trouble.take_if(|trouble| now.mono - trouble.last >= CALM) {
            tracing::warn!(failures, "connections can be accepted again");
        }
    }

    /// Tried again many times a second: a line each would bury everything else.
    pub(super) fn not_accepted(&mut self, error: &io::Error, now: Now) {
        if self.trouble.is_none() {
            tracing::error!(%error, "no connection can be accepted: trying again until one can, and saying so then");
        }
        let failures = self.trouble.as_ref().map_or(0, |trouble| trouble.failures) + 1;
        self.trouble = Some(Trouble { failures, last: now.mono });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_over_once_nothing_has_failed_for_a_while() {
        let at = |mono| Now { boot: 0, mono, wall: 0 };
        let mut notices = Notices::default();
        notices.accepted(at(1));
        for (mono, failures) in [(2, 1), (3, 2), (900_000, 3)] {
            notices.not_accepted(&io::Error::other("no descriptors"), at(mono));
            notices.accepted(at(mono + 1));
            assert_eq!(notices.trouble.as_ref().map(|trouble| trouble.failures), Some(failures));
        }
        notices.accepted(at(900_000 + CALM));
        assert!(notices.trouble.is_none());
    }
}
