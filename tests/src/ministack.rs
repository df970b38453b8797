//! A second emulator of AWS, by other people: Ministack from PyPI.

use crate::programs::repository;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// A process of its own, killed when dropped.
#[derive(Debug)]
pub struct Ministack {
    endpoint: String,
    _child: Child,
    _home: TempDir,
}

impl Ministack {
    /// Starts it with these services, by their names and with commas between them.
    ///
    /// # Panics
    /// It cannot be installed, or does not start.
    pub async fn start(services: &str) -> Self {
        let made = Command::new(repository("scripts/python-venv"))
            .args(["ministack", "scripts/requirements-ministack.txt"])
            .current_dir(repository("."))
            .stderr(Stdio::inherit())
            .output()
            .await
            .expect("scripts/python-venv runs");
        assert!(made.status.success(), "scripts/python-venv ministack failed: {}", made.status);
        let venv = String::from_utf8(made.stdout).expect("a path is text");
        let port = {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            free.local_addr().expect("its address").port()
        };
        let home = TempDir::new().expect("a directory for its files");
        let mut child = Command::new(format!("{}/bin/python", venv.trim()))
            .args(["-m", "ministack"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env("BIND_HOST", "127.0.0.1")
            .env("MINISTACK_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("SERVICES", services)
            .env("LOG_LEVEL", "ERROR")
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the environment has a Python");
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert_eq!(child.try_wait().expect("a child of ours"), None, "ministack ended");
            assert!(Instant::now() < deadline, "ministack does not listen");
            sleep(Duration::from_millis(20)).await;
        }
        Self { endpoint: format!("http://127.0.0.1:{port}"), _child: child, _home: home }
    }

    /// Its URL, for all of its services.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}
