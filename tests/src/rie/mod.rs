//! AWS's own Lambda Runtime Interface Emulator, without Docker: the cross-check of what the sandbox believes Lambda does.
//!
//! It runs in a mount namespace of its own, so that `/opt/extensions` holds our extension for this emulator alone, and in a
//! process namespace, so that whatever it started ends with it. That takes root or CAP_SYS_ADMIN.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::programs::repository;
use crate::sandbox::Program;

/// Where `scripts/fetch-rie` puts the emulator; the version is pinned there.
const EMULATOR: &str = ".tools/aws-lambda-rie-1.170.0";

/// How long the emulator has until it listens.
const START_TIME: Duration = Duration::from_secs(10);

/// What goes on inside the namespaces: `$1` is the extension, `$2` the emulator, `$3` the runtime for Managed Instances or
/// nothing, the rest is the emulator's command line. Managed Instances take the runtime from `/opt/bootstrap`, start it in
/// `/var/task`, and run both processes as a user of their own, who may not see our directories.
const INSIDE: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs none /opt
mkdir /opt/extensions
cp "$1" /opt/extensions/
cp "$2" /opt/emulator
if [ -n "$3" ]; then
  cp "$3" /opt/bootstrap
  mount -t tmpfs none /var
  mkdir /var/task
fi
shift 3
exec /opt/emulator "$@"
"#;

/// One emulated function.
#[derive(Clone, Debug)]
pub struct RieConfig {
    /// The extension's binary: its file name is the name it must register with.
    pub extension: PathBuf,
    /// The runtime with its handler.
    pub runtime: Program,
    /// Where the runtime starts: Python's handlers are found from there.
    pub directory: PathBuf,
    /// The function's environment variables.
    pub env: Vec<(String, String)>,
    /// The function's time-out, in whole seconds.
    pub timeout_s: u32,
    /// Managed Instances: how many invocations at once. The runtime must then be a program without arguments that runs from anywhere.
    pub concurrency: Option<usize>,
}

/// What an invocation got.
#[derive(Clone, Debug)]
pub struct RieReply {
    /// The HTTP status: 200 also for function errors and time-outs, 502 for a crash.
    pub status: u16,
    /// The body as it came.
    pub body: String,
    /// From the request to its end.
    pub took: Duration,
}

/// A running emulator. Dropping it ends every process it started.
#[derive(Debug)]
pub struct Rie {
    child: Child,
    address: SocketAddr,
    log: watch::Sender<String>,
    /// Holds the socket; writable for whichever user the emulator gives its processes.
    tmp: TempDir,
}

