//! What must never happen, looked at in true time after every step.

use super::env::{FIRST_ID, Sight, Status};
use super::store::Effect;
use super::{Act, Broken, Event, Profile, Rule, Violation, World};
use leasekeeper_core::{Answer, LeaseId, LostReason, Op, Output, Refused};

impl World {
    pub(crate) fn fail(&mut self, rule: Rule, text: String) {
        if self.violation.is_none() && self.watched.has(rule) {
            self.violation = Some(Violation { rule, text: format!("{text} (at {} µs)", self.t) });
        }
    }

    pub(crate) fn expect(&mut self, holds: bool, rule: Rule, text: impl FnOnce() -> String) {
        if !holds {
            self.fail(rule, text());
        }
    }

    /// Was `owner` drawn by environment `n` in its present life?
    pub(crate) fn is_own(&self, n: usize, owner: u64) -> bool {
        owner >= self.envs[n].first_id && owner % self.everyone == (FIRST_ID + n as u64) % self.everyone
    }

    /// One output: performed, and held against what its lease has been through.
    pub(crate) fn output(&mut self, n: usize, output: Output<u64>) {
        match output {
            Output::Send(request) => {
                self.check_send(n, request.lease, &request.op);
                self.send(n, request);
            }
            Output::Granted { lease, owner, .. } => {
                self.tally.granted += 1;
                self.check_return(n, lease);
                self.turn(n, lease, &[Status::Waiting], Some(Status::Granted));
                let env = &mut self.envs[n];
                let timer = env.timer;
                if let Some(record) = env.record_mut(lease) {
                    record.owner = owner;
                    record.hold_until = record.max_hold.map(|most| timer + most);
                }
                self.work(n, lease);
            }
            Output::Refused(lease, refused) => self.refused(n, lease, &refused),
            Output::Renewed(lease) => {
                self.tally.renewed += 1;
                self.turn(n, lease, &[Status::Granted], Some(Status::Granted));
            }
            Output::Danger(lease) | Output::Recovered(lease) => {
                self.turn(n, lease, &[Status::Granted], Some(Status::Granted));
            }
            Output::Lost(lease, reason) => self.lost(n, lease, reason),
            Output::Released { lease, .. } => {
                self.turn(n, lease, &[Status::Releasing, Status::Granted], None);
            }
            Output::Thawed => {}
        }
    }

    /// A lease changes its state; when it is over, its client goes on to the next one.
    fn turn(&mut self, n: usize, lease: LeaseId, from: &[Status], to: Option<Status>) {
        let env = &mut self.envs[n];
        let Some(place) = env.records.iter().position(|record| record.lease == lease) else {
            return self
                .fail(Rule::Finality, format!("an output for lease {lease}, which is over or was never asked for"));
        };
        let (was, slot, key) = (env.records[place].status, env.records[place].slot, env.records[place].key);
        if was != Status::Waiting {
            // Whoever looks at the row now begins anew.
            env.busy_key[key as usize] = self.t;
            env.sights[key as usize] = Sight::default();
        }
        match to {
            Some(status) => env.records[place].status = status,
            None => {
                env.records.swap_remove(place);
                self.next_wish(n, slot);
            }
        }
        self.expect(from.contains(&was), Rule::Finality, || format!("lease {lease}: {was:?} became {to:?}"));
    }

    fn refused(&mut self, n: usize, lease: LeaseId, refused: &Refused<u64>) {
        self.check_return(n, lease);
        let env = &self.envs[n];
        if let Some(record) = env.record(lease) {
            let left = record.until.saturating_sub(env.timer);
            let fair = match refused {
                Refused::Busy { .. } | Refused::Unavailable(_) => left == 0,
                Refused::Denied(..) => env.denied,
                Refused::Foreign(_) => false,
                Refused::BudgetExhausted | Refused::GivenUp(_) | Refused::TakenBack => true,
            };
            self.expect(fair, Rule::FalseLoss, || format!("lease {lease}: {refused:?} with {left} µs of budget left"));
            self.check_busy(n, lease, refused);
        }
        self.turn(n, lease, &[Status::Waiting], None);
    }

