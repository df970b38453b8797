//! The Leasekeeper extension: socket server, driver of the lock core, store adapters and Lambda lifecycle.

pub mod clock;
#[cfg(feature = "commands")]
pub mod commands;
pub mod driver;
mod http;
pub mod lifecycle;
pub mod log;
pub mod outbox;
pub mod process;
pub mod server;
pub mod settings;
pub mod store;
