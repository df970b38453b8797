//! The other client of the lock protocol: pydynox in a Python process, driven line by line.

use crate::dynamo::{Dynamo, PYDYNOX};
use crate::programs::repository;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// Longer than any wait that a test asks for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Python process with pydynox, killed when dropped.
#[derive(Debug)]
pub struct Pydynox {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What pydynox raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The exception's class, such as `LockNotAcquired`.
    pub class: String,
    /// Its text.
    pub message: String,
}

impl Pydynox {
    /// Starts one that works on this DynamoDB's lock table.
    ///
    /// # Panics
    /// If Python or pydynox cannot be had: the message says what is missing.
    pub async fn start(dynamo: &Dynamo) -> Self {
        let mut child = Command::new(python().await.join("bin/python"))
            .arg(repository("tests/interop/pydynox_worker.py"))
            .envs(dynamo.env_as(PYDYNOX))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the environment has a Python");
        let commands = child.stdin.take().expect("standard input is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("standard output is a pipe")).lines();
        Self { child, commands, answers }
    }

    /// Acquires `key` under the name `guard`; `lease` and `wait` are in seconds, as pydynox has them. Tells the owner.
    pub async fn acquire(&mut self, guard: &str, key: &str, lease: f64, wait: f64) -> Result<String, Raised> {
        let condition =
            self.ask(json!({"op": "acquire", "guard": guard, "key": key, "lease": lease, "wait": wait})).await?;
        let owner = condition["expression_attribute_values"].as_object().and_then(|values| values.values().next());
        Ok(owner.and_then(Value::as_str).unwrap_or_else(|| panic!("no owner in {condition}")).to_owned())
    }

    /// Does the guard still believe that it holds the lock?
    pub async fn check(&mut self, guard: &str) -> Result<(), Raised> {
        self.ask(json!({"op": "check", "guard": guard})).await.map(drop)
    }

    /// Puts an item, in plain JSON, in a transaction that commits only under the guard.
    pub async fn transact(&mut self, guard: &str, table: &str, item: Value) -> Result<(), Raised> {
        self.ask(json!({"op": "transact", "guard": guard, "table": table, "item": item})).await.map(drop)
    }

    /// Gives the lock back.
    pub async fn release(&mut self, guard: &str) -> Result<(), Raised> {
        self.ask(json!({"op": "release", "guard": guard})).await.map(drop)
    }

    /// pydynox's own counters of the guard.
    pub async fn metrics(&mut self, guard: &str) -> Value {
        self.ask(json!({"op": "metrics", "guard": guard})).await.expect("a guard has metrics")
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a child of ours can be signalled");
    }

    /// The process, for who signals it while another one asks it.
    ///
    /// # Panics
    /// It has ended.
    pub fn pid(&self) -> Pid {
        self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it still runs")
    }

    /// Ends the process at once, its locks still held.
    pub async fn crash(mut self) {
        self.child.kill().await.expect("a child of ours can be killed");
    }

    async fn ask(&mut self, command: Value) -> Result<Value, Raised> {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.expect("the worker reads");
        let answer = timeout(PATIENCE, self.answers.next_line()).await.expect("the worker answers in time");
        let answer = answer.expect("the worker writes text").expect("the worker lives");
        let answer: Value = serde_json::from_str(&answer).expect("the worker writes JSON");
        match answer["error"].as_str() {
            Some(class) => {
                Err(Raised { class: class.to_owned(), message: answer["message"].as_str().unwrap_or("").to_owned() })
            }
            None => Ok(answer["ok"].clone()),
        }
    }
}

/// The virtual environment with pydynox, made at first use.
async fn python() -> PathBuf {
    let made = Command::new(repository("scripts/python-venv"))
        .args(["pydynox", "scripts/requirements-pydynox.txt"])
        .current_dir(repository("."))
        .stderr(Stdio::inherit())
        .output()
        .await
        .expect("scripts/python-venv runs");
    assert!(made.status.success(), "scripts/python-venv pydynox failed: {}", made.status);
    PathBuf::from(String::from_utf8(made.stdout).expect("a path is text").trim())
}
