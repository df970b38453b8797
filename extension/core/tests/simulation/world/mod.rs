//! Several cores with clocks of their own on one table, in simulated time, with every promise checked in true time.

mod checks;
mod clients;
mod clock;
mod env;
mod mutation;
mod network;
mod plan;
mod store;

pub(crate) use checks::Rule;
pub(crate) use mutation::Mutation;
pub(crate) use plan::{Broken, Plan, Profile};

use crate::common::rng::Rng;
use checks::Violation;
use clients::Act;
use clock::{largest_step, timer_step};
use env::{Env, Status};
use leasekeeper_core::{Answer, Input, LeaseId, Now, Op, RequestNo};
use network::Fate;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use store::{Condition, Store};

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Wake { env: usize, wake: u64 },
    Arrive { env: usize, life: u32, no: RequestNo, key: u64, op: Op<u64>, condition: Condition, fate: Fate },
    Answer { env: usize, life: u32, no: RequestNo, answer: Answer<u64> },
    Act { env: usize, life: u32, act: Act },
    Freeze { env: usize },
    Thaw { env: usize },
    Invoke { env: usize, life: u32 },
    Crash { env: usize },
    Restart { env: usize },
    CutOff { env: usize },
    WallStep { env: usize },
    DeleteByHand,
}

/// What a schedule came to.
pub(crate) struct Outcome {
    pub(crate) violation: Option<Violation>,
    /// The same seed gives the same trace.
    pub(crate) trace: u64,
    pub(crate) tally: Tally,
}

/// Figures over one or many schedules: a simulation that never gets to the point proves nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) handled: u64,
    pub(crate) requests: u64,
    pub(crate) granted: u64,
    pub(crate) renewed: u64,
    pub(crate) lost: u64,
    pub(crate) takeovers: u64,
    pub(crate) orphans: u64,
    pub(crate) simulated: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.handled += other.handled;
        self.requests += other.requests;
        self.granted += other.granted;
        self.renewed += other.renewed;
        self.lost += other.lost;
        self.takeovers += other.takeovers;
        self.orphans += other.orphans;
        self.simulated += other.simulated;
    }
}

pub(crate) struct World {
    plan: Plan,
    mutation: Mutation,
    rng: Rng,
    t: u64,
    events: u64,
    queue: BTreeMap<(u64, u64), Event>,
    store: Store,
    envs: Vec<Env>,
    next_lease: LeaseId,
    /// The end: no faults and no new wishes.
    calm: bool,
    violation: Option<Violation>,
    hasher: DefaultHasher,
    tally: Tally,
    versions: BTreeSet<u64>,
    /// Since when a key has had no row.
    free_since: BTreeMap<u64, u64>,
    /// Owners whose Put was made to land late: the stated exception to "no row is left".
    late: BTreeSet<u64>,
    /// Something happened that a clean-up's budget need not outlast.
    hindered: bool,
    verbose: bool,
    /// Only these rules are looked at.
    rules: Option<Vec<Rule>>,
}

impl World {
    pub(crate) fn run(plan: Plan, mutation: Mutation) -> Outcome {
        Self::watch(plan, mutation, None)
    }

    /// Looks for violations of some rules alone: a mistake's first symptom need not be the one that matters.
    pub(crate) fn watch(plan: Plan, mutation: Mutation, rules: Option<&[Rule]>) -> Outcome {
        let mut world = Self::new(plan, mutation);
        world.rules = rules.map(<[Rule]>::to_vec);
        world.disturb();
        let horizon = world.plan.horizon;
        world.run_until(horizon);
        world.settle();
        let mut tally = world.tally;
        tally.simulated = world.t;
        Outcome { violation: world.violation, trace: world.hasher.finish(), tally }
    }

