//! Acquire: the first attempt, the contended wait, observation and takeover, reconciliation of unknown outcomes.

use crate::lease::{Cleaning, Entry, Holding, Kind, Phase, Put, PutState, Waiting};
use crate::timing::{Backoff, LONGEST_PAUSE, LONGEST_THROTTLED_PAUSE, Lease};
use crate::wrong::WrongRule;
use crate::{
    Acquire, Answer, Core, Entropy, LeaseId, LostReason, Micros, Op, Output, Refused, RequestNo, Row, Seen, Symbol,
};

impl<S: Symbol> Core<S> {
    pub(crate) fn acquire<E: Entropy<S>>(&mut self, ask: Acquire<S>, entropy: &mut E) {
        let over = ask.scope.as_ref().is_some_and(|scope| self.invocations.is_over(scope));
        if self.ending {
            return self.emit(Output::Refused(ask.lease, Refused::GivenUp(LostReason::Shutdown)));
        }
        if ask.remaining == Some(0) {
            return self.emit(Output::Refused(ask.lease, Refused::BudgetExhausted));
        }
        if over {
            return self.defer(ask);
        }
        // One that waits asks nothing that is known here, and overtakes nobody who waits already.
        let blocker = (ask.wait > 0).then(|| self.blocker(&ask.key)).flatten();
        let waiting = Waiting {
            until: self.clock.timer.saturating_add(ask.wait),
            first: ask.wait == 0,
            retry_at: None,
            backoff: Backoff::new(),
            saw: blocker.clone(),
            trouble: None,
        };
        let entry = Entry {
            key: ask.key.clone(),
            lease_ms: ask.lease_ms,
            scope: ask.scope,
            deadline: ask.remaining.map(|remaining| self.clock.held.saturating_add(remaining)),
            max_hold: ask.max_hold,
            puts: Vec::new(),
            phase: Phase::Waiting(waiting),
        };
        self.leases.insert(ask.lease, entry);
        self.by_key.entry(ask.key.clone()).or_default().insert(ask.lease);
        self.queue_up(&ask.key, ask.lease);
        if blocker.is_none() {
            self.attempt(ask.lease, entropy);
        }
    }

    /// May the row under `key` be replaced now, as far as is known? Its owner and version, if so.
    pub(crate) fn replaceable(&self, key: &S) -> Option<(S, S)> {
        let seen = self.observations.get(key)?;
        // Nobody looks again at a row that is held here, so what was once seen of it ripens though it is renewed.
        if self.of_key(key).filter_map(Entry::holding).any(|holding| holding.owner == seen.row.owner) {
            return None;
        }
        let foreign = self.breaks(WrongRule::OwnRowIsForeign);
        let ours = !foreign && self.abandoned.contains(&seen.row.owner, self.clock.timer);
        (ours || seen.ripe_in(self.clock.seen) == 0).then(|| (seen.row.owner.clone(), seen.row.version.clone()))
    }

    /// Sends a Put with an owner and a version of its own: over a row that may be replaced, else a plain one.
    pub(crate) fn attempt<E: Entropy<S>>(&mut self, id: LeaseId, entropy: &mut E) {
        let Some(entry) = self.leases.get(&id) else { return };
        let over = self.replaceable(&entry.key);
        self.send_put(id, over, entropy);
    }

    pub(crate) fn send_put<E: Entropy<S>>(&mut self, id: LeaseId, over: Option<(S, S)>, entropy: &mut E) -> RequestNo {
        let lease_ms = self.leases.get(&id).map_or(0, |entry| entry.lease_ms);
        let fresh = entropy.id();
        let owner = self.wrong_owner(id, &fresh).unwrap_or(fresh);
        let row = Row { owner, version: entropy.id(), lease_ms };
        let (owner, version) = (row.owner.clone(), row.version.clone());
        let op = match &over {
            Some((owner, version)) => Op::Replace { row, owner: owner.clone(), version: version.clone() },
            None => Op::Create { row },
        };
        let no = self.send(id, Kind::Put, op, None);
        let sent = self.clock.held;
        if let Some(entry) = self.leases.get_mut(&id) {
            entry.puts.push(Put { no, owner, version, sent, over, state: PutState::Flying });
            if entry.puts.len() > MOST_PUTS {
                // Remembered as given up: should it land after all, it is taken over on its owner and version.
                let oldest = entry.puts.remove(0);
                self.abandoned.remember(&oldest.owner, self.clock.timer);
            }
        }
        if let Some(waiting) = self.leases.get_mut(&id).and_then(Entry::waiting_mut) {
            waiting.retry_at = None;
        }
        no
    }

