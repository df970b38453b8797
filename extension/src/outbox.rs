//! One connection's outgoing lines, in order, bounded in bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// How many bytes may wait for a reader that does not read; past it the connection is closed.
pub const MAX_WAITING: usize = 1024 * 1024;

/// The sending end: the driver's replies and events and the server's own errors go through it, so they keep their order.
#[derive(Clone, Debug)]
pub struct Outbox {
    lines: mpsc::UnboundedSender<String>,
    waiting: Arc<AtomicUsize>,
}

/// The receiving end, which the connection's task writes from.
#[derive(Debug)]
pub struct Outgoing {
    lines: mpsc::UnboundedReceiver<String>,
    waiting: Arc<AtomicUsize>,
}

/// Makes both ends.
pub fn outbox() -> (Outbox, Outgoing) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Outbox { lines: sender, waiting: waiting.clone() }, Outgoing { lines: receiver, waiting })
}

impl Outbox {
    /// Queues a line. Never blocks; a line for a connection that is gone is dropped.
    pub fn push(&self, line: String) {
        self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        let _ = self.lines.send(line);
    }
}

impl Outgoing {
    /// The next line, or `None` when it is certain that none will come or too many wait: then the connection is to be closed.
    pub async fn next(&mut self) -> Option<String> {
        if self.overflowed() {
            return None;
        }
        let line = self.lines.recv().await?;
        self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
        Some(line)
    }

    /// Do more than [`MAX_WAITING`] bytes wait?
    pub fn overflowed(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > MAX_WAITING
    }
}
