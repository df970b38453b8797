//! What must hold, looked at in true time after every step.

use super::env::Status;
use super::store::Effect;
use super::{Broken, Profile, World};
use leasekeeper_core::{Answer, LeaseId, LostReason, Micros, Op, Output, Refused};
use std::fmt;

/// Which promise a violation broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// P1: two guards of one key were valid at once.
    Exclusion,
    /// A row went while the guard that it stands for was valid.
    RowUnderGuard,
    /// A row was deleted early though its client might still believe.
    EarlyDelete,
    /// A guard that was over became valid again.
    Revival,
    /// A write was committed without its condition.
    Unconditional,
    /// P4: taken over before the stored lease was over.
    TooEarly,
    /// P5: a lease outlived its invocation.
    Invocation,
    /// P6: a healthy holder lost, or a contender gave up with budget left.
    FalseLoss,
    /// P7: an acquire went on after its budget.
    Budget,
    /// An end was not final, or came twice.
    Finality,
    /// An owner or a version was used twice.
    Reuse,
    /// A waiter was forgotten.
    Forgotten,
    /// Work without an end, or wake-ups without work.
    Restless,
    /// A row was left that the protocol must clean up.
    Orphan,
}

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.text)
    }
}

impl World {
    pub(crate) fn fail(&mut self, rule: Rule, text: String) {
        let watched = self.rules.as_ref().is_none_or(|rules| rules.contains(&rule));
        if self.violation.is_none() && watched {
            self.violation = Some(Violation { rule, text: format!("{text} (at {} µs)", self.t) });
        }
    }

