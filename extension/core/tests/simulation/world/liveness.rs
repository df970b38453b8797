//! What must happen in time: recovery, the end of a wait, rest.

use super::env::{Env, Record, Status};
use super::{Profile, Rule, World};
use crate::common::{MS, SECOND};
use leasekeeper_core::{LeaseId, Micros, Refused};

/// The longest pause between two polls while nothing is wrong.
const LONGEST_POLL: Micros = 120 * MS;
/// How long an acquire for an invocation that seems to be over waits for its INVOKE.
const INVOKE_WAIT: Micros = 100 * MS;

impl World {
    /// How late a timer fires where nothing starves the process.
    pub(crate) fn usual_lateness(&self) -> u64 {
        if self.plan.profile == Profile::Edge { 50 } else { self.plan.shortest_lease() / 500 }
    }

    /// P4: when the row that this waiter waits for must have been taken over, if nobody has written it since, or the
    /// key asked for, if it is free: the stored lease on the waiter's clocks, one poll, two round trips. For a
    /// free key another two.
    fn due(&self, env: &Env, record: &Record) -> u64 {
        let place = self.store.place(record.key);
        let since = record.asked_at.max(env.troubled).max(env.busy_key[record.key as usize]);
        let slowest = env.clocks.0[0].rate.min(env.clocks.0[1].rate);
        let (one_way, late) = (self.plan.latency.1, self.usual_lateness());
        let (since, wait, on_the_way) = match &place.stored {
            Some(stored) => (since.max(stored.written), stored.row.lease_ms * 1_000 + LONGEST_POLL, 4 * one_way),
            // Remote contenders may have their turn first, and a takeover may cross the news that the row is gone.
            None => (since.max(place.free_since), LONGEST_POLL + 100 * MS, 8 * one_way),
        };
        since + wait * 1_000 / (slowest / 1_000) + on_the_way + 4 * late
    }

    /// P4, for everyone who waits in this environment, before something reaches the table and after every step.
    pub(crate) fn check_recovery(&mut self, n: usize) {
        let env = &self.envs[n];
        if env.frozen || !env.alive {
            return;
        }
        let late = env.records.iter().find(|record| {
            let waits = record.status == Status::Waiting && env.timer < record.until;
            let begun = record.scope.is_none_or(|scope| scope == env.scope || !env.over.contains(&scope));
            let own = |owner| self.is_own(n, owner);
            let foreign = self.store.place(record.key).stored.as_ref().is_none_or(|stored| !own(stored.row.owner));
            waits && begun && foreign && self.t > self.due(env, record)
        });
        if let Some(lease) = late.map(|record| record.lease) {
            self.fail(Rule::Recovery, format!("lease {lease} waits beside what it could have"));
        }
    }

    /// P4: what is seen of a row is kept, so that short waits recover an abandoned lock together.
    pub(crate) fn check_busy(&mut self, n: usize, lease: LeaseId, refused: &Refused<u64>) {
        let env = &self.envs[n];
        let (Refused::Busy { .. }, Some(record)) = (refused, env.record(lease)) else { return };
        let others =
            |other: &Record| other.key == record.key && other.lease != lease && other.status == Status::Waiting;
        if env.records.iter().any(others) {
            // Those who came before it go first.
            return;
        }
        let sight = env.sights[record.key as usize];
        let Some(stored) = &self.store.place(record.key).stored else { return };
        if (stored.row.owner, stored.row.version) != (sight.owner, sight.version) || self.is_own(n, sight.owner) {
            return;
        }
        let since = sight.since.max(env.troubled).max(env.busy_key[record.key as usize]);
        let slowest = env.clocks.0[0].rate.min(env.clocks.0[1].rate);
        let ripe = since + stored.row.lease_ms * 1_000 * 1_000 / (slowest / 1_000) + 10;
        let asked = record.asked_at;
        self.expect(asked <= ripe, Rule::Recovery, || {
            format!("lease {lease}, asked for at {asked}: busy, though what it saw was ripe at {ripe}")
        });
    }

    /// P7, where nothing holds the process up: back by the budget and the time-out of the last attempt.
    fn back_by(&self, env: &Env, record: &Record) -> Option<Micros> {
        let attempt = (record.lease_ms * 1_000 / 6).min(3 * SECOND) + 50 * MS;
        // A wait of 0 is one attempt of two requests at most.
        let attempts = if record.until == record.asked { 2 } else { 1 };
        let deferred = if record.scope.is_some_and(|scope| env.over.contains(&scope)) { INVOKE_WAIT } else { 0 };
        let late = 3 * self.usual_lateness();
        (env.stalled < record.asked_at).then_some(record.until + attempts * attempt + deferred + late)
    }

    pub(crate) fn check_return(&mut self, n: usize, lease: LeaseId) {
        let env = &self.envs[n];
        let Some(record) = env.record(lease) else { return };
        let late = self.back_by(env, record).is_some_and(|most| env.timer > most);
        let (asked, until, now) = (record.asked, record.until, env.timer);
        self.expect(!late, Rule::Budget, || {
            format!("lease {lease}: asked at {asked}, to end at {until}, back at {now}")
        });
    }

    /// Nobody waits for ever: not after the budget, not without a wake-up, not beside a row of its own.
    pub(crate) fn check_waiting(&mut self, n: usize, delay: Option<Micros>) {
        let env = &self.envs[n];
        let (mut broken, t) = (None, self.t);
        for record in env.records.iter().filter(|record| record.status == Status::Waiting) {
            let lease = record.lease;
            if self.back_by(env, record).is_some_and(|most| env.timer > most) {
                broken = Some((Rule::Budget, format!("lease {lease} waits after its budget")));
            }
            if delay.is_none_or(|delay| delay > 3_300 * MS) {
                broken = Some((Rule::Forgotten, format!("lease {lease} waits and the next wake-up is {delay:?}")));
            }
            if let Some(stored) = &self.store.place(record.key).stored
                && record.tried.contains(&stored.row.owner)
                && !self.twice.contains(&stored.row.owner)
            {
                let attempt = (record.lease_ms * 1_000 / 6).min(3 * SECOND) + 50 * MS;
                let since = stored.written.max(env.troubled);
                if t > since + 2 * attempt + 2 * LONGEST_POLL + 4 * self.plan.latency.1 {
                    broken = Some((Rule::SelfWait, format!("lease {lease} waits beside a row of its own")));
                }
            }
        }
        if let Some((rule, text)) = broken {
            self.fail(rule, text);
        }
        self.check_recovery(n);
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
        let ours = |owner: &u64| (0..self.envs.len()).any(|n| self.envs[n].alive && self.is_own(n, *owner));
        let left: Vec<_> = self
            .store
            .rows()
            .map(|stored| stored.row.owner)
            .filter(|owner| !self.late.contains(owner) && ours(owner))
            .collect();
        self.tally.orphans += left.len() as u64;
        // An outage or a freeze may outlast the clean-up's budget: then the row waits for ordinary observation.
        let hindered = self.plan.profile != Profile::Mild && self.hindered;
        self.expect(hindered || left.is_empty(), Rule::Orphan, || format!("rows of {left:?} are left"));
    }
}
