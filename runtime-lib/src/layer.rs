//! A `tower::Layer` that takes a lock around the service below it.

use crate::Lease;
use crate::call::{Begin, HandlerError, Hold, Invocation, LockedFuture, Terms, options};
use crate::key::IntoKey;
use crate::section::{Kept, Manner};
use crate::settings::Settings;
use crate::stream::HeldStream;
use lambda_runtime::tower::{Layer, Service};
use lambda_runtime::{IntoFunctionResponse, LambdaEvent, StreamResponse, streaming};
use pin_project_lite::pin_project;
use std::fmt;
use std::future::{Future, Ready, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Context, Poll};
use tokio::task::futures::TaskLocalFuture;

tokio::task_local! {
    static CURRENT: Lease;
}

impl Lease {
    /// The lease that a service below a [`LockLayer`] is being called under; with several of them, the innermost one's.
    ///
    /// `None` anywhere else, as in a task that the service has spawned: take it before, and move it there.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }
}

/// Takes a lock before each call of the service below it and gives it back before the response is passed on. Made by
/// [`Locks::layer`](crate::Locks::layer).
///
/// It is for services of `lambda_runtime::LambdaEvent` and, with the feature `http`, of `lambda_http::Request`. The service
/// keeps its request type and finds its lease by [`Lease::current`], or among the extensions of an HTTP request.
///
/// - A response that is streamed needs [`LockLayer::streaming`].
/// - The layer's errors are [`HandlerError`]: the lock's, or the service's own, which is never replaced.
/// - What is above the layer runs without the lock. A time-out above it bounds the wait for the lock too; when it is over, the
///   thread is blocked until the lock is given back, as by a dropped [`LockedHandler`](crate::LockedHandler) call.
/// - A concurrency limit below it counts calls that wait for their lock; one above it, too.
///
/// ```no_run
/// use lambda_runtime::tower::ServiceBuilder;
/// use lambda_runtime::{Error, LambdaEvent, service_fn};
/// use leasekeeper::{Lease, Locks, key};
/// # #[derive(serde::Deserialize)]
/// # struct Order { order_id: String }
/// # async fn ship(_: &Order) -> Result<(), Error> { Ok(()) }
///
/// #[tokio::main]
/// async fn main() -> Result<(), Error> {
///     let lock = Locks::from_env()
///         .layer(|event: &LambdaEvent<Order>| key!("order:{id}", id = event.payload.order_id))
///         .wait(std::time::Duration::from_secs(2));
///     lambda_runtime::run(ServiceBuilder::new().layer(lock).service(service_fn(handle))).await
/// }
///
/// async fn handle(event: LambdaEvent<Order>) -> Result<(), Error> {
///     let lease = Lease::current().ok_or("called without its lock")?;
///     lease.check().await?; // before each effect
///     ship(&event.payload).await
/// }
/// ```
pub struct LockLayer<K, M = Buffered> {
    terms: Terms<K>,
    mode: PhantomData<M>,
}

/// The response is whole when the lock is given back.
#[derive(Clone, Copy, Debug)]
pub struct Buffered;

/// The response's body is streamed and holds the lock to its end.
#[derive(Clone, Copy, Debug)]
pub struct Streaming;

impl<K> LockLayer<K> {
    pub(crate) fn new(settings: &Arc<Settings>, key: K) -> Self {
        Self { terms: Terms::new(settings, key), mode: PhantomData }
    }

    /// For a service whose response is a `lambda_runtime::StreamResponse`, or an `http::Response` that goes to
    /// `lambda_http::run_with_streaming_response`: the lock is given back before the end of the body is seen.
    ///
    /// ```no_run
    /// # use lambda_runtime::{Error, LambdaEvent, service_fn, streaming::{Body, Response}, tower::Layer};
    /// # async fn stream(_: LambdaEvent<u32>) -> Result<Response<Body>, Error> { Ok(Body::empty().into()) }
    /// # async fn example(locks: leasekeeper::Locks) -> Result<(), Error> {
    /// let lock = locks.layer(|_: &LambdaEvent<u32>| "export").streaming();
    /// lambda_runtime::run(lock.layer(service_fn(stream))).await
    /// # }
    /// ```
    ///
    /// A stream of Lambda events does not compile without it, because its lock would be over before its body:
    ///
    /// ```compile_fail
    /// # use lambda_runtime::{Error, LambdaEvent, service_fn, streaming::{Body, Response}, tower::Layer};
    /// # async fn stream(_: LambdaEvent<u32>) -> Result<Response<Body>, Error> { Ok(Body::empty().into()) }
    /// # async fn example(locks: leasekeeper::Locks) -> Result<(), Error> {
    /// let lock = locks.layer(|_: &LambdaEvent<u32>| "export");
    /// lambda_runtime::run(lock.layer(service_fn(stream))).await
    /// # }
    /// ```
    #[must_use]
    pub fn streaming(self) -> LockLayer<K, Streaming> {
        LockLayer { terms: self.terms, mode: PhantomData }
    }
}

impl<K, M> LockLayer<K, M> {
    options!();
}

impl<K, M> Clone for LockLayer<K, M> {
    fn clone(&self) -> Self {
        Self { terms: self.terms.clone(), mode: PhantomData }
    }
}

