//! `run --sidecar` beside a sidecar that has stopped: nobody but `run` itself can count how long the lock is good.

use crate::run::{begun_by, run, start};
use crate::{Ended, finish, signal};
use rustix::process::Signal;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use testkit::dynamo::{Dynamo, Fault, Operation, Recorded};
use testkit::sidecar::Sidecar;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

const LEASE: Duration = Duration::from_millis(2_000);

/// Works until it is told to stop, or to end.
const WORK: &str = "trap 'touch told; exit' TERM; touch begun; while [ ! -e end ]; do sleep 0.01; done; exit 6";

async fn begun(dynamo: &Dynamo, sidecar: &Sidecar) -> (Child, TempDir) {
    let mut command = run(dynamo, &["--sidecar", "--lease-ms", "2000"], WORK);
    command.env("LEASEKEEPER_SOCKET", sidecar.socket());
    begun_by(command).await
}

async fn renewed(dynamo: &Dynamo, times: usize) {
    let renewals = |sent: &[Recorded]| sent.iter().filter(|sent| sent.operation == Operation::UpdateItem).count();
    let before = dynamo.count(Operation::UpdateItem);
    assert!(dynamo.until(Duration::from_secs(20), |sent| renewals(sent) >= before + times).await, "it is renewed");
}

fn assert_stopped(dynamo: &Dynamo, home: &TempDir, ended: &Ended) {
    assert_eq!(ended.code, Some(76), "{ended:?}");
    for part in
        ["the command is being stopped", "the lock was lost: the sidecar does not answer", "the command was stopped"]
    {
        assert!(ended.err.contains(part), "no {part:?} in {ended:?}");
    }
    let committed = |sent: &Recorded| sent.answered.filter(|_| sent.status == Some(200));
    let last = dynamo.requests().iter().filter_map(committed).max().expect("it was acquired");
    // The file system noted when the command heard of it; the front's clock is read beside the same one.
    let told = std::fs::metadata(home.path().join("told")).and_then(|file| file.modified()).expect("it was told");
    let since_told = SystemTime::now().duration_since(told).expect("the past");
    let told_after = dynamo.elapsed() - since_told - last;
    assert!(told_after < LEASE, "told {told_after:?} after the last write");
}

#[tokio::test]
async fn the_command_is_stopped_before_anybody_else_can_have_its_lock() {
    for renewals in [0, 2] {
        let dynamo = Dynamo::start().await;
        let sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
        let (child, home) = begun(&dynamo, &sidecar).await;
        renewed(&dynamo, renewals).await;
        sidecar.signal(Signal::STOP);
        let ended = finish(child).await;
        assert_stopped(&dynamo, &home, &ended);
    }
}

#[tokio::test]
async fn where_no_renewal_gets_through_the_sidecar_that_says_so_is_not_blamed() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let (child, _home) = begun(&dynamo, &sidecar).await;
    dynamo.fail(Operation::Any, Fault::Unavailable).always();
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.err.contains("the lock k is lost (expired): the command is being stopped"), "{ended:?}");
    assert!(!ended.err.contains("does not answer"), "{ended:?}");
}

#[tokio::test]
async fn stops_of_our_own_put_the_loss_off_once() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let (child, home) = begun(&dynamo, &sidecar).await;
    sidecar.signal(Signal::STOP);
    for _ in 0..4 {
        signal(&child, Signal::STOP);
        sleep(Duration::from_millis(1_100)).await;
        signal(&child, Signal::CONT);
        // Shorter than an answer is waited for.
        sleep(Duration::from_millis(100)).await;
    }
    assert!(home.path().join("told").exists(), "it works on");
    assert_eq!(finish(child).await.code, Some(76));
}

#[tokio::test]
async fn a_command_that_ended_after_its_lock_was_over_is_no_success_where_nobody_says_otherwise() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let (child, home) = begun(&dynamo, &sidecar).await;
    sidecar.signal(Signal::STOP);
    signal(&child, Signal::STOP);
    sleep(LEASE).await;
    std::fs::write(home.path().join("end"), "").expect("a file");
    sleep(Duration::from_millis(100)).await;
    signal(&child, Signal::CONT);
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
}