    fn new(plan: Plan, mutation: Mutation) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0x5EED);
        let of = plan.environments;
        let hindered = plan.faults > 0 || plan.broken.is_some();
        let envs = (0..of).map(|n| Env::new(n, of, plan.rates[n], plan.clients, plan.freezes, &mut rng)).collect();
        Self {
            plan,
            mutation,
            rng,
            t: 0,
            events: 0,
            queue: BTreeMap::new(),
            store: Store::default(),
            envs,
            next_lease: 0,
            calm: false,
            violation: None,
            hasher: DefaultHasher::new(),
            tally: Tally::default(),
            versions: BTreeSet::new(),
            free_since: BTreeMap::new(),
            late: BTreeSet::new(),
            hindered,
            rules: None,
            verbose: std::env::var_os("LEASEKEEPER_SIM_TRACE").is_some(),
        }
    }

    fn at(&mut self, t: u64, event: Event) {
        self.events += 1;
        self.queue.insert((t.max(self.t), self.events), event);
    }

    fn run_until(&mut self, end: u64) {
        while self.violation.is_none() {
            let Some(entry) = self.queue.first_entry() else { break };
            if entry.key().0 > end {
                break;
            }
            let ((t, _), event) = entry.remove_entry();
            self.t = t;
            self.event(event);
        }
        self.t = self.t.max(end);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Wake { env, wake } => {
                let e = &self.envs[env];
                if e.wake == wake && e.alive && !e.frozen {
                    self.handle(env, Input::Tick);
                }
            }
            Event::Arrive { env, life, no, key, op, condition, fate } => {
                self.arrive(env, life, no, key, &op, condition, fate);
            }
            Event::Answer { env, life, no, answer } => self.deliver(env, life, no, answer),
            Event::Act { env, life, act } => self.act(env, life, act),
            Event::Freeze { env } => self.freeze(env),
            Event::Thaw { env } => self.thaw(env),
            Event::Invoke { env, life } => self.invoke(env, life),
            Event::Crash { env } => self.crash(env),
            Event::Restart { env } => self.restart(env),
            Event::CutOff { env } => {
                self.hindered = true;
                let unit = self.plan.longest_lease();
                let most = if self.plan.profile == Profile::Edge { 3 } else { 2 };
                self.envs[env].cut_off_until = self.t + self.rng.below(most * unit);
            }
            Event::WallStep { env } => self.wall_step(env),
            Event::DeleteByHand => {
                let key = self.rng.below(self.plan.keys);
                self.store.rows.remove(&key);
            }
        }
    }

    /// One input to one core, with everything that must hold around it.
    pub(crate) fn handle(&mut self, n: usize, input: Input<u64>) {
        let t = self.t;
        let env = &mut self.envs[n];
        let real = env.clocks.read(t);
        let step = largest_step(env.last, real);
        env.held += step;
        env.timer += timer_step(env.last, real);
        env.last = real;
        for record in env.records.values_mut() {
            record.ended |= record.status == Status::Granted && step >= record.valid;
            record.valid = record.valid.saturating_sub(step);
        }
        let tick = input == Input::Tick;
        if !(self.mutation == Mutation::AnswerBeforeTime && matches!(input, Input::Answer(..))) {
            env.given = reading(self.mutation, env.first, real);
        }
        self.tally.handled += 1;
        (t, n, &input).hash(&mut self.hasher);
        if self.verbose {
            eprintln!("{t:>12} env {n} <- {input:?}");
        }
        env.core.handle(env.given, input, &mut env.draws);
        let mut silent = true;
        while let Some(output) = self.envs[n].core.poll() {
            silent = false;
            output.hash(&mut self.hasher);
            if self.verbose {
                eprintln!("{t:>12} env {n} -> {output:?}");
            }
            self.output(n, output);
        }
        self.read_guards(n);
        self.check_exclusion(n);
        let delay = self.envs[n].core.next_wakeup();
        self.check_waiting(n, step, delay);
        self.check_idling(n, tick && silent && delay.is_some_and(|delay| delay < 100));
        self.envs[n].wake += 1;
        if let Some(delay) = delay {
            let late = self.lateness();
            let at = t + self.envs[n].clocks.true_delay(delay) + late;
            let wake = self.envs[n].wake;
            self.at(at, Event::Wake { env: n, wake });
        }
    }

    /// How late a timer fires: mostly a little, at times (a starved process) a lot.
    fn lateness(&mut self) -> u64 {
        let unit = self.plan.shortest_lease();
        if self.calm || self.plan.profile == Profile::Edge {
            return self.rng.below(50);
        }
        let starved = self.plan.profile == Profile::Uniform && self.rng.chance(2);
        self.rng.below(if starved { unit / 4 } else { unit / 500 })
    }

    /// Freezes, crashes, partitions and wall steps, at random times; the first wishes.
    fn disturb(&mut self) {
        let horizon = self.plan.horizon;
        for env in 0..self.envs.len() {
            for slot in 0..self.plan.clients {
                let at = self.rng.below(horizon / 4);
                self.at(at, Event::Act { env, life: 0, act: Act::Ask(slot) });
            }
        }
        for _ in 0..self.plan.disturbances {
            let env = self.rng.below(self.envs.len() as u64) as usize;
            let at = self.rng.below(horizon);
            let event = match self.rng.below(if self.plan.broken.is_some() { 12 } else { 10 }) {
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

    fn freeze(&mut self, n: usize) {
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
        let both = self.plan.broken == Some(Broken::BothClocksStop);
        let stops = if both {
            [true; 3]
        } else {
            self.rng.pick(&[
                [false; 3],
                [false, true, false],
                [true, true, false],
                [false, true, true],
                [true, false, false],
            ])
        };
        self.hindered = true;
        let env = &mut self.envs[n];
        env.frozen = true;
        env.upcoming = env.scope + 1;
        for (clock, stop) in env.clocks.0.iter_mut().zip(stops) {
            clock.run(t, !stop);
        }
        self.at(t + length, Event::Thaw { env: n });
    }

    fn thaw(&mut self, n: usize) {
        let t = self.t;
        let env = &mut self.envs[n];
        if !env.frozen {
            return;
        }
        env.frozen = false;
        for clock in &mut env.clocks.0 {
            clock.run(t, true);
        }
        if !env.alive {
            return;
        }
        let life = env.life;
        let mut inbox = std::mem::take(&mut env.inbox);
        if self.rng.chance(50) {
            inbox.insert(0, Input::Tick);
        }
        if self.rng.chance(30) {
            inbox.reverse();
        }
        inbox.push(Input::Tick);
        let at = t + self.rng.below(50_000);
        if self.plan.freezes {
            self.at(at, Event::Invoke { env: n, life });
        }
        for input in inbox {
            self.handle(n, input);
        }
    }

    fn invoke(&mut self, n: usize, life: u32) {
        let env = &mut self.envs[n];
        if env.life != life || !env.alive || env.frozen || env.upcoming == env.scope {
            return;
        }
        env.scope = env.upcoming;
        let scope = env.scope;
        let remaining = self.rng.chance(50).then(|| self.rng.below(6 * self.plan.longest_lease()));
        let input = match self.mutation {
            Mutation::RequestIdIgnored => Input::Tick,
            _ => Input::InvocationBegan { scope, remaining },
        };
        self.handle(n, input);
        self.check_invocation(n, scope);
    }

    fn crash(&mut self, n: usize) {
        let t = self.t;
        if self.calm || !self.envs[n].alive {
            return;
        }
        if self.rng.chance(30) && !self.envs[n].frozen {
            // Killed in the midst of its end: a sidecar lets its clients finish first.
            let end = if self.rng.chance(50) { Input::Drain } else { Input::Shutdown };
            self.handle(n, end);
            let at = t + self.rng.below(2 * self.plan.longest_lease());
            return self.at(at, Event::Crash { env: n });
        }
        let env = &mut self.envs[n];
        env.alive = false;
        env.life += 1;
        env.records.clear();
        // What this life may leave is the stated exception: nobody is there to clean up.
        let owners = std::mem::take(&mut env.owners);
        env.past_owners.extend(owners);
        env.waited.clear();
        env.inbox.clear();
        let back = t + self.rng.below(2 * self.plan.longest_lease());
        self.at(back, Event::Restart { env: n });
    }

    fn restart(&mut self, n: usize) {
        if self.calm {
            return;
        }
        let (t, freezes) = (self.t, self.plan.freezes);
        let env = &mut self.envs[n];
        for clock in &mut env.clocks.0 {
            clock.run(t, true);
        }
        let now = env.clocks.read(t);
        env.core = leasekeeper_core::Core::new(leasekeeper_core::Config { freezes, memory: 8 });
        (env.alive, env.frozen, env.last, env.given, env.first) = (true, false, now, now, now);
        env.busy_slots.fill(false);
        env.notes = env::Notes::default();
        let life = env.life;
        for slot in 0..self.plan.clients {
            self.at(t, Event::Act { env: n, life, act: Act::Ask(slot) });
        }
    }

    /// A step back inside a freeze that stops the boot clock too is outside the assumptions: none comes while frozen.
    fn wall_step(&mut self, n: usize) {
        let unit = self.plan.longest_lease() as i64;
        if self.calm || self.envs[n].frozen || !self.envs[n].alive {
            return;
        }
        let by = self.rng.pick(&[-10 * unit, -unit, -unit / 10, unit / 10, unit / 2, unit]);
        let t = self.t;
        self.envs[n].clocks.0[2].step(t, by);
        // The driver reads often; here it reads right after the step, so that no freeze shares its interval.
        self.handle(n, Input::Tick);
    }

    /// The end: faults stop, every environment that lives is shut down, and all must come to rest.
    fn settle(&mut self) {
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

/// What the core is told of the clocks.
fn reading(mutation: Mutation, first: Now, real: Now) -> Now {
    match mutation {
        Mutation::OneClock(which) => {
            let only = [real.boot, real.mono, real.wall][which];
            Now { boot: only, mono: only, wall: only }
        }
        Mutation::EndpointMaximum => {
            let passed = 1_000_000_000 + largest_step(first, real);
            Now { boot: passed, mono: passed, wall: passed }
        }
        _ => real,
    }
}
