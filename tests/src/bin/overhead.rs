//! What a lock costs beside DynamoDB's own time: acquire and release through a real extension with its memory store.
//!
//! `cargo build --workspace --bins && target/debug/overhead [EXTENSION]`; the figures that count are those of the layer's binary.

use leasekeeper::Locks;
use leasekeeper_wire::{Acquire, Op, Request};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::programs::built;

const CYCLES: usize = 5_000;

/// Ended with the program, whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let extension = std::env::args_os().nth(1).map_or_else(|| built("leasekeeper"), PathBuf::from);
    let home = tempfile::tempdir()?;
    let socket = home.path().join("leasekeeper/lock.sock");
    let mut command = Command::new(&extension);
    // The log costs more than the lock: LEASEKEEPER_LOG is passed on, to see by how much.
    let filter = std::env::var("LEASEKEEPER_LOG").unwrap_or_else(|_| "info".into());
    command
        .env_clear()
        .env("LEASEKEEPER_STORE", "memory")
        .env("LEASEKEEPER_SOCKET", &socket)
        .env("LEASEKEEPER_LOG", filter);
    let _running = Running(command.stdout(Stdio::null()).spawn()?);
    let end = Instant::now() + Duration::from_secs(5);
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < end, "{} does not listen", extension.display());
        std::thread::sleep(Duration::from_millis(5));
    }

    println!("{} acquires and releases each, extension {}", CYCLES, extension.display());
    report("raw lines, one connection", raw(&socket)?);
    report("helper crate, a connection for each lock", helper(&socket).await?);
    Ok(())
}

fn raw(socket: &Path) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut stream = UnixStream::connect(socket)?;
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    let mut ask = |op: Op| -> Result<serde_json::Value, Box<dyn Error>> {
        stream.write_all(Request { id: 1, op }.encode().as_bytes())?;
        line.clear();
        lines.read_line(&mut line)?;
        Ok(serde_json::from_str::<serde_json::Value>(&line)?["ok"].take())
    };
    let mut times = Vec::with_capacity(CYCLES);
    for cycle in 0..CYCLES {
        let begun = Instant::now();
        let granted = ask(Op::Acquire(Acquire { key: format!("k{cycle}"), ..Acquire::default() }))?;
        ask(Op::Release { lease: granted["lease"].as_u64().ok_or("no lease was granted")? })?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

async fn helper(socket: &Path) -> Result<Vec<Duration>, Box<dyn Error>> {
    let locks = Locks::at(socket);
    let mut times = Vec::with_capacity(CYCLES);
    for cycle in 0..CYCLES {
        let begun = Instant::now();
        locks.acquire(format!("h{cycle}")).await?.release().await?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros();
    println!("{what}: median {} µs, 99 % below {} µs", at(0.5), at(0.99));
}
