//! A streaming response that holds its lock: given back before the stream's end is seen.

use crate::section::{BoxFuture, Kept, Manner, clean_up, poll_lost, watch};
use crate::{Guard, LockError};
use futures_core::Stream;
use lambda_runtime::StreamResponse;
use leasekeeper_wire::LostReason;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The body of a streaming response, with the lock that it was made under.
///
/// When the inner stream ends, the lock is given back and only then the end is passed on. If the lock is lost, the stream
/// ends with [`LockError::Lost`]. Dropping the stream before its end closes the lock's connection, which gives it back.
///
/// `lambda_runtime` 1.5 tells the caller of a stream's error by text at the end of the body (`Runtime.StreamError`): a caller
/// that must know whether a body is whole needs a sign of the application's own at its end.
pub struct HeldStream<S> {
    stage: Stage<S>,
    strict: bool,
}

enum Stage<S> {
    Open { stream: S, guard: Guard, lost: Option<BoxFuture<LostReason>> },
    Releasing(BoxFuture<Result<(), LockError>>),
    Over,
}

impl<S> HeldStream<S> {
    pub(crate) fn new(stream: S, guard: Kept, manner: Manner) -> Self {
        let guard = guard.into_guard();
        let lost = watch(&guard, manner.on_lost);
        Self { stage: Stage::Open { stream, guard, lost }, strict: manner.strict }
    }

    /// The same response, whose body holds the lock.
    pub(crate) fn response(response: StreamResponse<S>, guard: Kept, manner: Manner) -> StreamResponse<Self> {
        let StreamResponse { metadata_prelude, stream } = response;
        StreamResponse { metadata_prelude, stream: Self::new(stream, guard, manner) }
    }

    /// Leaves the open stage: its stream is dropped, its guard handed over.
    fn close(&mut self) -> Option<Guard> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open { guard, .. } => Some(guard),
            _ => None,
        }
    }
}

impl<S> fmt::Debug for HeldStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldStream").finish_non_exhaustive()
    }
}

impl<S: Unpin> HeldStream<S> {
    /// Polls the inner stream by `next`, until it has ended and the lock is given back.
    pub(crate) fn poll_with<T, E: Into<lambda_runtime::Error>>(
        &mut self,
        cx: &mut Context<'_>,
        next: impl Fn(Pin<&mut S>, &mut Context<'_>) -> Poll<Option<Result<T, E>>>,
    ) -> Poll<Option<Result<T, lambda_runtime::Error>>> {
        loop {
            match &mut self.stage {
                Stage::Open { stream, lost, .. } => {
                    if let Some(reason) = poll_lost(lost, cx) {
                        self.stage = Stage::Over;
                        return Poll::Ready(Some(Err(LockError::lost(reason).into())));
                    }
                    if let Some(item) = ready!(next(Pin::new(stream), cx)) {
                        return Poll::Ready(Some(item.map_err(Into::into)));
                    }
                    if let Some(guard) = self.close() {
                        self.stage = Stage::Releasing(Box::pin(guard.release()));
                    }
                }
                Stage::Releasing(releasing) => {
                    let handed_back = ready!(releasing.as_mut().poll(cx));
                    self.stage = Stage::Over;
                    return Poll::Ready(clean_up(handed_back, self.strict).err().map(|error| Err(error.into())));
                }
                Stage::Over => return Poll::Ready(None),
            }
        }
    }
}

impl<S, D, E> Stream for HeldStream<S>
where
    S: Stream<Item = Result<D, E>> + Unpin,
    E: Into<lambda_runtime::Error>,
{
    type Item = Result<D, lambda_runtime::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_with(cx, S::poll_next)
    }
}