    pub(crate) fn put_answered<E: Entropy<S>>(
        &mut self,
        id: LeaseId,
        no: RequestNo,
        answer: Answer<S>,
        entropy: &mut E,
    ) {
        let landed = matches!(answer, Answer::Done);
        self.settle_put(id, no, &answer);
        self.hand_over_answered(no, &answer);
        let Some(entry) = self.leases.get_mut(&id) else { return };
        if entry.waiting().is_none() {
            return;
        }
        if landed {
            return self.won(id, no, entropy);
        }
        match answer {
            Answer::Failed(seen) => self.look(id, &seen, entropy),
            Answer::Denied(refusal, text) => self.finish_wait(id, Refused::Denied(refusal, text)),
            Answer::Throttled(text) => self.try_later(id, text, LONGEST_THROTTLED_PAUSE, entropy),
            Answer::Unavailable(text) | Answer::Unknown(text) => self.try_later(id, text, LONGEST_PAUSE, entropy),
            // A Put is never answered by a read's result; treat a store that does so as one that said nothing.
            Answer::Done | Answer::Found(_) => self.try_later(id, "unexpected answer".into(), LONGEST_PAUSE, entropy),
        }
    }

    /// Keeps of a Put what its answer leaves open.
    fn settle_put(&mut self, id: LeaseId, no: RequestNo, answer: &Answer<S>) {
        let Some(entry) = self.leases.get_mut(&id) else { return };
        entry.puts.retain_mut(|put| {
            if put.no != no || put.state == PutState::Landed {
                return true;
            }
            match answer {
                Answer::Done => put.state = PutState::Landed,
                Answer::Unknown(_) | Answer::Found(_) => put.state = PutState::Unknown,
                Answer::Failed(_) | Answer::Throttled(_) | Answer::Unavailable(_) | Answer::Denied(..) => return false,
            }
            true
        });
        if entry.puts.iter().any(|put| put.no == no) {
            self.restart_clean_up(id);
        }
    }

    fn try_later<E: Entropy<S>>(&mut self, id: LeaseId, text: String, longest: Micros, entropy: &mut E) {
        let jitter = entropy.jitter();
        let now = self.clock.timer;
        // The first waiter's retries are the others' too: they are left to the poller.
        let leads = self.leases.get(&id).is_some_and(|entry| self.leads(&entry.key, id));
        let Some(waiting) = self.leases.get_mut(&id).and_then(Entry::waiting_mut) else { return };
        waiting.trouble = Some(text);
        waiting.first = false;
        waiting.retry_at = leads.then(|| now + waiting.backoff.pause(longest, jitter));
    }

    /// Acts on what the answer to a waiter's own Put shows.
    fn look<E: Entropy<S>>(&mut self, id: LeaseId, seen: &Seen<S>, entropy: &mut E) {
        if self.recognise(id, seen, entropy) {
            return;
        }
        let Some(key) = self.leases.get(&id).map(|entry| entry.key.clone()) else { return };
        let free = matches!(seen, Seen::Nothing) || self.replaceable(&key).is_some();
        if free && self.may_attempt(id) {
            self.attempt(id, entropy);
        }
        if let Some(waiting) = self.leases.get_mut(&id).and_then(Entry::waiting_mut) {
            waiting.first = false;
        }
        // What a failed condition shows is as good as a read: the first waiter's Put stands in for the next poll.
        if !free && self.leads(&key, id) {
            self.pace_polls(&key, LONGEST_PAUSE, entropy);
        }
    }

    /// Is it a row of the waiter's own, or one that ends its wait? Else it remembers whose row it was.
    pub(crate) fn recognise<E: Entropy<S>>(&mut self, id: LeaseId, seen: &Seen<S>, entropy: &mut E) -> bool {
        let foreign = self.breaks(WrongRule::OwnRowIsForeign);
        let Some(entry) = self.leases.get_mut(&id) else { return true };
        let own = entry.puts.iter().find(|put| put.state == PutState::Landed && shows(seen, put)).map(|put| put.no);
        let own = own.filter(|_| !foreign);
        match (own, seen) {
            (Some(no), _) => self.won(id, no, entropy),
            (None, Seen::Foreign(what)) => self.finish_wait(id, Refused::Foreign(what.clone())),
            (None, Seen::Row(row)) => {
                if let Some(waiting) = entry.waiting_mut() {
                    waiting.saw = Some(row.clone());
                }
                return false;
            }
            (None, Seen::Nothing) => return false,
        }
        true
    }

    /// No Put starts after the budget; a zero wait's first attempt may take two requests.
    pub(crate) fn may_attempt(&self, id: LeaseId) -> bool {
        let waiting = self.leases.get(&id).and_then(Entry::waiting);
        let late = self.breaks(WrongRule::PutsAfterBudget);
        waiting.is_some_and(|waiting| late || waiting.first || self.clock.timer < waiting.until)
    }

