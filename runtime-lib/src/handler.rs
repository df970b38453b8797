//! A Lambda handler that runs under a lock: a `Service` for `lambda_runtime::run` and `run_concurrent`.

use crate::budget::Wishes;
use crate::key::IntoKey;
use crate::section::{BoxFuture, Ended, Kept, Section, verdict};
use crate::settings::Settings;
use crate::stream::HeldStream;
use crate::{Acquire, Guard, Lease, LockError, OnLost};
use lambda_runtime::{
    Context, Diagnostic, FunctionResponse, IntoFunctionResponse, LambdaEvent, Service, StreamResponse,
};
use pin_project_lite::pin_project;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

/// A request that belongs to an invocation.
pub trait Invocation {
    /// The invocation's context: its request id and its deadline.
    fn context(&self) -> &Context;
}

impl<T> Invocation for LambdaEvent<T> {
    fn context(&self) -> &Context {
        &self.context
    }
}

/// Which response type the handler has, and what its buffered and streamed forms are.
type Response<R, B, S> = PhantomData<fn() -> (R, B, S)>;

/// A handler that runs under a lock, made by [`Locks::locked_handler`](crate::Locks::locked_handler).
///
/// The lock is given back before the response is posted; for a streaming response, before the stream's end is seen.
///
/// Whoever drops a call before its end, such as a time-out around it, blocks its thread until the lock is given back: at most
/// min(1 s, what remains of the invocation − 200 ms). What is answered then is answered without a lock, too.
pub struct LockedHandler<K, H, R, B, S> {
    settings: Arc<Settings>,
    key: Arc<K>,
    handler: Arc<H>,
    wishes: Wishes,
    on_lost: OnLost,
    strict: bool,
    response: Response<R, B, S>,
}

impl<K, H, R, B, S> Clone for LockedHandler<K, H, R, B, S> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            key: self.key.clone(),
            handler: self.handler.clone(),
            wishes: self.wishes,
            on_lost: self.on_lost,
            strict: self.strict,
            response: PhantomData,
        }
    }
}

impl<K, H, R, B, S> fmt::Debug for LockedHandler<K, H, R, B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedHandler")
            .field("wishes", &self.wishes)
            .field("on_lost", &self.on_lost)
            .finish_non_exhaustive()
    }
}

impl<K, H, R, B, S> LockedHandler<K, H, R, B, S> {
    pub(crate) fn new(settings: &Arc<Settings>, key: K, handler: H) -> Self {
        Self {
            settings: settings.clone(),
            key: Arc::new(key),
            handler: Arc::new(handler),
            wishes: Wishes::default(),
            on_lost: OnLost::default(),
            strict: settings.strict_release,
            response: PhantomData,
        }
    }

    /// Waits for the lock at most this long, 0 to 86,400 s, and never longer than the invocation has. Without it the
    /// extension's setting applies, by default min(5 s, what remains of the invocation less the reserve).
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wishes.wait = Some(wait);
        self
    }

    /// Tries once and does not wait.
    #[must_use]
    pub fn try_once(self) -> Self {
        self.wait(Duration::ZERO)
    }

    /// The lease to write, 0.1 to 86,400 s: after a crash others wait this long. Without it the extension's setting applies.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.wishes.lease = Some(lease);
        self
    }

    /// What to keep of the invocation for the handler and the hand-back. Without it the extension's setting applies, by
    /// default max(1 s, a quarter of what remains), at most 30 s.
    #[must_use]
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.wishes.reserve = Some(reserve);
        self
    }

    /// What happens to the handler when the lock is lost; by default it is cancelled.
    #[must_use]
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Does an unconfirmed hand-back fail the invocation? By default it is logged only, as the work is done.
    #[must_use]
    pub fn strict_release(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }
}

