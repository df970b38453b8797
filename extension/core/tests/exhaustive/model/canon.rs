//! A state's identity for the search: what no later step can tell apart counts as the same.
//!
//! The core's own `Hash` walks through its whole state; [`Canon`] listens. It keeps times only as distances from now, names
//! and numbers only by where they appear, and leaves out what has no consequence. That this is no more than a change of
//! names is not believed but tested: `states_that_count_as_the_same_behave_the_same`.

use super::bounds::Bounds;
use super::ids::{BASE, FIRST_LEASE, Id};
use leasekeeper_core::Micros;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Kinds of tokens, in their highest bits, so that none is taken for another.
const HELD: u64 = 1 << 60;
const SEEN: u64 = 2 << 60;
const TIMER: u64 = 3 << 60;
const NUMBER: u64 = 4 << 60;
const NAME: u64 = 5 << 60;
const KIND: u64 = 0xf << 60;

/// More than a lease ahead: a wait without an end, or when an owner given up is forgotten, which takes 15 minutes. For the
/// searches that is never: whoever comes that far counts as where he was before.
const NEVER: u64 = TIMER | (KIND - 1) >> 8;

/// The numbers that come first in a core: the last reading's three, then its three sums.
const READINGS: usize = 6;

pub(crate) struct Canon {
    tokens: Vec<u64>,
    /// Ids in the order in which they appeared.
    names: Vec<Id>,
    /// The last token is a name's first appearance.
    new_name: bool,
    /// Where requests and leases are numbered, with their numbers in this client.
    numbers: Vec<(usize, u64)>,
    /// How many numbers the present core has written.
    written: usize,
    /// The core's sums: held, seen, timer.
    sums: [Micros; 3],
    lease: Micros,
    grain: Micros,
    shortest_step: Micros,
    swallows_pauses: bool,
}

impl Canon {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self {
            tokens: Vec::with_capacity(256),
            names: Vec::with_capacity(32),
            new_name: false,
            numbers: Vec::with_capacity(32),
            written: READINGS,
            sums: [0; 3],
            lease: bounds.lease(),
            grain: bounds.grain(),
            shortest_step: bounds.shortest_step(),
            swallows_pauses: bounds.swallows_pauses(),
        }
    }

    pub(crate) fn token(&mut self, value: u64) {
        self.tokens.push(value);
    }

    /// One client's core; its times are read against its own clocks.
    pub(crate) fn core(&mut self, core: &impl Hash) {
        self.written = 0;
        core.hash(self);
        // The last number of a core is its count of requests: it only makes fresh numbers.
        if let Some((at, _)) = self.numbers.pop() {
            self.tokens[at] = NUMBER;
        }
    }

    /// A time that is due after `distance`, as far as readings can tell: now, at the next that differs, or some grains later.
    pub(crate) fn ahead(&mut self, distance: Micros) {
        let distance = if distance == 0 { 0 } else { distance.max(self.shortest_step) };
        self.tokens.push(TIMER | distance.div_ceil(self.grain));
    }

    /// A set of ids that have all appeared before.
    pub(crate) fn known(&mut self, ids: impl Iterator<Item = Id>) {
        let names = &self.names;
        let mut set: Vec<_> = ids.map(|id| names.iter().position(|name| *name == id).unwrap_or(usize::MAX)).collect();
        set.sort_unstable();
        self.tokens.push(set.len() as u64);
        self.tokens.extend(set.into_iter().map(|at| at as u64));
    }

    /// Ends a client: its requests and leases keep their order, and no more.
    pub(crate) fn end_client(&mut self) {
        let mut all: Vec<_> = self.numbers.iter().map(|(_, number)| *number).collect();
        all.sort_unstable();
        all.dedup();
        for (at, number) in self.numbers.drain(..) {
            self.tokens[at] = NUMBER | (1 + all.partition_point(|other| *other < number) as u64);
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.tokens.hash(&mut hasher);
        hasher.finish()
    }

    fn number(&mut self, value: u64) {
        let near = |base: u64| value >= base / 2 && value < base * 2;
        if self.written < READINGS {
            if self.written >= 3 {
                let sum = self.written - 3;
                let stands = near([BASE.wall, BASE.boot, BASE.mono][sum]);
                assert!(stands, "the core's sums are not what this listener takes them for: {value}");
                self.sums[sum] = value;
            }
            self.written += 1;
            return;
        }
        if near(BASE.wall) {
            self.back(HELD, value, self.sums[0]);
        } else if near(BASE.mono) {
            self.timer(value);
        } else if near(BASE.boot) {
            self.back(SEEN, value, self.sums[1]);
        } else if near(FIRST_LEASE) || (1..10_000).contains(&value) {
            self.numbers.push((self.tokens.len(), value));
            self.tokens.push(0);
        } else if self.swallows_pauses && (20_000..=1_000_000).contains(&value) {
            self.tokens.push(20_000);
        } else {
            self.tokens.push(value);
        }
    }

    /// A time from which something counts: more than a lease ago is long ago.
    fn back(&mut self, kind: u64, value: u64, now: u64) {
        let ago = (now + self.lease).saturating_sub(value).min(2 * self.lease);
        self.tokens.push(kind | ago);
    }

    /// A time at which something becomes due: it is over, ahead by so many grains, or never comes.
    fn timer(&mut self, value: u64) {
        let ahead = value.saturating_sub(self.sums[2]);
        if ahead <= self.lease {
            return self.ahead(ahead);
        }
        // Owners given up stand in a map and in a queue. The map's order comes from their names, so it is left out; the
        // queue, which says the same, has the time before the name.
        if let [.., before, name] = self.tokens[..]
            && name & KIND == NAME
            && before != NEVER
        {
            self.tokens.pop();
            if self.new_name {
                self.names.pop();
            }
            return;
        }
        self.tokens.push(NEVER);
    }

    fn name(&mut self, id: Id) {
        let found = self.names.iter().position(|name| *name == id);
        self.new_name = found.is_none();
        let at = found.unwrap_or_else(|| {
            self.names.push(id);
            self.names.len() - 1
        });
        self.tokens.push(NAME | at as u64);
    }
}

impl Hasher for Canon {
    fn finish(&self) -> u64 {
        self.digest()
    }

    /// Texts are for people.
    fn write(&mut self, _: &[u8]) {}

    fn write_u8(&mut self, value: u8) {
        self.tokens.push(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.tokens.push(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.number(value);
    }

    fn write_u128(&mut self, value: u128) {
        self.name(Id::heard(value));
    }

    fn write_usize(&mut self, value: usize) {
        self.tokens.push(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.tokens.push(value as u64);
    }
}
