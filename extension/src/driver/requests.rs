//! Requests to the store: sent once, a bounded number at a time, counted for the lease they are sent for.

use super::task::Driver;
use crate::clock;
use crate::store::{Note, Request, Response, Store, Text};
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use leasekeeper_core::{Answer, Input, LeaseId, Micros, Now, Op, RequestNo, StoreRequest};
use std::time::Duration;

/// Requests to the store under way at a time; more wait here, renewals first.
const MAX_IN_FLIGHT: usize = 64;
/// A connection that was idle for longer, on any clock, may be dead without knowing it.
const MAX_IDLE: Micros = 20_000_000;

/// A request under way.
pub(super) struct Sent {
    lease: LeaseId,
    key: Text,
    /// For the log: what was asked of the store.
    verb: &'static str,
    at: Now,
}

impl<S: Store> Driver<S> {
    /// Sends what waits, as far as there are places.
    pub(super) fn send_queued(&mut self, now: Now) {
        while self.sent.len() < MAX_IN_FLIGHT
            && let Some((request, queued)) = self.queue.pop()
        {
            let waited = now.mono.saturating_sub(queued.mono);
            let left = request.connect_timeout.saturating_sub(waited);
            if left <= request.timeout / 4 {
                // Sent now it would have little time for an answer, and could land when its outcome is called unknown.
                let response = nothing_known(Answer::Unavailable("too many requests under way".into()));
                let _ = self.answers.send((request.no, response));
                self.note_sent(&request, now);
                continue;
            }
            self.send(request, left, now);
        }
    }

    /// `left` is for when the core calls its outcome unknown.
    fn send(&mut self, request: StoreRequest<Text>, left: Micros, now: Now) {
        if idle(self.last_answer, now) > MAX_IDLE && self.sent.is_empty() {
            self.store.drop_connections();
        }
        let mut note = Note::default();
        if let Some(record) = self.book().record(request.lease) {
            note = record.note.clone();
            match request.op {
                Op::Read => record.metrics.read_requests += 1,
                _ => record.metrics.write_requests += 1,
            }
        }
        if matches!(request.op, Op::Create { .. } | Op::Replace { .. }) {
            note.acquired_at = utc(now.wall);
        }
        self.note_sent(&request, now);
        let no = request.no;
        let (timeout, connect_timeout) = (request.timeout.min(left), request.connect_timeout.min(left));
        let (timeout, connect_timeout) = (Duration::from_micros(timeout), Duration::from_micros(connect_timeout));
        let request = Request { key: request.key, op: request.op, timeout, connect_timeout, note };
        let (store, answers) = (self.store.clone(), self.answers.clone());
        tokio::spawn(async move {
            // A task of its own: a panic in the store's client is an answer too.
            let answer = tokio::spawn(async move { store.send(request).await }).await;
            let response = answer.unwrap_or_else(|fault| nothing_known(Answer::Unknown(fault.to_string())));
            // The driver is gone only when the process is about to end.
            let _ = answers.send((no, response));
        });
    }

    fn note_sent(&mut self, request: &StoreRequest<Text>, now: Now) {
        let sent = Sent { lease: request.lease, key: request.key.clone(), verb: verb(&request.op), at: now };
        self.sent.insert(request.no, sent);
    }

    pub(super) fn answered(&mut self, no: RequestNo, response: Response) {
        let Some(sent) = self.sent.remove(&no) else { return };
        let now = clock::now();
        self.note_answer(&sent, &response, now);
        self.handle(Input::Answer(no, response.answer));
    }

    fn note_answer(&mut self, sent: &Sent, response: &Response, now: Now) {
        match &response.answer {
            Answer::Done | Answer::Found(_) | Answer::Failed(_) => {
                self.trips.note(now, now.mono.saturating_sub(sent.at.mono));
                self.last_answer = now;
            }
            Answer::Denied(_, text) => tracing::error!(verb = sent.verb, detail = text, "DynamoDB refuses"),
            Answer::Throttled(text) | Answer::Unavailable(text) | Answer::Unknown(text) => {
                tracing::debug!(verb = sent.verb, detail = text, "request failed");
            }
        }
        let mut book = self.book();
        if let Some(note) = &response.note {
            for record in book.waiting_for(&sent.key) {
                record.blocker = Some(note.clone());
            }
        }
        let Some(record) = book.record(sent.lease) else { return };
        let metrics = &mut record.metrics;
        metrics.consumed_read_units += response.read_units;
        metrics.consumed_write_units += response.write_units;
        match &response.answer {
            Answer::Done => record.written = sent.at,
            Answer::Found(_) => {}
            Answer::Failed(_) => metrics.conditional_failures += 1,
            Answer::Denied(_, text) => {
                metrics.request_failures += 1;
                record.refusal = Some(text.clone());
            }
            _ => metrics.request_failures += 1,
        }
    }
}

/// A reading of the wall clock as people read it, to the second.
fn utc(wall: Micros) -> Option<String> {
    let seconds = i64::try_from(wall / 1_000_000).ok()?;
    DateTime::from_secs(seconds).fmt(Format::DateTime).ok()
}

fn nothing_known(answer: Answer<Text>) -> Response {
    Response { answer, note: None, read_units: 0.0, write_units: 0.0 }
}

fn verb<T>(op: &Op<T>) -> &'static str {
    match op {
        Op::Create { .. } => "create",
        Op::Replace { .. } => "replace",
        Op::Read => "read",
        Op::Renew { .. } => "renew",
        Op::Delete { .. } => "delete",
    }
}

/// The time between two readings, as the clock that saw most of it tells.
fn idle(since: Now, now: Now) -> Micros {
    let boot = now.boot.saturating_sub(since.boot);
    boot.max(now.mono.saturating_sub(since.mono)).max(now.wall.saturating_sub(since.wall))
}
