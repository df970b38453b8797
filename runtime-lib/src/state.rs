//! What one connection knows: what waits to be written or answered, and how the lease stands.

use crate::LockError;
use crate::clock::Elapsed;
use leasekeeper_wire::{
    Checked, Event, EventKind, Failure, Granted, LostReason, MAX_LINE, Metrics, Op, Released, Request, ServerLine,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;

/// How many bytes may wait for an extension that does not read.
const MAX_UNWRITTEN: usize = MAX_LINE;

/// The answer to one request.
pub(crate) type Answered = Result<Value, LockError>;

/// How a lease stands. All but the first are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Asked for, held, or on its way back.
    Held,
    /// The extension said so, or is gone.
    Lost(LostReason),
    /// Given back, confirmed.
    Released,
    /// Given back as far as this side can: the extension goes on trying.
    Unconfirmed,
    /// This side closed the connection.
    Closed,
}

/// Not `Debug`: its bytes can have the key in them.
pub(crate) struct State {
    elapsed: Elapsed,
    /// What has arrived of a line that is not whole yet.
    partial: Vec<u8>,
    unwritten: Vec<u8>,
    next_id: u64,
    waiting: BTreeMap<u64, Waiting>,
    lease: Option<u64>,
    /// Until when, in elapsed time, the last answer said that the lease is valid.
    valid_until: Duration,
    phase: Phase,
    /// From before the release is written, the lease is not valid any more.
    releasing: bool,
    /// A check of our own is on its way.
    refreshing: bool,
    ended: bool,
    /// What the extension said before it closed.
    parting: Option<Failure>,
    /// What it said of the lease's loss or of a release without a confirmation.
    words: String,
    metrics: Metrics,
}

/// A request without its answer.
struct Waiting {
    kind: Kind,
    /// When it was sent: validity counts from before.
    sent: Duration,
    /// Nobody is told of a check of our own, nor of a release: its outcome is the phase.
    tell: Option<oneshot::Sender<Answered>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Acquire,
    Check,
    Refresh,
    Metrics,
    Release,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            elapsed: Elapsed::start(),
            partial: Vec::new(),
            unwritten: Vec::new(),
            next_id: 1,
            waiting: BTreeMap::new(),
            lease: None,
            valid_until: Duration::ZERO,
            phase: Phase::Held,
            releasing: false,
            refreshing: false,
            ended: false,
            parting: None,
            words: String::new(),
            metrics: Metrics::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn clocks(&mut self) -> &mut Elapsed {
        &mut self.elapsed
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.metrics
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        !self.ended && !self.unwritten.is_empty()
    }

    pub(crate) fn unwritten(&self) -> &[u8] {
        &self.unwritten
    }

    pub(crate) fn wrote(&mut self, count: usize) {
        self.unwritten.drain(..count);
    }

    fn release_is_unwritten(&self) -> bool {
        !self.unwritten.is_empty() && self.waiting.values().any(|waiting| waiting.kind == Kind::Release)
    }

    /// The number of the lease that is held.
    pub(crate) fn held(&self) -> Result<u64, LockError> {
        match (self.phase, self.lease) {
            (Phase::Held, Some(lease)) if !self.releasing => Ok(lease),
            (Phase::Lost(reason), _) => Err(self.lost(reason)),
            _ => Err(LockError::protocol("the lease was already given back")),
        }
    }

    /// The number of the lease whose figures the extension still tells: it keeps those of a lost one.
    pub(crate) fn lease_with_figures(&self) -> Option<u64> {
        let told = self.held().is_ok() || matches!(self.phase, Phase::Lost(_));
        self.lease.filter(|_| told && !self.ended)
    }

    fn lost(&self, reason: LostReason) -> LockError {
        let metrics = (self.metrics != Metrics::default()).then(|| Box::new(self.metrics));
        LockError::Lost { reason, message: self.words.clone(), metrics }
    }

