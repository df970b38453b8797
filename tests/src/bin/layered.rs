//! The tests' function behind HTTP: works on one order under its lock, with layers of tower's own on either side of the lock's.

use lambda_http::{Error, Request, RequestExt, Response};
use lambda_runtime::streaming::{Body, channel};
use leasekeeper::{HandlerError, Lease, Locks, http_answers, path_key};
use std::time::Duration;
use tower::ServiceBuilder;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let lock = Locks::from_env().layer(path_key("order:{order_id}")).wait(Duration::from_millis(300));
    if std::env::var_os("STREAMS").is_some() {
        let service = ServiceBuilder::new().layer(lock.streaming()).concurrency_limit(8).service_fn(stream);
        return lambda_http::run_with_streaming_response_concurrent(service).await;
    }
    let service = ServiceBuilder::new()
        .map_err(HandlerError::<Error>::diagnostic)
        .timeout(Duration::from_millis(1_500))
        .map_result(http_answers)
        .layer(lock)
        .concurrency_limit(8)
        .service_fn(work);
    lambda_http::run_concurrent(service).await
}

/// Takes as long as the query's `work_ms` says.
async fn work(request: Request) -> Result<String, Error> {
    let lease = Lease::current().ok_or("called without its lock")?;
    tokio::time::sleep(work_of(&request)?).await;
    lease.check().await?;
    Ok(format!("{} by {}", lease.key(), lease.owner()))
}

/// Answers at once, with a body that takes as long.
async fn stream(request: Request) -> Result<Response<Body>, Error> {
    let lease = Lease::current().ok_or("called without its lock")?;
    let work = work_of(&request)?;
    let (mut sender, body) = channel();
    tokio::spawn(async move {
        let _ = sender.send_data(format!("{} is ", lease.key()).into()).await;
        tokio::time::sleep(work).await;
        let held = if lease.check().await.is_ok() { "held" } else { "lost" };
        let _ = sender.send_data(held.into()).await;
    });
    Ok(Response::new(body))
}

fn work_of(request: &Request) -> Result<Duration, Error> {
    Ok(Duration::from_millis(request.query_string_parameters().first("work_ms").unwrap_or("0").parse()?))
}
