//! What befalls an environment: freezes and thaws, invocations, crashes, partitions, steps of the wall clock.

use super::clock::largest_step;
use super::env::Thaw;
use super::{Act, Broken, Event, Mistake, Profile, World};
use crate::common::{MS, SECOND};
use leasekeeper_core::Input;

impl World {
    /// Disturbances at random times, the first wishes, the peers' beginning.
    pub(crate) fn disturb(&mut self) {
        let horizon = self.plan.horizon;
        for env in 0..self.envs.len() {
            for slot in 0..self.plan.clients {
                let at = self.rng.below(horizon / 4);
                self.at(at, Event::Act { env, life: 0, act: Act::Ask(slot) });
            }
        }
        for peer in 0..self.peers.len() {
            let at = self.rng.below(horizon / 4);
            self.wake_peer(peer, at);
        }
        for _ in 0..self.plan.disturbances {
            let env = self.rng.below(self.envs.len() as u64) as usize;
            let at = self.rng.below(horizon);
            let mild = self.plan.profile == Profile::Mild;
            let event = match self.rng.below(if self.plan.broken.is_some() { 12 } else { 10 }) {
                // What a healthy holder must survive.
                _ if mild => Event::WallStep { env },
                0..4 => Event::Freeze { env },
                4 => Event::Crash { env },
                5..7 => Event::CutOff { env },
                7..10 => Event::WallStep { env },
                _ if self.plan.broken == Some(Broken::RowsDeletedByHand) => Event::DeleteByHand,
                _ => Event::Freeze { env },
            };
            self.at(at, event);
        }
    }

    pub(crate) fn cut_off(&mut self, n: usize) {
        self.hindered = true;
        let unit = self.plan.longest_lease();
        let most = if self.plan.profile == Profile::Edge { 3 } else { 2 };
        self.envs[n].cut_off_until = self.t + self.rng.below(most * unit);
    }

    pub(crate) fn freeze(&mut self, n: usize) {
        let t = self.t;
        if self.calm || !self.envs[n].alive || self.envs[n].frozen {
            return;
        }
        let unit = self.plan.longest_lease();
        let length = match self.rng.below(4) {
            0 => self.rng.below(unit / 8 + 1),
            1 => unit * 9 / 10 - self.rng.below(unit / 3),
            2 => unit - unit / 20 + self.rng.below(unit / 10),
            _ => self.rng.below(2 * unit),
        };
        const STOPS: [[bool; 3]; 5] =
            [[false; 3], [false, true, false], [true, true, false], [false, true, true], [true, false, false]];
        let stops = match self.plan.broken {
            Some(Broken::BothClocksStop) => [true; 3],
            Some(Broken::WallStepsInFreeze) => [true, true, false],
            _ => self.rng.pick(&STOPS),
        };
        let (repeated, older) = (self.rng.chance(10), self.rng.chance(5));
        self.hindered = true;
        let env = &mut self.envs[n];
        env.frozen = true;
        // Mostly a new invocation comes next; at times the same one again, or one that was over.
        let next = env.scope + 1;
        let retried = env.over.last().copied().filter(|_| older);
        env.upcoming = retried.unwrap_or(if repeated { env.scope } else { next.max(env.upcoming) });
        env.thaw = Thaw { at: 0, certain: t > env.stalled + 300 * MS };
        for (clock, stop) in env.clocks.0.iter_mut().zip(stops) {
            clock.run(t, !stop);
        }
        if self.plan.broken == Some(Broken::WallStepsInFreeze) {
            env.clocks.0[2].step(t, -(unit as i64));
        }
        self.at(t + length, Event::Thaw { env: n });
    }

    pub(crate) fn thaw(&mut self, n: usize) {
        let t = self.t;
        let env = &mut self.envs[n];
        if !env.frozen {
            return;
        }
        env.frozen = false;
        env.stall(t);
        for clock in &mut env.clocks.0 {
            clock.run(t, true);
        }
        if !env.alive {
            return;
        }
        // The core can only tell a freeze that is longer than a late reading may be.
        let lease = self.plan.longest_lease();
        let told = (lease / 30).min(SECOND / 2) + lease / 12;
        let step = largest_step(env.last, env.clocks.read(t));
        env.thaw = Thaw { at: t, certain: env.thaw.certain && step > told };
        let life = env.life;
        let mut inbox = std::mem::take(&mut env.inbox);
        if self.rng.chance(50) {
            inbox.insert(0, Input::Tick);
        }
        if self.rng.chance(30) {
            inbox.reverse();
        }
        inbox.push(Input::Tick);
        let at = t + self.rng.below(50 * MS);
        if self.plan.freezes {
            self.at(at, Event::Invoke { env: n, life });
        }
        for input in inbox {
            self.handle(n, input);
        }
    }

