//! What tells of a client's death where the kernel does not: each fallback forced, and none takes a hidden client for a dead one.

use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Stdio;
use testkit::dynamo::{Operation, Recorded};
use testkit::evidence::figure;
use testkit::programs::{node_path, python_path};
use testkit::sidecar::Sidecar;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const ROW: &str = "peer-unknown";

/// Short enough to be seen to be renewed, long enough for a busy machine.
const LEASE_MS: u64 = 1_200;

/// What a test allows for processes that wait for their turn on a busy machine with two processors.
const SCHEDULING: Duration = Duration::from_millis(50);

/// How often a process is looked at where the kernel does not tell of its end.
const LOOK: Duration = Duration::from_millis(100);

/// A client in a process of its own: `tests/functions/python/peer.py`.
struct Peer {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    asked: u64,
}

impl Peer {
    fn start() -> Self {
        let program = Program::python(repository("tests/functions/python/peer.py"));
        let mut command = Command::new(program.path());
        command.args(program.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("python3 runs");
        let orders = process.stdin.take().expect("piped above");
        let answers = BufReader::new(process.stdout.take().expect("piped above")).lines();
        Self { process, orders, answers, asked: 0 }
    }

    async fn order(&mut self, order: impl AsRef<str>) -> Value {
        self.orders.write_all(format!("{}\n", order.as_ref()).as_bytes()).await.expect("it reads its orders");
        let answer = tokio::time::timeout(Duration::from_secs(20), self.answers.next_line()).await;
        let line = answer.expect("it answers in time").expect("it can be read").expect("it lives");
        serde_json::from_str(&line).expect("it answers in JSON")
    }

    async fn connect(&mut self, socket: &Path) -> Value {
        self.order(format!("connect {}", socket.display())).await
    }

    /// Sends a request; the extension's answer.
    async fn ask(&mut self, mut request: Value) -> Value {
        self.asked += 1;
        (request["v"], request["id"]) = (1.into(), self.asked.into());
        self.order(format!("ask {request}")).await
    }

    /// Connects and acquires.
    async fn hold(sidecar: &Sidecar, key: &str) -> Self {
        let mut peer = Self::start();
        assert_eq!(peer.connect(sidecar.socket()).await, Value::Null);
        granted(&peer.ask(json!({"op": "acquire", "key": key, "lease_ms": LEASE_MS, "wait_ms": 0})).await);
        peer
    }

    /// Lets a child inherit the connection; its process id.
    async fn fork(&mut self) -> Pid {
        let child = self.order("fork").await.as_i64().expect("a process id");
        i32::try_from(child).ok().and_then(Pid::from_raw).expect("a process id")
    }

    fn pid(&self) -> Pid {
        let pid = self.process.id().expect("it still runs");
        Pid::from_raw(pid.cast_signed()).expect("a process id")
    }

    /// Kills it, and leaves it unreaped as a parent does that has not looked yet.
    fn kill(&self) {
        kill_process(self.pid(), Signal::KILL).expect("a child of ours can be killed");
    }
}

/// A program to run another one by, in which `pidfd_open` does not exist.
fn without_pidfd(around: Program) -> Program {
    around.arg(built("forbid")).arg("pidfd_open").arg("--")
}

async fn start(db: &Dynamo, around: Program, settings: &[(&'static str, &str)]) -> Sidecar {
    let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
    Sidecar::start_in(around, db.env().into_iter().chain(settings)).await
}

/// An extension that cannot see its clients' processes: their ids are 0 in its namespace.
async fn in_another_namespace(db: &Dynamo) -> Sidecar {
    let inside = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    start(db, inside.into_iter().fold(Program::new("unshare"), Program::arg), &[]).await
}

/// An extension without pidfds, and without anything in `/proc`.
async fn blind(db: &Dynamo) -> Sidecar {
    let hide = r#"mount -t tmpfs none /proc && exec "$@""#;
    let around = Program::new("unshare").arg("--mount").arg("sh").arg("-c").arg(hide).arg("sh");
    start(db, without_pidfd(around), &[]).await
}

/// When the key's row was deleted, by the store's clock.
async fn deleted(db: &Dynamo, key: &str) -> Duration {
    let delete = |log: &[Recorded]| {
        let of_key = log.iter().filter(|request| request.key.as_deref() == Some(key));
        let mut deletes = of_key.filter(|request| request.operation == Operation::DeleteItem);
        deletes.find(|request| request.status == Some(200)).and_then(|request| request.answered)
    };
    assert!(db.until(Duration::from_secs(5), |log| delete(log).is_some()).await, "the row {key} is still there");
    assert_eq!(db.item(key), None);
    delete(&db.requests()).expect("seen above")
}

/// The row stays and is renewed for longer than its lease.
async fn stays(db: &Dynamo, key: &str) {
    let version = |db: &Dynamo| db.item(key).expect("nobody may delete it")["version"].clone();
    let before = version(db);
    let end = Instant::now() + Duration::from_millis(LEASE_MS * 5 / 4);
    while Instant::now() < end {
        version(db);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_ne!(version(db), before, "a client that is not known to be dead keeps its lock");
}

#[tokio::test]
async fn without_pidfd_a_death_is_seen_in_proc_though_a_child_holds_the_connection_open() {
    let db = Dynamo::start().await;
    let sidecar = start(&db, without_pidfd(Program::new("env")), &[]).await;
    for round in 0..3 {
        let key = format!("k{round}");
        let mut peer = Peer::hold(&sidecar, &key).await;
        let child = peer.fork().await;
        tokio::time::sleep(Duration::from_millis(37 * round)).await;
        let killed = db.elapsed();
        peer.kill();
        let took = deleted(&db, &key).await - killed;
        kill_process(child, Signal::KILL).expect("the child lives, and with it the connection's other end");
        figure(ROW, "no pidfd, a child holds the connection: free after the death", format!("{} ms", took.as_millis()));
        assert!(took < LOOK + Duration::from_millis(50) + SCHEDULING, "{took:?}");
    }
    sidecar.logged("INFO", "its start time in /proc").await;
}

#[tokio::test]
async fn without_pidfd_a_client_that_vanishes_from_proc_is_not_dead() {
    let db = Dynamo::start().await;
    let sidecar = start(&db, without_pidfd(Program::new("unshare").arg("--mount")), &[]).await;
    let mut peer = Peer::hold(&sidecar, "k").await;
    sidecar.logged("INFO", "its start time in /proc").await;
    // In the extension's own mount namespace only.
    let (inside, hidden) = (sidecar.pid().to_string(), format!("/proc/{}", peer.pid().as_raw_nonzero()));
    let mounted = Command::new("nsenter").args(["-t", &inside, "-m", "mount", "-t", "tmpfs", "none", &hidden]).status();
    assert!(mounted.await.expect("nsenter (util-linux)").success());
    stays(&db, "k").await;
    assert!(peer.ask(json!({"op": "check", "lease": 1})).await["ok"].is_object());
    let child = peer.fork().await;
    peer.kill();
    // Unreaped it might live, as far as can be seen; with its number gone it is dead for certain.
    stays(&db, "k").await;
    let reaped = db.elapsed();
    peer.process.wait().await.expect("a child of ours can be waited for");
    let took = deleted(&db, "k").await.saturating_sub(reaped);
    kill_process(child, Signal::KILL).expect("the child lives, and with it the connection's other end");
    assert!(took < LOOK + Duration::from_millis(50) + SCHEDULING, "{took:?}");
}

/// What holds where the connection's end is all that tells.
async fn told_by_the_connection_alone(db: &Dynamo, sidecar: &Sidecar, what: &str) {
    let mut peer = Peer::hold(sidecar, "k").await;
    sidecar.logged("INFO", "its connection's end alone").await;
    kill_process(peer.pid(), Signal::STOP).expect("a child of ours can be stopped");
    stays(db, "k").await;
    kill_process(peer.pid(), Signal::CONT).expect("a child of ours can be continued");
    assert!(peer.ask(json!({"op": "check", "lease": 1})).await["ok"].is_object(), "held all the while");

    // Its death alone says nothing: the lease is that of whoever holds the connection's other end.
    let child = peer.fork().await;
    peer.kill();
    peer.process.wait().await.expect("a child of ours can be waited for");
    stays(db, "k").await;
    let closed = db.elapsed();
    kill_process(child, Signal::KILL).expect("the child lives");
    let took = deleted(db, "k").await - closed;
    figure(ROW, &format!("{what}: free after the connection's end"), format!("{} ms", took.as_millis()));
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn a_client_whose_process_id_is_0_is_gone_with_its_connection_and_never_before() {
    let db = Dynamo::start().await;
    let sidecar = in_another_namespace(&db).await;
    told_by_the_connection_alone(&db, &sidecar, "process id 0").await;
}

#[tokio::test]
async fn without_pidfd_and_proc_a_client_is_gone_with_its_connection_and_never_before() {
    let db = Dynamo::start().await;
    let sidecar = blind(&db).await;
    told_by_the_connection_alone(&db, &sidecar, "neither pidfd nor /proc").await;
}

/// Two users that own nothing here.
const LISTED: u32 = 65_533;
const STRANGER: u32 = 65_532;

fn world_may_enter(sidecar: &Sidecar) {
    let home = sidecar.socket().ancestors().nth(2).expect("the socket is two directories below");
    std::fs::set_permissions(home, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a directory of ours");
}

/// A client that has become this user.
async fn as_user(user: u32) -> Peer {
    let mut peer = Peer::start();
    peer.order(format!("user {user}")).await;
    peer
}

#[tokio::test]
async fn a_client_of_another_user_is_refused_by_the_setting_that_would_let_it_in() {
    let db = Dynamo::start().await;
    let sidecar = Sidecar::start(&db, "", &[("LEASEKEEPER_PEER_UIDS", &LISTED.to_string())]).await;
    world_may_enter(&sidecar);
    let request = || json!({"op": "acquire", "key": "k", "lease_ms": LEASE_MS, "wait_ms": 0});
    let mut stranger = as_user(STRANGER).await;
    assert_eq!(stranger.connect(sidecar.socket()).await, Value::Null);
    let refused = stranger.ask(request()).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!("config")), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("LEASEKEEPER_PEER_UIDS"), "{refused}");
    assert!(db.requests().is_empty(), "nothing was sent for it");

    let mut listed = as_user(LISTED).await;
    assert_eq!(listed.connect(sidecar.socket()).await, Value::Null);
    granted(&listed.ask(request()).await);
    let killed = db.elapsed();
    listed.kill();
    let took = deleted(&db, "k").await - killed;
    figure(ROW, "a listed user's client: free after the death", format!("{} ms", took.as_millis()));
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn by_default_no_other_user_gets_at_the_socket_and_the_clients_name_the_setting() {
    const PYTHON: &str = "
import os, sys, leasekeeper
os.setuid(65532)
try:
    leasekeeper.Lock('k', wait=0).acquire()
except leasekeeper.LockError as error:
    print(error.code, error)
";
    const NODE: &str = "
const { tryLock } = require('leasekeeper');
process.setuid(65532);
tryLock('k').catch((error) => console.log(error.code, error.message));
";
    let db = Dynamo::start().await;
    let sidecar = Sidecar::start(&db, "", &[]).await;
    world_may_enter(&sidecar);
    assert_eq!(as_user(STRANGER).await.connect(sidecar.socket()).await, json!({"refused": 13}));
    let python = Program::python("-c").arg(PYTHON);
    for client in [python, Program::new("node").arg("-e").arg(NODE)] {
        let mut command = Command::new(client.path());
        command.args(client.arguments()).env("LEASEKEEPER_SOCKET", sidecar.socket());
        command.env("PYTHONPATH", python_path()).env("NODE_PATH", node_path());
        let output = command.output().await.expect("python3 and node are on PATH");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("config ") && said.contains("LEASEKEEPER_PEER_UIDS"), "{output:?}");
    }
    assert!(db.requests().is_empty());
}
