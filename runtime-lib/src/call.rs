//! One call under a lock: the acquire, the work, and the hand-back before the response is seen.

use crate::budget::Wishes;
use crate::key::{IntoKey, Key};
use crate::section::{BoxFuture, Ended, Kept, Manner, Section, verdict};
use crate::settings::Settings;
use crate::{Acquire, Guard, Lease, LockError};
use lambda_runtime::{Context, Diagnostic, LambdaEvent};
use pin_project_lite::pin_project;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

/// A request that belongs to an invocation.
pub trait Invocation {
    /// The invocation's context: its request id and its deadline. A request without one gets no lock.
    fn context(&self) -> Option<&Context>;

    /// Takes the lease that the request is served under, where it has room for it.
    fn carry(&mut self, lease: &Lease) {
        let _ = lease;
    }
}

impl<T> Invocation for LambdaEvent<T> {
    fn context(&self) -> Option<&Context> {
        Some(&self.context)
    }
}

/// Which lock is taken for each request, and how.
pub(crate) struct Terms<K> {
    settings: Arc<Settings>,
    key: Arc<K>,
    pub(crate) wishes: Wishes,
    pub(crate) manner: Manner,
}

impl<K> Terms<K> {
    pub(crate) fn new(settings: &Arc<Settings>, key: K) -> Self {
        let manner = Manner { on_lost: crate::OnLost::default(), strict: settings.strict_release };
        Self { settings: settings.clone(), key: Arc::new(key), wishes: Wishes::default(), manner }
    }

    pub(crate) fn acquire<Q, L>(&self, request: &Q) -> Acquire
    where
        Q: Invocation,
        K: Fn(&Q) -> L,
        L: IntoKey,
    {
        match request.context() {
            Some(context) => Acquire::new(&self.settings, (self.key)(request)).wishes(self.wishes).context(context),
            None => Acquire::new(&self.settings, no_context()),
        }
    }
}

fn no_context() -> Result<Key, LockError> {
    Err(LockError::protocol(
        "the request carries no Lambda context, so its deadline is not known: serve it by `lambda_http::run`, or give it \
         one by `RequestExt::with_lambda_context`",
    ))
}

impl<K> Clone for Terms<K> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), key: self.key.clone(), wishes: self.wishes, manner: self.manner }
    }
}

impl<K> Terms<K> {
    pub(crate) fn describe(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        f.debug_struct(name)
            .field("wishes", &self.wishes)
            .field("on_lost", &self.manner.on_lost)
            .finish_non_exhaustive()
    }
}

/// What can be set of a type whose `terms` these are.
macro_rules! options {
    () => {
        /// Waits for the lock at most this long, 0 to 86,400 s, and never longer than the invocation has. Without it the
        /// extension's setting applies, by default min(5 s, what remains of the invocation less the reserve).
        #[must_use]
        pub fn wait(mut self, wait: std::time::Duration) -> Self {
            self.terms.wishes.wait = Some(wait);
            self
        }

        /// Tries once and does not wait.
        #[must_use]
        pub fn try_once(self) -> Self {
            self.wait(std::time::Duration::ZERO)
        }

        /// The lease to write, 0.1 to 86,400 s: after a crash others wait this long. Without it the extension's setting
        /// applies.
        #[must_use]
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.terms.wishes.lease = Some(lease);
            self
        }

        /// What to keep of the invocation for the handler and the hand-back. Without it the extension's setting applies, by
        /// default max(1 s, a quarter of what remains), at most 30 s.
        #[must_use]
        pub fn reserve(mut self, reserve: std::time::Duration) -> Self {
            self.terms.wishes.reserve = Some(reserve);
            self
        }

        /// What happens to the handler when the lock is lost; by default it is cancelled.
        #[must_use]
        pub fn on_lost(mut self, on_lost: $crate::OnLost) -> Self {
            self.terms.manner.on_lost = on_lost;
            self
        }

        /// Does an unconfirmed hand-back fail the invocation? By default it is logged only, as the work is done.
        #[must_use]
        pub fn strict_release(mut self, strict: bool) -> Self {
            self.terms.manner.strict = strict;
            self
        }
    };
}
pub(crate) use options;

/// Why a locked handler failed: the lock, or the handler itself.
#[derive(Debug)]
pub enum HandlerError<E> {
    /// There was no lock, or it was lost.
    Lock(LockError),
    /// The handler's own error.
    Handler(E),
}

impl<E: fmt::Display> fmt::Display for HandlerError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Handler(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for HandlerError<E> {}

impl<E: fmt::Debug + fmt::Display + Into<Diagnostic> + Send + Sync + 'static> HandlerError<E> {
    /// Names an error that a layer of tower's own has boxed, such as its time-out: the lock's errors keep their names
    /// (`Leasekeeper.Busy` and so on) where `lambda_runtime` would report the box's type. For `ServiceBuilder::map_err` above
    /// that layer.
    pub fn diagnostic(boxed: lambda_runtime::Error) -> Diagnostic {
        match boxed.downcast::<Self>() {
            Ok(error) => (*error).into(),
            Err(other) => other.into(),
        }
    }
}

