//! The signals that ask a process to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both of them, from now on.
pub(super) struct Signals {
    /// Absent where it cannot be listened to.
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> Self {
        let listen =
            |kind| signal(kind).inspect_err(|error| tracing::error!(%error, ?kind, "cannot listen for a signal")).ok();
        Self { terminate: listen(SignalKind::terminate()), interrupt: listen(SignalKind::interrupt()) }
    }

    /// The next one's name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            () = received(&mut self.terminate) => "SIGTERM",
            () = received(&mut self.interrupt) => "SIGINT",
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
