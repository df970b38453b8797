//! One lock, held by this process itself or through a sidecar: the same lines either way.

use super::validity::{Step, Validity};
use crate::commands::problem::{Kind, Problem};
use crate::driver::{self, ClientId, Command, Gone, Surroundings};
use crate::outbox::{Outgoing, outbox};
use crate::settings::{Settings, StoreKind};
use crate::store::{DynamoStore, MemoryStore};
use leasekeeper_wire::{Acquire, Checked, Code, EventKind, Failure, Granted, LostReason, Op, Request, ServerLine};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// A driver of our own has one client.
const CLIENT: ClientId = 1;

/// Giving back is tried for ten seconds at most, so its answer comes within that.
const RELEASE: Duration = Duration::from_secs(12);

/// A sidecar that has stopped answering gets this long: it gives back what a closed connection held, too, once it goes on.
const RELEASE_IN_SILENCE: Duration = Duration::from_secs(1);

/// So much silence makes one ask whether there is anybody, and as much again tells that there is not.
const SILENCE: Duration = Duration::from_secs(2);

pub(super) const SILENT: &str = "the sidecar does not answer: is its process stopped?";

/// How often a connect is tried again while the sidecar's queue of connections is full.
const AGAIN: Duration = Duration::from_millis(10);

/// What is left to be deleted without anybody waiting for it gets this long before the process ends.
const LEAVE: Duration = Duration::from_secs(3);

/// What happened to the lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Lost(LostReason),
    /// It counts as lost: the sidecar has not answered for as long as it was good.
    Silent,
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
    /// It was lost before: the whole sentence.
    Lost(String),
}

