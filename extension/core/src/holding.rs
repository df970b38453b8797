//! A held lease: renewal, danger and recovery, loss with its reason.

use crate::lease::{Entry, Kind, Phase, PutState};
use crate::wrong::WrongRule;
use crate::{Answer, Core, Entropy, LeaseId, LostReason, Micros, Op, Output, Refused, RequestNo, Seen, Symbol};

impl<S: Symbol> Core<S> {
    /// Has [`Self::hold_step`] something to do for it?
    pub(crate) fn hold_is_due(&self, entry: &Entry<S>) -> bool {
        let (held, timer, lease) = (self.clock.held, self.clock.timer, entry.lease());
        entry.holding().is_some_and(|holding| {
            holding.ungranted.is_some()
                || holding.newly_in_danger(lease, held)
                || (self.thaw_until.is_none() && holding.renewal_is_due(lease, held, timer))
        })
    }

    /// A holder's own timers: renewal and danger.
    pub(crate) fn hold_step<E: Entropy<S>>(&mut self, id: LeaseId, entropy: &mut E) {
        self.grant_if_fresh(id);
        let (held, timer) = (self.clock.held, self.clock.timer);
        let may_renew = self.thaw_until.is_none();
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let lease = entry.lease();
        let Some(holding) = entry.holding_mut() else { return };
        let newly_in_danger = holding.newly_in_danger(lease, held);
        holding.in_danger |= newly_in_danger;
        let renew = may_renew && holding.renewal_is_due(lease, held, timer);
        if newly_in_danger {
            self.emit(Output::Danger(id));
        }
        if renew {
            self.renew(id, entropy);
        }
    }

    fn renew<E: Entropy<S>>(&mut self, id: LeaseId, entropy: &mut E) {
        let held = self.clock.held;
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let validity = entry.lease().validity();
        let Some(holding) = entry.holding_mut() else { return };
        // Each attempt has a version of its own, so that a row tells which of them was committed.
        let version = entropy.id();
        holding.renewals.push((version.clone(), held));
        holding.retry_at = None;
        holding.renew_now = false;
        let left = (holding.start + validity).saturating_sub(held);
        let op = Op::Renew { owner: holding.owner.clone(), last: holding.last.clone(), new: version.clone() };
        let no = self.send(id, Kind::Renew { version, sent: held }, op, Some(left));
        if let Some(holding) = self.leases.get_mut(&id).and_then(Entry::holding_mut) {
            holding.in_flight = Some(no);
        }
    }

    /// The validity was looked at before: here the lease is still valid, or no longer held.
    pub(crate) fn renewal_answered(
        &mut self,
        id: LeaseId,
        no: RequestNo,
        version: &S,
        sent: Micros,
        answer: Answer<S>,
    ) {
        let timer = self.clock.timer;
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let lease = entry.lease();
        // A lease that went back to waiting and won another row: the answer speaks of the row before.
        let Some(holding) = entry.holding_mut().filter(|holding| holding.in_flight == Some(no)) else { return };
        holding.in_flight = None;
        match answer {
            Answer::Done => self.adopt(id, version, sent),
            Answer::Failed(Seen::Row(row)) if row.owner == holding.owner => {
                match holding.renewals.iter().find(|(attempt, _)| *attempt == row.version).cloned() {
                    Some((attempt, sent)) => self.adopt(id, &attempt, sent),
                    None => {
                        // Ours, but a version that is no longer remembered: it extends nothing.
                        holding.last = row.version;
                        holding.retry_at = Some(timer + lease.renew_retry());
                    }
                }
            }
            Answer::Failed(Seen::Nothing) => self.taken(id, LostReason::Deleted),
            Answer::Failed(_) => self.taken(id, LostReason::Stolen),
            Answer::Denied(refusal, text) => match &holding.ungranted {
                Some(_) => {
                    self.wait_again(id);
                    self.finish_wait(id, Refused::Denied(refusal, text));
                }
                None => self.give_up(id, LostReason::Denied),
            },
            Answer::Throttled(_) => {
                holding.trouble = Some(LostReason::Throttled);
                holding.retry_at = Some(timer + lease.renew_retry());
            }
            Answer::Unavailable(_) | Answer::Unknown(_) | Answer::Found(_) => {
                holding.trouble = Some(LostReason::Expired);
                holding.retry_at = Some(timer + lease.renew_retry());
            }
        }
    }

