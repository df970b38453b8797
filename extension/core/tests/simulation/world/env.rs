//! One environment of the world: a core, its clocks, its clients' leases and what is under way for them.

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
    Over,
}

/// One acquire as its client and an outside observer see it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) key: u64,
    pub(crate) slot: usize,
    pub(crate) lease_ms: u64,
    pub(crate) scope: Option<u64>,
    /// When it was asked for, and the budget's end, on the environment's timer clock.
    pub(crate) asked: Micros,
    pub(crate) until: Micros,
    pub(crate) asked_at: u64,
    pub(crate) puts: u32,
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
    pub(crate) lease: LeaseId,
    pub(crate) sent: u64,
    pub(crate) op: Op<u64>,
}

pub(crate) struct Env {
    pub(crate) alive: bool,
    pub(crate) frozen: bool,
    /// Counts restarts: what was meant for an earlier life is dropped.
    pub(crate) life: u32,
    pub(crate) core: Core<u64>,
    pub(crate) draws: Draws,
    pub(crate) clocks: Clocks,
    /// The last true reading, and the last that was given to the core.
    pub(crate) last: Now,
    pub(crate) given: Now,
    pub(crate) first: Now,
    pub(crate) held: Micros,
    pub(crate) timer: Micros,
    pub(crate) inbox: Vec<Input<u64>>,
    /// Only the newest wake-up counts.
    pub(crate) wake: u64,
    pub(crate) idle_wakes: u32,
    pub(crate) scope: u64,
    pub(crate) upcoming: u64,
    pub(crate) cut_off_until: u64,
    pub(crate) last_fault: Option<u64>,
    pub(crate) denied: bool,
    pub(crate) waited: BTreeMap<RequestNo, Waited>,
    pub(crate) records: BTreeMap<LeaseId, Record>,
    pub(crate) busy_slots: Vec<bool>,
    pub(crate) owners: BTreeSet<u64>,
    pub(crate) past_owners: BTreeSet<u64>,
    /// What mistakes on purpose need to remember.
    pub(crate) notes: Notes,
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
}

impl Env {
    pub(crate) fn new(n: usize, of: usize, rates: [u64; 3], slots: usize, freezes: bool, rng: &mut Rng) -> Self {
        let base = [3_000_000_000, 1_000_000_000, 1_700_000_000_000_000].map(|base| base + rng.below(1_000_000_000));
        let clocks = Clocks([0, 1, 2].map(|i| Clock::new(base[i], rates[i])));
        let now = clocks.read(0);
        let draws = Draws::new(1_000 + n as u64, of as u64, Some(Rng::new(rng.next())));
        let core = Core::new(Config { freezes, memory: 8 });
        Self {
            alive: true,
            frozen: false,
            life: 0,
            core,
            draws,
            clocks,
            last: now,
            given: now,
            first: now,
            held: 0,
            timer: 0,
            inbox: Vec::new(),
            wake: 0,
            idle_wakes: 0,
            scope: 0,
            upcoming: 1,
            cut_off_until: 0,
            last_fault: None,
            denied: false,
            waited: BTreeMap::new(),
            records: BTreeMap::new(),
            busy_slots: vec![false; slots],
            owners: BTreeSet::new(),
            past_owners: BTreeSet::new(),
            notes: Notes::default(),
        }
    }

    /// Would this guard answer "valid" if it were asked at `t`?
    pub(crate) fn valid_at(&self, record: &Record, t: u64) -> bool {
        record.valid > 0 && largest_step(self.last, self.clocks.read(t)) < record.valid
    }

    /// The lease whose guard stands for this owner.
    pub(crate) fn by_owner(&self, owner: u64) -> Option<&Record> {
        self.records.values().find(|record| record.owner == owner)
    }
}
