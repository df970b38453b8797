//! What clients do: ask, hold, give back, leak, die, give up.

use super::env::{Record, Status};
use super::{Event, Mistake, Profile, World};
use leasekeeper_core::{Acquire, Input, LeaseId, LostReason};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// The client in this slot wants a lock.
    Ask(usize),
    /// It no longer waits for it.
    StopWaiting(LeaseId),
    /// It is done with it, one way or another.
    End(LeaseId),
    /// It was told of the loss and closes its side.
    Close(LeaseId),
}

impl World {
    pub(crate) fn act(&mut self, n: usize, life: u32, act: Act) {
        let env = &self.envs[n];
        if self.calm || env.life != life || !env.alive {
            return;
        }
        if env.frozen {
            // A frozen client goes on when it is thawed.
            let at = self.t + 1_000 + self.rng.below(self.plan.shortest_lease() / 4);
            return self.at(at, Event::Act { env: n, life, act });
        }
        match act {
            Act::Ask(slot) => self.ask(n, slot),
            Act::StopWaiting(lease) => {
                if env.record(lease).is_some_and(|record| record.status == Status::Waiting) {
                    self.handle(n, Input::Release(lease));
                }
            }
            Act::End(lease) => self.end_hold(n, lease),
            Act::Close(lease) => self.release(n, lease),
        }
    }

    fn ask(&mut self, n: usize, slot: usize) {
        if self.envs[n].busy_slots[slot] {
            return;
        }
        self.next_lease += 1;
        let lease = self.next_lease;
        let lease_ms = self.rng.pick(&self.plan.leases);
        let unit = self.plan.longest_lease();
        let edge = self.plan.profile == Profile::Edge;
        let wait = if edge { 20 * unit } else { self.rng.pick(&[0, 0, unit / 20, unit / 2, 2 * unit, 20 * unit]) };
        let mild = self.plan.profile == Profile::Mild;
        let key = self.rng.below(self.plan.keys);
        let scope = self.scope_of_a_wish(n);
        let limited = !mild && self.rng.chance(15);
        let remaining = limited.then(|| if self.rng.chance(20) { 0 } else { self.rng.below(4 * unit) });
        let max_hold = (!mild && self.rng.chance(10)).then(|| self.rng.below(2 * unit));
        let ask = Acquire {
            lease,
            key,
            lease_ms: if self.mistake == Mistake::NoMargin { lease_ms * 10 / 9 } else { lease_ms },
            wait: if self.mistake == Mistake::WaitsTooLong { 2 * wait } else { wait },
            scope,
            remaining: remaining.filter(|_| self.mistake != Mistake::DeadlineIgnored),
            max_hold: max_hold.filter(|_| self.mistake != Mistake::MaxHoldIgnored),
        };
        // The core's clock stands at the last reading; the budget counts from the one that comes with the wish.
        self.handle(n, Input::Tick);
        let env = &mut self.envs[n];
        let record = Record {
            lease,
            key,
            slot,
            lease_ms,
            scope,
            asked_at: self.t,
            asked: env.timer,
            until: env.timer + wait,
            deadline: remaining.map(|remaining| env.timer + remaining),
            hold_until: None,
            max_hold,
            puts: 0,
            tried: [0; 4],
            status: Status::Waiting,
            owner: 0,
            valid: 0,
            bonus: 0,
            belief: 0,
            gone: false,
            ended: false,
        };
        env.records.push(record);
        env.busy_slots[slot] = true;
        let life = env.life;
        if self.rng.chance(10) {
            let at = self.t + self.rng.below(unit);
            self.at(at, Event::Act { env: n, life, act: Act::StopWaiting(lease) });
        }
        self.handle(n, Input::Acquire(ask));
    }

    /// The invocation that a wish belongs to: the one that is about to be announced, or one that is over.
    fn scope_of_a_wish(&mut self, n: usize) -> Option<u64> {
        let left_over = self.rng.chance(5);
        let env = &self.envs[n];
        let scope = env.over.last().copied().filter(|_| left_over).unwrap_or(env.upcoming);
        self.rng.chance(60).then_some(scope)
    }

    /// The slot's client goes on to its next wish after a while.
    pub(crate) fn next_wish(&mut self, n: usize, slot: usize) {
        let unit = self.plan.shortest_lease();
        let pause = self.rng.pick(&[1, unit / 20, unit / 2, unit]);
        let pause = self.rng.below(pause) + 1;
        let env = &mut self.envs[n];
        env.busy_slots[slot] = false;
        let life = env.life;
        self.at(self.t + pause, Event::Act { env: n, life, act: Act::Ask(slot) });
    }

    /// The lock is the client's: it works for a while.
    pub(crate) fn work(&mut self, n: usize, lease: LeaseId) {
        let unit = self.plan.longest_lease();
        let edge = self.plan.profile == Profile::Edge;
        let most = if edge { 6 * unit } else { self.rng.pick(&[unit / 20, unit / 2, 2 * unit, 4 * unit]) };
        let at = self.t + self.rng.below(most);
        let life = self.envs[n].life;
        self.at(at, Event::Act { env: n, life, act: Act::End(lease) });
    }

    fn end_hold(&mut self, n: usize, lease: LeaseId) {
        let Some(record) = self.envs[n].record(lease) else { return };
        if record.status != Status::Granted {
            return;
        }
        let slot = record.slot;
        if !self.rng.chance(self.plan.rude) {
            return self.release(n, lease);
        }
        match self.rng.below(3) {
            // Leaked: the client forgets it and goes on.
            0 => self.next_wish(n, slot),
            // Its process died and that was seen.
            1 => self.release(n, lease),
            _ => {
                let input = match self.mistake {
                    Mistake::EarlyDelete => Input::Release(lease),
                    _ => Input::GiveUp(lease, LostReason::ExtensionFailed),
                };
                self.handle(n, input);
            }
        }
    }

    fn release(&mut self, n: usize, lease: LeaseId) {
        if let Some(record) = self.envs[n].record_mut(lease) {
            record.gone = true;
            if record.status == Status::Granted {
                record.status = Status::Releasing;
                if self.mistake != Mistake::ValidUntilReleased {
                    record.valid = 0;
                }
            }
        }
        self.handle(n, Input::Release(lease));
    }
}
