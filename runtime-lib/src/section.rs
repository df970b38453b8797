//! Work under a held lock: cancelled when the lock is lost, caught when it panics, settled when it is over.

use crate::{Guard, LockError};
use leasekeeper_wire::{Code, LostReason};
use pin_project_lite::pin_project;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// What happens to work whose lock is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// Its future is dropped at its next await point.
    #[default]
    Cancel,
    /// It goes on and is told by [`Lease::lost`](crate::Lease::lost).
    Notify,
}

/// What is done when the lock is lost, and when its hand-back is not confirmed.
#[cfg(feature = "lambda")]
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub(crate) on_lost: OnLost,
    pub(crate) strict: bool,
}

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How work ended.
pub(crate) enum Ended<T> {
    Done(T),
    /// It was cancelled.
    Lost(LostReason),
    Panicked(Box<dyn Any + Send>),
}

/// Resolves when the guard's lease is lost, if that is what was asked for.
pub(crate) fn watch(guard: &Guard, on_lost: OnLost) -> Option<BoxFuture<LostReason>> {
    let lease = guard.lease();
    (on_lost == OnLost::Cancel).then(|| Box::pin(async move { lease.lost().await }) as BoxFuture<LostReason>)
}

/// Polls the watch: the loss, once it is known.
pub(crate) fn poll_lost(lost: &mut Option<BoxFuture<LostReason>>, cx: &mut Context<'_>) -> Option<LostReason> {
    match lost.as_mut()?.as_mut().poll(cx) {
        Poll::Ready(reason) => Some(reason),
        Poll::Pending => None,
    }
}

pin_project! {
    /// Work that is not polled again once its lock is known to be lost.
    pub(crate) struct Section<F> {
        #[pin]
        work: F,
        lost: Option<BoxFuture<LostReason>>,
    }
}

impl<F> Section<F> {
    pub(crate) fn new(work: F, guard: &Guard, on_lost: OnLost) -> Self {
        Self { work, lost: watch(guard, on_lost) }
    }
}

impl<F: Future> Future for Section<F> {
    type Output = Ended<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(reason) = poll_lost(this.lost, cx) {
            return Poll::Ready(Ended::Lost(reason));
        }
        match catch_unwind(AssertUnwindSafe(|| this.work.poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ended::Done(output)),
            Err(panic) => Poll::Ready(Ended::Panicked(panic)),
        }
    }
}

/// Gives the guard's lock back, unless it is known to be lost: then nothing is sent.
pub(crate) fn hand_back<T>(guard: Guard, ended: &Ended<T>) -> BoxFuture<Result<(), LockError>> {
    match ended {
        Ended::Lost(reason) => Box::pin(std::future::ready(Err(LockError::lost(*reason)))),
        _ => Box::pin(guard.release()),
    }
}

/// A guard whose lock is given back by the time it is gone, also where that cannot be awaited: an invocation's response must not
/// be out before.
#[cfg(feature = "lambda")]
pub struct Kept(Option<Guard>);

#[cfg(feature = "lambda")]
impl Kept {
    pub(crate) fn new(guard: Guard) -> Self {
        Self(Some(guard))
    }

    /// The guard, for whoever gives it back at another time.
    pub(crate) fn into_guard(mut self) -> Guard {
        self.0.take().expect("a guard is kept until it is handed out, once")
    }

    /// As [`hand_back`]. Whoever drops what this returns, even before it was polled, waits for the release.
    pub(crate) fn hand_back<T>(self, ended: &Ended<T>) -> BoxFuture<Result<(), LockError>> {
        match ended {
            Ended::Lost(reason) => Box::pin(std::future::ready(Err(LockError::lost(*reason)))),
            _ => Box::pin(async move {
                let lease = self.0.as_ref().map(Guard::lease).expect("a guard is kept until it is handed out");
                lease.release().await
            }),
        }
    }
}

#[cfg(feature = "lambda")]
impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(guard) = &self.0 {
            guard.release_blocking();
        }
    }
}

/// What the caller gets: the work's own error or panic before any error of the hand-back, which is logged then.
///
/// # Panics
/// As the work did.
pub(crate) fn verdict<T, E>(
    ended: Ended<Result<T, E>>,
    handed_back: Result<(), LockError>,
    strict: bool,
    wrap: impl FnOnce(LockError) -> E,
) -> Result<T, E> {
    match ended {
        Ended::Done(Ok(value)) => match clean_up(handed_back, strict) {
            Ok(()) => Ok(value),
            Err(error) => Err(wrap(error)),
        },
        Ended::Done(Err(error)) => {
            attach(handed_back);
            Err(error)
        }
        Ended::Lost(reason) => Err(wrap(LockError::lost(reason))),
        Ended::Panicked(panic) => {
            attach(handed_back);
            resume_unwind(panic)
        }
    }
}

/// An unconfirmed hand-back is logged, not reported, unless the user wants it strict: the work is done and must not be run again.
pub(crate) fn clean_up(handed_back: Result<(), LockError>, strict: bool) -> Result<(), LockError> {
    match handed_back {
        Err(error) if error.code() == Code::ReleaseUnconfirmed && !strict => {
            tracing::warn!(code = %error.code(), "{error}");
            Ok(())
        }
        other => other,
    }
}

fn attach(handed_back: Result<(), LockError>) {
    if let Err(error) = handed_back {
        tracing::warn!(code = %error.code(), "after the work had failed: {error}");
    }
}
