//! A Lambda handler that runs under a lock: a `Service` for `lambda_runtime::run` and `run_concurrent`.

use crate::Lease;
use crate::call::{Begin, HandlerError, Hold, Invocation, LockedFuture, Terms, options};
use crate::key::IntoKey;
use crate::section::{Kept, Manner};
use crate::settings::Settings;
use crate::stream::HeldStream;
use lambda_runtime::{Diagnostic, FunctionResponse, IntoFunctionResponse, Service};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;

/// Which response type the handler has, and what its buffered and streamed forms are.
type Response<R, B, S> = PhantomData<fn() -> (R, B, S)>;

/// A handler that runs under a lock, made by [`Locks::locked_handler`](crate::Locks::locked_handler).
///
/// The lock is given back before the response is posted; for a streaming response, before the stream's end is seen.
///
/// Whoever drops a call before its end, such as a time-out around it, blocks its thread until the lock is given back: at most
/// min(1 s, what remains of the invocation − 200 ms). What is answered then is answered without a lock, too.
pub struct LockedHandler<K, H, R, B, S> {
    terms: Terms<K>,
    handler: Arc<H>,
    response: Response<R, B, S>,
}

impl<K, H, R, B, S> Clone for LockedHandler<K, H, R, B, S> {
    fn clone(&self) -> Self {
        Self { terms: self.terms.clone(), handler: self.handler.clone(), response: PhantomData }
    }
}

impl<K, H, R, B, S> fmt::Debug for LockedHandler<K, H, R, B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.terms.describe(f, "LockedHandler")
    }
}

impl<K, H, R, B, S> LockedHandler<K, H, R, B, S> {
    pub(crate) fn new(settings: &Arc<Settings>, key: K, handler: H) -> Self {
        Self { terms: Terms::new(settings, key), handler: Arc::new(handler), response: PhantomData }
    }

    options!();
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
    type Future = LockedFuture<Handle<Q, H>, Fut, Either<B, S>, Self::Response, E>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Q) -> Self::Future {
        let acquire = self.terms.acquire(&request);
        LockedFuture::new(acquire, self.terms.manner, Handle { request, handler: self.handler.clone() })
    }
}

/// The call of a handler that gets its lease as an argument.
pub struct Handle<Q, H> {
    request: Q,
    handler: Arc<H>,
}

impl<Q, H, Fut> Begin for Handle<Q, H>
where
    H: Fn(Q, Lease) -> Fut,
{
    type Work = Fut;

    fn begin(self, lease: Lease) -> Fut {
        (self.handler)(self.request, lease)
    }
}

/// A response that is buffered or streamed, as it turns out.
pub struct Either<B, S>(PhantomData<fn() -> (B, S)>);

impl<B, S, R: IntoFunctionResponse<B, S>> Hold<R> for Either<B, S> {
    type Response = FunctionResponse<B, HeldStream<S>>;

    fn hold(response: R, guard: Kept, manner: Manner) -> (Self::Response, Option<Kept>) {
        match response.into_response() {
            FunctionResponse::BufferedResponse(body) => (FunctionResponse::BufferedResponse(body), Some(guard)),
            FunctionResponse::StreamingResponse(response) => {
                let response = HeldStream::response(response, guard, manner);
                (FunctionResponse::StreamingResponse(response), None)
            }
        }
    }
}
