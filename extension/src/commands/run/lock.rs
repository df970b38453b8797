//! One lock, held by this process itself or through a sidecar: the same lines either way.

use crate::commands::problem::{Kind, Problem};
use crate::driver::{self, ClientId, Command, Gone, Surroundings};
use crate::outbox::{Outgoing, outbox};
use crate::settings::{Settings, StoreKind};
use crate::store::{DynamoStore, MemoryStore};
use leasekeeper_wire::{Acquire, Code, EventKind, Failure, Granted, LostReason, Op, Request, ServerLine};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A driver of our own has one client.
const CLIENT: ClientId = 1;

/// Giving back is tried for ten seconds at most, so its answer comes within that.
const RELEASE: Duration = Duration::from_secs(12);

/// What is left to be deleted without anybody waiting for it gets this long before the process ends.
const LEAVE: Duration = Duration::from_secs(3);

/// What happened to the lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Lost(LostReason),
    /// No renewal was confirmed for most of the lease.
    Danger,
    Recovered,
    /// The sidecar was asked to end, and renews for no longer than this many milliseconds.
    Ending(u64),
}

/// How giving back ended.
#[derive(Debug)]
pub(super) enum Released {
    Confirmed,
    /// The row may stand until its lease is over.
    Unconfirmed(String),
    /// It was lost before.
    Lost(Failure),
}

/// At most one lock.
pub(super) struct Lock {
    channel: Channel,
    last_id: u64,
    lease: Option<u64>,
}

enum Channel {
    Own { driver: UnboundedSender<Command>, outgoing: Outgoing },
    Sidecar { lines: Lines<BufReader<OwnedReadHalf>>, write: OwnedWriteHalf },
}

impl Lock {
    /// Held by this process. Must be called inside the runtime.
    pub(super) fn own(settings: Settings, surroundings: Surroundings, store: DynamoStore) -> Self {
        let driver = match settings.store {
            StoreKind::DynamoDb => driver::start(Ok(settings), surroundings, store),
            StoreKind::Memory => driver::start(Ok(settings), surroundings, MemoryStore::new()),
        };
        let (outbox, outgoing) = outbox();
        // A driver that has failed is noticed where it does not answer.
        let _ = driver.send(Command::Open { client: CLIENT, outbox });
        Self::on(Channel::Own { driver, outgoing })
    }

    /// Asked of the sidecar on this socket.
    pub(super) async fn sidecar(path: &Path) -> Result<Self, Problem> {
        let stream = UnixStream::connect(path).await.map_err(|error| {
            let path = path.display();
            match error.kind() {
                std::io::ErrorKind::PermissionDenied => Problem::new(
                    Kind::Config,
                    format!(
                        "this user may not use the socket {path} ({error}): list its id in the sidecar's LEASEKEEPER_PEER_UIDS"
                    ),
                ),
                _ => Problem::new(
                    Kind::Unavailable,
                    format!("no sidecar answers on the socket {path} ({error}): start `leasekeeper serve`, or set LEASEKEEPER_SOCKET"),
                ),
            }
        })?;
        let (read, write) = stream.into_split();
        Ok(Self::on(Channel::Sidecar { lines: BufReader::new(read).lines(), write }))
    }

    fn on(channel: Channel) -> Self {
        Self { channel, last_id: 0, lease: None }
    }

    /// Waits for the lock.
    pub(super) async fn acquire(&mut self, acquire: Acquire) -> Result<Granted, Failure> {
        let answer = self.ask(Op::Acquire(acquire)).await?;
        let granted = serde_json::from_value::<Granted>(answer);
        let granted =
            granted.map_err(|error| Failure::new(Code::Protocol, format!("the grant cannot be read: {error}")))?;
        self.lease = Some(granted.lease);
        Ok(granted)
    }

    /// The next thing that happens to the lock. May be dropped and asked again.
    pub(super) async fn told(&mut self) -> Told {
        loop {
            match self.channel.next().await {
                None => return Told::Lost(LostReason::ExtensionFailed),
                Some(ServerLine::Event(event)) if Some(event.lease) == self.lease => match event.kind {
                    EventKind::Lost { reason } => return Told::Lost(reason),
                    EventKind::Danger => return Told::Danger,
                    EventKind::Recovered => return Told::Recovered,
                    EventKind::Ending { within_ms } => return Told::Ending(within_ms),
                    _ => {}
                },
                Some(_) => {}
            }
        }
    }

    /// Gives the lock back, and waits until that is confirmed.
    pub(super) async fn release(&mut self) -> Released {
        let Some(lease) = self.lease.take() else { return Released::Confirmed };
        match timeout(RELEASE, self.ask(Op::Release { lease })).await {
            Ok(Ok(_)) => Released::Confirmed,
            Ok(Err(failure)) if failure.code == Code::Lost => Released::Lost(failure),
            Ok(Err(failure)) => Released::Unconfirmed(failure.message),
            Err(_) => Released::Unconfirmed("no answer came in time".into()),
        }
    }

    /// Ends; what may be left in the table is deleted, as far as that goes quickly.
    pub(super) async fn leave(self) {
        // A sidecar sees the connection's end.
        let Channel::Own { driver, outgoing: _outgoing } = self.channel else { return };
        let (done, told) = oneshot::channel();
        let _ = driver.send(Command::Close { client: CLIENT, how: Gone::Closed });
        let _ = driver.send(Command::Shutdown { done });
        // Late or failed: what stands is freed by its lease's end.
        let _ = timeout(LEAVE, told).await;
    }

    async fn ask(&mut self, op: Op) -> Result<serde_json::Value, Failure> {
        self.last_id += 1;
        let id = self.last_id;
        self.channel.send(Request { id, op }).await;
        loop {
            match self.channel.next().await {
                Some(ServerLine::Reply { id: answered, answer }) if answered.is_none_or(|answered| answered == id) => {
                    return answer;
                }
                Some(_) => {}
                None => return Err(self.channel.gone()),
            }
        }
    }
}

impl Channel {
    async fn send(&mut self, request: Request) {
        match self {
            // Either one's end is seen where the answer is waited for.
            Self::Own { driver, .. } => {
                let _ = driver.send(Command::Request { client: CLIENT, id: request.id, op: request.op });
            }
            Self::Sidecar { write, .. } => {
                let _ = write.write_all(request.encode().as_bytes()).await;
            }
        }
    }

    /// The next line; `None` at the end, which a line that cannot be read is too.
    async fn next(&mut self) -> Option<ServerLine> {
        let line = match self {
            Self::Own { outgoing, .. } => outgoing.next().await?,
            Self::Sidecar { lines, .. } => lines.next_line().await.ok()??,
        };
        ServerLine::decode(line.as_bytes()).ok()
    }

    fn gone(&self) -> Failure {
        match self {
            Self::Own { .. } => Failure::new(Code::Unknown, "the lock driver of this process has failed"),
            Self::Sidecar { .. } => {
                Failure::new(Code::Unavailable, "the sidecar has gone without an answer: see its log")
            }
        }
    }
}