    /// The renewal `version`, sent at `sent`, is known to be committed.
    fn adopt(&mut self, id: LeaseId, version: &S, sent: Micros) {
        let held = self.clock.held;
        let from_latest = self.breaks(WrongRule::AdoptFromLatest);
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let lease = entry.lease();
        let Some(holding) = entry.holding_mut() else { return };
        let latest = holding.renewals.last().filter(|_| from_latest).map(|(_, sent)| *sent);
        let sent = latest.unwrap_or(sent);
        holding.last = version.clone();
        holding.start = holding.start.max(sent);
        // All attempts were conditional on an older version: none of the others can be committed any more.
        holding.renewals.clear();
        holding.retry_at = None;
        holding.trouble = None;
        let granted = holding.ungranted.is_none();
        let recovered = holding.in_danger && held - holding.start < lease.danger_after();
        if recovered {
            holding.in_danger = false;
        }
        if granted {
            self.emit(Output::Renewed(id));
            if recovered {
                self.emit(Output::Recovered(id));
            }
        }
    }

    /// Grants a row of ours that is fresh enough, or that the wait budget leaves no time to renew.
    pub(crate) fn grant_if_fresh(&mut self, id: LeaseId) {
        let (held, timer) = (self.clock.held, self.clock.timer);
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let (lease, max_hold) = (entry.lease(), entry.max_hold);
        let Some(holding) = entry.holding_mut() else { return };
        let Some(waiting) = &holding.ungranted else { return };
        let age = held - holding.start;
        if age > lease.fresh_for() && timer < waiting.until {
            return;
        }
        holding.ungranted = None;
        holding.hold_until = max_hold.map(|most| held.saturating_add(most));
        let owner = holding.owner.clone();
        self.emit(Output::Granted { lease: id, owner, valid: lease.validity() - age });
    }

    /// Nobody may believe in this lease any more.
    pub(crate) fn validity_over<E: Entropy<S>>(&mut self, id: LeaseId, entropy: &mut E) {
        let Some(entry) = self.leases.get(&id) else { return };
        let key = entry.key.clone();
        let Some(holding) = entry.holding() else { return };
        if holding.ungranted.is_some() {
            self.wait_again(id);
        } else {
            let reason = holding.trouble.unwrap_or(LostReason::Expired);
            self.observations.forget(&key);
            self.emit(Output::Lost(id, reason));
            self.clean(id, None);
        }
        self.wake(&key, entropy);
    }

    /// Another owner's row, or none, stands where ours was.
    fn taken(&mut self, id: LeaseId, reason: LostReason) {
        let Some(entry) = self.leases.get_mut(&id) else { return };
        entry.puts.retain(|put| put.state != PutState::Landed);
        let Some(holding) = entry.holding() else { return };
        if holding.ungranted.is_some() {
            return self.wait_again(id);
        }
        self.emit(Output::Lost(id, reason));
        self.clean(id, None);
    }

    /// Ends a lease for a cause of ours: its client is told, and the row goes when its client can no longer believe.
    pub(crate) fn give_up(&mut self, id: LeaseId, reason: LostReason) {
        let Some(entry) = self.leases.get_mut(&id) else { return };
        let validity = entry.lease().validity();
        match &entry.phase {
            Phase::Waiting(_) => self.finish_wait(id, Refused::GivenUp(reason)),
            Phase::Holding(holding) if holding.ungranted.is_some() => {
                self.wait_again(id);
                self.finish_wait(id, Refused::GivenUp(reason));
            }
            Phase::Holding(holding) => {
                let key = entry.key.clone();
                entry.phase = Phase::Lapsing { until: holding.start + validity };
                // Nobody looked at the row while it was held here: what was seen of it before says nothing.
                self.observations.forget(&key);
                self.emit(Output::Lost(id, reason));
            }
            Phase::Lapsing { .. } | Phase::Cleaning(_) => {}
        }
    }

    /// A wall clock that stepped back is no loss, but the sums have lost touch with it: anchor them anew.
    pub(crate) fn renew_all_now(&mut self) {
        for holding in self.leases.values_mut().filter_map(Entry::holding_mut) {
            holding.renew_now = true;
        }
    }
}
