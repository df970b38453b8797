//! Who is connected, what each connection holds or waits for, and every lease's figures.

use super::{ClientId, describe};
use crate::outbox::Outbox;
use crate::store::{Note, Text};
use leasekeeper_core::{LeaseId, Micros, Now, Refused};
use leasekeeper_wire::{Event, EventKind, Failure, Granted, Holder, LostReason, Metrics, Released, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Everything that is told to clients goes through here; it outlives a driver that fails.
#[derive(Debug, Default)]
pub(super) struct Book {
    clients: BTreeMap<ClientId, Client>,
    records: BTreeMap<LeaseId, Record>,
    last_lease: LeaseId,
}

#[derive(Debug)]
struct Client {
    outbox: Outbox,
    leases: BTreeSet<LeaseId>,
}

/// One acquire and the lease that came of it.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) client: ClientId,
    pub(super) key: Text,
    pub(super) lease_ms: u64,
    /// What the row that blocks it says of its holder.
    pub(super) blocker: Option<Note>,
    pub(super) note: Note,
    pub(super) asked: Now,
    /// When the last write of it that is known to be committed was sent.
    pub(super) written: Now,
    pub(super) metrics: Metrics,
    /// What DynamoDB refused for good: the cause, where that ends the lease or leaves its row.
    pub(super) refusal: Option<String>,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// The acquire with this request id waits for its answer.
    Acquiring(u64),
    Held,
    Lost(LostReason),
    /// These requests wait to hear that it was given back.
    Releasing(Vec<u64>),
}

impl Book {
    pub(super) fn open(&mut self, client: ClientId, outbox: Outbox) {
        self.clients.insert(client, Client { outbox, leases: BTreeSet::new() });
    }

    /// Forgets the connection; its leases are the caller's to end.
    pub(super) fn close(&mut self, client: ClientId) -> BTreeSet<LeaseId> {
        let leases = self.clients.remove(&client).map(|client| client.leases).unwrap_or_default();
        // What is final has nobody left to hear of it.
        self.records.retain(|id, record| !(leases.contains(id) && matches!(record.state, State::Lost(_))));
        leases
    }

    /// How many keep the core busy, or may: a lost one does until its row, if it is ours, is deleted or given up.
    pub(super) fn leases(&self, now: Now) -> usize {
        self.records.values().filter(|record| !record.is_over(now)).count()
    }

    /// The connections with records of this invocation.
    pub(super) fn clients_of(&self, request_id: &str) -> impl Iterator<Item = ClientId> {
        let own = self.records.values().filter(move |record| record.note.request_id.as_deref() == Some(request_id));
        own.map(|record| record.client)
    }

