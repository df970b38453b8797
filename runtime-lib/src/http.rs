//! The layer for `lambda_http`: keys from a path, responses made whole under the lock, and answers for who gets none.

use crate::call::{HandlerError, Hold, Invocation};
use crate::key::{Key, KeyTemplate};
use crate::layer::{Buffered, Finish, Streaming};
use crate::section::{Kept, Manner};
use crate::stream::HeldStream;
use crate::{Lease, LockError};
use http_body::{Body, Frame};
use lambda_http::http::header::{CONTENT_TYPE, RETRY_AFTER};
use lambda_http::http::{Request, Response, StatusCode};
use lambda_http::{IntoResponse, RequestExt};
use lambda_runtime::Context;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::Duration;

impl<B> Invocation for Request<B> {
    fn context(&self) -> Option<&Context> {
        self.extensions().get()
    }

    fn carry(&mut self, lease: &Lease) {
        self.extensions_mut().insert(lease.clone());
    }
}

/// Makes a request's key from its path: each placeholder of the template is a path parameter of API Gateway's route.
///
/// ```
/// # use leasekeeper::Locks;
/// let lock = Locks::from_env().layer(leasekeeper::path_key("order:{order_id}")); // the route is /orders/{order_id}
/// ```
///
/// The call fails with [`LockError::Protocol`] if the template is no valid one (see [`KeyTemplate`]), or if the request has
/// no parameter of a placeholder's name. Function URLs and load balancers give no path parameters: read the path there.
pub fn path_key(template: &str) -> impl Fn(&lambda_http::Request) -> Result<Key, LockError> + Clone + use<> {
    let template = KeyTemplate::parse(template);
    move |request| {
        let template = template.as_ref().map_err(LockError::clone)?;
        let parameters = request.path_parameters();
        let value = |name| {
            parameters.first(name).ok_or_else(|| {
                LockError::protocol(format!(
                    "the request has no path parameter {name:?}, which the key template asks for"
                ))
            })
        };
        let values = template.names().map(|name| Ok((name, value(name)?))).collect::<Result<Vec<_>, LockError>>()?;
        let values: Vec<_> = values.iter().map(|(name, value)| (*name, value as &dyn fmt::Display)).collect();
        template.render(&values)
    }
}

impl LockError {
    /// What an HTTP client is told when its request got no lock, where trying again later makes sense: 409 for
    /// [`LockError::Busy`], with `Retry-After` if it is known, and 503 with `Retry-After: 1` for
    /// [`LockError::BudgetExhausted`] and [`LockError::Unavailable`]. The body is `{"error":"busy"}` with the error's code.
    ///
    /// `None` for every other error: it is the function's own.
    pub fn http_answer(&self) -> Option<Response<lambda_http::Body>> {
        let (status, seconds) = match self {
            Self::Busy { retry_after, .. } => {
                let seconds = |after: &Duration| after.as_secs() + u64::from(after.subsec_nanos() > 0);
                (StatusCode::CONFLICT, retry_after.as_ref().map(seconds))
            }
            Self::BudgetExhausted {} | Self::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
            _ => return None,
        };
        let mut answer = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
        if let Some(seconds) = seconds {
            answer = answer.header(RETRY_AFTER, seconds);
        }
        let body = format!(r#"{{"error":"{}"}}"#, self.code().as_str());
        Some(answer.body(body.into()).expect("its headers are valid"))
    }
}

/// Answers requests that got no lock by [`LockError::http_answer`] instead of failing the invocation: for
/// `ServiceBuilder::map_result` above the layer.
///
/// ```no_run
/// use lambda_http::tower::ServiceBuilder;
/// use lambda_http::{Error, Request};
/// use leasekeeper::{Lease, Locks, http_answers, path_key};
/// # async fn ship(_: &Request) -> Result<(), Error> { Ok(()) }
///
/// #[tokio::main]
/// async fn main() -> Result<(), Error> {
///     let lock = Locks::from_env().layer(path_key("order:{order_id}"));
///     lambda_http::run(ServiceBuilder::new().map_result(http_answers).layer(lock).service_fn(handle)).await
/// }
///
/// async fn handle(request: Request) -> Result<&'static str, Error> {
///     let lease = Lease::current().ok_or("called without its lock")?;
///     lease.check().await?; // before each effect
///     ship(&request).await?;
///     Ok("shipped")
/// }
/// ```
///
/// It answers for the layer next below it. Of several locks each needs its own, or a lock that is busy further in fails the
/// invocation: `.map_result(http_answers).layer(outer).map_result(http_answers).layer(inner)`. The outer lock is given back
/// before the inner one's answer is sent.
///
/// # Errors
/// Those that have no answer, and the service's own.
pub fn http_answers<E>(served: Result<WholeResponse, HandlerError<E>>) -> Result<WholeResponse, HandlerError<E>> {
    match served {
        Err(HandlerError::Lock(error)) => error.http_answer().map(WholeResponse).ok_or(HandlerError::Lock(error)),
        other => other,
    }
}

/// A response whose body was read to its end while the lock was held.
#[derive(Debug)]
pub struct WholeResponse(
    /// The response, its body as `lambda_http` sends it.
    pub Response<lambda_http::Body>,
);

impl From<WholeResponse> for Response<lambda_http::Body> {
    fn from(whole: WholeResponse) -> Self {
        whole.0
    }
}

/// As it is: converting it a second time would take a body of bytes for text.
impl IntoResponse for WholeResponse {
    fn into_response(self) -> Answering<Response<lambda_http::Body>> {
        Box::pin(ready(self.0))
    }
}

type Answering<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<B, R: IntoResponse> Finish<Request<B>, R> for Buffered {
    type Finished = WholeResponse;
    type Finishing = Answering<WholeResponse>;

    fn finish(response: R) -> Self::Finishing {
        let whole = response.into_response();
        Box::pin(async { WholeResponse(whole.await) })
    }
}

impl<B> Hold<Response<B>> for Streaming {
    type Response = Response<HeldStream<B>>;

    fn hold(response: Response<B>, guard: Kept, manner: Manner) -> (Self::Response, Option<Kept>) {
        (response.map(|body| HeldStream::new(body, guard, manner)), None)
    }
}

/// The frames of the inner body without its trailers, which Lambda does not send.
impl<B> Body for HeldStream<B>
where
    B: Body + Unpin,
    B::Error: Into<lambda_runtime::Error>,
{
    type Data = B::Data;
    type Error = lambda_runtime::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.poll_with(cx, |mut body, cx| {
            loop {
                match task::ready!(body.as_mut().poll_frame(cx)) {
                    Some(Ok(frame)) if frame.is_trailers() => {}
                    other => return Poll::Ready(other),
                }
            }
        })
    }
}
