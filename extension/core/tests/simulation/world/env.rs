//! One environment of the world: a core, its clocks, its clients' leases and what is under way for them.

use super::Mistake;
use super::clock::{Clock, Clocks, largest_step};
use crate::common::rng::{Draws, Rng};
use leasekeeper_core::{Config, Core, Input, LeaseId, Micros, Now, Op, RequestNo};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Waiting,
    Granted,
    Releasing,
    Lost,
}

/// One acquire as its client and an outside observer see it, until it is over.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) lease: LeaseId,
    pub(crate) key: u64,
    pub(crate) slot: usize,
    pub(crate) lease_ms: u64,
    pub(crate) scope: Option<u64>,
    /// When it was asked for, in true time.
    pub(crate) asked_at: u64,
    /// When it was asked for, the budget's end, its invocation's end and the longest hold's end, on the environment's
    /// timer clock.
    pub(crate) asked: Micros,
    pub(crate) until: Micros,
    pub(crate) deadline: Option<Micros>,
    pub(crate) hold_until: Option<Micros>,
    pub(crate) max_hold: Option<Micros>,
    pub(crate) puts: u32,
    /// The owners of its last Puts.
    pub(crate) tried: [u64; 4],
    pub(crate) status: Status,
    pub(crate) owner: u64,
    /// What the guard would answer: for how long it is valid from the last reading on.
    pub(crate) valid: Micros,
    /// A mistake's addition to it.
    pub(crate) bonus: Micros,
    /// Until when its client may believe, on the environment's held clock.
    pub(crate) belief: Micros,
    /// Its client asked for the end, or is dead.
    pub(crate) gone: bool,
    /// It was invalid at some instant: it must never be valid again.
    pub(crate) ended: bool,
}

/// A request that its driver still waits for.
#[derive(Clone, Debug)]
pub(crate) struct Waited {
    pub(crate) no: RequestNo,
    pub(crate) lease: LeaseId,
    pub(crate) sent: u64,
    pub(crate) op: Op<u64>,
}

/// What this life of the environment has seen of the row under a key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    pub(crate) owner: u64,
    pub(crate) version: u64,
    /// When a reply showed this version first, in true time.
    pub(crate) since: u64,
}

pub(crate) struct Env {
    pub(crate) alive: bool,
    pub(crate) frozen: bool,
    /// Counts restarts: what was meant for an earlier life is dropped.
    pub(crate) life: u32,
    pub(crate) core: Core<u64>,
    pub(crate) draws: Draws,
    /// Ids below this were drawn in an earlier life.
    pub(crate) first_id: u64,
    /// The id that was used last: the next one must be greater.
    pub(crate) last_id: u64,
    pub(crate) clocks: Clocks,
    /// The last true reading, and the last that was given to the core.
    pub(crate) last: Now,
    pub(crate) given: Now,
    pub(crate) first: Now,
    pub(crate) held: Micros,
    pub(crate) timer: Micros,
    pub(crate) inbox: Vec<Input<u64>>,
    /// When the core wants to be woken, and the wake-up's place in the order of events.
    pub(crate) wake: Option<(u64, u64)>,
    pub(crate) idle_wakes: u32,
    /// The invocation that this life was told of last; 0 if of none.
    pub(crate) scope: u64,
    pub(crate) upcoming: u64,
    /// Invocations that were announced and are over.
    pub(crate) over: Vec<u64>,
    pub(crate) cut_off_until: u64,
    /// In a run of faults: how many are to come, and when the last one was.
    pub(crate) faults_left: u64,
    pub(crate) last_fault: Option<u64>,
    /// Until when the process was held up: frozen, starved, not started.
    pub(crate) stalled: u64,
    /// Until when it was held up, or the network was in its way.
    pub(crate) troubled: u64,
    pub(crate) thaw: Thaw,
    /// Until when it held a key, or was giving it back.
    pub(crate) busy_key: [u64; 2],
    pub(crate) sights: [Sight; 2],
    pub(crate) denied: bool,
    pub(crate) waited: Vec<Waited>,
    pub(crate) records: Vec<Record>,
    pub(crate) busy_slots: Vec<bool>,
    /// What mistakes on purpose need to remember.
    pub(crate) notes: Notes,
}

