//! One connection's outgoing lines, in order, bounded in bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};

/// How many bytes may wait for a reader that does not read; past it the connection is closed.
pub const MAX_WAITING: usize = 1024 * 1024;

/// The sending end: the driver's replies and events and the server's own errors go through it, so they keep their order.
#[derive(Clone, Debug)]
pub struct Outbox {
    lines: mpsc::UnboundedSender<String>,
    waiting: Arc<Waiting>,
}

/// The receiving end, which the connection's task writes from.
#[derive(Debug)]
pub struct Outgoing {
    lines: mpsc::UnboundedReceiver<String>,
    waiting: Arc<Waiting>,
}

/// Tells when too much waits, while its [`Outgoing`] is busy elsewhere.
#[derive(Clone, Debug)]
pub struct Overflow {
    waiting: Arc<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// Rung by the line that was too much; the permit stays until it is looked at.
    overflow: Notify,
}

/// Makes both ends.
pub fn outbox() -> (Outbox, Outgoing) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(Waiting::default());
    (Outbox { lines: sender, waiting: waiting.clone() }, Outgoing { lines: receiver, waiting })
}

impl Outbox {
    /// Queues a line. Never blocks; a line for a connection that is gone, or that has more than [`MAX_WAITING`] bytes
    /// waiting and is about to be closed for it, is dropped.
    pub fn push(&self, line: String) {
        if self.waiting.overflowed() {
            return;
        }
        self.waiting.bytes.fetch_add(line.len(), Ordering::Relaxed);
        let _ = self.lines.send(line);
        if self.waiting.overflowed() {
            self.waiting.overflow.notify_one();
        }
    }
}

impl Outgoing {
    /// The next line, or `None` when it is certain that none will come.
    pub async fn next(&mut self) -> Option<String> {
        let line = self.lines.recv().await?;
        Some(self.taken(line))
    }

    /// The next line if one waits.
    pub fn next_now(&mut self) -> Option<String> {
        let line = self.lines.try_recv().ok()?;
        Some(self.taken(line))
    }

    fn taken(&self, line: String) -> String {
        self.waiting.bytes.fetch_sub(line.len(), Ordering::Relaxed);
        line
    }

    /// Watches what waits here.
    pub fn overflow(&self) -> Overflow {
        Overflow { waiting: self.waiting.clone() }
    }
}

impl Overflow {
    /// Resolves once more than [`MAX_WAITING`] bytes wait, or waited: lines may be missing then, so the connection is
    /// to be closed.
    pub async fn happened(&self) {
        self.waiting.overflow.notified().await;
    }
}

impl Waiting {
    fn overflowed(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > MAX_WAITING
    }
}

/// Is this line the answer to a request, not an event? Every [`Reply`](leasekeeper_wire::Reply) begins with its id.
pub(crate) fn is_reply(line: &str) -> bool {
    line.starts_with(REPLY)
}

/// The id of the request that this line answers.
pub(crate) fn reply_id(line: &str) -> Option<u64> {
    line.strip_prefix(REPLY)?.split(',').next()?.parse().ok()
}

const REPLY: &str = "{\"id\":";

#[cfg(test)]
mod tests {
    use super::*;
    use leasekeeper_wire::{Code, Event, EventKind, Failure, LostReason, Reply};

    #[test]
    fn replies_are_told_from_events() {
        let error = || Failure::new(Code::Busy, "{\"id\":9}");
        for (reply, id) in [
            (Reply::ok(7, &serde_json::json!({"id": 8})), Some(7)),
            (Reply::ok(u64::MAX, &()), Some(u64::MAX)),
            (Reply::error(Some(0), error()), Some(0)),
            (Reply::error(None, error()), None),
        ] {
            let line = reply.encode();
            assert!(is_reply(&line), "{line}");
            assert_eq!(reply_id(&line), id, "{line}");
        }
        for kind in [
            EventKind::Renewed,
            EventKind::Danger,
            EventKind::Recovered,
            EventKind::Lost { reason: LostReason::Stolen },
        ] {
            let line = Event { lease: 1, kind }.encode();
            assert!(!is_reply(&line), "{line}");
            assert_eq!(reply_id(&line), None, "{line}");
        }
    }

    #[tokio::test]
    async fn lines_come_out_in_order_and_end_with_the_last_sender() {
        let (outbox, mut outgoing) = outbox();
        let second = outbox.clone();
        outbox.push("a\n".into());
        second.push("b\n".into());
        assert_eq!(outgoing.next_now().as_deref(), Some("a\n"));
        assert_eq!(outgoing.next().await.as_deref(), Some("b\n"));
        assert_eq!(outgoing.next_now(), None);
        drop((outbox, second));
        assert_eq!(outgoing.next().await, None);
    }

    #[tokio::test]
    async fn an_overflow_is_told_once_and_memory_stays_bounded() {
        let (outbox, outgoing) = outbox();
        let overflow = outgoing.overflow();
        outbox.push("x".repeat(MAX_WAITING));
        tokio::select! {
            biased;
            () = overflow.happened() => panic!("exactly the limit is no overflow"),
            () = std::future::ready(()) => {}
        }
        for _ in 0..100 {
            outbox.push("y".repeat(1_000));
        }
        overflow.happened().await;
        assert_eq!(outgoing.waiting.bytes.load(Ordering::Relaxed), MAX_WAITING + 1_000, "only one line more was taken");
    }

    #[tokio::test]
    async fn what_was_taken_no_longer_waits() {
        let (outbox, mut outgoing) = outbox();
        let overflow = outgoing.overflow();
        for _ in 0..10 {
            outbox.push("x".repeat(MAX_WAITING));
            assert_eq!(outgoing.next().await.map(|line| line.len()), Some(MAX_WAITING));
        }
        tokio::select! {
            biased;
            () = overflow.happened() => panic!("nothing waits"),
            () = std::future::ready(()) => {}
        }
    }
}
