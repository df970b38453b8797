//! The signals that ask a process to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// All of them, from now on.
pub(super) struct Signals {
    /// Absent where it cannot be listened to.
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    /// The terminal or the session is over. Absent too where whoever started us chose to ignore it, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> Self {
        let listen =
            |kind| signal(kind).inspect_err(|error| tracing::error!(%error, ?kind, "cannot listen for a signal")).ok();
        let hangup = SignalKind::hangup();
        Self {
            hangup: if is_ignored(hangup) { None } else { listen(hangup) },
            terminate: listen(SignalKind::terminate()),
            interrupt: listen(SignalKind::interrupt()),
        }
    }

    /// The next one's name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            () = received(&mut self.terminate) => "SIGTERM",
            () = received(&mut self.interrupt) => "SIGINT",
            () = received(&mut self.hangup) => "SIGHUP",
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// Did whoever started this process choose to ignore the signal? Not known after it has been listened to. False where that
/// cannot be read.
pub(crate) fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // One bit a signal, from the lowest on.
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & (1 << (kind.as_raw_value() - 1)) != 0
}
