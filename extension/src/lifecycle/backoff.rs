//! Waits a little longer after each fault in a row.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// 50 ms, doubling to 1 s: an API that keeps failing is not asked in a busy loop, one that recovers is soon asked again.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.advance()).await;
    }

    /// All is well again.
    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }

    fn advance(&mut self) -> Duration {
        let longer = LONGEST.min(self.next * 2);
        std::mem::replace(&mut self.next, longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_its_bound_and_starts_anew() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = std::iter::repeat_with(|| backoff.advance().as_millis()).take(8).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]);
        backoff.reset();
        assert_eq!(backoff.advance().as_millis(), 50);
    }
}
