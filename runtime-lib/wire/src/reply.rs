//! Replies and events: clients ignore what they do not know.

use crate::{Code, LostReason};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line from the extension, as it is sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reply {
    /// The request's id; null when the line's id could not be read.
    pub id: Option<u64>,
    /// The answer.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A reply's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// `{"id":1,"ok":{…}}`: the object's form goes by the request.
    Ok(Value),
    /// `{"id":1,"error":{…}}`
    Error(Failure),
}

impl Reply {
    /// A reply that carries `answer`.
    pub fn ok(id: u64, answer: &impl Serialize) -> Self {
        let answer = serde_json::to_value(answer).expect("answers are plain structs with string keys");
        Self { id: Some(id), outcome: Outcome::Ok(answer) }
    }

    /// A reply that carries an error.
    pub fn error(id: Option<u64>, failure: Failure) -> Self {
        Self { id, outcome: Outcome::Error(failure) }
    }

    /// The line to send, newline included.
    pub fn encode(&self) -> String {
        to_line(self)
    }
}

/// The answer to `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The socket protocol's version.
    pub version: u64,
    /// What this extension can do beyond version 1's basics.
    #[serde(default)]
    pub features: Vec<String>,
    /// The extension's own version, for people.
    #[serde(default)]
    pub server: String,
}

/// The answer to `acquire`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// Names the lease in later requests and events of this connection.
    pub lease: u64,
    /// How long the lease is valid from now without another renewal, in milliseconds; count it from `waited_ms` after
    /// the request was sent, or from before that.
    pub valid_ms: u64,
    /// The lease that was written, in milliseconds.
    pub lease_ms: u64,
    /// The row's owner: what a transaction's ownership check compares.
    pub owner: String,
    /// The lock table's name.
    pub table: String,
    /// The fencing token; null without fencing.
    pub token: Option<u64>,
    /// How long the acquire took, in milliseconds.
    #[serde(default)]
    pub waited_ms: u64,
}

/// The answer to `check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// As in [`Granted::valid_ms`].
    pub valid_ms: u64,
}

/// The answer to `release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The lease's figures at its end.
    #[serde(default)]
    pub metrics: Metrics,
}

/// An error reply's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What callers branch on.
    pub code: Code,
    /// For people: what is wrong and what to do.
    #[serde(default)]
    pub message: String,
    /// With `busy`: no later than this the row can be free or taken over, unless its holder renews it; in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// With `busy`: what the row says of its holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// With `lost`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<LostReason>,
    /// The figures of the acquire that failed, or of the lease that was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
}

impl Failure {
    /// An error with nothing but its code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_ms: None, holder: None, reason: None, metrics: None }
    }
}

/// What a row says of its holder. Everything but the owner is for people: safety never depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The row's owner.
    pub owner: String,
    /// The row's lease, in milliseconds.
    #[serde(default)]
    pub lease_ms: u64,
    /// For how long this environment has seen the row unchanged, in milliseconds.
    #[serde(default)]
    pub unchanged_ms: u64,
    /// The function that holds it, where the row says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The invocation that holds it, where the row says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The log stream of its environment, where the row says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_stream: Option<String>,
    /// Outside Lambda: the host and the process that hold it, where the row says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// A lease's figures, from its acquire on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Requests that could write: put, update, delete.
    pub write_requests: u64,
    /// Consistent reads. Waiters of one key in one environment share them: each is counted for the waiter it was sent for.
    pub read_requests: u64,
    /// Renewals known to be committed.
    pub renewals: u64,
    /// Writes whose condition did not hold.
    pub conditional_failures: u64,
    /// Requests with no useful answer: throttled, unavailable, denied, outcome unknown.
    pub request_failures: u64,
    /// How long the acquire took, in milliseconds.
    pub wait_ms: u64,
    /// 1 if the wait budget ended without the lock.
    pub wait_timeouts: u64,
    /// 1 if giving the row back was not confirmed within its budget.
    pub cleanup_failures: u64,
    /// 1 if the lease was lost.
    pub lost: u64,
    /// Read units that successful replies reported.
    pub consumed_read_units: f64,
    /// Write units that successful replies reported.
    pub consumed_write_units: f64,
}

// Units are finite sums of what DynamoDB reports, so equality is total.
impl Eq for Metrics {}

/// What the extension says unasked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// The lease it is about.
    pub lease: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// The line to send, newline included.
    pub fn encode(&self) -> String {
        to_line(self)
    }
}

/// What happened to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A renewal was confirmed. A hint without a duration: an event can lie unread, so ask `check` how long the lease is valid.
    Renewed,
    /// No renewal was confirmed for most of the lease; the lease is still valid and may recover.
    Danger,
    /// A renewal was confirmed after danger.
    Recovered,
    /// The sidecar is ending: it renews the lease until it is given back, and no longer than this. No new locks.
    Ending {
        /// For how long it goes on at most, in milliseconds.
        within_ms: u64,
    },
    /// The lease is over. Final.
    Lost {
        /// Why.
        reason: LostReason,
    },
}

/// One line from the extension, as a client reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerLine {
    /// An answer.
    Reply {
        /// The request's id; absent if the extension could not read it.
        id: Option<u64>,
        /// The answer's content.
        answer: Result<Value, Failure>,
    },
    /// Something that happened.
    Event(Event),
    /// A line of a newer extension: ignore it.
    Unknown,
}

impl ServerLine {
    /// Reads one line, with or without its newline; unknown fields, events and lines are let pass.
    ///
    /// # Errors
    /// The line is not a JSON object at all: the connection is out of step and must be closed.
    pub fn decode(line: &[u8]) -> Result<Self, serde_json::Error> {
        let map: serde_json::Map<String, Value> = serde_json::from_slice(line)?;
        if map.contains_key("event") {
            let lease = map.get("lease").and_then(Value::as_u64);
            let kind = serde_json::from_value::<EventKind>(Value::Object(map));
            return Ok(match (lease, kind) {
                (Some(lease), Ok(kind)) => Self::Event(Event { lease, kind }),
                _ => Self::Unknown,
            });
        }
        let id = map.get("id").and_then(Value::as_u64);
        if let Some(error) = map.get("error") {
            let failure =
                Failure::deserialize(error).unwrap_or_else(|_| Failure::new(Code::Unknown, error.to_string()));
            return Ok(Self::Reply { id, answer: Err(failure) });
        }
        match map.get("ok") {
            Some(ok) => Ok(Self::Reply { id, answer: Ok(ok.clone()) }),
            None => Ok(Self::Unknown),
        }
    }
}

fn to_line(message: &impl Serialize) -> String {
    let mut line = serde_json::to_string(message).expect("messages are plain structs with string keys");
    line.push('\n');
    line
}