impl<Q, K, L, H, Fut, R, B, S, E> Service<Q> for LockedHandler<K, H, R, B, S>
where
    Q: Invocation,
    K: Fn(&Q) -> L,
    L: IntoKey,
    H: Fn(Q, Lease) -> Fut,
    Fut: Future<Output = Result<R, E>>,
    R: IntoFunctionResponse<B, S>,
    E: Into<Diagnostic> + fmt::Debug + 'static,
{
    type Response = FunctionResponse<B, HeldStream<S>>;
    type Error = HandlerError<E>;
    type Future = LockedFuture<Q, H, Fut, R, B, S, E>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let acquire = Acquire::new(&self.settings, (self.key)(&request)).wishes(self.wishes).context(request.context());
        LockedFuture {
            stage: Stage::Acquiring {
                acquiring: Box::pin(acquire.guard()),
                call: Some((request, self.handler.clone())),
            },
            on_lost: self.on_lost,
            strict: self.strict,
            response: PhantomData,
        }
    }
}

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

pin_project! {
    /// One invocation of a [`LockedHandler`].
    pub struct LockedFuture<Q, H, Fut, R, B, S, E> {
        #[pin]
        stage: Stage<Q, H, Fut, B, E>,
        on_lost: OnLost,
        strict: bool,
        response: PhantomData<fn() -> (R, S)>,
    }
}

pin_project! {
    // Only what is ours is boxed as `Send`: the whole future is `Send` exactly when the user's parts are.
    #[project = StageProjection]
    enum Stage<Q, H, Fut, B, E> {
        Acquiring { acquiring: BoxFuture<Result<Guard, LockError>>, call: Option<(Q, Arc<H>)> },
        Running { #[pin] section: Section<Fut>, guard: Option<Kept> },
        Releasing { releasing: BoxFuture<Result<(), LockError>>, ended: Option<Ended<Result<B, HandlerError<E>>>> },
        Over,
    }
}

impl<Q, H, Fut, R, B, S, E> fmt::Debug for LockedFuture<Q, H, Fut, R, B, S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedFuture").finish_non_exhaustive()
    }
}

impl<Q, H, Fut, R, B, S, E> Future for LockedFuture<Q, H, Fut, R, B, S, E>
where
    H: Fn(Q, Lease) -> Fut,
    Fut: Future<Output = Result<R, E>>,
    R: IntoFunctionResponse<B, S>,
{
    type Output = Result<FunctionResponse<B, HeldStream<S>>, HandlerError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageProjection::Acquiring { acquiring, call } => match ready!(acquiring.as_mut().poll(cx)) {
                    Err(error) => {
                        this.stage.set(Stage::Over);
                        return Poll::Ready(Err(HandlerError::Lock(error)));
                    }
                    Ok(guard) => {
                        let (request, handler) = call.take().expect("a stage is left once");
                        let lease = guard.lease();
                        match catch_unwind(AssertUnwindSafe(|| handler(request, lease))) {
                            Ok(work) => {
                                let section = Section::new(work, &guard, *this.on_lost);
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
                        Ended::Done(Ok(response)) => match response.into_response() {
                            FunctionResponse::BufferedResponse(body) => releasing(guard, Ended::Done(Ok(body))),
                            FunctionResponse::StreamingResponse(response) => {
                                let stream =
                                    HeldStream::new(response.stream, guard.into_guard(), *this.on_lost, *this.strict);
                                this.stage.set(Stage::Over);
                                return Poll::Ready(Ok(FunctionResponse::StreamingResponse(StreamResponse {
                                    metadata_prelude: response.metadata_prelude,
                                    stream,
                                })));
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
                    let body = verdict(ended, handed_back, *this.strict, HandlerError::Lock);
                    return Poll::Ready(body.map(FunctionResponse::BufferedResponse));
                }
                StageProjection::Over => panic!("polled after completion"),
            };
            // Drops what is left of the handler's future while the lock is still held: the release goes out after it.
            this.stage.set(next);
        }
    }
}

fn releasing<Q, H, Fut, B, E>(guard: Kept, ended: Ended<Result<B, HandlerError<E>>>) -> Stage<Q, H, Fut, B, E> {
    Stage::Releasing { releasing: guard.hand_back(&ended), ended: Some(ended) }
}
