//! What became of a key's row, as the store's own log tells.

use super::*;
use testkit::dynamo::{Operation, Recorded};
use testkit::moments::Lateness;

/// The write that gave a row back.
pub(super) struct Freed {
    /// When it reached the store.
    pub(super) asked: Instant,
    /// When it was committed, at the latest.
    pub(super) committed: Instant,
}

/// The one delete of this key that has found its row.
pub(super) fn freed(db: &Dynamo, key: &str) -> Freed {
    let log = db.requests_for(key);
    let deletes: Vec<_> = log.iter().filter(|request| is_delete(request)).collect();
    let [delete] = deletes[..] else { panic!("one delete of {key} was expected, and there were {}", deletes.len()) };
    let moment = |since| db.front().moment(since);
    Freed { asked: moment(delete.at), committed: moment(delete.answered.expect("it has a status, so it was answered")) }
}

pub(super) fn is_delete(request: &Recorded) -> bool {
    request.operation == Operation::DeleteItem && request.status == Some(200)
}

/// Waits for the delete that [`freed`] tells of.
pub(super) async fn until_freed(db: &Dynamo, key: &str) -> Freed {
    let deleted =
        |log: &[Recorded]| log.iter().any(|request| is_delete(request) && request.key.as_deref() == Some(key));
    assert!(db.until(Duration::from_secs(5), deleted).await, "the row {key} is still there");
    freed(db, key)
}

/// What the promise of 100 ms and a round trip from a process's death allows on this machine: turns on a processor of the
/// process that ends, of the extension and of the store.
pub(super) fn at_a_death(lateness: &Lateness) -> Duration {
    Duration::from_millis(100) + lateness.of_turns(5)
}

/// Whole milliseconds, for the documents.
pub(super) fn in_ms(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1_000.0)
}

/// What a death or an end cost, where the bound is small.
pub(super) fn in_tenths(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}
