//! `run`: what the command started ends before the lock goes to anybody else, and a second signal ends the giving back.

use crate::run::{begun, begun_by, made, run, scratch, start, state};
use crate::{finish, signal};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, SystemTime};
use testkit::dynamo::{Dynamo, Fault, Operation, Recorded, row};
use testkit::sidecar::Sidecar;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

/// Starts a child that no SIGTERM ends, and leaves at once when it gets one itself.
const LEADER: &str = r#"sh -c 'trap "" TERM; echo $$ > pid; while :; do sleep 0.01; done' & trap 'touch told; exit 3' TERM; while [ ! -s pid ]; do sleep 0.01; done; echo $$ > leader; touch begun; while :; do sleep 0.01; done"#;

/// Does the process whose number is in this file still work? One that nobody has waited for yet does not.
fn works(pid: &Path) -> bool {
    let pid = std::fs::read_to_string(pid).expect("it has told its number");
    state(&pid).is_some_and(|state| state != 'Z')
}

/// Until `run` has heard of the end of the process whose number is in this file.
async fn waited_for(pid: &Path) {
    let pid = std::fs::read_to_string(pid).expect("it has told its number");
    let until = Instant::now() + Duration::from_secs(10);
    while state(&pid).is_some() {
        assert!(Instant::now() < until, "it has not ended");
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn what_the_command_started_is_killed_too_where_the_lock_is_lost() {
    let dynamo = Dynamo::start().await;
    let (child, home) = begun(&dynamo, &["--lease-ms", "1500", "--kill-after-ms", "300"], LEADER).await;
    dynamo.put_raw(row("k", "another", "v", 30_000));
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(home.path().join("told").exists(), "it was asked first");
    assert!(!works(&home.path().join("pid")), "{ended:?}");
}

#[tokio::test]
async fn what_outlives_a_signal_that_ends_the_command_is_killed_before_the_lock_is_given_back() {
    let dynamo = Dynamo::start().await;
    let (child, home) = begun(&dynamo, &["--kill-after-ms", "400"], LEADER).await;
    signal(&child, Signal::TERM);
    made(&home.path().join("told")).await;
    let told = Instant::now();
    let deleted = |sent: &[Recorded]| sent.iter().any(|sent| sent.operation == Operation::DeleteItem);
    assert!(dynamo.until(Duration::from_secs(10), deleted).await, "the lock is given back");
    assert!(!works(&home.path().join("pid")), "it works on without the lock");
    assert!(told.elapsed() >= Duration::from_millis(300), "it got its time: {:?}", told.elapsed());
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(!ended.err.contains("leasekeeper: "), "{ended:?}");
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn what_outlives_such_a_signal_is_killed_at_once_where_the_lock_is_lost_meanwhile() {
    const LEASE: Duration = Duration::from_millis(1_500);
    let dynamo = Dynamo::start().await;
    let script = LEADER.replacen("sleep 0.01", ": > effect; sleep 0.01", 1);
    let (child, home) = begun(&dynamo, &["--lease-ms", "1500", "--kill-after-ms", "20000"], &script).await;
    signal(&child, Signal::TERM);
    made(&home.path().join("told")).await;
    dynamo.fail(Operation::Any, Fault::Unavailable).always();
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.err.contains("the lock k is lost (expired): the command is being stopped"), "{ended:?}");
    assert!(!works(&home.path().join("pid")), "{ended:?}");
    let committed = |sent: &Recorded| sent.answered.filter(|_| sent.status == Some(200));
    let last = dynamo.requests().iter().filter_map(committed).max().expect("it was acquired");
    // The file system noted when it last did anything; the front's clock is read beside the same one.
    let effect = std::fs::metadata(home.path().join("effect")).and_then(|file| file.modified()).expect("it worked");
    let worked_for = dynamo.elapsed() - SystemTime::now().duration_since(effect).expect("the past") - last;
    assert!(worked_for < LEASE, "it worked on for {worked_for:?} after the last write");
}

#[tokio::test]
async fn what_outlives_such_a_signal_is_killed_at_once_where_the_sidecar_dies_meanwhile() {
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let mut command = run(&dynamo, &["--sidecar", "--kill-after-ms", "20000"], LEADER);
    command.env("LEASEKEEPER_SOCKET", sidecar.socket());
    let (child, home) = begun_by(command).await;
    signal(&child, Signal::TERM);
    // Before that the loss finds the command itself, which is asked and has its time.
    waited_for(&home.path().join("leader")).await;
    sidecar.kill().await;
    let killed = Instant::now();
    let ended = finish(child).await;
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.err.contains("is lost (extension_failed)"), "{ended:?}");
    assert!(!works(&home.path().join("pid")), "{ended:?}");
}

#[tokio::test]
async fn what_the_command_leaves_behind_by_itself_is_not_waited_for() {
    let dynamo = Dynamo::start().await;
    let home = scratch();
    let mut command = run(
        &dynamo,
        &[],
        "sh -c 'echo $$ > pid; exec sleep 5' >/dev/null 2>&1 & while [ ! -s pid ]; do sleep 0.01; done; exit 2",
    );
    command.current_dir(home.path());
    let asked = Instant::now();
    let ended = finish(start(command)).await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(2), ""), "{ended:?}");
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    assert!(works(&home.path().join("pid")), "a command may leave a server running");
    assert_eq!(dynamo.item("k"), None);
}

