//! What became of one request in the pool.

use hyper_util::client::legacy::connect::CaptureConnection;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

/// Travels with its request as an extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempt {
    /// The pool had an open connection for it.
    pooled: Arc<AtomicBool>,
    /// Knows the connection from the moment the request is handed to it.
    connection: Arc<OnceLock<CaptureConnection>>,
}

impl Attempt {
    /// Did it find an open connection, so that none has to be made?
    pub(crate) fn pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    /// Did it get as far as asking for a connection? Before that the SDK loads settings and credentials.
    pub(crate) fn dispatched(&self) -> bool {
        self.connection.get().is_some()
    }

    /// Was it handed to a connection? If not, the store can never have seen it, nor will it after its future is dropped.
    pub(crate) fn sent(&self) -> bool {
        self.connection.get().is_some_and(|connection| connection.connection_metadata().is_some())
    }

    /// Keeps track of a request while `answer` is waited for.
    pub(super) fn follow<F: Future>(self, connection: CaptureConnection, answer: F) -> impl Future<Output = F::Output> {
        self.connection.get_or_init(|| connection);
        async move {
            let mut answer = pin!(answer);
            // The pool hands out an idle connection at the first poll or not at all.
            let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
            self.pooled.store(self.sent(), Ordering::Relaxed);
            match first {
                Poll::Ready(answer) => answer,
                Poll::Pending => answer.await,
            }
        }
    }
}
