//! `run` on a terminal whose input is not the command's: `script`, which every Debian has, gives it one.

use crate::finish;
use crate::run::{made, scratch, start, stopped};
use std::process::Stdio;
use testkit::dynamo::Dynamo;
use testkit::programs::built;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A shell with job control, which goes on once the line is stopped, and later goes on with it.
const SHELL: &str =
    "set -m; echo piped | $RUN --key k -- sh work.sh; touch shell; while [ ! -e on ]; do sleep 0.01; done; fg";

/// Starts nothing itself: what is stopped on its way to another program would not let it stop.
const WORK: &str =
    r#"read line </dev/tty; echo "$line" > line; echo "$$ $PPID" > pids; : > begun; read line </dev/tty; exit 9"#;

#[tokio::test]
async fn with_piped_input_the_command_still_reads_from_the_terminal_and_ctrl_z_stops_both() {
    let dynamo = Dynamo::start().await;
    let home = scratch();
    let at = |name: &str| home.path().join(name);
    std::fs::write(at("shell.sh"), SHELL).expect("a file");
    std::fs::write(at("work.sh"), WORK).expect("a file");
    let mut command = Command::new("script");
    command.args(["-qec", "exec sh shell.sh", "/dev/null"]).env_clear().envs(dynamo.env_as("run"));
    command.env("PATH", "/usr/bin:/bin").env("RUN", format!("{} run", built("leasekeeper").display()));
    command.current_dir(home.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = start(command);
    let mut keyboard = child.stdin.take().expect("it is piped");
    keyboard.write_all(b"hello\n").await.expect("the terminal takes it");
    made(&at("begun")).await;
    assert_eq!(std::fs::read_to_string(at("line")).expect("a line"), "hello\n");
    keyboard.write_all(b"\x1a").await.expect("the terminal takes it");
    made(&at("shell")).await;
    for pid in std::fs::read_to_string(at("pids")).expect("they are told").split_whitespace() {
        stopped(pid).await;
    }
    std::fs::write(at("on"), "").expect("a file");
    keyboard.write_all(b"bye\n").await.expect("the terminal takes it");
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(9), "{ended:?}");
    assert_eq!(dynamo.item("k"), None);
}