impl<E: Into<Diagnostic> + 'static> From<HandlerError<E>> for Diagnostic {
    fn from(error: HandlerError<E>) -> Self {
        match error {
            HandlerError::Lock(error) => error.into(),
            HandlerError::Handler(error) => {
                // A lock error that `?` has boxed keeps its name.
                let boxed = (&error as &dyn Any).downcast_ref::<lambda_runtime::Error>();
                match boxed.and_then(|error| error.downcast_ref::<LockError>()) {
                    Some(error) => error.clone().into(),
                    None => error.into(),
                }
            }
        }
    }
}

/// Work that begins once its lock is held.
pub trait Begin {
    /// What has begun.
    type Work;

    /// Begins it.
    fn begin(self, lease: Lease) -> Self::Work;
}

/// What becomes of the lock and of a response that is ready.
pub trait Hold<R> {
    /// What is passed on.
    type Response;

    /// Gives the guard back if it is to be released before the response is seen; else the response keeps it.
    fn hold(response: R, guard: Kept, manner: Manner) -> (Self::Response, Option<Kept>);
}

pin_project! {
    /// One call of a [`LockedHandler`](crate::LockedHandler) or a [`LockService`](crate::LockService).
    pub struct LockedFuture<B, W, A, P, E> {
        #[pin]
        stage: Stage<B, W, P, E>,
        manner: Manner,
        answer: PhantomData<fn() -> A>,
    }
}

pin_project! {
    // Only what is ours is boxed as `Send`: the whole future is `Send` exactly when the user's parts are.
    #[project = StageProjection]
    enum Stage<B, W, P, E> {
        Acquiring { acquiring: BoxFuture<Result<Guard, LockError>>, begin: Option<B> },
        Running { #[pin] section: Section<W>, guard: Option<Kept> },
        Releasing { releasing: BoxFuture<Result<(), LockError>>, ended: Option<Ended<Result<P, HandlerError<E>>>> },
        Over,
    }
}

impl<B, W, A, P, E> LockedFuture<B, W, A, P, E> {
    pub(crate) fn new(acquire: Acquire, manner: Manner, begin: B) -> Self {
        let stage = Stage::Acquiring { acquiring: Box::pin(acquire.guard()), begin: Some(begin) };
        Self { stage, manner, answer: PhantomData }
    }
}

impl<B, W, A, P, E> fmt::Debug for LockedFuture<B, W, A, P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedFuture").finish_non_exhaustive()
    }
}

impl<B, W, A, R, E> Future for LockedFuture<B, W, A, A::Response, E>
where
    B: Begin<Work = W>,
    W: Future<Output = Result<R, E>>,
    A: Hold<R>,
{
    type Output = Result<A::Response, HandlerError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageProjection::Acquiring { acquiring, begin } => match ready!(acquiring.as_mut().poll(cx)) {
                    Err(error) => {
                        this.stage.set(Stage::Over);
                        return Poll::Ready(Err(HandlerError::Lock(error)));
                    }
                    Ok(guard) => {
                        let begin = begin.take().expect("a stage is left once");
                        let lease = guard.lease();
                        match catch_unwind(AssertUnwindSafe(|| begin.begin(lease))) {
                            Ok(work) => {
                                let section = Section::new(work, &guard, this.manner.on_lost);
                                Stage::Running { section, guard: Some(Kept::new(guard)) }
                            }
                            Err(panic) => releasing(Kept::new(guard), Ended::Panicked(panic)),
                        }
                    }
                },
                StageProjection::Running { section, guard } => {
                    let ended = ready!(section.poll(cx));
                    let guard = guard.take().expect("a stage is left once");
                    match ended {
                        Ended::Done(Ok(response)) => match A::hold(response, guard, *this.manner) {
                            (response, Some(guard)) => releasing(guard, Ended::Done(Ok(response))),
                            (response, None) => {
                                this.stage.set(Stage::Over);
                                return Poll::Ready(Ok(response));
                            }
                        },
                        Ended::Done(Err(error)) => releasing(guard, Ended::Done(Err(HandlerError::Handler(error)))),
                        Ended::Lost(reason) => releasing(guard, Ended::Lost(reason)),
                        Ended::Panicked(panic) => releasing(guard, Ended::Panicked(panic)),
                    }
                }
                StageProjection::Releasing { releasing, ended } => {
                    let handed_back = ready!(releasing.as_mut().poll(cx));
                    let ended = ended.take().expect("a stage is left once");
                    this.stage.set(Stage::Over);
                    return Poll::Ready(verdict(ended, handed_back, this.manner.strict, HandlerError::Lock));
                }
                StageProjection::Over => panic!("polled after completion"),
            };
            // Drops what is left of the work while the lock is still held: the release goes out after it.
            this.stage.set(next);
        }
    }
}

fn releasing<B, W, P, E>(guard: Kept, ended: Ended<Result<P, HandlerError<E>>>) -> Stage<B, W, P, E> {
    Stage::Releasing { releasing: guard.hand_back(&ended), ended: Some(ended) }
}