/// Nothing is deleted, however often it is tried.
async fn giving_back_in_vain(first: Option<Signal>) -> (Dynamo, Child) {
    let dynamo = Dynamo::start().await;
    dynamo.fail(Operation::DeleteItem, Fault::Unavailable).always();
    let script = "touch begun; while [ ! -e end ]; do sleep 0.01; done; exit 4";
    let (child, home) = begun(&dynamo, &[], script).await;
    match first {
        Some(first) => signal(&child, first),
        None => std::fs::write(home.path().join("end"), "").expect("a file"),
    }
    let asked = |sent: &[Recorded]| sent.iter().any(|sent| sent.operation == Operation::DeleteItem);
    assert!(dynamo.until(Duration::from_secs(10), asked).await, "it is being given back");
    (dynamo, child)
}

#[tokio::test]
async fn a_second_signal_ends_the_giving_back_and_leaves_the_row_to_its_lease() {
    let (dynamo, child) = giving_back_in_vain(Some(Signal::TERM)).await;
    signal(&child, Signal::TERM);
    let again = Instant::now();
    let ended = finish(child).await;
    assert!(again.elapsed() < Duration::from_secs(2), "{:?}", again.elapsed());
    assert_eq!(ended.code, Some(128 + 15), "{ended:?}");
    assert!(ended.err.contains("its lock is not known to be given back: a second signal"), "{ended:?}");
    assert!(ended.err.contains("its row stands until its lease is over"), "{ended:?}");
    assert!(dynamo.item("k").is_some());
}

#[tokio::test]
async fn a_first_signal_while_it_gives_back_is_told_what_a_second_one_does() {
    let (dynamo, child) = giving_back_in_vain(None).await;
    signal(&child, Signal::INT);
    sleep(Duration::from_millis(300)).await;
    signal(&child, Signal::INT);
    let again = Instant::now();
    let ended = finish(child).await;
    assert!(again.elapsed() < Duration::from_secs(2), "{:?}", again.elapsed());
    assert_eq!(ended.code, Some(4), "the command's own: {ended:?}");
    assert!(ended.err.contains("another signal ends this at once"), "{ended:?}");
    assert!(dynamo.item("k").is_some());
}

#[tokio::test]
async fn a_second_signal_while_a_wait_is_being_ended_ends_that() {
    let dynamo = Dynamo::start().await;
    // Its Put may land: whether there is a row to delete is not known before it is answered.
    dynamo.fail(Operation::PutItem, Fault::DelayBefore(Duration::from_secs(20))).always();
    let child = start(run(&dynamo, &[], "echo ran"));
    assert!(dynamo.until(Duration::from_secs(10), |sent| !sent.is_empty()).await, "it asks");
    signal(&child, Signal::INT);
    sleep(Duration::from_millis(200)).await;
    signal(&child, Signal::INT);
    let again = Instant::now();
    let ended = finish(child).await;
    assert!(again.elapsed() < Duration::from_secs(1), "{:?}", again.elapsed());
    assert_eq!((ended.code, ended.out.as_str()), (Some(130), ""), "{ended:?}");
}

#[tokio::test]
async fn a_lock_in_no_table_names_none_to_the_command() {
    let dynamo = Dynamo::start().await;
    let script = r#"echo "${LEASEKEEPER_TABLE-none}""#;
    let mut own = run(&dynamo, &[], script);
    own.env("LEASEKEEPER_STORE", "memory").env_remove("LEASEKEEPER_TABLE");
    let ended = finish(start(own)).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "none\n"), "{ended:?}");
    let sidecar = Sidecar::start_with([("LEASEKEEPER_STORE", "memory".to_owned())]).await;
    // Ours is not the sidecar's.
    let mut asked = run(&dynamo, &["--sidecar"], script);
    asked.env("LEASEKEEPER_SOCKET", sidecar.socket());
    let ended = finish(start(asked)).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "none\n"), "{ended:?}");
}