#[tokio::test]
async fn a_lock_that_the_sidecar_renews_is_good_for_as_long_as_it_does_also_where_run_was_stopped_meanwhile() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let (child, home) = begun(&dynamo, &sidecar).await;
    // Longer than the lease.
    renewed(&dynamo, 4).await;
    signal(&child, Signal::STOP);
    renewed(&dynamo, 4).await;
    signal(&child, Signal::CONT);
    renewed(&dynamo, 1).await;
    std::fs::write(home.path().join("end"), "").expect("a file");
    let ended = finish(child).await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(6), ""), "{ended:?}");
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn a_wait_for_the_lock_ends_where_no_answer_to_anything_comes() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
    sidecar.signal(Signal::STOP);
    let mut command = run(&dynamo, &["--sidecar"], "echo ran");
    command.env("LEASEKEEPER_SOCKET", sidecar.socket());
    let asked = Instant::now();
    let ended = finish(start(command)).await;
    ended.assert_failed(69, &["no lock on k", "the sidecar does not answer", "is its process stopped?"]);
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    // Until its queue of connections is full.
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::net::UnixStream::connect(sidecar.socket()).await {
        waiting.push(stream);
        assert!(waiting.len() < 1_000);
    }
    let mut command = run(&dynamo, &["--sidecar"], "echo ran");
    command.env("LEASEKEEPER_SOCKET", sidecar.socket());
    let ended = finish(start(command)).await;
    ended.assert_failed(69, &["the sidecar does not answer", "is its process stopped?", "lock.sock"]);
    // A signal ends that wait too.
    let mut command = run(&dynamo, &["--sidecar"], "echo ran");
    command.env("LEASEKEEPER_SOCKET", sidecar.socket());
    let child = start(command);
    sleep(Duration::from_millis(500)).await;
    signal(&child, Signal::TERM);
    let ended = finish(child).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(128 + 15), ""), "{ended:?}");
}

#[tokio::test]
async fn what_a_sidecar_refuses_is_not_blamed_on_what_is_ours() {
    let dynamo = Dynamo::start().await;
    let through = |sidecar: &Sidecar| {
        let mut command = run(&dynamo, &["--sidecar", "--wait-ms", "0"], "echo ran");
        command.env("LEASEKEEPER_SOCKET", sidecar.socket());
        finish(start(command))
    };
    let assert_its_own = |ended: &Ended, code: i32, part: &str| {
        ended.assert_failed(code, &["no lock on k", part, "this is what the sidecar says", "its log"]);
        for ours in ["network", "--table", "aws sts"] {
            assert!(!ended.err.contains(ours), "{ours}: {ended:?}");
        }
    };
    let ending = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let mut holder = ending.connect().await;
    let held = holder.acquire("held", 20_000, 0).await.expect("a free key");
    ending.signal(Signal::TERM);
    ending.logged("INFO", "ending").await;
    assert_its_own(&through(&ending).await, 69, "is ending");
    holder.release(held.lease).await.expect("given back");
    let full = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let mut clients = Vec::new();
    while clients.len() < 256 {
        clients.push(full.connect().await);
    }
    // Each of them is in.
    clients[255].ask(serde_json::json!({"op": "hello"})).await.expect("there is room");
    assert_its_own(&through(&full).await, 69, "256 connections are open");
    let wrong = Sidecar::start(&dynamo, "sidecar", &[("LEASEKEEPER_LEASE_MS", "5")]).await;
    assert_its_own(&through(&wrong).await, 78, "LEASEKEEPER_LEASE_MS is \"5\"");
    let denied = Sidecar::start(&dynamo, "sidecar", &[]).await;
    dynamo.fail(Operation::PutItem, Fault::AccessDenied).always();
    assert_its_own(&through(&denied).await, 77, "AccessDeniedException");
}

#[tokio::test]
async fn a_wait_goes_on_for_as_long_as_the_sidecar_answers() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let mut holder = sidecar.connect().await;
    let held = holder.acquire("k", 20_000, 0).await.expect("a free key");
    let mut command = run(&dynamo, &["--sidecar"], "echo ran");
    command.env("LEASEKEEPER_SOCKET", sidecar.socket());
    let child = start(command);
    // Longer than a sidecar that is silent is waited for.
    sleep(Duration::from_millis(5_000)).await;
    holder.release(held.lease).await.expect("given back");
    let ended = finish(child).await;
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(0), "ran\n", ""), "{ended:?}");
}
