//! The lock socket's server: accepts connections, holds their limits, and passes requests on to the driver.

mod connection;
mod directory;
mod lines;
mod notices;
mod peer;
mod refusal;
mod socket;
mod taken;

pub use socket::{BindError, Recheck, Socket};

use crate::clock;
use crate::driver::{ClientId, Command};
use leasekeeper_wire::{Code, Failure};
use notices::Notices;
use refusal::Refusals;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{AbortHandle, JoinSet};

/// How long to wait when a connection cannot be accepted: no descriptors are left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Who empties a directory takes it away right after what was in it: a socket that is back before fails that.
const EMPTYING: Duration = Duration::from_millis(20);

/// What bounds the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. Each costs three of the environment's 1,024 descriptors: both ends and the watch of its
    /// process.
    pub connections: usize,
    /// Requests of one connection that are not answered yet; at the limit its lines stay unread.
    pub in_flight: usize,
    /// How long the end of a connection may take: writing what is queued for a client that has closed its side, or waiting
    /// for a refused one to close its own.
    pub flush: Duration,
    /// Refused connections that are still open; one more is closed at once, whether or not its client has read why. Each
    /// costs up to two descriptors.
    pub refused: usize,
    /// Users that may connect besides our own and root.
    pub peer_uids: Vec<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, in_flight: 64, flush: Duration::from_secs(1), refused: 32, peer_uids: Vec::new() }
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
    let mut refusals = Refusals::new(&limits);
    let mut notices = Notices::default();
    let mut last_client: ClientId = 0;
    let mut later: Option<AbortHandle> = None;
    let mut recheck_later = || {
        let before = later.replace(recheck.ask_in(EMPTYING));
        before.inspect(AbortHandle::abort);
    };
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            // Who has left is counted out before the next is let in, and who waits on the old listener is accepted before it is
            // replaced.
            biased;
            () = &mut shutdown => return,
            Some(ended) = connections.join_next() => {
                // Not every way in which the socket's name can end is watched.
                recheck_later();
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection's task failed: its leases are given up");
                }
            }
            accepted = accept(&socket) => match accepted {
                Ok(stream) => {
                    notices.accepted(clock::now());
                    last_client += 1;
                    match admit(&stream, &limits, connections.len()) {
                        Ok(watch) => {
                            notices.watched(&watch);
                            let served = connection::serve(stream, watch, last_client, driver.clone(), limits.clone());
                            connections.spawn(served);
                        }
                        Err(why) => refusals.refuse(stream, why),
                    }
                }
                Err(error) => {
                    notices.not_accepted(&error, clock::now());
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
            () = socket.taken() => recheck_later(),
            () = recheck.asked() => match socket.rebind_if_missing() {
                Ok(false) => {}
                Ok(true) => tracing::warn!(path = %socket.path().display(), "the lock socket was missing and has been created again"),
                Err(error) => tracing::error!(%error, "the lock socket is missing and cannot be created again"),
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

/// Who is at the other end; or why it is not served.
fn admit(stream: &UnixStream, limits: &Limits, open: usize) -> Result<peer::Watch, Failure> {
    let peer = stream
        .peer_cred()
        .map_err(|error| Failure::new(Code::Denied, format!("the peer's user cannot be read: {error}")))?;
    let own = rustix::process::geteuid().as_raw();
    if peer.uid() != own && peer.uid() != 0 && !limits.peer_uids.contains(&peer.uid()) {
        let message = format!("user {} may not use this socket: it is not listed in LEASEKEEPER_PEER_UIDS", peer.uid());
        return Err(Failure::new(Code::Config, message));
    }
    if open >= limits.connections {
        return Err(Failure::new(Code::Unavailable, format!("{open} connections are open, which is the limit")));
    }
    Ok(peer::Watch::new(peer.pid()))
}