    pub(crate) fn remaining(&mut self) -> Duration {
        match self.held() {
            Ok(_) => self.valid_until.saturating_sub(self.elapsed.now()),
            Err(_) => Duration::ZERO,
        }
    }

    /// How the hand-back ended.
    pub(crate) fn released(&self) -> Result<(), LockError> {
        match self.phase {
            Phase::Released => Ok(()),
            Phase::Lost(reason) => Err(self.lost(reason)),
            Phase::Closed => Err(LockError::ReleaseUnconfirmed {
                message: "its guard was dropped, and that does not wait for the confirmation".into(),
            }),
            Phase::Held | Phase::Unconfirmed => Err(LockError::ReleaseUnconfirmed { message: self.words.clone() }),
        }
    }

    /// Why a request got no answer.
    pub(crate) fn why_ended(&self) -> LockError {
        match (self.phase, &self.parting) {
            (_, Some(failure)) => failure.clone().into(),
            (Phase::Lost(reason), None) if self.lease.is_some() => self.lost(reason),
            (Phase::Closed | Phase::Released | Phase::Unconfirmed, None) => {
                LockError::protocol("the lease was already given back")
            }
            _ => LockError::ExtensionMissing {
                message: "the Leasekeeper extension closed the connection without an answer: see its log".into(),
            },
        }
    }

    pub(crate) fn ask(&mut self, op: Op) -> Result<oneshot::Receiver<Answered>, LockError> {
        if self.ended {
            return Err(self.why_ended());
        }
        if self.unwritten.len() > MAX_UNWRITTEN {
            return Err(LockError::Unavailable {
                message: "the extension does not read its requests: it is stopped or overloaded; see its log".into(),
            });
        }
        let kind = match &op {
            Op::Acquire(_) => Kind::Acquire,
            Op::Check { .. } => Kind::Check,
            Op::Release { .. } => Kind::Release,
            Op::Metrics { .. } | Op::Hello => Kind::Metrics,
        };
        let (tell, answer) = oneshot::channel();
        self.send(op, kind, Some(tell));
        Ok(answer)
    }

    pub(crate) fn release(&mut self) {
        if let (Phase::Held, Some(lease), false) = (self.phase, self.lease, self.releasing) {
            self.releasing = true;
            self.send(Op::Release { lease }, Kind::Release, None);
        }
    }

    /// The bound is over.
    pub(crate) fn give_up_release(&mut self) {
        self.settle(Phase::Unconfirmed);
    }

    pub(crate) fn close(&mut self) {
        self.settle(Phase::Closed);
        self.waiting.clear();
        self.ended = true;
    }

    fn send(&mut self, op: Op, kind: Kind, tell: Option<oneshot::Sender<Answered>>) {
        let id = self.next_id;
        self.next_id += 1;
        let sent = self.elapsed.now();
        self.unwritten.extend_from_slice(Request { id, op }.encode().as_bytes());
        self.waiting.insert(id, Waiting { kind, sent, tell });
    }

    fn settle(&mut self, phase: Phase) {
        if self.phase == Phase::Held {
            self.phase = phase;
            if phase == Phase::Unconfirmed {
                // Also where the extension goes on trying: whoever asked has no confirmation.
                self.metrics.cleanup_failures = 1;
            }
        }
    }

    /// Takes in what was read.
    pub(crate) fn arrived(&mut self, bytes: &[u8]) {
        // Another reading of the clocks, so that two that stop by turns are both caught.
        self.elapsed.now();
        self.partial.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(length) = self.partial[start..].iter().position(|byte| *byte == b'\n') {
            let line = ServerLine::decode(&self.partial[start..start + length]);
            start += length + 1;
            match line {
                Ok(ServerLine::Reply { id: Some(id), answer }) => self.answered(id, answer),
                Ok(ServerLine::Reply { id: None, answer }) => self.parting = answer.err(),
                Ok(ServerLine::Event(event)) => self.happened(event),
                Ok(ServerLine::Unknown) => {}
                Err(_) => return self.end(),
            }
        }
        self.partial.drain(..start);
        if self.partial.len() > MAX_LINE {
            self.end();
        }
    }