    /// The row shows this Put: the lock is ours from its send on.
    fn won<E: Entropy<S>>(&mut self, id: LeaseId, no: RequestNo, entropy: &mut E) {
        let held = self.clock.held;
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let Some(put) = entry.puts.iter().find(|put| put.no == no).cloned() else { return };
        // Whatever landed before it has been replaced by it.
        entry.puts.retain(|other| other.no == no || other.state != PutState::Landed);
        let (lease, lease_ms) = (entry.lease(), entry.lease_ms);
        let age = held - put.sent;
        let key = entry.key.clone();
        if age >= lease.validity() {
            if self.breaks(WrongRule::ExpiredRowEnds) {
                return self.finish_wait(id, Refused::Unavailable("its own row is too old".into()));
            }
            // Ours, but too old for anyone to believe in: take it over on its owner and version.
            self.abandoned.remember(&put.owner, self.clock.timer);
            let row = Row { owner: put.owner, version: put.version, lease_ms };
            self.observations.note(&key, &row, self.clock.seen);
            if self.may_attempt(id) {
                self.attempt(id, entropy);
            }
            if let Some(waiting) = self.leases.get_mut(&id).and_then(Entry::waiting_mut) {
                waiting.first = false;
            }
            return;
        }
        self.leave_queue(&key, id);
        self.observations.forget(&key);
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let Phase::Waiting(waiting) = &entry.phase else { return };
        let waiting = waiting.clone();
        entry.phase = Phase::Holding(Holding {
            owner: put.owner,
            last: put.version,
            start: put.sent,
            renewals: Vec::new(),
            in_flight: None,
            retry_at: None,
            // Where it is too old to be granted it is old enough to be renewed.
            renew_now: false,
            in_danger: false,
            trouble: None,
            ungranted: Some(waiting),
            hold_until: None,
        });
        self.grant_if_fresh(id);
    }

    /// Goes back to waiting: the row that was ours grew too old, or was taken, before it could be granted.
    pub(crate) fn wait_again(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let Phase::Holding(holding) = &mut entry.phase else { return };
        let Some(waiting) = holding.ungranted.take() else { return };
        let owner = holding.owner.clone();
        entry.phase = Phase::Waiting(waiting);
        let key = entry.key.clone();
        self.abandoned.remember(&owner, self.clock.timer);
        self.queue_up(&key, id);
    }

    /// A waiter's own timers: its retry and the end of its budget.
    pub(crate) fn wait_step<E: Entropy<S>>(&mut self, id: LeaseId, entropy: &mut E) {
        let now = self.clock.timer;
        let Some(entry) = self.leases.get_mut(&id) else { return };
        if entry.flying() {
            return;
        }
        let Some(waiting) = entry.waiting_mut() else { return };
        if now >= waiting.until {
            return self.out_of_budget(id);
        }
        if waiting.retry_at.is_some_and(|at| now >= at) {
            waiting.retry_at = None;
            let key = entry.key.clone();
            // Where a foreign row is known to stand, the poller looks for this waiter too.
            if self.observations.get(&key).is_none() || self.replaceable(&key).is_some() {
                self.attempt(id, entropy);
            }
        }
    }

    fn out_of_budget(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.get(&id) else { return };
        let Some(waiting) = entry.waiting() else { return };
        let refused = match &waiting.saw {
            Some(row) => {
                let seen = self.observations.get(&entry.key).filter(|seen| seen.row == *row);
                let full = Lease::from_ms(row.lease_ms).full();
                Refused::Busy {
                    holder: row.clone(),
                    unchanged: seen.map_or(0, |seen| seen.unchanged(self.clock.seen)),
                    retry_after: seen.map_or(full, |seen| seen.ripe_in(self.clock.seen)),
                }
            }
            None => Refused::Unavailable(waiting.trouble.clone().unwrap_or_else(|| "no answer in time".into())),
        };
        self.finish_wait(id, refused);
    }

    /// Ends an acquire without the lock; what it may have left behind is cleaned up.
    pub(crate) fn finish_wait(&mut self, id: LeaseId, refused: Refused<S>) {
        let Some(entry) = self.leases.get(&id) else { return };
        let key = entry.key.clone();
        if self.breaks(WrongRule::ForgetsObservations) {
            self.observations.forget(&key);
        }
        self.leave_queue(&key, id);
        self.emit(Output::Refused(id, refused));
        self.clean(id, None);
    }

    /// Starts giving back what the lease may have left; `report` is the owner whose end is told.
    pub(crate) fn clean(&mut self, id: LeaseId, report: Option<S>) {
        let now = self.clock.timer;
        let Some(entry) = self.leases.get_mut(&id) else { return };
        for put in &entry.puts {
            self.abandoned.remember(&put.owner, now);
        }
        let until = now + entry.lease().cleanup_budget();
        entry.phase = Phase::Cleaning(Cleaning {
            report,
            until,
            in_flight: None,
            next: now,
            backoff: Backoff::new(),
            round: 0,
            handed_to: None,
        });
    }
}

/// How many Puts of one acquire are kept whose outcome is open.
const MOST_PUTS: usize = 64;

fn shows<S: Symbol>(seen: &Seen<S>, put: &Put<S>) -> bool {
    matches!(seen, Seen::Row(row) if row.owner == put.owner && row.version == put.version)
}
