//! The lock socket's server: accepts connections, holds their limits, and passes requests on to the driver.

mod connection;
mod lines;
mod peer;
mod socket;

pub use socket::{BindError, Recheck, Socket};

use crate::driver::{ClientId, Command};
use leasekeeper_wire::{Code, Failure, Reply};
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

/// How long to wait when a connection cannot be accepted: no descriptors are left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What bounds the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. Each costs three of the environment's 1,024 descriptors: both ends and the watch of its
    /// process.
    pub connections: usize,
    /// Requests of one connection that are not answered yet; at the limit its lines stay unread.
    pub in_flight: usize,
    /// How long what is queued for a client that has closed its side may take to be written.
    pub flush: Duration,
    /// Users that may connect besides our own and root.
    pub peer_uids: Vec<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, in_flight: 64, flush: Duration::from_secs(1), peer_uids: Vec::new() }
    }
}

/// Serves `socket` until `shutdown` resolves. A socket that is not bound is served from the recheck on that binds it.
///
/// When it ends, or is dropped, every connection that is still open ends as [`Gone::Faulted`](crate::driver::Gone).
pub async fn run(
    mut socket: Socket,
    driver: UnboundedSender<Command>,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let recheck = socket.recheck();
    let mut connections = JoinSet::new();
    let mut last_client: ClientId = 0;
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            // Who has left is counted out before the next is let in, and who waits on the old listener is accepted before it is
            // replaced.
            biased;
            () = &mut shutdown => return,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection's task failed: its leases are given up");
                }
            }
            accepted = accept(&socket) => match accepted {
                Ok(stream) => {
                    last_client += 1;
                    admit(stream, last_client, &driver, &limits, &mut connections);
                }
                Err(error) => {
                    tracing::error!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
            () = recheck.asked() => match socket.rebind_if_missing() {
                Ok(false) => {}
                Ok(true) => tracing::warn!(path = %socket.path().display(), "the lock socket was missing and is bound anew"),
                Err(error) => tracing::error!(%error, "the lock socket is missing and cannot be bound"),
            },
        }
    }
}

async fn accept(socket: &Socket) -> io::Result<UnixStream> {
    match socket.listener() {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Starts the connection's task, or says in one line why not.
fn admit(
    stream: UnixStream,
    client: ClientId,
    driver: &UnboundedSender<Command>,
    limits: &Limits,
    connections: &mut JoinSet<()>,
) {
    let peer = match stream.peer_cred() {
        Ok(peer) => peer,
        Err(error) => return refuse(&stream, Code::Denied, format!("the peer's user cannot be read: {error}")),
    };
    let own = rustix::process::geteuid().as_raw();
    if peer.uid() != own && peer.uid() != 0 && !limits.peer_uids.contains(&peer.uid()) {
        let message = format!("user {} may not use this socket: LEASEKEEPER_PEER_UIDS does not list it", peer.uid());
        return refuse(&stream, Code::Denied, message);
    }
    if connections.len() >= limits.connections {
        let message = format!("{} connections are open, which is the limit", connections.len());
        return refuse(&stream, Code::Unavailable, message);
    }
    let watch = peer::Watch::new(peer.pid());
    connections.spawn(connection::serve(stream, watch, client, driver.clone(), limits.clone()));
}

fn refuse(stream: &UnixStream, code: Code, message: String) {
    tracing::warn!(%code, message, "a connection was refused");
    // A new socket's buffer takes one line; if not, the closing says enough.
    let _ = stream.try_write(Reply::error(None, Failure::new(code, message)).encode().as_bytes());
}
