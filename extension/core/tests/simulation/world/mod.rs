//! Several cores with clocks of their own on one table, in simulated time, with every promise checked in true time.

mod checks;
mod clients;
mod clock;
mod disturb;
mod env;
mod liveness;
mod mistake;
mod mutate;
mod network;
mod peers;
mod plan;
mod queue;
mod rules;
mod store;
mod trace;

pub(crate) use mistake::Mistake;
pub(crate) use plan::{Broken, Plan, Profile};
pub(crate) use rules::{Rule, Violation, Watched};

use crate::common::rng::{Draws, Rng};
use clients::Act;
use clock::{largest_step, timer_step};
use env::{Env, FIRST_ID, Status};
use leasekeeper_core::{Answer, Input, LeaseId, Op, RequestNo};
use network::Parcel;
use peers::{News, Peer};
use queue::Queue;
use std::hash::{Hash, Hasher};
use store::Store;
use trace::Trace;

/// More events than this in one schedule are a loop without an end.
const MOST_EVENTS: u64 = 100_000;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Arrive(Parcel),
    Answer { env: usize, life: u32, no: RequestNo, answer: Answer<u64> },
    TimedOut { env: usize, life: u32, no: RequestNo },
    Act { env: usize, life: u32, act: Act },
    Freeze { env: usize },
    Thaw { env: usize },
    Invoke { env: usize, life: u32 },
    Crash { env: usize },
    Restart { env: usize },
    CutOff { env: usize },
    WallStep { env: usize },
    DeleteByHand,
    Peer { peer: usize, no: u64, news: News },
}

/// What a schedule came to.
pub(crate) struct Outcome {
    pub(crate) violation: Option<Violation>,
    /// The same seed gives the same trace.
    pub(crate) trace: u64,
    pub(crate) tally: Tally,
}

/// Figures over one or many schedules: a simulation that never gets to the point proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) handled: u64,
    pub(crate) requests: u64,
    pub(crate) granted: u64,
    pub(crate) renewed: u64,
    pub(crate) lost: u64,
    pub(crate) takeovers: u64,
    pub(crate) peers_held: u64,
    pub(crate) orphans: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.handled += other.handled;
        self.requests += other.requests;
        self.granted += other.granted;
        self.renewed += other.renewed;
        self.lost += other.lost;
        self.takeovers += other.takeovers;
        self.peers_held += other.peers_held;
        self.orphans += other.orphans;
    }
}

pub(crate) struct World {
    plan: Plan,
    mistake: Mistake,
    rng: Rng,
    t: u64,
    events: u64,
    queue: Queue,
    store: Store,
    envs: Vec<Env>,
    peers: Vec<Peer>,
    /// How many draw ids: environments and peers.
    everyone: u64,
    next_lease: LeaseId,
    /// The end: no faults and no new wishes.
    calm: bool,
    violation: Option<Violation>,
    trace: Trace,
    tally: Tally,
    /// Owners whose Put was made to land late: the stated exception to "no row is left".
    late: Vec<u64>,
    /// Owners whose plain Put was sent twice: the stated exception to "a released row does not come back".
    twice: Vec<u64>,
    /// Owners whose takeover was sent twice: it may land again where such a row is back.
    replaced_twice: Vec<u64>,
    /// Something happened that a clean-up's budget need not outlast.
    hindered: bool,
    verbose: bool,
    watched: Watched,
}

impl World {
    pub(crate) fn run(plan: Plan) -> Outcome {
        Self::watch(plan, Mistake::None, Watched::ALL)
    }

    /// Looks for violations of some rules alone: a mistake's first symptom need not be the one that matters.
    pub(crate) fn watch(plan: Plan, mistake: Mistake, watched: Watched) -> Outcome {
        let mut world = Self::new(plan, mistake, watched);
        world.disturb();
        let horizon = world.plan.horizon;
        world.run_until(horizon);
        world.settle();
        Outcome { violation: world.violation, trace: world.trace.finish(), tally: world.tally }
    }