    pub(super) fn is_open(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Of those that are lost and over as many are remembered as there may be others: whoever asks is told of its loss.
    pub(super) fn begin(&mut self, record: Record, most: usize, now: Now) -> LeaseId {
        while self.records.len() >= 2 * most
            && let Some(oldest) = self.records.iter().find_map(|(id, record)| record.is_over(now).then_some(*id))
        {
            self.forget(oldest);
        }
        self.last_lease += 1;
        let id = self.last_lease;
        if let Some(client) = self.clients.get_mut(&record.client) {
            client.leases.insert(id);
        }
        self.records.insert(id, record);
        id
    }

    pub(super) fn record(&mut self, lease: LeaseId) -> Option<&mut Record> {
        self.records.get_mut(&lease)
    }

    /// The record of a lease that belongs to this connection and was granted.
    pub(super) fn of_client(&mut self, client: ClientId, lease: LeaseId) -> Option<&mut Record> {
        let record = self.records.get_mut(&lease)?;
        (record.client == client && !matches!(record.state, State::Acquiring(_))).then_some(record)
    }

    /// Every acquire that waits for `key`.
    pub(super) fn waiting_for<'a>(&'a mut self, key: &'a str) -> impl Iterator<Item = &'a mut Record> {
        self.records
            .values_mut()
            .filter(move |record| matches!(record.state, State::Acquiring(_)) && *record.key == *key)
    }

    pub(super) fn reply(&self, client: ClientId, reply: &Reply) {
        self.line(client, reply.encode());
    }

    pub(super) fn fail(&self, client: ClientId, id: u64, failure: Failure) {
        self.reply(client, &Reply::error(Some(id), failure));
    }

    fn line(&self, client: ClientId, line: String) {
        if let Some(client) = self.clients.get(&client) {
            client.outbox.push(line);
        }
    }

    pub(super) fn event(&self, lease: LeaseId, kind: EventKind) {
        if let Some(record) = self.records.get(&lease) {
            self.line(record.client, Event { lease, kind }.encode());
        }
    }

    /// Tells everyone who holds a lease that it is renewed for no longer than `within` from now.
    pub(super) fn ending(&self, within: Duration) {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        for (lease, record) in &self.records {
            if matches!(record.state, State::Held) {
                self.event(*lease, EventKind::Ending { within_ms });
            }
        }
    }

    pub(super) fn granted(&mut self, lease: LeaseId, owner: &str, table: &str, valid_ms: u64, waited_ms: u64) {
        let Some(record) = self.records.get_mut(&lease) else { return };
        let State::Acquiring(request) = record.state else { return };
        record.state = State::Held;
        record.metrics.wait_ms = waited_ms;
        let granted = Granted {
            lease,
            valid_ms,
            lease_ms: record.lease_ms,
            owner: owner.into(),
            table: table.into(),
            token: None,
            waited_ms,
        };
        let client = record.client;
        self.reply(client, &Reply::ok(request, &granted));
    }

    /// Answers an acquire that failed and forgets it. `late_ms` is how late this process got its turns, where that matters.
    pub(super) fn refused(
        &mut self,
        lease: LeaseId,
        refused: &Refused<Text>,
        waited_ms: u64,
        late_ms: Option<u64>,
    ) -> Option<Failure> {
        let mut record = self.forget(lease)?;
        let State::Acquiring(request) = record.state else { return None };
        record.metrics.wait_ms = waited_ms;
        record.metrics.wait_timeouts = u64::from(matches!(refused, Refused::Busy { .. } | Refused::Unavailable(_)));
        let mut failure = describe::refused(refused, record.lease_ms, late_ms);
        if let Refused::Busy { holder, unchanged, .. } = refused {
            let note = record.blocker.take().unwrap_or_default();
            failure.holder = Some(Holder {
                owner: holder.owner.to_string(),
                lease_ms: holder.lease_ms,
                unchanged_ms: unchanged / 1_000,
                function: note.function,
                request_id: note.request_id,
                log_stream: note.log_stream,
                host: note.host,
            });
        }
        failure.metrics = Some(record.metrics);
        self.fail(record.client, request, failure.clone());
        Some(failure)
    }

    /// Tells a holder that its lease is over.
    pub(super) fn lost(&mut self, lease: LeaseId, reason: LostReason) {
        let Some(record) = self.records.get_mut(&lease) else { return };
        record.metrics.lost = 1;
        record.state = State::Lost(reason);
        let client = record.client;
        self.event(lease, EventKind::Lost { reason });
        if !self.clients.contains_key(&client) {
            self.forget(lease);
        }
    }

    /// Answers everyone who waits to hear that the lease was given back, and forgets it.
    pub(super) fn released(&mut self, lease: LeaseId, confirmed: bool) -> Option<Record> {
        let mut record = self.forget(lease)?;
        record.metrics.cleanup_failures = u64::from(!confirmed);
        if let State::Releasing(requests) = &record.state {
            for request in requests {
                if confirmed {
                    self.reply(record.client, &Reply::ok(*request, &Released { metrics: record.metrics }));
                } else {
                    self.fail(record.client, *request, record.unconfirmed_failure());
                }
            }
        }
        Some(record)
    }

    /// Takes a lost lease off the books once its client has let go of it.
    pub(super) fn forget(&mut self, lease: LeaseId) -> Option<Record> {
        let record = self.records.remove(&lease)?;
        if let Some(client) = self.clients.get_mut(&record.client) {
            client.leases.remove(&lease);
        }
        Some(record)
    }

    /// The driver is gone: nothing is renewed any more, and nothing will be answered.
    pub(super) fn driver_failed(&mut self) {
        let leases: Vec<_> = self.records.keys().copied().collect();
        for lease in leases {
            let Some(record) = self.records.get(&lease) else { continue };
            let client = record.client;
            match &record.state {
                State::Acquiring(request) => self.fail(client, *request, describe::driver_failed()),
                State::Held => self.event(lease, EventKind::Lost { reason: LostReason::ExtensionFailed }),
                State::Releasing(requests) => {
                    for request in requests {
                        self.fail(client, *request, record.unconfirmed_failure());
                    }
                }
                State::Lost(_) => {}
            }
        }
        self.records.clear();
    }
}

impl Record {
    /// When its validity is over unless it is renewed, on the monotonic clock and as far as is known here: what is urgent.
    pub(super) fn valid_until(&self) -> Micros {
        self.written.mono.saturating_add(self.lease_ms.saturating_mul(900))
    }

    /// Is it lost, and has its row been left alone or given up, too? It is tried to delete for 0.6 of the lease, 10 s at most.
    fn is_over(&self, now: Now) -> bool {
        let deleting = self.lease_ms.saturating_mul(600).min(10_000_000);
        matches!(self.state, State::Lost(_)) && now.mono >= self.valid_until().saturating_add(deleting)
    }

    pub(super) fn lost_failure(&self, reason: LostReason) -> Failure {
        let cause = self.refusal.as_deref().filter(|_| reason == LostReason::Denied);
        Failure { metrics: Some(self.metrics), ..describe::lost(reason, cause) }
    }

    fn unconfirmed_failure(&self) -> Failure {
        let failure = describe::unconfirmed(self.lease_ms, self.refusal.as_deref());
        Failure { metrics: Some(self.metrics), ..failure }
    }
}
