//! Leasekeeper's lock protocol as a pure state machine: data in, data out, no clock, no I/O, no dependencies.
//!
//! Feed [`Core::handle`] one [`Input`] at a time with the clocks' readings, take [`Core::poll`] until it is empty, and call
//! again no later than [`Core::next_wakeup`] says. Everything random or timed comes in as a parameter, so the same inputs
//! give the same outputs.

mod cleaning;
mod contest;
mod core;
mod deferred;
mod elapsed;
mod holding;
mod io;
mod lease;
mod memory;
mod standing;
mod text;
mod timing;
mod waiting;
mod wrong;

pub use core::{Config, Core};
pub use io::{
    Acquire, Answer, Entropy, Input, LeaseId, LostReason, Micros, Now, Op, Output, Refusal, Refused, RequestNo, Row,
    Seen, StoreRequest, Symbol,
};
pub use standing::Standing;
pub use text::TextCore;
#[cfg(debug_assertions)]
pub use wrong::WrongRule;
