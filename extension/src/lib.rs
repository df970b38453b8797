//! The Leasekeeper extension: socket server, driver of the lock core, store adapters and Lambda lifecycle.

pub mod driver;
pub mod log;
pub mod outbox;
pub mod settings;
pub mod store;
