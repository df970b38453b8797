//! The store port: one request, one answer, never re-sent.

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
}

/// The store's answer with what it cost.
#[derive(Clone, Debug)]
pub struct Response {
    /// What the core is told.
    pub answer: Answer<Text>,
    /// What the row that was seen says of its holder.
    pub note: Option<Note>,
    /// Read units that the reply reported.
    pub read_units: f64,
    /// Write units that the reply reported.
    pub write_units: f64,
}

/// A place where rows live. Adapters keep to the conditions word by word and never send a request twice.
pub trait Store: Send + Sync + 'static {
    /// Sends one request and waits for its one answer, for at most the request's time-out.
    fn send(&self, request: Request) -> impl Future<Output = Response> + Send;

    /// Connections that are open now may be dead: the next request makes a new one.
    fn drop_connections(&self);
}
