//! What the core's tests share: units and seeded randomness.

pub(crate) mod rng;

/// One millisecond, in the core's unit.
pub(crate) const MS: u64 = 1_000;
/// One second, in the core's unit.
pub(crate) const SECOND: u64 = 1_000_000;