/// The last thaw, as far as it is certain that the core took it for one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thaw {
    pub(crate) at: u64,
    /// Long enough, and alone for a while.
    pub(crate) certain: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// Leases as they were first told for an owner and version.
    pub(crate) told: BTreeMap<(u64, u64), u64>,
    /// The version first seen of an owner, and the one seen last.
    pub(crate) versions: BTreeMap<u64, (u64, u64)>,
    /// Versions as the core knows them, to those on the wire.
    pub(crate) wire: BTreeMap<u64, u64>,
    /// The open renewal attempt of an owner: the version on the wire and the core's latest.
    pub(crate) open: BTreeMap<u64, (u64, u64)>,
    pub(crate) deleted: BTreeSet<u64>,
    /// The wall clock's steps, whatever their direction.
    pub(crate) walked: u64,
}

impl Env {
    pub(crate) fn new(n: usize, of: u64, rates: [u64; 3], slots: usize, freezes: bool, rng: &mut Rng) -> Self {
        let base = [3_000_000_000, 1_000_000_000, 1_700_000_000_000_000].map(|base| base + rng.below(1_000_000_000));
        let clocks = Clocks([0, 1, 2].map(|i| Clock::new(base[i], rates[i])));
        let now = clocks.read(0);
        Self {
            alive: true,
            frozen: false,
            life: 0,
            core: Core::new(Config { freezes, memory: 8 }),
            draws: Draws::new(FIRST_ID + n as u64, of, Some(Rng::new(rng.next()))),
            first_id: FIRST_ID,
            last_id: 0,
            clocks,
            last: now,
            given: now,
            first: now,
            held: 0,
            timer: 0,
            inbox: Vec::new(),
            wake: None,
            idle_wakes: 0,
            scope: 0,
            upcoming: 1,
            over: Vec::new(),
            cut_off_until: 0,
            faults_left: 0,
            last_fault: None,
            stalled: 0,
            troubled: 0,
            thaw: Thaw::default(),
            busy_key: [0; 2],
            sights: [Sight::default(); 2],
            denied: false,
            waited: Vec::new(),
            records: Vec::new(),
            busy_slots: vec![false; slots],
            notes: Notes::default(),
        }
    }

    /// A new process, with nothing of the old one but its clocks.
    pub(crate) fn restart(&mut self, t: u64, freezes: bool) {
        for clock in &mut self.clocks.0 {
            clock.run(t, true);
        }
        let now = self.clocks.read(t);
        self.core = Core::new(Config { freezes, memory: 8 });
        (self.alive, self.frozen, self.last, self.given, self.first) = (true, false, now, now, now);
        self.first_id = self.last_id + 1;
        self.scope = 0;
        self.over.clear();
        self.sights = [Sight::default(); 2];
        self.busy_slots.fill(false);
        self.notes = Notes::default();
        self.stall(t);
    }

    /// The process did not run until `t`.
    pub(crate) fn stall(&mut self, t: u64) {
        self.stalled = self.stalled.max(t);
        self.trouble(t);
    }

    /// Something was in its way until `t`.
    pub(crate) fn trouble(&mut self, t: u64) {
        self.troubled = self.troubled.max(t);
    }

    pub(crate) fn record(&self, lease: LeaseId) -> Option<&Record> {
        self.records.iter().find(|record| record.lease == lease)
    }

    pub(crate) fn record_mut(&mut self, lease: LeaseId) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.lease == lease)
    }

    /// Would this guard answer "valid" if it were asked at `t`?
    pub(crate) fn valid_at(&self, record: &Record, t: u64) -> bool {
        record.valid > 0 && largest_step(self.last, self.clocks.read(t)) < record.valid
    }

    /// The lease whose guard stands for this owner.
    pub(crate) fn by_owner(&self, owner: u64) -> Option<&Record> {
        self.records.iter().find(|record| record.owner == owner)
    }

    /// What the core is told of the clocks.
    pub(crate) fn reading(&mut self, mistake: Mistake, real: Now) -> Now {
        match mistake {
            Mistake::OneClock(which) => {
                let only = [real.boot, real.mono, real.wall][which];
                Now { boot: only, mono: only, wall: only }
            }
            Mistake::EndpointMaximum => {
                let passed = 1_000_000_000 + largest_step(self.first, real);
                Now { boot: passed, mono: passed, wall: passed }
            }
            Mistake::WallStepBackIsTime => {
                self.notes.walked += real.wall.abs_diff(self.last.wall);
                Now { wall: self.notes.walked, ..real }
            }
            _ => real,
        }
    }
}

/// Ids of owners and versions start here; everyone in the world draws every so-manieth one.
pub(crate) const FIRST_ID: u64 = 1_000_000;