    pub(crate) fn invoke(&mut self, n: usize, life: u32) {
        let env = &mut self.envs[n];
        if env.life != life || !env.alive || env.frozen {
            return;
        }
        if env.scope != env.upcoming && env.scope != 0 {
            env.over.retain(|scope| *scope != env.upcoming);
            env.over.push(env.scope);
        }
        env.scope = env.upcoming;
        let scope = env.scope;
        let remaining = self.rng.chance(50).then(|| self.rng.below(6 * self.plan.longest_lease()));
        if self.mistake == Mistake::RequestIdIgnored {
            self.handle(n, Input::Tick);
        } else {
            self.handle(n, Input::InvocationBegan { scope, remaining });
        }
        let env = &mut self.envs[n];
        let timer = env.timer;
        for record in env.records.iter_mut().filter(|record| record.scope == Some(scope)) {
            let end = remaining.map(|remaining| timer + remaining);
            record.deadline = [record.deadline, end].into_iter().flatten().min();
        }
        self.check_invocation(n, scope);
    }

    pub(crate) fn crash(&mut self, n: usize) {
        let t = self.t;
        if self.calm || !self.envs[n].alive {
            return;
        }
        if self.rng.chance(30) && !self.envs[n].frozen {
            let drains = self.rng.chance(30);
            self.handle(n, if drains { Input::Drain } else { Input::Shutdown });
            if self.mistake == Mistake::ShutdownDeletes {
                let held: Vec<_> = self.envs[n].records.iter().map(|record| record.lease).collect();
                for lease in held {
                    self.handle(n, Input::Release(lease));
                }
            }
            let at = t + self.rng.below(2 * self.plan.longest_lease());
            return self.at(at, Event::Crash { env: n });
        }
        let env = &mut self.envs[n];
        env.alive = false;
        env.life += 1;
        env.records.clear();
        env.waited.clear();
        env.inbox.clear();
        env.wake = None;
        let back = t + self.rng.below(2 * self.plan.longest_lease());
        self.at(back, Event::Restart { env: n });
    }

    pub(crate) fn restart(&mut self, n: usize) {
        if self.calm {
            return;
        }
        let (t, freezes) = (self.t, self.plan.freezes);
        self.envs[n].restart(t, freezes);
        self.break_rules(n);
        let life = self.envs[n].life;
        for slot in 0..self.plan.clients {
            self.at(t, Event::Act { env: n, life, act: Act::Ask(slot) });
        }
    }

    /// A step back inside a freeze that stops the boot clock too is outside the assumptions: none comes while frozen.
    pub(crate) fn wall_step(&mut self, n: usize) {
        let unit = self.plan.longest_lease() as i64;
        if self.calm || self.envs[n].frozen || !self.envs[n].alive {
            return;
        }
        let by = self.rng.pick(&[-10 * unit, -unit, -unit / 10, unit / 10, unit / 2, unit]);
        // A step ahead is time that may have passed: only a step back is no loss.
        let by = if self.plan.profile == Profile::Mild { -by.abs() } else { by };
        let t = self.t;
        self.envs[n].clocks.0[2].step(t, by);
        // The driver reads often; here it reads right after the step, so that no freeze shares its interval.
        self.handle(n, Input::Tick);
    }

    /// The end: faults stop, every environment that lives is shut down, and all must come to rest.
    pub(crate) fn settle(&mut self) {
        if self.violation.is_some() {
            return;
        }
        self.calm = true;
        for n in 0..self.envs.len() {
            self.envs[n].cut_off_until = 0;
            self.thaw(n);
            if self.envs[n].alive && self.violation.is_none() {
                self.handle(n, Input::Shutdown);
            }
        }
        let end = self.t + self.plan.settling();
        self.run_until(end);
        self.check_rest();
    }
}
