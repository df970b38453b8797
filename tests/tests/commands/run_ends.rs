//! `run`: signals, losses and deaths.

use crate::run::{begun, made, run, scratch, start, stopped};
use crate::{finish, signal};
use rustix::process::Signal;
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use testkit::dynamo::{Dynamo, Fault, Operation, Recorded, row};
use testkit::programs::built;
use testkit::sidecar::Sidecar;
use tokio::time::{Instant, sleep};

/// For ever, or until a signal.
const WORK: &str = "touch begun; while :; do sleep 0.01; done";

#[tokio::test]
async fn signals_are_passed_on_and_the_lock_is_held_until_the_command_has_ended() {
    for (sent, name, code) in [
        (Signal::TERM, "TERM", 3),
        (Signal::INT, "INT", 3),
        (Signal::HUP, "HUP", 3),
        (Signal::QUIT, "QUIT", 3),
        (Signal::USR1, "USR1", 3),
        (Signal::USR2, "USR2", 3),
    ] {
        let dynamo = Dynamo::start().await;
        let script = format!("trap 'touch got; while [ ! -e end ]; do sleep 0.01; done; exit {code}' {name}; {WORK}");
        let (child, home) = begun(&dynamo, &[], &script).await;
        signal(&child, sent);
        made(&home.path().join("got")).await;
        assert!(dynamo.item("k").is_some(), "{name}: the command still works");
        std::fs::write(home.path().join("end"), "").expect("a file");
        let ended = finish(child).await;
        assert_eq!(ended.code, Some(code), "{name}: {ended:?}");
        assert_eq!(dynamo.item("k"), None, "{name}");
    }
}

#[tokio::test]
async fn a_command_that_a_signal_ends_is_told_as_a_shell_does() {
    let dynamo = Dynamo::start().await;
    let (child, _home) = begun(&dynamo, &[], WORK).await;
    signal(&child, Signal::TERM);
    assert_eq!(finish(child).await.code, Some(128 + 15));
    assert_eq!(dynamo.item("k"), None);
    let ended = finish(start(run(&dynamo, &[], "kill -KILL $$"))).await;
    assert_eq!(ended.code, Some(128 + 9), "{ended:?}");
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn a_command_that_is_stopped_goes_on_to_hear_the_signal() {
    let dynamo = Dynamo::start().await;
    let script = "trap 'exit 3' TERM; echo $$ > pid; touch begun; kill -STOP $$; while :; do sleep 0.01; done";
    let (child, home) = begun(&dynamo, &[], script).await;
    stopped(&std::fs::read_to_string(home.path().join("pid")).expect("it has told its number")).await;
    signal(&child, Signal::TERM);
    assert_eq!(finish(child).await.code, Some(3));
    assert_eq!(dynamo.item("k"), None);
}

/// Then the kernel forgets children as they end, with their codes.
#[tokio::test]
async fn the_commands_code_is_kept_where_whoever_started_run_ignores_the_end_of_children() {
    let dynamo = Dynamo::start().await;
    // A shell catches that signal itself.
    let mut command = tokio::process::Command::new("env");
    command
        .arg("--ignore-signal=CHLD")
        .arg(built("leasekeeper"))
        .args(["run", "--key", "k", "--", "sh", "-c", "exit 5"]);
    command
        .env_clear()
        .envs(dynamo.env_as("run"))
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let ended = finish(start(command)).await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(5), ""), "{ended:?}");
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn a_signal_that_is_ignored_from_outside_stays_ignored() {
    let dynamo = Dynamo::start().await;
    let home = scratch();
    let mut command = tokio::process::Command::new("/bin/sh");
    let program = built("leasekeeper");
    let script = format!(
        "trap '' HUP; exec {} run --key k -- sh -c '{}'",
        program.display(),
        "touch begun; while [ ! -e end ]; do sleep 0.01; done; exit 5"
    );
    command.args(["-c", &script]).env_clear().envs(dynamo.env_as("run")).env("PATH", "/usr/bin:/bin");
    let child = command.current_dir(home.path()).stdin(Stdio::null()).kill_on_drop(true).spawn().expect("a shell");
    made(&home.path().join("begun")).await;
    signal(&child, Signal::HUP);
    // Were it handed on, it would end the command.
    sleep(Duration::from_millis(100)).await;
    std::fs::write(home.path().join("end"), "").expect("a file");
    assert_eq!(finish(child).await.code, Some(5));
}

#[tokio::test]
async fn a_command_whose_lock_is_lost_is_stopped_with_all_that_it_started() {
    let dynamo = Dynamo::start().await;
    // A child of the command's own, which would work on.
    let script = "(trap 'touch child; exit' TERM; while :; do sleep 0.01; done) & trap 'touch told; wait; exit 0' TERM; touch begun; wait";
    let (child, home) = begun(&dynamo, &["--lease-ms", "1500"], script).await;
    let thief = row("k", "another", "v", 30_000);
    dynamo.put_raw(thief.clone());
    let stolen = Instant::now();
    let ended = finish(child).await;
    // Renewed every 0.5 s.
    assert!(stolen.elapsed() < Duration::from_secs(3), "{:?}", stolen.elapsed());
    assert_eq!((ended.code, ended.out.as_str()), (Some(76), ""), "{ended:?}");
    for part in
        ["the lock k is lost (stolen): the command is being stopped", "another owner's row", "the command was stopped"]
    {
        assert!(ended.err.contains(part), "no {part:?} in {ended:?}");
    }
    for file in ["told", "child"] {
        made(&home.path().join(file)).await;
    }
    assert_eq!(dynamo.item("k"), Some(thief), "nothing of another's is touched");
}

