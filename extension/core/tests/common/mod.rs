//! What the core's tests share: a scripted core, and a simulated world of several.
#![allow(dead_code, unused_imports, reason = "every test binary uses its own part")]

pub(crate) mod rng;
pub(crate) mod script;
pub(crate) mod world;

pub(crate) use script::{Script, acquire, granted, one_send, renewed_version, row, row_of, sends, shows};

/// One millisecond, in the core's unit.
pub(crate) const MS: u64 = 1_000;
/// One second, in the core's unit.
pub(crate) const SECOND: u64 = 1_000_000;
