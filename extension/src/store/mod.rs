//! The store port: one request, one answer, never re-sent.

pub mod dynamodb;
pub mod memory;
pub(crate) mod row;

pub use dynamodb::DynamoStore;
pub use memory::MemoryStore;
pub use row::Item;

use leasekeeper_core::{Answer, Op};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// What the core calls a symbol: keys, owners, versions and invocation ids.
pub type Text = Arc<str>;

/// One request to the store.
#[derive(Clone, Debug)]
pub struct Request {
    /// The row's key.
    pub key: Text,
    /// What to do.
    pub op: Op<Text>,
    /// When to give up on an open connection: the answer is then [`Answer::Unknown`].
    pub timeout: Duration,
    /// When to give up where a connection has to be made first.
    pub connect_timeout: Duration,
    /// Written with a row for people to read. Safety never depends on it.
    pub note: Note,
}

/// Who holds the lock, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The function's name.
    pub function: Option<String>,
    /// The invocation's id.
    pub request_id: Option<String>,
    /// The log stream of its environment.
    pub log_stream: Option<String>,
    /// Outside Lambda: the host and the process.
    pub host: Option<String>,
    /// When the row was put, by the holder's wall clock: a date and a time in UTC.
    pub acquired_at: Option<String>,
}

/// The store's answer with what it cost.
#[derive(Clone, Debug)]
pub struct Response {
    /// What the core is told.
    pub answer: Answer<Text>,
    /// What the row that was seen says of its holder.
    pub note: Option<Note>,
    /// Read units that the reply reported; the store's errors report none, though a failed condition is billed.
    pub read_units: f64,
    /// Write units that the reply reported.
    pub write_units: f64,
}

impl Response {
    /// An answer that reports no capacity: DynamoDB's errors never do.
    fn free(answer: Answer<Text>) -> Self {
        Self { answer, note: None, read_units: 0.0, write_units: 0.0 }
    }

    /// What a read found.
    fn found(item: Option<&Item>, read_units: f64) -> Self {
        Self { answer: Answer::Found(row::seen(item)), note: item.map(row::note), read_units, write_units: 0.0 }
    }

    /// A condition that did not hold, with the item that was there.
    fn failed(item: Option<&Item>) -> Self {
        Self { note: item.map(row::note), ..Self::free(Answer::Failed(row::seen(item))) }
    }

    /// A committed write.
    fn done(write_units: f64) -> Self {
        Self { write_units, ..Self::free(Answer::Done) }
    }
}

/// A place where rows live. Adapters keep to the conditions word by word and never send a request twice.
pub trait Store: Send + Sync + 'static {
    /// Sends one request and waits for its one answer, for at most the request's time-out.
    fn send(&self, request: Request) -> impl Future<Output = Response> + Send;

    /// Connections that are open now may be dead: the next request makes a new one.
    fn drop_connections(&self);
}

impl<S: Store> Store for Arc<S> {
    fn send(&self, request: Request) -> impl Future<Output = Response> + Send {
        (**self).send(request)
    }

    fn drop_connections(&self) {
        (**self).drop_connections();
    }
}
