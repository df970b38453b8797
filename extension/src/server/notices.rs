//! What the log is told once and not with every connection: how clients are watched, and that none can be accepted.

use super::peer::Watch;
use std::collections::BTreeSet;
use std::io;

/// What was said already.
#[derive(Debug, Default)]
pub(super) struct Notices {
    watched_by: BTreeSet<&'static str>,
    /// Since the last connection that could be accepted.
    not_accepted: u64,
}

impl Notices {
    /// Where the kernel does not tell of deaths, how soon a dead client's lock is free depends on what tells instead.
    pub(super) fn watched(&mut self, watch: &Watch) {
        let by = watch.by();
        if !matches!(watch, Watch::PidFd(_)) && self.watched_by.insert(by) {
            tracing::info!(by, "the kernel does not tell of a client's death: it is noticed by other means");
        }
    }

    pub(super) fn accepted(&mut self) {
        let failures = std::mem::take(&mut self.not_accepted);
        if failures > 0 {
            tracing::warn!(failures, "connections can be accepted again");
        }
    }

    /// Tried again many times a second: a line each would bury everything else.
    pub(super) fn not_accepted(&mut self, error: &io::Error) {
        self.not_accepted += 1;
        if self.not_accepted == 1 {
            tracing::error!(%error, "no connection can be accepted: trying again until one can, and saying so then");
        }
    }
}
