//! Several cores, one table and a bad network: every promise in seeded schedules, and what the simulation sees of mistakes.

#[path = "../common/mod.rs"]
mod common;
mod mistakes;
mod promises;
mod world;
