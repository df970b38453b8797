//! Connections that are not served: their clients learn why, whatever they do first.

mod common;

use common::{Client, Served, soon};
use leasekeeper_extension::server::Limits;
use leasekeeper_wire::{Op, Request};
use serde_json::Value;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A server that has let in as many as it may, and its one client.
async fn full(change: impl FnOnce(&mut Limits)) -> (Served, Client) {
    let mut limits = Limits { connections: 1, ..Limits::default() };
    change(&mut limits);
    let mut served = Served::with(limits, false);
    let client = served.connect().await;
    let _ = served.opened().await;
    (served, client)
}

/// One that has been told already, but has not read it.
async fn refused(served: &Served) -> Client {
    let client = served.connect().await;
    soon("the refusal", client.stream.get_ref().readable()).await.unwrap();
    client
}

fn hello() -> String {
    Request { id: 1, op: Op::Hello }.encode()
}

#[tokio::test]
async fn one_that_sends_after_it_was_refused_reads_why() {
    let (mut served, _first) = full(|_| ()).await;
    let mut late = refused(&served).await;
    late.send(hello()).await;
    assert_eq!(late.line().await["error"]["code"], "unavailable");
    late.send(hello()).await;
    assert_eq!(late.line().await, Value::Null, "nothing follows");
    served.assert_quiet().await;
}

#[tokio::test]
async fn one_that_sends_before_it_is_refused_meets_an_end_and_no_reset() {
    let (served, _first) = full(|_| ()).await;
    // In one go: the server has no turn in between.
    let mut early = std::os::unix::net::UnixStream::connect(served.path()).unwrap();
    std::io::Write::write_all(&mut early, hello().as_bytes()).unwrap();
    early.set_nonblocking(true).unwrap();
    let mut early = tokio::net::UnixStream::from_std(early).unwrap();
    let mut said = String::new();
    soon("the end", early.read_to_string(&mut said)).await.expect("an end, not a reset");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["error"]["code"], "unavailable", "{said}");
}

#[tokio::test]
async fn one_that_never_leaves_is_closed() {
    let (served, _first) = full(|limits| limits.flush = Duration::from_millis(50)).await;
    let mut refused = refused(&served).await;
    let closed = async {
        while refused.stream.get_mut().write_all(b"x").await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    soon("the closing", closed).await;
}

#[tokio::test]
async fn past_the_bound_the_next_is_closed_at_once_until_one_has_left() {
    let (mut served, _first) = full(|limits| limits.refused = 1).await;
    let staying = refused(&served).await;
    let mut too_many = refused(&served).await;
    let error = too_many.stream.get_mut().write_all(hello().as_bytes()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    drop(staying);
    served.assert_quiet().await;
    let mut next = refused(&served).await;
    next.send(hello()).await;
    assert_eq!(next.line().await["error"]["code"], "unavailable");
}
