//! The only task that owns the core: performs its outputs, feeds back what came of them.

mod book;
mod budget;
mod describe;
mod follow;
mod lateness;
mod queue;
mod requests;
mod task;
mod tell;

use crate::outbox::Outbox;
use crate::settings::Settings;
use crate::store::{Note, Store};
use book::Book;
pub use follow::Locks;
use leasekeeper_wire::Op;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Names a connection; chosen by the server, never reused.
pub type ClientId = u64;

/// Where the extension runs, as far as leases are concerned.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Every lease belongs to an invocation: requests must name it (any function under Lambda).
    pub invocations: bool,
    /// The environment is frozen between invocations, one at a time (on-demand functions).
    pub freezes: bool,
    /// What rows say of their holder; the invocation's id is filled in for each.
    pub note: Note,
}

/// Starts the driver. It ends with the last sender; a panic in it turns every lease Lost and leaves the process running.
pub fn start<S: Store>(
    settings: Result<Settings, String>,
    surroundings: Surroundings,
    store: S,
) -> mpsc::UnboundedSender<Command> {
    let (commands, receiver) = mpsc::unbounded_channel();
    let book = Arc::new(Mutex::new(Book::default()));
    let driver = tokio::spawn(task::run(settings, surroundings, Arc::new(store), book.clone(), receiver));
    tokio::spawn(async move {
        if let Err(fault) = driver.await {
            tracing::error!(%fault, "the lock driver failed: every lease is lost, lock requests are answered with errors");
            book.lock().unwrap_or_else(PoisonError::into_inner).driver_failed();
        }
    });
    commands
}

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
    /// Tell from now on how this invocation stands with its locks, for as long as anybody listens.
    Follow {
        /// Its request id.
        request_id: String,
        /// Told at each change.
        told: watch::Sender<Locks>,
    },
    /// A sidecar is to end: no new locks. Holders are told, and what they hold is renewed until they give it back; `done` is told
    /// once nothing is left.
    Drain {
        /// How long that may take: then [`Command::Shutdown`] follows.
        within: Duration,
        /// Told at the end.
        done: oneshot::Sender<()>,
    },
    /// The environment ends. Leases of clients that are still there lapse; `done` is told once nothing is left.
    Shutdown {
        /// Told at the end, which a believing client can put off: wait for it within a deadline.
        done: oneshot::Sender<()>,
    },
}