    fn lost(&mut self, n: usize, lease: LeaseId, reason: LostReason) {
        self.tally.lost += 1;
        // Time is looked at before a wish: a release may come too late.
        self.turn(n, lease, &[Status::Granted, Status::Releasing], Some(Status::Lost));
        let env = &self.envs[n];
        let (life, Some(record)) = (env.life, env.record(lease)) else { return };
        let (slot, owner) = (record.slot, record.owner);
        let stands = self.store.place(record.key).stored.as_ref().is_some_and(|stored| stored.row.owner == owner);
        if matches!(reason, LostReason::Stolen | LostReason::Deleted) {
            self.expect(!stands, Rule::FalseLoss, || format!("lease {lease}: {reason:?}, but its row stands"));
        }
        let unhealthy =
            matches!(reason, LostReason::Stolen | LostReason::Deleted | LostReason::Expired | LostReason::Throttled);
        let mild = self.plan.profile == Profile::Mild && !self.calm;
        self.expect(!(mild && unhealthy), Rule::FalseLoss, || format!("lease {lease}: {reason:?} of a healthy holder"));
        if self.rng.chance(30) {
            let at = self.t + self.rng.below(self.plan.shortest_lease());
            self.at(at, Event::Act { env: n, life, act: Act::Close(lease) });
        }
        self.next_wish(n, slot);
    }

    fn check_send(&mut self, n: usize, lease: LeaseId, op: &Op<u64>) {
        let env = &mut self.envs[n];
        let (held, timer, last_id) = (env.held, env.timer, env.last_id);
        let mut fresh = true;
        let mut ends = None;
        match op {
            Op::Create { row } | Op::Replace { row, .. } => {
                fresh = row.owner > last_id && row.version > row.owner;
                env.last_id = last_id.max(row.version);
                let current = env.scope;
                let stale = env.record(lease).and_then(|record| record.scope);
                let stale = stale.is_some_and(|scope| scope != current && env.over.contains(&scope));
                let exhausted = env.record(lease).is_some_and(|record| record.deadline == Some(record.asked));
                let over = env.record_mut(lease).is_none_or(|record| {
                    record.puts += 1;
                    record.tried[record.puts as usize % 4] = row.owner;
                    // The first attempt without a wait may take two requests; anything else starts within the budget.
                    let first = record.puts <= if record.until == record.asked { 2 } else { 1 };
                    record.status != Status::Waiting || (!first && timer >= record.until)
                });
                if let Op::Replace { owner, .. } = op {
                    ends = Some(*owner);
                }
                self.expect(!stale, Rule::Invocation, || format!("lease {lease}: sent for an invocation that is over"));
                self.expect(!exhausted, Rule::Budget, || format!("lease {lease}: sent with no time left"));
                self.expect(!over, Rule::Budget, || format!("lease {lease}: a Put after the budget or the end"));
            }
            Op::Renew { owner, new, .. } => {
                fresh = *new > last_id;
                env.last_id = last_id.max(*new);
                let over = env
                    .by_owner(*owner)
                    .is_some_and(|record| !matches!(record.status, Status::Waiting | Status::Granted));
                self.expect(!over, Rule::Invocation, || format!("lease {lease}: renewed after its end"));
                self.check_thaw(n, lease);
            }
            Op::Delete { owner } => ends = Some(*owner),
            Op::Read => {}
        }
        self.expect(fresh, Rule::Reuse, || format!("lease {lease}: an id was used twice in {op:?}"));
        let believed = ends
            .and_then(|owner| self.envs[n].by_owner(owner))
            .is_some_and(|record| !record.gone && held < record.belief);
        self.expect(!believed, Rule::EarlyDelete, || format!("{op:?}, but its client may still believe"));
    }

    /// P5: between a thaw and its INVOKE no lease of another invocation is renewed.
    fn check_thaw(&mut self, n: usize, lease: LeaseId) {
        let env = &self.envs[n];
        let wait = (self.plan.shortest_lease() / 12).min(100_000) * 9 / 10;
        let waits = self.plan.freezes && env.thaw.certain && self.t < env.thaw.at + wait && env.scope != env.upcoming;
        let left = env.record(lease).and_then(|record| record.scope).is_some_and(|scope| scope != env.upcoming);
        self.expect(!(waits && left), Rule::Invocation, || {
            format!("lease {lease}: renewed after a thaw before INVOKE")
        });
    }

