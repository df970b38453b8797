//! `run`: a command under a lock.

use crate::{Ended, finish, leasekeeper, signal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use testkit::dynamo::{Dynamo, Operation, Recorded, row};
use testkit::programs::built;
use testkit::sidecar::Sidecar;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// `run --key k` with these options, and a shell that runs `script`.
pub(crate) fn run(dynamo: &Dynamo, options: &[&str], script: &str) -> Command {
    let line = [&["run", "--key", "k"], options, &["--", "sh", "-c", script]].concat();
    leasekeeper(dynamo, "run", &line)
}

pub(crate) fn start(mut command: Command) -> Child {
    command.spawn().expect("the program starts")
}

/// Starts `script` under the lock, in a directory of its own, and waits until it has made the file `begun`.
pub(crate) async fn begun(dynamo: &Dynamo, options: &[&str], script: &str) -> (Child, TempDir) {
    begun_by(run(dynamo, options, script)).await
}

/// The same with a command line that is ready.
pub(crate) async fn begun_by(mut command: Command) -> (Child, TempDir) {
    let home = scratch();
    command.current_dir(home.path());
    let child = start(command);
    made(&home.path().join("begun")).await;
    (child, home)
}

/// Waits until the command under the lock has made this file.
pub(crate) async fn made(path: &Path) {
    let end = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < end, "{} was not made", path.display());
        sleep(Duration::from_millis(2)).await;
    }
}

