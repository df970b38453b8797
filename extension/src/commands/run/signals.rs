//! The signals that are handed on to the command.

use crate::lifecycle::is_ignored;
use rustix::process::Signal;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

const HANDED_ON: [Signal; 6] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// How many turns it takes until a signal that has come is seen here.
const HEARING: usize = 4;

/// Does whoever sends it mean that we should end?
pub(super) fn asks_for_an_end(signal: Signal) -> bool {
    !matches!(signal, Signal::USR1 | Signal::USR2)
}

/// All of them, from now on.
pub(super) struct Signals(mpsc::UnboundedReceiver<Signal>);

impl Signals {
    /// Must be called inside the runtime. What whoever started us chose to ignore, as `nohup` does, stays ignored.
    pub(super) fn listen() -> io::Result<Self> {
        // But for this one, which is not ignored from here on: else the kernel would not keep the command's exit code for us.
        let _ = signal(SignalKind::child())?;
        let (got, signals) = mpsc::unbounded_channel();
        for handed_on in HANDED_ON {
            let kind = SignalKind::from_raw(handed_on.as_raw());
            if is_ignored(kind) {
                continue;
            }
            let mut stream = signal(kind)?;
            let got = got.clone();
            tokio::spawn(async move { while stream.recv().await.is_some() && got.send(handed_on).is_ok() {} });
        }
        Ok(Self(signals))
    }

    /// The next one that asks for an end.
    pub(super) async fn next_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if asks_for_an_end(signal) {
                return signal;
            }
        }
    }

    /// Passes over those that have come by now: the terminal's Ctrl-C reaches the command, which ends, and us at once.
    pub(super) async fn pass_over(&mut self) -> bool {
        for _ in 0..HEARING {
            tokio::task::yield_now().await;
        }
        let mut any = false;
        while let Ok(signal) = self.0.try_recv() {
            any |= asks_for_an_end(signal);
        }
        any
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}