#[tokio::test]
async fn a_command_that_does_not_stop_is_killed() {
    let dynamo = Dynamo::start().await;
    let script = "trap '' TERM; touch begun; while :; do sleep 0.01; done";
    let (child, _home) = begun(&dynamo, &["--lease-ms", "1500", "--kill-after-ms", "300"], script).await;
    dynamo.delete_raw("k");
    let deleted = Instant::now();
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.err.contains("is lost (deleted)"), "{ended:?}");
    assert!(deleted.elapsed() >= Duration::from_millis(300), "{:?}", deleted.elapsed());
}

#[tokio::test]
async fn a_command_is_told_to_stop_before_anybody_else_can_have_its_lock_where_no_renewal_gets_through() {
    let dynamo = Dynamo::start().await;
    let script = "trap 'touch told; exit' TERM; touch begun; while :; do sleep 0.01; done";
    let (child, home) = begun(&dynamo, &["--lease-ms", "3000"], script).await;
    dynamo.fail(Operation::Any, Fault::Unavailable).always();
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.err.contains("no renewal of the lock was confirmed for most of its lease"), "{ended:?}");
    let committed = |sent: &Recorded| sent.answered.filter(|_| sent.status == Some(200));
    let last = dynamo.requests().iter().filter_map(committed).max().expect("it was acquired");
    // The file system noted when the command heard of it; the front's clock is read beside the same one.
    let told = std::fs::metadata(home.path().join("told")).and_then(|file| file.modified()).expect("it was told");
    let since_told = SystemTime::now().duration_since(told).expect("the past");
    let told_after = dynamo.elapsed() - since_told - last;
    assert!(told_after < Duration::from_millis(3_000), "told {told_after:?} after the last write");
}

#[tokio::test]
async fn a_command_that_ended_while_it_was_stopped_for_longer_than_the_lease_is_no_success() {
    let dynamo = Dynamo::start().await;
    let script = "touch begun; while [ ! -e end ]; do sleep 0.01; done; touch ended";
    let (child, home) = begun(&dynamo, &["--lease-ms", "1500"], script).await;
    signal(&child, Signal::STOP);
    std::fs::write(home.path().join("end"), "").expect("a file");
    made(&home.path().join("ended")).await;
    sleep(Duration::from_millis(1_600)).await;
    signal(&child, Signal::CONT);
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.err.contains("the lock was lost"), "{ended:?}");
}

#[tokio::test]
async fn a_release_that_is_not_confirmed_keeps_the_commands_code_and_is_told() {
    let dynamo = Dynamo::start().await;
    dynamo.fail(Operation::DeleteItem, Fault::Unavailable).always();
    let ended = finish(start(run(&dynamo, &["--lease-ms", "1000"], "exit 4"))).await;
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.err.contains("its lock is not known to be given back"), "{ended:?}");
    assert!(dynamo.item("k").is_some());
}

#[tokio::test]
async fn if_it_is_killed_its_command_ends_and_its_row_runs_out() {
    let dynamo = Dynamo::start().await;
    let (mut child, home) =
        begun(&dynamo, &[], "trap 'touch told; exit' TERM; touch begun; while :; do sleep 0.01; done").await;
    child.kill().await.expect("a child of ours can be killed");
    made(&home.path().join("told")).await;
    assert!(dynamo.item("k").is_some(), "nobody deletes what a killed process held");
    assert_eq!(dynamo.count(Operation::DeleteItem), 0);
}

#[tokio::test]
async fn a_sidecar_that_dies_loses_the_lock_and_the_command_is_stopped() {
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let home = scratch();
    let mut command = run(&dynamo, &["--sidecar"], WORK);
    command.current_dir(home.path()).env("LEASEKEEPER_SOCKET", sidecar.socket());
    let child = start(command);
    made(&home.path().join("begun")).await;
    sidecar.kill().await;
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.err.contains("extension_failed"), "{ended:?}");
}

#[tokio::test]
async fn a_sidecars_end_that_does_not_wait_long_enough_stops_the_command() {
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "sidecar", &[("LEASEKEEPER_DRAIN_MS", "200")]).await;
    let home = scratch();
    let mut command = run(&dynamo, &["--sidecar"], WORK);
    command.current_dir(home.path()).env("LEASEKEEPER_SOCKET", sidecar.socket());
    let child = start(command);
    made(&home.path().join("begun")).await;
    sidecar.signal(Signal::TERM);
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(76), "{ended:?}");
    assert!(ended.err.contains("the sidecar is ending: the lock is renewed for 200 ms more"), "{ended:?}");
    assert!(ended.err.contains("is lost (shutdown)"), "{ended:?}");
    assert_eq!(sidecar.ended().await.code(), Some(0));
    assert_eq!(dynamo.item("k"), None, "it let go of the lock, so the row went at once");
}