impl<K, M> fmt::Debug for LockLayer<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.terms.describe(f, "LockLayer")
    }
}

impl<K, M, S> Layer<S> for LockLayer<K, M> {
    type Service = LockService<K, S, M>;

    fn layer(&self, service: S) -> Self::Service {
        LockService { terms: self.terms.clone(), service, mode: PhantomData }
    }
}

/// A service under a lock, made by [`LockLayer`].
pub struct LockService<K, S, M = Buffered> {
    terms: Terms<K>,
    service: S,
    mode: PhantomData<M>,
}

impl<K, S: Clone, M> Clone for LockService<K, S, M> {
    fn clone(&self) -> Self {
        Self { terms: self.terms.clone(), service: self.service.clone(), mode: PhantomData }
    }
}

impl<K, S, M> fmt::Debug for LockService<K, S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.terms.describe(f, "LockService")
    }
}

impl<Q, K, L, S, M> Service<Q> for LockService<K, S, M>
where
    Q: Invocation,
    K: Fn(&Q) -> L,
    L: IntoKey,
    S: Service<Q> + Clone,
    M: Finish<Q, S::Response> + Hold<<M as Finish<Q, S::Response>>::Finished>,
{
    type Response = <M as Hold<M::Finished>>::Response;
    type Error = HandlerError<S::Error>;
    type Future = LockedFuture<Serve<Q, S, M>, ServeFuture<Q, S, M>, M, Self::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx).map_err(HandlerError::Handler)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        // The one that was polled until it was ready goes with the call: its clone may not be ready.
        let next = self.service.clone();
        let service = std::mem::replace(&mut self.service, next);
        LockedFuture::new(
            self.terms.acquire(&request),
            self.terms.manner,
            Serve { service, request, mode: PhantomData },
        )
    }
}

/// The call of a service that is ready.
pub struct Serve<Q, S, M> {
    service: S,
    request: Q,
    mode: PhantomData<M>,
}

/// What a service does under its lock, its lease being [`Lease::current`].
type ServeFuture<Q, S, M> = TaskLocalFuture<
    Lease,
    Served<<S as Service<Q>>::Future, <M as Finish<Q, <S as Service<Q>>::Response>>::Finishing, Q, M>,
>;

impl<Q, S, M> Begin for Serve<Q, S, M>
where
    Q: Invocation,
    S: Service<Q>,
    M: Finish<Q, S::Response>,
{
    type Work = ServeFuture<Q, S, M>;

    fn begin(self, lease: Lease) -> Self::Work {
        let Self { mut service, mut request, .. } = self;
        request.carry(&lease);
        let serving = CURRENT.sync_scope(lease.clone(), move || service.call(request));
        CURRENT.scope(lease, Served { stage: Stage::Serving { serving }, mode: PhantomData })
    }
}

/// What makes a response whole while the lock is held.
pub trait Finish<Q, R> {
    /// The response then.
    type Finished;
    /// Makes it so.
    type Finishing: Future<Output = Self::Finished>;

    /// Begins to.
    fn finish(response: R) -> Self::Finishing;
}

// What is serialised for the response is whole; the bound is what keeps streams out.
impl<T, R: IntoFunctionResponse<R, streaming::Body>> Finish<LambdaEvent<T>, R> for Buffered {
    type Finished = R;
    type Finishing = Ready<R>;

    fn finish(response: R) -> Ready<R> {
        ready(response)
    }
}

impl<Q, R> Finish<Q, R> for Streaming {
    type Finished = R;
    type Finishing = Ready<R>;

    fn finish(response: R) -> Ready<R> {
        ready(response)
    }
}

impl<R> Hold<R> for Buffered {
    type Response = R;

    fn hold(response: R, guard: Kept, _: Manner) -> (R, Option<Kept>) {
        (response, Some(guard))
    }
}

impl<S> Hold<StreamResponse<S>> for Streaming {
    type Response = StreamResponse<HeldStream<S>>;

    fn hold(response: StreamResponse<S>, guard: Kept, manner: Manner) -> (Self::Response, Option<Kept>) {
        (HeldStream::response(response, guard, manner), None)
    }
}

pin_project! {
    /// A service's future, and what makes its response whole.
    pub struct Served<F, W, Q, M> {
        #[pin]
        stage: Stage<F, W>,
        mode: PhantomData<fn(Q) -> M>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<F, W> {
        Serving { #[pin] serving: F },
        Finishing { #[pin] finishing: W },
    }
}

impl<F, Q, M, R, E> Future for Served<F, M::Finishing, Q, M>
where
    F: Future<Output = Result<R, E>>,
    M: Finish<Q, R>,
{
    type Output = Result<M::Finished, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let finishing = match stage.as_mut().project() {
                StageProjection::Serving { serving } => match task::ready!(serving.poll(cx)) {
                    Ok(response) => M::finish(response),
                    Err(error) => return Poll::Ready(Err(error)),
                },
                StageProjection::Finishing { finishing } => return finishing.poll(cx).map(Ok),
            };
            stage.set(Stage::Finishing { finishing });
        }
    }
}
