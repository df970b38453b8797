//! Who competes for a lock: an extension and a client of it, each a process of its own, or a pydynox worker.

use crate::history::Told;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::dynamo::Dynamo;
use testkit::moments::boot_us;
use testkit::programs::built;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// One environment: it can be stopped, killed and started anew in each of its parts.
pub(crate) struct Environment {
    /// Its name in the store's log.
    pub(crate) name: String,
    variables: Vec<(&'static str, String)>,
    home: TempDir,
    key: String,
    lease_ms: u64,
    extension: Child,
    client: Client,
    /// The clients that were killed.
    gone: Vec<Arc<Mutex<Told>>>,
    started: u64,
}

/// A running client process and what it tells.
struct Client {
    child: Child,
    told: Arc<Mutex<Told>>,
    reader: JoinHandle<()>,
}

impl Environment {
    pub(crate) async fn start(dynamo: &Dynamo, name: &str, key: &str, lease_ms: u64) -> Self {
        let home = TempDir::new().expect("a directory for the socket");
        let variables = dynamo.env_as(name);
        let extension = extension(&socket(home.path()), &variables).await;
        let client = Client::start(&socket(home.path()), &variables, key, lease_ms, &format!("{name}#0"), 0);
        let (name, key) = (name.to_owned(), key.to_owned());
        Self { name, variables, home, key, lease_ms, extension, client, gone: Vec::new(), started: 0 }
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.client.told.lock().expect("nobody panics with it")
    }

    /// What all its clients have told, one after the other.
    pub(crate) fn all_told(&self) -> impl Iterator<Item = MutexGuard<'_, Told>> {
        self.gone.iter().chain([&self.client.told]).map(|told| told.lock().expect("nobody panics with it"))
    }

    pub(crate) fn signal_client(&self, signal: Signal) {
        send(&self.client.child, signal);
    }

    pub(crate) fn signal_extension(&self, signal: Signal) {
        send(&self.extension, signal);
    }

    pub(crate) async fn kill_client(&mut self) {
        self.client.end().await;
    }

    pub(crate) async fn kill_extension(&mut self) {
        self.extension.kill().await.expect("a child of ours can be killed");
    }

    pub(crate) async fn start_extension(&mut self) {
        self.extension = extension(&socket(self.home.path()), &self.variables).await;
    }

    pub(crate) fn start_client(&mut self) {
        self.started += 1;
        let name = format!("{}#{}", self.name, self.started);
        let path = socket(self.home.path());
        let client = Client::start(&path, &self.variables, &self.key, self.lease_ms, &name, self.started);
        self.gone.push(std::mem::replace(&mut self.client, client).told);
    }

    /// Ends both; what the client has told stays.
    pub(crate) async fn end(&mut self) {
        self.kill_client().await;
        self.kill_extension().await;
    }
}

fn socket(home: &Path) -> PathBuf {
    home.join("leasekeeper/lock.sock")
}

async fn extension(socket: &Path, variables: &[(&'static str, String)]) -> Child {
    let child = Command::new(built("leasekeeper"))
        .env_clear()
        .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
        .env("LEASEKEEPER_SOCKET", socket)
        .env("LEASEKEEPER_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the extension starts");
    let until = Instant::now() + Duration::from_secs(30);
    while UnixStream::connect(socket).await.is_err() {
        assert!(Instant::now() < until, "the extension does not listen at {}", socket.display());
        sleep(Duration::from_millis(5)).await;
    }
    child
}

impl Client {
    fn start(
        socket: &Path,
        variables: &[(&'static str, String)],
        key: &str,
        lease_ms: u64,
        name: &str,
        seed: u64,
    ) -> Self {
        let mut child = Command::new(built("contender"))
            .arg(socket)
            .args([key, &lease_ms.to_string(), &seed.to_string()])
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the contender starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output is a pipe")).lines();
        let told = Arc::new(Mutex::new(Told::default()));
        let (name, into) = (name.to_owned(), told.clone());
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                into.lock().expect("nobody panics with it").line(&name, &line);
            }
        });
        Self { child, told, reader }
    }

    /// Kills it, and reads all that it has told.
    async fn end(&mut self) {
        self.child.start_kill().expect("a child of ours can be killed");
        // It runs no more once the signal is sent; to hear of its end may take longer than the next holder needs.
        let dead = boot_us();
        self.child.wait().await.expect("a child of ours can be waited for");
        (&mut self.reader).await.expect("reading does not panic");
        self.told.lock().expect("nobody panics with it").close(dead);
    }
}

fn send(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it still runs");
    kill_process(pid, signal).expect("a child of ours can be signalled");
}
