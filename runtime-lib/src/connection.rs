//! One connection to the extension: requests out, replies and events in, read by whoever looks first.

use crate::LockError;
use crate::budget;
use crate::clock;
use crate::settings::Settings;
use crate::state::{Answered, Phase, State};
use leasekeeper_wire::{Acquire, Checked, Granted, LostReason, Metrics, Op};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

/// How often a connect is tried again while the extension's queue of connections is full, or there is no socket.
const AGAIN: Duration = Duration::from_millis(10);

/// How long a socket that is not there is waited for under Lambda: the extension makes it anew when `/tmp` was emptied.
const MADE_ANEW: Duration = Duration::from_millis(250);

/// Tells the runtime that a readiness was used up.
const WOULD_BLOCK: ErrorKind = ErrorKind::WouldBlock;

/// A connection whose lease the extension gives back when it closes.
pub(crate) struct Connection {
    /// Read by system calls of our own: what the runtime believes of its readiness is old while a handler keeps it busy.
    socket: UnixStream,
    state: Mutex<State>,
    /// Told when a request could not be written whole.
    unwritten: Notify,
    phase: watch::Sender<Phase>,
    /// The invocation's end, if there is an invocation.
    deadline: Option<SystemTime>,
}

/// The end that closes the connection when it is dropped, whatever handles are left.
pub(crate) struct Owned(pub(crate) Arc<Connection>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Owned {
    /// Connects and asks for a lock, within `bound`.
    pub(crate) async fn acquire(
        settings: &Settings,
        mut request: Acquire,
        deadline: Option<SystemTime>,
        bound: Duration,
    ) -> Result<(Self, Granted), LockError> {
        // Half of a short time is left for the error that names the cause.
        let made_anew = if settings.under_lambda { MADE_ANEW.min(bound / 2) } else { Duration::ZERO };
        let asking = async {
            let owned = Self(Connection::open(&settings.socket, deadline, made_anew).await?);
            request.remaining_ms = owned.0.remaining_of_invocation().map(budget::millis);
            let granted = owned.0.ask(Op::Acquire(request)).await?;
            let granted = serde_json::from_value(granted).map_err(|error| unreadable(&error))?;
            Ok((owned, granted))
        };
        timeout(bound, asking).await.unwrap_or_else(|_| Err(no_answer(bound)))
    }
}

impl Connection {
    async fn open(path: &Path, deadline: Option<SystemTime>, made_anew: Duration) -> Result<Arc<Self>, LockError> {
        let begun = Instant::now();
        let socket = loop {
            match UnixStream::connect(path).await {
                Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(AGAIN).await,
                Err(error) if is_not_there(&error) && begun.elapsed() < made_anew => tokio::time::sleep(AGAIN).await,
                other => break other.map_err(|error| cannot_connect(path, &error))?,
            }
        };
        let connection = Arc::new(Self {
            socket,
            state: Mutex::new(State::new()),
            unwritten: Notify::new(),
            phase: watch::Sender::new(Phase::Held),
            deadline,
        });
        tokio::spawn(connection.clone().drive());
        Ok(connection)
    }

    /// Reads what comes and writes what waits, until the connection ends. Sleeps without a timer in between.
    async fn drive(self: Arc<Self>) {
        loop {
            let unwritten = self.lock().has_unwritten();
            let used_up = tokio::select! {
                ready = self.socket.readable() => ready.and_then(|()| {
                    self.socket.try_io(Interest::READABLE, || if self.look() { Ok(()) } else { Err(WOULD_BLOCK.into()) })
                }),
                ready = self.socket.writable(), if unwritten => ready.and_then(|()| {
                    self.socket.try_io(Interest::WRITABLE, || {
                        let over = self.look();
                        if over || !self.lock().has_unwritten() { Ok(()) } else { Err(WOULD_BLOCK.into()) }
                    })
                }),
                () = self.unwritten.notified(), if !unwritten => Ok(()),
            };
            match used_up {
                Err(error) if error.kind() != WOULD_BLOCK => return,
                _ if self.lock().ended() => return,
                _ => {}
            }
        }
    }

    /// Reads what has arrived and writes what waits; true when the connection is over.
    fn look(&self) -> bool {
        self.turn(&mut self.lock())
    }

    fn turn(&self, state: &mut State) -> bool {
        self.read(state);
        if !self.write(state) {
            // The other side is gone: its last words say why.
            self.read(state);
            state.end();
        }
        self.publish(state);
        state.ended()
    }

    fn read(&self, state: &mut State) {
        let mut chunk = [0; 4096];
        while !state.ended() {
            match rustix::net::recv(&self.socket, &mut chunk, RecvFlags::DONTWAIT).map(|(count, _)| count) {
                Ok(0) => state.end(),
                Ok(count) => state.arrived(&chunk[..count]),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => state.end(),
            }
        }
    }

    /// False when nothing can be written any more.
    fn write(&self, state: &mut State) -> bool {
        while state.has_unwritten() {
            match rustix::net::send(&self.socket, state.unwritten(), SendFlags::DONTWAIT) {
                Ok(count) => state.wrote(count),
                Err(Errno::AGAIN) => {
                    self.unwritten.notify_one();
                    return true;
                }
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn publish(&self, state: &State) {
        let phase = state.phase();
        self.phase.send_if_modified(|published| std::mem::replace(published, phase) != phase);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection from this side: the extension gives back whatever it still holds for it.
    fn close(&self) {
        let mut state = self.lock();
        // Invalid strictly before the other side can see the end and give the row away.
        state.close();
        self.publish(&state);
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// What is left of the invocation, if there is one.
    pub(crate) fn remaining_of_invocation(&self) -> Option<Duration> {
        self.deadline.map(clock::until)
    }

    /// What the lease's state is, as far as the socket has told.
    pub(crate) fn phase(&self) -> Phase {
        self.look();
        self.lock().phase()
    }

    /// The same as last seen: nothing is read, so this can be asked for anywhere.
    pub(crate) fn last_phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// How long the lease is valid at least; zero once it is over or is being given back.
    pub(crate) fn remaining(&self) -> Duration {
        self.look();
        self.lock().remaining()
    }

    async fn ask(&self, op: Op) -> Answered {
        let answer = {
            let mut state = self.lock();
            self.turn(&mut state);
            let answer = state.ask(op)?;
            self.turn(&mut state);
            answer
        };
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.lock().why_ended()),
        }
    }

    /// Asks about the lease, within the time that an answer without DynamoDB may take.
    async fn ask_lease(&self, op: impl FnOnce(u64) -> Op) -> Answered {
        self.look();
        let lease = self.lock().held()?;
        self.ask_in_time(op(lease)).await
    }

    async fn ask_in_time(&self, op: Op) -> Answered {
        let bound = budget::answer(self.remaining_of_invocation());
        timeout(bound, self.ask(op)).await.unwrap_or_else(|_| Err(no_answer(bound)))
    }

    /// Asks for the lease's figures while the extension can tell them; those of a lease that is over are the last told.
    pub(crate) async fn metrics(&self) -> Result<Metrics, LockError> {
        self.look();
        let lease = self.lock().lease_with_figures();
        if let Some(lease) = lease {
            // The answer is in the state by then.
            let answer = self.ask_in_time(Op::Metrics { lease }).await;
            let state = self.lock();
            if state.held().is_ok() {
                answer?;
            }
        }
        Ok(self.lock().metrics())
    }

    /// Asks whether the lease is valid, and for how long from now at least.
    pub(crate) async fn check(&self) -> Result<Duration, LockError> {
        // An answer can be old by the time this task gets to run; a second one is not, unless nothing runs in time.
        for _ in 0..2 {
            let answer = self.ask_lease(|lease| Op::Check { lease }).await?;
            serde_json::from_value::<Checked>(answer).map_err(|error| unreadable(&error))?;
            let remaining = self.remaining();
            if !remaining.is_zero() {
                return Ok(remaining);
            }
            self.lock().held()?;
        }
        Err(LockError::Unavailable {
            message: "this process was too busy to read an answer before its validity was over".into(),
        })
    }

    /// Resolves when the lease is lost, and never if it is given back.
    pub(crate) async fn lost(&self) -> LostReason {
        self.look();
        let mut phase = self.phase.subscribe();
        let lost = phase.wait_for(|phase| matches!(phase, Phase::Lost(_))).await.map(|phase| *phase);
        match lost {
            Ok(Phase::Lost(reason)) => reason,
            _ => std::future::pending().await,
        }
    }

    /// Gives the lease back, once however often it is asked, within its bound.
    pub(crate) async fn release(&self) -> Result<(), LockError> {
        let mut phase = self.phase.subscribe();
        {
            let mut state = self.lock();
            self.turn(&mut state);
            state.release();
            self.turn(&mut state);
        }
        let bound = budget::hand_back(self.remaining_of_invocation());
        if timeout(bound, phase.wait_for(|phase| *phase != Phase::Held)).await.is_err() {
            let mut state = self.lock();
            self.turn(&mut state);
            state.give_up_release();
            self.publish(&state);
        }
        self.lock().released()
    }
}

#[cfg(feature = "lambda")]
impl Connection {
    /// Gives the lease back where nothing can be awaited: blocks this thread, within the bound of [`Self::release`].
    pub(crate) fn release_blocking(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec};
        let bound = budget::hand_back(self.remaining_of_invocation());
        let mut elapsed = clock::Elapsed::start();
        loop {
            let interest = {
                let mut state = self.lock();
                self.turn(&mut state);
                state.release();
                self.turn(&mut state);
                if elapsed.now() >= bound {
                    state.give_up_release();
                    self.publish(&state);
                }
                if state.phase() != Phase::Held {
                    return;
                }
                if state.has_unwritten() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
            };
            // No longer: the task that reads too may have been quicker, and then nothing more comes.
            let look_again = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            // Interrupted or not: what is there is looked at.
            let _ = rustix::event::poll(&mut [PollFd::new(&self.socket, interest)], Some(&look_again));
        }
    }
}

fn is_not_there(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

/// Something listens, and that is all.
fn no_answer(bound: Duration) -> LockError {
    let message = format!("the extension did not answer within {bound:.1?}: it is stopped or overloaded; see its log");
    LockError::Unavailable { message }
}

fn unreadable(error: &serde_json::Error) -> LockError {
    LockError::Unknown { message: format!("the answer cannot be read: {error}") }
}

fn cannot_connect(path: &Path, error: &io::Error) -> LockError {
    let path = path.display();
    match error.kind() {
        ErrorKind::InvalidInput => {
            LockError::config(format!("LEASEKEEPER_SOCKET is not a valid socket path: {path} ({error})"))
        }
        ErrorKind::PermissionDenied => LockError::config(format!(
            "this process's user may not use the socket {path} ({error}): run the extension as the same user, or list \
             this one's id in its LEASEKEEPER_PEER_UIDS"
        )),
        _ => LockError::ExtensionMissing {
            message: format!(
                "no Leasekeeper extension answers on the socket {path} ({error}): add the Leasekeeper layer to the \
                 function; outside Lambda, run the sidecar `leasekeeper` with LEASEKEEPER_TABLE set, and the \
                 same LEASEKEEPER_SOCKET for both"
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasekeeper_wire::Code;
    use tokio::net::UnixListener;

    fn settings(directory: &tempfile::TempDir, under_lambda: bool) -> Settings {
        Settings { under_lambda, ..Settings::at(directory.path().join("lock.sock")) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_is_not_there_is_waited_for_under_lambda_within_the_budget_and_nowhere_else() {
        let directory = tempfile::tempdir().expect("a directory");
        for (under_lambda, bound_ms, waited_ms) in [(false, 5_000, 0), (true, 5_000, 250), (true, 100, 50)] {
            let begun = Instant::now();
            let bound = Duration::from_millis(bound_ms);
            let asked = Owned::acquire(&settings(&directory, under_lambda), Acquire::default(), None, bound).await;
            assert_eq!(asked.err().map(|error| error.code()), Some(Code::ExtensionMissing));
            assert_eq!(begun.elapsed().as_millis() / 10 * 10, waited_ms, "under Lambda: {under_lambda}, {bound_ms} ms");
        }
    }

    #[tokio::test]
    async fn a_socket_that_comes_back_in_time_is_used() {
        let directory = tempfile::tempdir().expect("a directory");
        let settings = settings(&directory, true);
        // What a killed process leaves behind: nobody listens on it.
        drop(UnixListener::bind(&settings.socket).expect("a socket"));
        let back = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            std::fs::remove_file(&settings.socket).expect("it is there");
            UnixListener::bind(&settings.socket).expect("a socket").accept().await.expect("a connection")
        };
        let asked = Owned::acquire(&settings, Acquire::default(), None, Duration::from_secs(5));
        tokio::select! {
            asked = asked => panic!("it was not waited for: {:?}", asked.err()),
            _ = back => {}
        }
    }
}
