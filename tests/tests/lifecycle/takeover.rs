//! When a lock whose holder is dead is taken by a contender, as the store's log tells.

use super::*;
use testkit::dynamo::{Operation, Recorded};
use testkit::moments::Lateness;

/// A contender sees the last write at a poll, and its polls are at most so far apart.
const POLL: Duration = Duration::from_millis(120);

/// A takeover, from the holder's last write on.
pub(super) struct Takeover {
    pub(super) after: Duration,
    /// The contender's longest round trip.
    pub(super) trip: Duration,
}

/// The takeover of `key` by `contender`: no earlier than the lease after the dead holder's last committed write, and no later
/// than one longest poll and two round trips after that. `lateness` is what this machine made the five turns of
/// contender and store (poll, reply, timer, Put, its arrival) wait for a processor.
pub(super) fn taken_in_time(db: &Dynamo, key: &str, lease: Duration, contender: &str, lateness: &Lateness) -> Takeover {
    let taken = taken(db, key, contender);
    assert!(taken.after >= lease, "{key} was taken {:?} after its last write", taken.after);
    let most = lease + POLL + 2 * taken.trip + lateness.of_turns(5);
    assert!(taken.after <= most, "{key} was taken {:?} after its last write, at most {most:?}", taken.after);
    taken
}

/// The same without its bounds.
pub(super) fn taken(db: &Dynamo, key: &str, contender: &str) -> Takeover {
    let log = db.requests_for(key);
    // A write that was under way when its sender died is committed too.
    let writes = |request: &&Recorded| request.client != contender && request.operation != Operation::GetItem;
    let last = log.iter().filter(writes).rfind(|request| request.status != Some(400)).expect("it was held");
    let theirs = || log.iter().filter(|request| request.client == contender);
    let put = |request: &&Recorded| request.operation == Operation::PutItem && request.status == Some(200);
    let taken = theirs().find(put).expect("it was taken over");
    let trip = |request: &Recorded| request.answered.map_or(Duration::ZERO, |answered| answered - request.at);
    let trip = theirs().map(trip).max().unwrap_or_default();
    Takeover { after: taken.at - last.at, trip }
}
