//! What the fuzzer runs.

pub mod session;
