//! The commands that people run, as real processes on the embedded DynamoDB.

mod bad_input;
mod break_row;
mod documented;
mod inspect;
mod list;
mod run;
mod run_ends;
mod run_group;
mod run_hung;
mod run_terminal;
mod table;
mod wrong;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Output, Stdio};
use std::time::Duration;
use testkit::dynamo::{COMMANDS, Dynamo};
use testkit::programs::built;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Longer than any command takes here.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command that has ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("it writes UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What it wrote as JSON.
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It did what was asked, and these are among its words.
    fn assert_done(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(0), "{self:?}");
        for part in parts {
            assert!(self.out.contains(part), "no {part:?} in {self:?}");
        }
    }

    /// It failed with this code, wrote nothing that a script could take for an answer, and said these words.
    fn assert_failed(&self, code: i32, parts: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{self:?}");
        assert!(self.err.starts_with("leasekeeper: "), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in {self:?}");
        }
    }
}

/// The command as a person on a laptop would run it: `client` is its name in the request log.
fn leasekeeper(dynamo: &Dynamo, client: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(built("leasekeeper"));
    command.args(arguments).env_clear().envs(dynamo.env_as(client)).env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs one of the commands that look at a table, or change it.
async fn perform(dynamo: &Dynamo, arguments: &[&str]) -> Ended {
    finish(leasekeeper(dynamo, COMMANDS, arguments).spawn().expect("the program starts")).await
}

async fn finish(child: Child) -> Ended {
    let output = timeout(PATIENCE, child.wait_with_output()).await.expect("it ends");
    Ended::of(output.expect("its output can be read"))
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it still runs");
    kill_process(pid, signal).expect("a child of ours can be signalled");
}
