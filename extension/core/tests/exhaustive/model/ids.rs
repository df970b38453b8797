//! Names and readings whose size tells what they are, for whoever listens to the core's hash.

use leasekeeper_core::{Entropy, LeaseId, Now};
use std::hash::{Hash, Hasher};

/// Where a core's sums start: the smallest step of boot and mono, the larger of the two, the largest of all three.
/// They are so far apart that no sum is ever taken for another, nor for a duration or a count.
pub(crate) const BASE: Now = Now { boot: 1 << 44, mono: 1 << 46, wall: 1 << 48 };

/// Where the clocks stood before that.
const BEFORE: Now = Now { boot: 1 << 52, mono: 1 << 54, wall: 1 << 56 };

/// Leases are counted from here.
pub(crate) const FIRST_LEASE: LeaseId = 1 << 42;

/// A key, an owner or a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u32);

/// The one lock.
pub(crate) const KEY: Id = Id(0);

impl Id {
    /// The id that wrote this to a hasher.
    pub(crate) fn heard(value: u128) -> Self {
        Self(u32::try_from(value).expect("only ids are this wide, and they were written from 32 bits"))
    }
}

impl Hash for Id {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u128(u128::from(self.0));
    }
}

/// Draws from a count that both clients share.
pub(crate) struct Draws<'a>(pub(crate) &'a mut u32);

impl Entropy<Id> for Draws<'_> {
    fn id(&mut self) -> Id {
        *self.0 += 1;
        Id(*self.0)
    }

    fn jitter(&mut self) -> u64 {
        500
    }
}

/// A client's three clocks, from the start of the search or of the process on.
pub(crate) type Clocks = Now;

/// What a core is told at first, and then of `clocks`: its sums then stand at [`BASE`].
pub(crate) fn reading(clocks: Clocks) -> Now {
    let sum = |before: u64, base: u64, clock: u64| before + base + clock;
    Now {
        boot: sum(BEFORE.boot, BASE.boot, clocks.boot),
        mono: sum(BEFORE.mono, BASE.mono, clocks.mono),
        wall: sum(BEFORE.wall, BASE.wall, clocks.wall),
    }
}

/// The reading before the first, for a process that starts when its clocks stand at `clocks`.
pub(crate) fn before(clocks: Clocks) -> Now {
    Now { boot: BEFORE.boot + clocks.boot, mono: BEFORE.mono + clocks.mono, wall: BEFORE.wall + clocks.wall }
}