    /// Nothing comes or goes any more. A release that was written whole was asked for: its outcome is open, not its holder's loss.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        self.settle(if self.releasing && !self.release_is_unwritten() {
            Phase::Unconfirmed
        } else {
            Phase::Lost(LostReason::ExtensionFailed)
        });
        self.waiting.clear();
        self.unwritten.clear();
    }

    fn answered(&mut self, id: u64, answer: Result<Value, Failure>) {
        let Some(Waiting { kind, sent, tell }) = self.waiting.remove(&id) else { return };
        if kind == Kind::Refresh {
            self.refreshing = false;
        }
        match &answer {
            Ok(value) => self.succeeded(kind, sent, value),
            Err(failure) => self.failed(kind, failure),
        }
        if let Some(tell) = tell {
            let _ = tell.send(answer.map_err(LockError::from));
        }
    }

    fn succeeded(&mut self, kind: Kind, sent: Duration, value: &Value) {
        match kind {
            Kind::Acquire => {
                if let Ok(granted) = serde_json::from_value::<Granted>(value.clone()) {
                    self.lease = Some(granted.lease);
                    // The extension granted no earlier than its own wait after it was asked.
                    let waited = Duration::from_millis(granted.waited_ms);
                    let granted_at = sent.saturating_add(waited).min(self.elapsed.now());
                    self.valid(granted_at, granted.valid_ms);
                }
            }
            Kind::Check | Kind::Refresh => {
                if let Ok(checked) = serde_json::from_value::<Checked>(value.clone()) {
                    self.valid(sent, checked.valid_ms);
                }
            }
            Kind::Metrics => self.take_metrics(serde_json::from_value(value.clone()).ok()),
            Kind::Release => {
                let released = serde_json::from_value::<Released>(value.clone()).ok();
                self.take_metrics(released.map(|released| released.metrics));
                self.settle(Phase::Released);
            }
        }
    }

    fn failed(&mut self, kind: Kind, failure: &Failure) {
        self.take_metrics(failure.metrics);
        match (kind, LockError::from(failure.clone())) {
            (Kind::Acquire, _) => {}
            (_, LockError::Lost { reason, message, .. }) => {
                self.words = message;
                self.settle(Phase::Lost(reason));
            }
            (Kind::Release, _) => {
                self.words.clone_from(&failure.message);
                self.settle(Phase::Unconfirmed);
            }
            _ => {}
        }
    }

    /// Validity never moves back: what an earlier answer promised still holds.
    fn valid(&mut self, sent: Duration, valid_ms: u64) {
        self.valid_until = self.valid_until.max(sent.saturating_add(Duration::from_millis(valid_ms)));
    }

    fn take_metrics(&mut self, metrics: Option<Metrics>) {
        if let Some(metrics) = metrics {
            self.metrics = metrics;
        }
    }

    fn happened(&mut self, event: Event) {
        if Some(event.lease) != self.lease {
            return;
        }
        match event.kind {
            EventKind::Lost { reason } => self.settle(Phase::Lost(reason)),
            EventKind::Renewed | EventKind::Recovered if !self.refreshing && self.held().is_ok() => {
                self.refreshing = true;
                self.send(Op::Check { lease: event.lease }, Kind::Refresh, None);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasekeeper_wire::Acquire;

    const SECOND: Duration = Duration::from_secs(1);

    fn held(valid_ms: u64, took: Duration) -> State {
        let mut state = State::new();
        let _answer = state.ask(Op::Acquire(Acquire::default())).expect("a fresh connection");
        state.elapsed.skip(took);
        let grant = format!(
            r#"{{"id":1,"ok":{{"lease":7,"valid_ms":{valid_ms},"lease_ms":20000,"owner":"o","table":"t","token":null}}}}"#
        );
        state.arrived(format!("{grant}\n").as_bytes());
        state
    }

    #[test]
    fn validity_counts_from_before_the_request_was_sent() {
        let mut state = held(18_000, 10 * SECOND);
        let remaining = state.remaining();
        assert!(remaining <= 8 * SECOND && remaining > 7 * SECOND, "{remaining:?}");
        assert_eq!(held(18_000, 18 * SECOND).remaining(), Duration::ZERO);
    }

    #[test]
    fn a_long_wait_takes_nothing_from_the_validity() {
        let mut state = State::new();
        let _answer = state.ask(Op::Acquire(Acquire::default())).expect("a fresh connection");
        state.elapsed.skip(30 * SECOND);
        let grant =
            r#"{"lease":7,"valid_ms":18000,"lease_ms":20000,"owner":"o","table":"t","token":null,"waited_ms":29500}"#;
        state.arrived(format!("{{\"id\":1,\"ok\":{grant}}}\n").as_bytes());
        let remaining = state.remaining();
        assert!(remaining <= 17_500 * SECOND / 1_000 && remaining > 17 * SECOND, "{remaining:?}");
    }

    #[test]
    fn validity_runs_out_without_any_word_and_is_no_loss_by_itself() {
        let mut state = held(18_000, Duration::ZERO);
        state.elapsed.skip(18 * SECOND);
        assert_eq!(state.remaining(), Duration::ZERO);
        assert_eq!(state.phase(), Phase::Held);
    }

    #[test]
    fn one_question_at_a_time_keeps_validity_fresh() {
        let mut state = held(18_000, Duration::ZERO);
        state.unwritten.clear();
        let renewed = b"{\"event\":\"renewed\",\"lease\":7}\n";
        state.arrived(renewed);
        state.arrived(renewed);
        let questions = state.unwritten.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(questions, 1);
        state.arrived(b"{\"id\":2,\"ok\":{\"valid_ms\":30000}}\n");
        assert!(state.remaining() > 18 * SECOND);
        state.arrived(renewed);
        assert_eq!(state.unwritten.iter().filter(|byte| **byte == b'\n').count(), 2);
    }

    #[test]
    fn what_is_final_stays() {
        let mut state = held(18_000, Duration::ZERO);
        state.arrived(b"{\"event\":\"lost\",\"lease\":7,\"reason\":\"stolen\"}\n");
        state.arrived(b"{\"event\":\"recovered\",\"lease\":7}\n{\"event\":\"lost\",\"lease\":7,\"reason\":\"thaw\"}\n");
        state.end();
        assert_eq!(state.phase(), Phase::Lost(LostReason::Stolen));
        assert_eq!(state.remaining(), Duration::ZERO);
    }

    #[test]
    fn a_release_without_its_confirmation_is_counted_whoever_gave_up() {
        let mut state = held(18_000, Duration::ZERO);
        state.release();
        state.give_up_release();
        assert_eq!((state.phase(), state.metrics().cleanup_failures), (Phase::Unconfirmed, 1));

        let mut state = held(18_000, Duration::ZERO);
        state.release();
        state.arrived(b"{\"id\":2,\"error\":{\"code\":\"release_unconfirmed\",\"message\":\"\"}}\n");
        assert_eq!((state.phase(), state.metrics().cleanup_failures), (Phase::Unconfirmed, 1));

        let mut state = held(18_000, Duration::ZERO);
        state.give_up_release();
        state.close();
        state.give_up_release();
        assert_eq!(state.metrics().cleanup_failures, 1, "counted once");
    }

    #[test]
    fn a_release_that_never_went_out_is_the_extensions_failure() {
        let mut state = held(18_000, Duration::ZERO);
        state.unwritten.clear();
        state.release();
        state.end();
        assert_eq!(state.phase(), Phase::Lost(LostReason::ExtensionFailed));

        let mut state = held(18_000, Duration::ZERO);
        state.release();
        state.wrote(state.unwritten().len());
        state.end();
        assert_eq!(state.phase(), Phase::Unconfirmed);
    }
}
