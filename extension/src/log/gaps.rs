//! Says in the log itself how many of its lines are missing.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use tracing_appender::non_blocking::ErrorCounter;

/// The queue's count of dropped lines; the queue is made after the writer behind it.
pub(super) type Dropped = Arc<OnceLock<ErrorCounter>>;

/// The end of the log's queue. Once all that waited is written, it tells how many lines found no place meanwhile: where they are
/// missing, and never as a line that could itself be dropped.
pub(super) struct Gaps<W, L> {
    out: W,
    dropped: Dropped,
    told: usize,
    /// The line that tells of so many.
    line: L,
}

impl<W, L> Gaps<W, L> {
    pub(super) fn new(out: W, dropped: Dropped, line: L) -> Self {
        Self { out, dropped, told: 0, line }
    }
}

impl<W: Write, L: Fn(usize) -> Vec<u8>> Write for Gaps<W, L> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    /// The queue is empty.
    fn flush(&mut self) -> io::Result<()> {
        let dropped = self.dropped.get().map_or(0, ErrorCounter::dropped_lines);
        if dropped > self.told {
            self.out.write_all(&(self.line)(dropped - self.told))?;
            self.told = dropped;
        }
        self.out.flush()
    }
}