/// At most one lock.
pub(super) struct Lock {
    channel: Channel,
    last_id: u64,
    lease: Option<u64>,
    /// A sidecar can stop and tell nobody. A driver of our own stops only with us.
    validity: Option<Validity>,
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
        let connecting = async {
            loop {
                match UnixStream::connect(path).await {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(AGAIN).await,
                    other => return other,
                }
            }
        };
        // It has as long as it has for an answer.
        let connected = timeout(2 * SILENCE, connecting).await;
        let connected =
            connected.map_err(|_| Problem::new(Kind::Unavailable, format!("{SILENT} ({})", path.display())))?;
        let stream = connected.map_err(|error| {
            let path = path.display();
            match error.kind() {
                ErrorKind::PermissionDenied => Problem::new(
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
        Self { channel, last_id: 0, lease: None, validity: None }
    }

    /// Waits for the lock.
    pub(super) async fn acquire(&mut self, acquire: Acquire) -> Result<Granted, Failure> {
        let validity = Validity::start();
        let answer = self.ask(Op::Acquire(acquire)).await??;
        let granted = serde_json::from_value::<Granted>(answer);
        let granted =
            granted.map_err(|error| Failure::new(Code::Protocol, format!("the grant cannot be read: {error}")))?;
        self.lease = Some(granted.lease);
        if let Channel::Sidecar { .. } = self.channel {
            self.validity = Some(validity.granted(&granted));
        }
        Ok(granted)
    }

    /// The next thing that happens to the lock. May be dropped and asked again.
    pub(super) async fn told(&mut self) -> Told {
        loop {
            let pause = self.validity.as_mut().map(Validity::pause);
            let told = tokio::select! {
                // What has come first: after a stop of our own it may tell that the lock is still good.
                biased;
                line = self.channel.next() => match line {
                    None => Some(Told::Lost(LostReason::ExtensionFailed)),
                    Some(line) => self.heard(line),
                },
                () = sleep(pause.unwrap_or(Duration::MAX)), if pause.is_some() => {
                    match self.validity.as_mut().map(Validity::step) {
                        Some(Step::Ask) => self.check(),
                        Some(Step::Over) => Some(Told::Lost(LostReason::Expired)),
                        Some(Step::Silent) => Some(Told::Silent),
                        Some(Step::Wait) | None => None,
                    }
                }
            };
            if let Some(told) = told {
                return told;
            }
        }
    }

    fn heard(&mut self, line: ServerLine) -> Option<Told> {
        match line {
            ServerLine::Event(event) if Some(event.lease) == self.lease => match event.kind {
                EventKind::Lost { reason } => Some(Told::Lost(reason)),
                EventKind::Danger => Some(Told::Danger),
                EventKind::Recovered => Some(Told::Recovered),
                EventKind::Ending { within_ms } => Some(Told::Ending(within_ms)),
                // It says nothing of for how long.
                EventKind::Renewed if self.validity.as_ref().is_some_and(|validity| !validity.is_asked()) => {
                    self.check()
                }
                _ => None,
            },
            ServerLine::Reply { id: Some(id), answer } => {
                let validity = self.validity.as_mut()?;
                match answer.map(serde_json::from_value::<Checked>) {
                    Ok(Ok(checked)) => {
                        validity.checked(id, &checked);
                        None
                    }
                    Ok(Err(_)) => Some(Told::Lost(LostReason::ExtensionFailed)),
                    Err(failure) => Some(Told::Lost(failure.reason.unwrap_or(LostReason::ExtensionFailed))),
                }
            }
            _ => None,
        }
    }

    /// Asks for how long the lock is good.
    fn check(&mut self) -> Option<Told> {
        let (Some(lease), Some(validity)) = (self.lease, self.validity.as_mut()) else { return None };
        self.last_id += 1;
        let request = Request { id: self.last_id, op: Op::Check { lease } }.encode();
        validity.asks(self.last_id);
        // Nothing else is under way, so there is room for it: else the connection is of no use any more.
        (!self.channel.send_now(request.as_bytes())).then_some(Told::Lost(LostReason::ExtensionFailed))
    }

    /// Gives the lock back, and waits until that is confirmed.
    pub(super) async fn release(&mut self) -> Released {
        let Some(lease) = self.lease.take() else { return Released::Confirmed };
        let mut validity = self.validity.take();
        let step = validity.as_mut().map(Validity::step);
        let over = validity.is_some_and(|validity| validity.is_over());
        let patience = if matches!(step, Some(Step::Over | Step::Silent)) { RELEASE_IN_SILENCE } else { RELEASE };
        let no_answer = match timeout(patience, self.ask(Op::Release { lease })).await {
            Ok(Ok(Ok(_))) => return Released::Confirmed,
            Ok(Ok(Err(failure))) if failure.code == Code::Lost => return Released::Lost(failure.message),
            Ok(Ok(Err(failure))) => return Released::Unconfirmed(failure.message),
            Ok(Err(failure)) => failure.message,
            Err(_) if step == Some(Step::Silent) => SILENT.into(),
            Err(_) => "no answer came in time".into(),
        };
        // Nobody says that it was renewed, so our own count stands.
        match over {
            true => Released::Lost(format!("the lock was lost: {no_answer}")),
            false => Released::Unconfirmed(no_answer),
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

    /// The answer, or why none came.
    async fn ask(&mut self, op: Op) -> Result<Result<serde_json::Value, Failure>, Failure> {
        let id = self.send(op).await;
        let mut anybody = None;
        loop {
            match timeout(SILENCE, self.channel.next()).await {
                Ok(Some(ServerLine::Reply { id: answered, answer })) => {
                    if answered.is_none_or(|answered| answered == id) {
                        return Ok(answer);
                    }
                    anybody.take_if(|asked| Some(*asked) == answered);
                }
                Ok(Some(_)) => {}
                Ok(None) => return Err(self.channel.gone()),
                Err(_) if anybody.is_some() => return Err(silent()),
                // How long it waits for a lock is its own affair, as long as it lives.
                Err(_) => anybody = Some(self.send(Op::Hello).await),
            }
        }
    }

    async fn send(&mut self, op: Op) -> u64 {
        self.last_id += 1;
        self.channel.send(Request { id: self.last_id, op }).await;
        self.last_id
    }
}

fn silent() -> Failure {
    Failure::new(Code::Unavailable, SILENT)
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

    /// False where it cannot be sent whole at once.
    fn send_now(&self, line: &[u8]) -> bool {
        match self {
            Self::Own { .. } => false,
            Self::Sidecar { write, .. } => write.try_write(line).is_ok_and(|written| written == line.len()),
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
