//! The only task that owns the core: performs its outputs, feeds back what came of them.

use crate::outbox::Outbox;
use leasekeeper_wire::Op;
use std::time::Duration;
use tokio::sync::oneshot;

/// Names a connection; chosen by the server, never reused.
pub type ClientId = u64;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The client closed its side (half-close counts), or its process is proven dead: its rows may be deleted early.
    Closed,
    /// We gave the connection up (a fault of ours, a reader that does not read): its client may still believe.
    Faulted,
}

/// What the rest of the extension tells the driver.
#[derive(Debug)]
pub enum Command {
    /// A connection begins: replies and events for it go to this outbox.
    Open {
        /// The connection.
        client: ClientId,
        /// Where its lines go.
        outbox: Outbox,
    },
    /// A decoded request; its reply goes to the connection's outbox.
    Request {
        /// The connection.
        client: ClientId,
        /// The request's id.
        id: u64,
        /// What is asked for.
        op: Op,
    },
    /// A connection ended.
    Close {
        /// The connection.
        client: ClientId,
        /// How.
        how: Gone,
    },
    /// The Extensions API announced an invocation.
    InvocationBegan {
        /// Its request id.
        request_id: String,
        /// What is left of it.
        remaining: Duration,
    },
    /// The environment ends. `done` is told when all that can be given back is, or `within` is over.
    Shutdown {
        /// How long there is.
        within: Duration,
        /// Told at the end.
        done: oneshot::Sender<()>,
    },
}