    /// What the guards of an environment answer after a step.
    pub(crate) fn read_guards(&mut self, n: usize) {
        let t = self.t;
        let env = &mut self.envs[n];
        let (mut revived, mut overdue) = (None, None);
        for record in &mut env.records {
            match record.status {
                Status::Granted => {
                    let valid = env.core.valid_for(record.lease).unwrap_or(0);
                    env.busy_key[record.key as usize] = t;
                    if valid > 0 {
                        revived = revived.or(record.ended.then_some(record.lease));
                        let ends = [record.deadline, record.hold_until];
                        let over = ends.into_iter().flatten().any(|end| end <= env.timer);
                        overdue = overdue.or(over.then_some(record.lease));
                        record.belief = record.belief.max(env.held + valid);
                    }
                    record.valid = if valid > 0 { valid + record.bonus } else { 0 };
                }
                Status::Releasing => env.busy_key[record.key as usize] = t,
                Status::Waiting | Status::Lost => record.valid = 0,
            }
        }
        // Once nobody can believe in what was lost, nothing more can be seen of it.
        env.records.retain(|record| record.status != Status::Lost || env.held < record.belief);
        if let Some(lease) = revived {
            self.fail(Rule::Revival, format!("lease {lease} is valid again"));
        }
        if let Some(lease) = overdue {
            self.fail(
                Rule::Invocation,
                format!("lease {lease} is valid after its invocation's or its longest hold's end"),
            );
        }
    }

    /// P1: a guard's validity only ever grows in a step of its own core, so looking after each step sees every overlap.
    pub(crate) fn check_exclusion(&mut self, n: usize) {
        let t = self.t;
        let mut both = None;
        for record in self.envs[n].records.iter().filter(|record| record.valid > 0) {
            for env in &self.envs {
                let other = env.records.iter().find(|other| {
                    other.valid > 0
                        && other.lease != record.lease
                        && other.key == record.key
                        && env.alive
                        && env.valid_at(other, t)
                });
                both = both.or(other.map(|other| format!("leases {} and {} are", record.lease, other.lease)));
            }
            let other = self.peers.iter().position(|peer| peer.guards(record.key, t));
            both = both.or(other.map(|other| format!("lease {} and the one of peer {other} are", record.lease)));
        }
        if let Some(both) = both {
            self.fail(Rule::Exclusion, format!("{both} valid at once"));
        }
    }

    /// A write that reached the table. `own`: a takeover is of a row that the sender itself had written; `back`: its owner
    /// had gone before.
    pub(crate) fn check_write(&mut self, op: &Op<u64>, effect: &Effect, own: bool, back: bool) {
        self.expect(!effect.unconditional, Rule::Unconditional, || format!("{op:?} was committed unconditionally"));
        let done = effect.answer == Answer::Done;
        self.expect(!(back && done), Rule::Effect, || format!("{op:?} brings an owner back that was gone"));
        let Some(removed) = &effect.removed else { return };
        let (owner, t) = (removed.row.owner, self.t);
        let guarded = self.envs.iter().any(|env| {
            env.by_owner(owner).is_some_and(|record| record.status == Status::Granted && env.valid_at(record, t))
        });
        let guarded = guarded || self.peers.iter().any(|peer| peer.guards_as(owner, t));
        self.expect(!guarded, Rule::RowUnderGuard, || format!("{op:?} while the guard of {owner} is valid"));
        if !matches!(op, Op::Replace { .. }) {
            return;
        }
        self.tally.takeovers += 1;
        // A Put that was sent twice brings back what may have been seen before.
        let own = own || self.twice.contains(&owner);
        let drift = if self.plan.broken == Some(Broken::Drift) { 1_080_000 } else { 1_050_000 };
        let least = removed.row.lease_ms * 1_000 * 1_000 / (drift / 1_000);
        let stood = t - removed.written;
        self.expect(own || stood + 2 >= least, Rule::TooEarly, || format!("{op:?} after {stood} µs of {least}"));
    }

    /// P5: after an INVOKE no guard of another invocation is valid.
    pub(crate) fn check_invocation(&mut self, n: usize, scope: u64) {
        let kept = self.envs[n]
            .records
            .iter()
            .find(|record| record.status == Status::Granted && record.scope.is_some_and(|own| own != scope))
            .map(|record| record.lease);
        if let Some(lease) = kept {
            self.fail(Rule::Invocation, format!("lease {lease} outlived its invocation"));
        }
    }
}
