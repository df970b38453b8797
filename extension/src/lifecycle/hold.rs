//! Hold mode: the environment's freeze waits until the invocation's locks are given back.
//!
//! Lambda freezes an environment once its runtime and this extension have asked for their next events, so whoever waits with
//! that keeps it running. Nobody can take back that they have asked, and an extension that has not is not told of the
//! environment's end: hence a wait for a first lock, and an end before the deadline.

use crate::driver::Command;
use leasekeeper_core::Standing;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::timeout;

/// Asked for the next event this long before the invocation's deadline, to be told of the environment's end at a time-out.
const MARGIN: Duration = Duration::from_millis(200);

/// How long a row that is being given back keeps the environment from its freeze: as long as a handler waits for it.
const GIVING_BACK: Duration = Duration::from_secs(1);

/// Resolves when the environment may be frozen, as far as the locks of the invocation `request_id` go: at once where
/// `first_lock`, how long it may take to ask for its first one, is zero.
pub(super) async fn over(
    first_lock: Duration,
    request_id: String,
    remaining: Duration,
    driver: &UnboundedSender<Command>,
) {
    if first_lock.is_zero() {
        return;
    }
    let (told, standing) = watch::channel(None);
    // A driver that is gone lets go of what it would have told with: that ends the wait.
    let _ = driver.send(Command::Follow { request_id, told });
    let until = remaining.saturating_sub(MARGIN);
    if timeout(until, given_back(first_lock, standing)).await.is_err() {
        tracing::warn!(
            "locks are still held shortly before the invocation's deadline: the environment may be frozen now"
        );
    }
}

async fn given_back(first_lock: Duration, mut standing: watch::Receiver<Option<Standing>>) {
    if !matches!(timeout(first_lock, standing.wait_for(Option::is_some)).await, Ok(Ok(_))) {
        return;
    }
    while standing.wait_for(|now| *now != Some(Standing::Locked)).await.is_ok() {
        let taken_again = standing.wait_for(|now| *now != Some(Standing::GivingBack));
        if !matches!(
            timeout(GIVING_BACK, taken_again).await.map(|now| now.map(|now| *now)),
            Ok(Ok(Some(Standing::Locked)))
        ) {
            return;
        }
    }
}