impl Rie {
    /// Starts the emulator. Extension and runtime start inside the first invocation.
    ///
    /// # Errors
    /// The emulator was not fetched, namespaces are not permitted, or it does not listen: the error says which and what to do.
    pub async fn start(config: RieConfig) -> io::Result<Self> {
        let emulator = repository(EMULATOR);
        if !emulator.is_file() {
            return Err(io::Error::other(format!("{} is missing: run scripts/fetch-rie", emulator.display())));
        }
        let tmp = tempfile::Builder::new().prefix("rie-").tempdir()?;
        std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(0o1777))?;
        let (address, api) = (free_address()?, free_address()?);
        let bootstrap = config.concurrency.map_or(Path::new(""), |_| config.runtime.path());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["bash", "-c", INSIDE, "inside"]).arg(&config.extension).arg(&emulator).arg(bootstrap);
        command.args(["--runtime-interface-emulator-address", &address.to_string()]);
        command.args(["--runtime-api-address", &api.to_string()]);
        command.arg(config.runtime.path());
        command.args(config.runtime.arguments()).current_dir(&config.directory);
        command.env_clear().envs(Self::environment(&config, tmp.path()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn()?;
        let log = watch::Sender::new(String::new());
        follow(&log, child.stdout.take().expect("piped above"));
        follow(&log, child.stderr.take().expect("piped above"));
        let mut rie = Self { child, address, log, tmp };
        rie.listening().await?;
        Ok(rie)
    }

    fn environment(config: &RieConfig, tmp: &Path) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
        let mut all = vec![
            ("PATH".into(), path),
            ("TMPDIR".into(), tmp.display().to_string()),
            ("LEASEKEEPER_SOCKET".into(), tmp.join("leasekeeper/lock.sock").display().to_string()),
            ("AWS_LAMBDA_FUNCTION_TIMEOUT".into(), config.timeout_s.to_string()),
        ];
        if let Some(concurrency) = config.concurrency {
            all.push(("AWS_LAMBDA_MAX_CONCURRENCY".into(), concurrency.to_string()));
        }
        all.extend(config.env.iter().cloned());
        all
    }

    async fn listening(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                let hint = "starting it takes root, or CAP_SYS_ADMIN in a container, for `unshare --mount --pid`";
                return Err(io::Error::other(format!("the emulator ended with {status}; {hint}:\n{}", self.log())));
            }
            if begun.elapsed() > START_TIME {
                return Err(io::Error::other(format!("the emulator does not listen:\n{}", self.log())));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Invokes the function. The classic mode answers when the extension asks for its next event, too.
    ///
    /// # Errors
    /// The connection's.
    pub async fn invoke(&self, event: serde_json::Value) -> io::Result<RieReply> {
        let begun = Instant::now();
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        let request = Request::post("/2015-03-31/functions/function/invocations")
            .header("host", self.address.to_string())
            .body(Full::new(Bytes::from(event.to_string())))
            .map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        Ok(RieReply { status, body: String::from_utf8_lossy(&body).into_owned(), took: begun.elapsed() })
    }

    /// What the emulator, the extension and the function wrote so far.
    pub fn log(&self) -> String {
        self.log.borrow().clone()
    }

    /// Waits until the log contains `needle`.
    ///
    /// # Errors
    /// It did not within five seconds; the error carries the log.
    pub async fn wait_for_log(&self, needle: &str) -> io::Result<()> {
        let mut log = self.log.subscribe();
        let seen = log.wait_for(|text| text.contains(needle));
        let seen = tokio::time::timeout(Duration::from_secs(5), seen).await.is_ok();
        match seen {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no {needle:?} in:\n{}", self.log()))),
        }
    }

    /// The id, as this process sees it, of the process with this name among those that the emulator has started.
    pub fn process(&self, name: &str) -> Option<u32> {
        let all: Vec<_> =
            std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| relation(&entry.path())).collect();
        let mut family = vec![self.child.id()?];
        // A process is listed once, so each turn finds new ones or none.
        while let Some(more) = Some(children(&all, &family)).filter(|more| !more.is_empty()) {
            if let Some((pid, ..)) = all.iter().find(|(pid, _, named)| more.contains(pid) && named == name) {
                return Some(*pid);
            }
            family.extend(more);
        }
        None
    }

    /// The lock socket's path.
    pub fn socket(&self) -> PathBuf {
        self.tmp.path().join("leasekeeper/lock.sock")
    }
}

impl Drop for Rie {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the emulator at {}:\n{}", self.address, self.log());
        }
    }
}

/// Who is a child of these, and not among them yet.
fn children(all: &[(u32, u32, String)], family: &[u32]) -> Vec<u32> {
    let child =
        |(pid, parent, _): &(u32, u32, String)| (family.contains(parent) && !family.contains(pid)).then_some(*pid);
    all.iter().filter_map(child).collect()
}

/// A process's id, its parent's and its name, of its directory in /proc.
fn relation(process: &Path) -> Option<(u32, u32, String)> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    let (head, rest) = stat.rsplit_once(") ")?;
    let (pid, name) = head.split_once(" (")?;
    Some((pid.parse().ok()?, rest.split(' ').nth(1)?.parse().ok()?, name.to_owned()))
}

/// An address that was free a moment ago: the emulator takes no port 0.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

fn follow(log: &watch::Sender<String>, stream: impl AsyncRead + Unpin + Send + 'static) {
    let log = log.clone();
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            log.send_modify(|text| {
                text.push_str(&line);
                text.push('\n');
            });
        }
    });
}
