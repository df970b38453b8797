//! `make demo`: real handlers and real extensions take turns on one lock, get killed, time out, and are told who is in the way.

mod report;
mod scenes;
mod timeline;

use report::Report;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    println!("Leasekeeper demo: an embedded DynamoDB, a Lambda sandbox, real processes. Nothing leaves this machine.");
    let mut report = Report::default();
    scenes::turns(&mut report).await;
    scenes::busy_cpu(&mut report).await;
    scenes::killed(&mut report).await;
    scenes::timed_out(&mut report).await;
    scenes::told(&mut report).await;
    report.finish()
}
