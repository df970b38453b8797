//! Hold mode: the environment's freeze waits until the invocation's locks are given back.
//!
//! Lambda freezes an environment once its runtime and this extension have asked for their next events, so whoever waits with
//! that keeps it running. Nobody can take back that they have asked, and an extension that has not is not told of the
//! environment's end: hence a wait for a first lock, and an end before the deadline.

use crate::driver::{Command, Locks};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::timeout;

/// Asked for the next event this long before the invocation's deadline, to be told of the environment's end at a time-out.
const MARGIN: Duration = Duration::from_millis(200);

/// How long a row that is being given back keeps the environment from its freeze: as long as a handler waits for it.
const GIVING_BACK: Duration = Duration::from_secs(1);

/// How long a client has for reading that its lock was given back, and for closing its connection.
const LAST_WORDS: Duration = Duration::from_millis(100);

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
    let (told, mut locks) = watch::channel(Locks::Unasked);
    // A driver that is gone lets go of what it would have told with: that ends the wait.
    let _ = driver.send(Command::Follow { request_id, told });
    let cut_short = timeout(remaining.saturating_sub(MARGIN), given_back(first_lock, &mut locks)).await.is_err();
    if cut_short && *locks.borrow() == Locks::Locked {
        tracing::warn!("locks are held shortly before the invocation's deadline: the environment may be frozen now");
    }
}

async fn given_back(first_lock: Duration, locks: &mut watch::Receiver<Locks>) {
    loop {
        let now = *locks.borrow_and_update();
        let most = match now {
            Locks::Unasked => first_lock,
            Locks::Locked => Duration::MAX,
            Locks::GivingBack => GIVING_BACK,
            Locks::Told => LAST_WORDS,
            Locks::Over => return,
        };
        if !matches!(timeout(most, locks.changed()).await, Ok(Ok(()))) {
            return;
        }
    }
}