/// The state of the process whose number this is, as the kernel has it; none once it has gone.
pub(crate) fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Waits until that process has been stopped.
pub(crate) async fn stopped(pid: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    while state(pid) != Some('T') {
        assert!(Instant::now() < end, "{pid} is {:?}", state(pid));
        sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

#[tokio::test]
async fn a_command_runs_under_its_lock_and_its_words_and_its_code_are_kept() {
    let dynamo = Dynamo::start().await;
    let home = scratch();
    let script = r#"echo "$LEASEKEEPER_KEY $LEASEKEEPER_TABLE $LEASEKEEPER_OWNER"; echo to err >&2; touch begun; while [ ! -e end ]; do sleep 0.01; done; exit 7"#;
    let mut command = run(&dynamo, &["--lease-ms", "1500"], script);
    let child = start({
        command.current_dir(home.path());
        command
    });
    made(&home.path().join("begun")).await;
    let held = dynamo.item("k").expect("it is held");
    let process = format!(", process {}", child.id().expect("it runs"));
    assert!(held["host"]["S"].as_str().is_some_and(|host| host.ends_with(&process)), "{held}");
    // Renewed for longer than its lease.
    let renewals = |sent: &[Recorded]| sent.iter().filter(|sent| sent.operation == Operation::UpdateItem).count();
    assert!(dynamo.until(Duration::from_secs(10), |sent| renewals(sent) > 3).await);
    assert_eq!(dynamo.item("k").expect("it is still held")["owner"], held["owner"]);
    std::fs::write(home.path().join("end"), "").expect("a file");
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert_eq!(ended.out, format!("k locks {}\n", held["owner"]["S"].as_str().expect("a text")));
    assert_eq!(ended.err, "to err\n");
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn where_the_lock_is_held_the_command_does_not_run_and_the_holder_is_named() {
    let dynamo = Dynamo::start().await;
    let mut held = row("k", "o", "v", 30_000);
    held["function"] = json!({"S": "import"});
    dynamo.put_raw(held.clone());
    for wait in ["0", "150"] {
        let asked = Instant::now();
        let busy = finish(start(run(&dynamo, &["--wait-ms", wait], "echo ran"))).await;
        busy.assert_failed(75, &["no lock on k, so the command was not run", "held by function import, owner o"]);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    }
    assert_eq!(dynamo.item("k"), Some(held));
}

#[tokio::test]
async fn another_librarys_row_is_no_lock_and_the_command_does_not_run() {
    let dynamo = Dynamo::start().await;
    let item = json!({"key": {"S": "k"}, "leaseDuration": {"S": "20000"}});
    dynamo.put_raw(item.clone());
    let foreign = finish(start(run(&dynamo, &[], "echo ran"))).await;
    foreign.assert_failed(65, &["no lock on k", "not a lock of protocol version 1"]);
    assert_eq!(dynamo.item("k"), Some(item));
}

#[tokio::test]
async fn commands_of_one_key_run_one_after_the_other() {
    let dynamo = Dynamo::start().await;
    let home = scratch();
    // A second one inside would find the directory there.
    let script = "mkdir inside && sleep 0.1 && rmdir inside && echo done";
    let mut children = Vec::new();
    for _ in 0..4 {
        let mut command = run(&dynamo, &["--wait-ms", "20000"], script);
        command.current_dir(home.path());
        children.push(start(command));
    }
    for child in children {
        let Ended { code, out, err } = finish(child).await;
        assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "done\n", ""));
    }
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn a_sidecar_holds_the_lock_where_that_is_asked_for() {
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "sidecar", &[]).await;
    let through_it = |options: &[&str], script: &str| {
        let mut command = run(&dynamo, &[&["--sidecar"], options].concat(), script);
        command.env_remove("LEASEKEEPER_TABLE").env("LEASEKEEPER_SOCKET", sidecar.socket());
        start(command)
    };
    let mut ping = leasekeeper(&dynamo, "run", &["ping"]);
    ping.env("LEASEKEEPER_SOCKET", sidecar.socket());
    assert_eq!(finish(start(ping)).await.code, Some(0));
    let ended = finish(through_it(&[], r#"echo "$LEASEKEEPER_TABLE $LEASEKEEPER_OWNER"; exit 3"#)).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let put = dynamo.requests().into_iter().find(|sent| sent.operation == Operation::PutItem).expect("it was acquired");
    assert_eq!(put.client, "sidecar");
    assert_eq!(ended.out, format!("locks {}\n", put.body["Item"]["owner"]["S"].as_str().expect("a text")));
    assert_eq!(dynamo.item("k"), None);

    // A sidecar that ends waits for it.
    let home = scratch();
    let script = format!("cd {}; touch begun; while [ ! -e end ]; do sleep 0.01; done", home.path().display());
    let child = through_it(&[], &script);
    made(&home.path().join("begun")).await;
    sidecar.signal(Signal::TERM);
    sidecar.logged("INFO", "ending").await;
    std::fs::write(home.path().join("end"), "").expect("a file");
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(sidecar.ended().await.code(), Some(0));
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn a_command_that_cannot_be_run_gives_the_lock_back() {
    let dynamo = Dynamo::start().await;
    let home = scratch();
    let plain = home.path().join("plain");
    std::fs::write(&plain, "no program").expect("a file");
    for (program, code, part) in
        [("no-such-program", 127, "No such file"), (plain.to_str().expect("a path"), 126, "Permission denied")]
    {
        let child = start(leasekeeper(&dynamo, "run", &["run", "--key", "k", "--", program]));
        finish(child).await.assert_failed(code, &["cannot be run", part]);
        assert_eq!(dynamo.item("k"), None);
    }
}

#[tokio::test]
async fn a_signal_while_it_waits_ends_the_wait_and_leaves_no_row() {
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("k", "o", "v", 30_000));
    let child = start(run(&dynamo, &["--wait-ms", "60000"], "echo ran"));
    assert!(dynamo.until(Duration::from_secs(10), |sent| sent.len() > 2).await, "it waits");
    signal(&child, Signal::INT);
    let ended = finish(child).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(130), ""), "{ended:?}");
    assert_eq!(dynamo.item("k"), Some(row("k", "o", "v", 30_000)));
}

/// `script`, which every Debian has, gives it a terminal.
#[tokio::test]
async fn on_a_terminal_the_command_reads_from_it_and_hears_of_ctrl_c_from_it_alone() {
    let dynamo = Dynamo::start().await;
    let home = scratch();
    let lines = "trap 'touch int' INT; echo $PPID > parent; read line; echo \"$line\" > line; while [ ! -e end ]; do sleep 0.01; done; exit 9";
    std::fs::write(home.path().join("lines.sh"), lines).expect("a file");
    let run = format!("exec {} run --key k -- sh lines.sh", built("leasekeeper").display());
    let mut command = Command::new("script");
    command.args(["-qec", &run, "/dev/null"]).env_clear().envs(dynamo.env_as("run")).env("PATH", "/usr/bin:/bin");
    command.current_dir(home.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = start(command);
    let mut keyboard = child.stdin.take().expect("it is piped");
    keyboard.write_all(b"hello\n").await.expect("the terminal takes it");
    made(&home.path().join("line")).await;
    assert_eq!(std::fs::read_to_string(home.path().join("line")).expect("a line"), "hello\n");
    // Ctrl-C goes to both of us: handed on as well, the command would hear of it twice.
    let parent = std::fs::read_to_string(home.path().join("parent")).expect("a line");
    let run = Pid::from_raw(parent.trim().parse().expect("a number")).expect("a process");
    kill_process(run, Signal::INT).expect("it can be signalled");
    sleep(Duration::from_millis(100)).await;
    assert!(!home.path().join("int").exists(), "a signal to us alone is not handed on");
    keyboard.write_all(b"\x03").await.expect("the terminal takes it");
    made(&home.path().join("int")).await;
    assert!(dynamo.item("k").is_some(), "the command still works");
    std::fs::write(home.path().join("end"), "").expect("a file");
    assert_eq!(finish(child).await.code, Some(9));
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn a_store_in_memory_is_said_to_exclude_nobody() {
    let dynamo = Dynamo::start().await;
    let mut command = run(&dynamo, &[], "echo ran");
    command.env("LEASEKEEPER_STORE", "memory");
    let ended = finish(start(command)).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{ended:?}");
    assert!(ended.err.contains("no other process is excluded"), "{ended:?}");
    assert!(dynamo.requests().is_empty());
}

#[tokio::test]
async fn what_is_logged_goes_beside_the_commands_own_output_and_only_if_asked_for() {
    let dynamo = Dynamo::start().await;
    let mut command = run(&dynamo, &[], "echo ran");
    command.env("LEASEKEEPER_LOG", "info");
    let ended = finish(start(command)).await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{ended:?}");
    assert!(ended.err.contains("granted") && ended.err.contains("released"), "{ended:?}");
}
