//! The tests' function behind HTTP: works on one order under its lock, with layers of tower's own on either side of the lock's.

use lambda_http::{Error, Request, RequestExt};
use leasekeeper::{HandlerError, Lease, Locks, http_answers, path_key};
use std::time::Duration;
use tower::ServiceBuilder;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let lock = Locks::from_env().layer(path_key("order:{order_id}")).wait(Duration::from_millis(300));
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
    let work_ms = request.query_string_parameters().first("work_ms").unwrap_or("0").parse()?;
    tokio::time::sleep(Duration::from_millis(work_ms)).await;
    lease.check().await?;
    Ok(format!("{} by {}", lease.key(), lease.owner()))
}