    fn expect(&mut self, holds: bool, rule: Rule, text: impl FnOnce() -> String) {
        if !holds {
            self.fail(rule, text());
        }
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
                self.turn(n, lease, &[Status::Waiting], Status::Granted);
                self.check_return(n, lease);
                if let Some(record) = self.envs[n].records.get_mut(&lease) {
                    record.owner = owner;
                }
                self.work(n, lease);
            }
            Output::Refused(lease, refused) => self.refused(n, lease, refused),
            Output::Renewed(lease) => {
                self.tally.renewed += 1;
                self.turn(n, lease, &[Status::Granted], Status::Granted);
            }
            Output::Danger(lease) | Output::Recovered(lease) => {
                self.turn(n, lease, &[Status::Granted], Status::Granted);
            }
            Output::Lost(lease, reason) => self.lost(n, lease, reason),
            Output::Released { lease, .. } => {
                self.turn(n, lease, &[Status::Releasing, Status::Granted], Status::Over);
                self.free_slot(n, lease);
            }
            Output::Thawed => {}
        }
    }

    fn turn(&mut self, n: usize, lease: LeaseId, from: &[Status], to: Status) {
        let Some(record) = self.envs[n].records.get_mut(&lease) else {
            return self.fail(Rule::Finality, format!("an output for lease {lease}, which nobody asked for"));
        };
        let was = record.status;
        record.status = to;
        self.expect(from.contains(&was), Rule::Finality, || format!("lease {lease}: {was:?} became {to:?}"));
    }

    fn free_slot(&mut self, n: usize, lease: LeaseId) {
        if let Some(record) = self.envs[n].records.get(&lease) {
            let slot = record.slot;
            self.next_wish(n, slot);
        }
    }

    fn refused(&mut self, n: usize, lease: LeaseId, refused: Refused<u64>) {
        self.turn(n, lease, &[Status::Waiting], Status::Over);
        self.check_return(n, lease);
        let env = &self.envs[n];
        let Some(record) = env.records.get(&lease) else { return };
        let left = record.until.saturating_sub(env.timer);
        let fair = match &refused {
            Refused::Busy { .. } | Refused::Unavailable(_) => left == 0,
            Refused::Denied(..) => env.denied,
            Refused::Foreign(_) => false,
            Refused::BudgetExhausted | Refused::GivenUp(_) | Refused::TakenBack => true,
        };
        self.expect(fair, Rule::FalseLoss, || format!("lease {lease}: {refused:?} with {left} µs of budget left"));
        self.free_slot(n, lease);
    }

    fn lost(&mut self, n: usize, lease: LeaseId, reason: LostReason) {
        self.tally.lost += 1;
        // Time is looked at before a wish: a release may come too late.
        self.turn(n, lease, &[Status::Granted, Status::Releasing], Status::Lost);
        let Some(record) = self.envs[n].records.get(&lease) else { return };
        let (key, owner) = (record.key, record.owner);
        let stands = self.store.rows.get(&key).is_some_and(|stored| stored.row.owner == owner);
        if matches!(reason, LostReason::Stolen | LostReason::Deleted) {
            self.expect(!stands, Rule::FalseLoss, || format!("lease {lease}: {reason:?}, but its row stands"));
        }
        let unhealthy =
            matches!(reason, LostReason::Stolen | LostReason::Deleted | LostReason::Expired | LostReason::Throttled);
        let mild = self.plan.profile == Profile::Mild && !self.calm;
        self.expect(!(mild && unhealthy), Rule::FalseLoss, || format!("lease {lease}: {reason:?} of a healthy holder"));
        let life = self.envs[n].life;
        if self.rng.chance(30) {
            let at = self.t + self.rng.below(self.plan.shortest_lease());
            self.at(at, super::Event::Act { env: n, life, act: super::Act::Close(lease) });
        }
        self.free_slot(n, lease);
    }

    fn check_send(&mut self, n: usize, lease: LeaseId, op: &Op<u64>) {
        let env = &mut self.envs[n];
        let (held, timer) = (env.held, env.timer);
        let mut fresh = true;
        let mut ends = None;
        match op {
            Op::Create { row } | Op::Replace { row, .. } => {
                fresh = env.owners.insert(row.owner) && self.versions.insert(row.version);
                let over = env.records.get_mut(&lease).is_some_and(|record| {
                    record.puts += 1;
                    // The first attempt without a wait may take two requests; anything else starts within the budget.
                    let first = record.puts <= if record.until == record.asked { 2 } else { 1 };
                    record.status != Status::Waiting || (!first && timer >= record.until)
                });
                if let Op::Replace { owner, .. } = op {
                    ends = Some(*owner);
                }
                self.expect(!over, Rule::Budget, || format!("lease {lease}: a Put after the budget or the end"));
            }
            Op::Renew { owner, new, .. } => {
                fresh = self.versions.insert(*new);
                let over = env
                    .by_owner(*owner)
                    .is_some_and(|record| !matches!(record.status, Status::Waiting | Status::Granted));
                self.expect(!over, Rule::Invocation, || format!("lease {lease}: renewed after its end"));
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

    /// P7, where nothing stops or starves the process: back by the budget and the time-outs of the last attempt.
    fn check_return(&mut self, n: usize, lease: LeaseId) {
        let env = &self.envs[n];
        let Some(record) = env.records.get(&lease) else { return };
        let attempt = (record.lease_ms * 1_000 / 6).min(3_000_000) + 50_000;
        let most = record.until + 2 * attempt + record.lease_ms * 10;
        let late = env.timer > most && self.plan.profile == Profile::Mild;
        let asked = record.asked;
        self.expect(!late, Rule::Budget, || format!("lease {lease}, asked at {asked}, came back late"));
    }

    /// What the guards of an environment answer after a step.
    pub(crate) fn read_guards(&mut self, n: usize) {
        let env = &mut self.envs[n];
        let mut revived = None;
        for (id, record) in &mut env.records {
            match record.status {
                Status::Granted => {
                    let valid = env.core.valid_for(*id).unwrap_or(0);
                    if valid > 0 && record.ended {
                        revived = Some(*id);
                    }
                    if valid > 0 {
                        record.belief = record.belief.max(env.held + valid);
                    }
                    record.valid = if valid > 0 { valid + record.bonus } else { 0 };
                }
                Status::Releasing => {}
                Status::Waiting | Status::Lost | Status::Over => record.valid = 0,
            }
        }
        if let Some(lease) = revived {
            self.fail(Rule::Revival, format!("lease {lease} is valid again"));
        }
    }

    /// P1: a guard's validity only ever grows in a step of its own core, so looking after each step sees every overlap.
    pub(crate) fn check_exclusion(&mut self, n: usize) {
        let mut both = None;
        for (id, record) in self.envs[n].records.iter().filter(|(_, record)| record.valid > 0) {
            for env in &self.envs {
                let other = env.records.iter().find(|(other, found)| {
                    *other != id && found.key == record.key && env.alive && env.valid_at(found, self.t)
                });
                if let Some((other, _)) = other {
                    both = Some((*id, *other));
                }
            }
        }
        if let Some((one, other)) = both {
            self.fail(Rule::Exclusion, format!("leases {one} and {other} are valid at once"));
        }
    }

    pub(crate) fn check_write(&mut self, n: usize, key: u64, op: &Op<u64>, effect: &Effect) {
        self.expect(!effect.unconditional, Rule::Unconditional, || format!("{op:?} was committed unconditionally"));
        if let Op::Create { .. } | Op::Delete { .. } = op
            && effect.answer == Answer::Done
        {
            self.free_since.insert(key, if matches!(op, Op::Delete { .. }) { self.t } else { u64::MAX });
        }
        let Some(removed) = &effect.removed else { return };
        let owner = removed.row.owner;
        let t = self.t;
        let guarded = self.envs.iter().any(|env| {
            env.by_owner(owner).is_some_and(|record| record.status == Status::Granted && env.valid_at(record, t))
        });
        self.expect(!guarded, Rule::RowUnderGuard, || format!("{op:?} while the guard of {owner} is valid"));
        if !matches!(op, Op::Replace { .. }) {
            return;
        }
        self.tally.takeovers += 1;
        let own = self.envs[n].owners.contains(&owner) || self.envs[n].past_owners.contains(&owner);
        let drift = if self.plan.broken == Some(Broken::Drift) { 1_080_000 } else { 1_050_000 };
        let least = (removed.row.lease_ms * 1_000) as u128 * 1_000_000 / drift;
        let stood = (t - removed.written) as u128;
        self.expect(own || stood + 2 >= least, Rule::TooEarly, || format!("{op:?} after {stood} µs of {least}"));
    }

    /// P5: after an INVOKE no guard of another invocation is valid.
    pub(crate) fn check_invocation(&mut self, n: usize, scope: u64) {
        let kept = self.envs[n]
            .records
            .iter()
            .find(|(_, record)| record.status == Status::Granted && record.scope.is_some_and(|own| own != scope));
        if let Some((lease, _)) = kept {
            let lease = *lease;
            self.fail(Rule::Invocation, format!("lease {lease} outlived its invocation"));
        }
    }

    /// Nobody waits for ever: not after the budget, not without a wake-up, not beside a free key.
    pub(crate) fn check_waiting(&mut self, n: usize, step: Micros, delay: Option<Micros>) {
        let env = &self.envs[n];
        let mut forgotten = None;
        for (lease, record) in env.records.iter().filter(|(_, record)| record.status == Status::Waiting) {
            let attempts = 2 * ((record.lease_ms * 1_000 / 6).min(3_000_000) + 50_000);
            // A starved or frozen process is late by what its last reading brought.
            if env.timer > record.until + attempts + 2 * step + record.lease_ms * 10 {
                forgotten = Some(format!("lease {lease} waits after its budget"));
            }
            if delay.is_none_or(|delay| delay > 3_300_000) {
                forgotten = Some(format!("lease {lease} waits and the next wake-up is {delay:?}"));
            }
            let free = self.free_since.get(&record.key).copied().unwrap_or(0).max(record.asked_at);
            let idle = self.t.saturating_sub(free);
            if self.plan.profile == Profile::Mild && idle > attempts + 1_500_000 {
                forgotten = Some(format!("lease {lease} waits beside a key that has been free for {idle} µs"));
            }
        }
        if let Some(text) = forgotten {
            self.fail(Rule::Forgotten, text);
        }
    }

    /// Wake-ups that find nothing to do and ask for the next one at once.
    pub(crate) fn check_idling(&mut self, n: usize, idle: bool) {
        let env = &mut self.envs[n];
        env.idle_wakes = if idle { env.idle_wakes + 1 } else { 0 };
        let restless = env.idle_wakes > 50;
        self.expect(!restless, Rule::Restless, || format!("environment {n} wakes up for nothing"));
    }

    /// After the last disturbance and every end: nothing is under way, and no row of a living environment is left.
    pub(crate) fn check_rest(&mut self) {
        if self.violation.is_some() {
            return;
        }
        for n in 0..self.envs.len() {
            let env = &self.envs[n];
            let idle = !env.alive || (env.core.is_idle() && env.core.next_wakeup().is_none());
            self.expect(idle, Rule::Restless, || format!("environment {n} does not come to rest"));
        }
        let left: Vec<_> = self
            .store
            .rows
            .values()
            .map(|stored| stored.row.owner)
            .filter(|owner| !self.late.contains(owner) && self.envs.iter().any(|env| env.owners.contains(owner)))
            .collect();
        self.tally.orphans += left.len() as u64;
        // An outage or a freeze may outlast the clean-up's budget: then the row waits for ordinary observation.
        let hindered = self.plan.profile != Profile::Mild && self.hindered;
        self.expect(hindered || left.is_empty(), Rule::Orphan, || format!("rows of {left:?} are left"));
    }
}
