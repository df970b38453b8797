//! Connections that are not served: each is told why, and may say whatever it had to say before it is closed.

use super::Limits;
use leasekeeper_wire::{Failure, Reply};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Refused connections that are still open.
pub(super) struct Refusals {
    open: JoinSet<()>,
    most: usize,
    patience: Duration,
}

impl Refusals {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { open: JoinSet::new(), most: limits.refused, patience: limits.flush }
    }

    /// Says in one line why, and lets the client close first: a client that sends its request before it reads would otherwise
    /// meet a broken pipe instead of the reason.
    pub(super) fn refuse(&mut self, mut stream: UnixStream, why: Failure) {
        tracing::warn!(code = %why.code, detail = why.message, "a connection was refused");
        // A new socket's buffer takes one line; if not, the closing says enough.
        let _ = stream.try_write(Reply::error(None, why).encode().as_bytes());
        while self.open.try_join_next().is_some() {}
        if self.open.len() >= self.most {
            return;
        }
        let patience = self.patience;
        self.open.spawn(async move {
            let leaving = async {
                stream.shutdown().await?;
                tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
            };
            // Whether it left, failed or stayed too long: the connection is closed.
            let _ = timeout(patience, leaving).await;
        });
    }
}
