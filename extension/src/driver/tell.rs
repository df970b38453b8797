//! The core's outputs, performed: replies, events, log lines.

use super::describe;
use super::task::Driver;
use crate::log::key_shown;
use crate::store::{Store, Text};
use leasekeeper_core::{LeaseId, Micros, Now, Output, Refused};
use leasekeeper_wire::{Code, EventKind, LostReason};

impl<S: Store> Driver<S> {
    pub(super) fn perform(&mut self, output: Output<Text>, now: Now) {
        match output {
            Output::Send(request) => {
                let valid_until = self.book().record(request.lease).map_or(0, |record| record.valid_until());
                self.queue.push(request, valid_until, now);
            }
            Output::Granted { lease, owner, valid } => self.granted(lease, &owner, valid, now),
            Output::Refused(lease, refused) => {
                let key = self.shown(lease);
                let waited_ms = self.waited_ms(lease, now);
                let late_ms = self.late_ms(lease, now);
                let failure = self.book().refused(lease, &refused, waited_ms, late_ms);
                if refused == Refused::TakenBack {
                    tracing::info!(lease, key, waited_ms, "not acquired: its client left while it waited");
                } else if let Some(failure) = failure {
                    tracing::info!(lease, key, code = %failure.code, waited_ms, detail = failure.message, "not acquired");
                }
            }
            Output::Renewed(lease) => {
                let mut book = self.book();
                if let Some(record) = book.record(lease) {
                    record.metrics.renewals += 1;
                }
                book.event(lease, EventKind::Renewed);
            }
            Output::Danger(lease) => {
                let late_ms = self.late_ms(lease, now);
                tracing::warn!(lease, key = self.shown(lease), late_ms, "no renewal confirmed for most of the lease");
                self.book().event(lease, EventKind::Danger);
            }
            Output::Recovered(lease) => {
                tracing::info!(lease, key = self.shown(lease), "renewals are confirmed again");
                self.book().event(lease, EventKind::Recovered);
            }
            Output::Lost(lease, reason) => {
                let reason = describe::reason(reason);
                let late_ms = self.late_ms(lease, now).filter(|_| reason == LostReason::Expired);
                tracing::warn!(lease, key = self.shown(lease), %reason, late_ms, "lost");
                self.book().lost(lease, reason);
            }
            Output::Released { lease, confirmed } => self.released(lease, confirmed),
            Output::Thawed => self.store.drop_connections(),
        }
    }

    fn granted(&mut self, lease: LeaseId, owner: &str, valid: Micros, now: Now) {
        let waited_ms = self.waited_ms(lease, now);
        let table = self.settings.as_ref().map(|settings| settings.table.clone()).unwrap_or_default();
        tracing::info!(lease, key = self.shown(lease), owner, waited_ms, "granted");
        self.book().granted(lease, owner, &table, valid / 1_000, waited_ms);
    }

    fn released(&mut self, lease: LeaseId, confirmed: bool) {
        let key = self.shown(lease);
        let Some(record) = self.book().released(lease, confirmed) else { return };
        let metrics = record.metrics;
        if confirmed {
            tracing::info!(
                lease,
                key,
                renewals = metrics.renewals,
                writes = metrics.write_requests,
                reads = metrics.read_requests,
                "released"
            );
        } else {
            let code = Code::ReleaseUnconfirmed;
            tracing::error!(lease, key, %code, "release unconfirmed: the row may stand until its lease is over");
        }
    }

    /// How late this process got its turns lately, where that is much of the time that a request of this lease has.
    fn late_ms(&mut self, lease: LeaseId, now: Now) -> Option<u64> {
        let late_ms = self.lateness.worst(now) / 1_000;
        let lease_ms = self.book().record(lease).map(|record| record.lease_ms)?;
        (late_ms * 4 >= (lease_ms / 6).min(1_000)).then_some(late_ms)
    }

    fn waited_ms(&self, lease: LeaseId, now: Now) -> u64 {
        let asked = self.book().record(lease).map(|record| record.asked);
        asked.map_or(0, |asked| now.mono.saturating_sub(asked.mono) / 1_000)
    }

    /// The lease's key as logs show it.
    fn shown(&self, lease: LeaseId) -> String {
        let key = self.book().record(lease).map(|record| record.key.clone());
        match (&self.settings, key) {
            (Ok(settings), Some(key)) => key_shown(settings, &key).into_owned(),
            _ => String::new(),
        }
    }
}