    fn new(plan: Plan, mistake: Mistake, watched: Watched) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0x5EED);
        let everyone = (plan.rates.len() + plan.peers.len()) as u64;
        let rates = plan.rates.iter().enumerate();
        let envs: Vec<_> =
            rates.map(|(n, rates)| Env::new(n, everyone, *rates, plan.clients, plan.freezes, &mut rng)).collect();
        let draws = |n: usize| Draws::new(FIRST_ID + (envs.len() + n) as u64, everyone, None);
        let peers = plan.peers.iter().enumerate().map(|(n, rate)| Peer::new(*rate, draws(n))).collect();
        let hindered = plan.faults > 0 || plan.broken.is_some();
        let mut world = Self {
            plan,
            mistake,
            rng,
            t: 0,
            events: 0,
            queue: Queue::default(),
            store: Store::default(),
            envs,
            peers,
            everyone,
            next_lease: 0,
            calm: false,
            violation: None,
            trace: Trace::default(),
            tally: Tally::default(),
            late: Vec::new(),
            twice: Vec::new(),
            replaced_twice: Vec::new(),
            hindered,
            verbose: std::env::var_os("LEASEKEEPER_SIM_TRACE").is_some(),
            watched,
        };
        for n in 0..world.envs.len() {
            world.break_rules(n);
        }
        world
    }

    /// Makes an environment's new core break the rule that this schedule is about.
    fn break_rules(&mut self, n: usize) {
        if let Mistake::Rule(rule) = self.mistake {
            self.envs[n].core.get_wrong(rule);
        }
    }

    fn at(&mut self, t: u64, event: Event) {
        self.queue.push(t.max(self.t), event);
    }

    /// Everything up to `end`, in order: what is planned, and the cores' wake-ups.
    fn run_until(&mut self, end: u64) {
        while self.violation.is_none() {
            let planned = self.queue.first();
            let wakes = self.envs.iter().enumerate().filter_map(|(n, env)| Some((env.wake?, n)));
            let wake = wakes.min().filter(|(wake, _)| planned.is_none_or(|planned| *wake < planned));
            let Some((t, _)) = wake.map(|(wake, _)| wake).or(planned) else { break };
            if t > end {
                break;
            }
            self.t = t;
            self.events += 1;
            self.expect(self.events < MOST_EVENTS, Rule::Restless, || "there is no end to the events".into());
            if let Some((_, n)) = wake {
                self.envs[n].wake = None;
                if !self.envs[n].frozen {
                    self.handle(n, Input::Tick);
                }
            } else if let Some(event) = self.queue.pop() {
                self.event(event);
            }
        }
        self.t = self.t.max(end);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Arrive(parcel) => {
                self.check_recovery(parcel.env);
                self.arrive(&parcel);
            }
            Event::Answer { env, life, no, answer } => self.deliver(env, life, no, answer),
            Event::TimedOut { env, life, no } => self.deliver(env, life, no, Answer::Unknown(String::new())),
            Event::Act { env, life, act } => self.act(env, life, act),
            Event::Freeze { env } => self.freeze(env),
            Event::Thaw { env } => self.thaw(env),
            Event::Invoke { env, life } => self.invoke(env, life),
            Event::Crash { env } => self.crash(env),
            Event::Restart { env } => self.restart(env),
            Event::CutOff { env } => self.cut_off(env),
            Event::WallStep { env } => self.wall_step(env),
            Event::DeleteByHand => {
                let key = self.rng.below(self.plan.keys);
                self.store.delete_by_hand(self.t, key);
            }
            Event::Peer { peer, no, news } => self.peer(peer, no, news),
        }
    }

    /// Would this write bring back an owner whose row has gone?
    fn comes_back(&self, op: &Op<u64>) -> bool {
        let (new, excused) = match op {
            Op::Create { row } => (row.owner, self.twice.contains(&row.owner)),
            Op::Replace { row, owner, .. } => {
                (row.owner, self.replaced_twice.contains(&row.owner) && self.twice.contains(owner))
            }
            _ => return false,
        };
        let excused = excused && self.plan.broken != Some(Broken::Duplicates);
        !excused && self.store.gone.contains(&new)
    }

    /// One input to one core, with everything that must hold around it.
    pub(crate) fn handle(&mut self, n: usize, input: Input<u64>) {
        let t = self.t;
        let env = &mut self.envs[n];
        let real = env.clocks.read(t);
        let step = largest_step(env.last, real);
        env.held += step;
        env.timer += timer_step(env.last, real);
        for record in &mut env.records {
            record.ended |= record.status == Status::Granted && step >= record.valid;
            record.valid = record.valid.saturating_sub(step);
        }
        let tick = input == Input::Tick;
        let given = env.reading(self.mistake, real);
        env.last = real;
        if !(self.mistake == Mistake::AnswerBeforeTime && matches!(input, Input::Answer(..))) {
            env.given = given;
        }
        self.tally.handled += 1;
        (t, n, &input).hash(&mut self.trace);
        if self.verbose {
            eprintln!("{t:>12} env {n} <- {input:?}");
        }
        env.core.handle(env.given, input, &mut env.draws);
        let mut silent = true;
        while let Some(output) = self.envs[n].core.poll() {
            silent = false;
            output.hash(&mut self.trace);
            if self.verbose {
                eprintln!("{t:>12} env {n} -> {output:?}");
            }
            self.output(n, output);
        }
        self.read_guards(n);
        self.check_exclusion(n);
        let delay = self.envs[n].core.next_wakeup();
        self.check_waiting(n, delay);
        self.check_idling(n, tick && silent && delay.is_some_and(|delay| delay < 100));
        self.envs[n].wake = None;
        if let Some(delay) = delay {
            let late = self.lateness();
            let at = t + self.envs[n].clocks.true_delay(delay) + late;
            if late > self.usual_lateness() {
                self.envs[n].stall(at);
            }
            self.envs[n].wake = Some((at, self.queue.number()));
        }
    }

    /// How late a timer fires: mostly a little, at times (a starved process) a lot.
    fn lateness(&mut self) -> u64 {
        let usual = self.usual_lateness();
        let starved = !self.calm && self.plan.profile == Profile::Uniform && self.rng.chance(2);
        self.rng.below(if starved { self.plan.shortest_lease() / 4 } else { usual })
    }
}
