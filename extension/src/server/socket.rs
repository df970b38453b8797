//! The listening socket's file: its directory, its mode, what may stand in its way, and making it anew.

use super::directory;
use super::taken::Taken;
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt;
use std::future::pending;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 512;

/// Why the socket cannot be made; each names the path and what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct BindError(String);

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BindError {}

/// Asks the server to look whether its socket is still there.
#[derive(Clone, Debug, Default)]
pub struct Recheck(Arc<Notify>);

impl Recheck {
    /// A handler may have emptied `/tmp`: a missing socket is made anew.
    pub fn ask(&self) {
        self.0.notify_one();
    }

    /// The same, after this time, unless that is aborted.
    pub(super) fn ask_in(&self, time: Duration) -> AbortHandle {
        let recheck = self.clone();
        let later = tokio::spawn(async move {
            tokio::time::sleep(time).await;
            recheck.ask();
        });
        later.abort_handle()
    }

    pub(super) async fn asked(&self) {
        self.0.notified().await;
    }
}

/// The socket's place, and the listener once it is bound. Dropping it takes its file away.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    /// Other users may come in: then the directory can be entered and the check of each peer's user is the only door.
    shared: bool,
    bound: Option<Bound>,
    recheck: Recheck,
}

#[derive(Debug)]
struct Bound {
    listener: UnixListener,
    /// Device and inode of our file: another file under the same name is not ours.
    file: (u64, u64),
    /// Tells that it may be gone, where the kernel can: else whoever has a reason to look finds out.
    taken: Option<Taken>,
}

impl Socket {
    /// Names the place; nothing is made yet. `shared` lets users besides our own reach the socket.
    pub fn new(path: impl Into<PathBuf>, shared: bool) -> Self {
        Self { path: path.into(), shared, bound: None, recheck: Recheck::default() }
    }

    /// Asks the server for [`Self::rebind_if_missing`] once the socket has gone into [`run`](super::run).
    pub fn recheck(&self) -> Recheck {
        self.recheck.clone()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory if it is missing, checks it, clears away a socket that a dead process of ours left, and
    /// listens. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// The directory is not ours alone, another process listens, or the file system refuses.
    pub fn bind(&mut self) -> Result<(), BindError> {
        let directory = self.path.parent().ok_or_else(|| self.error("has no directory"))?;
        let name = self.path.file_name().ok_or_else(|| self.error("has no name"))?;
        directory::prepare(directory, name, self.shared)
            .map_err(|what| self.error(format!("cannot be used: its directory {} {what}", directory.display())))?;
        self.clear_stale()?;
        // From before there is a file that could be taken.
        let taken = Taken::out_of(directory)
            .inspect_err(|error| tracing::warn!(%error, "the lock socket's directory cannot be watched"))
            .ok();
        let socket = self.listen().map_err(|errno| self.error(format!("cannot be bound: {errno}")))?;
        let file = identity(&self.path).map_err(|errno| self.error(format!("cannot be read: {errno}")))?;
        let listener =
            UnixListener::from_std(socket).map_err(|error| self.error(format!("cannot be listened on: {error}")))?;
        self.bound = Some(Bound { listener, file, taken });
        Ok(())
    }

    /// Binds anew if the file is gone or another's. Connections that are open stay as they are.
    ///
    /// # Errors
    /// As [`Self::bind`]; the old listener stays.
    pub fn rebind_if_missing(&mut self) -> Result<bool, BindError> {
        let there = self.bound.as_ref().is_some_and(|bound| identity(&self.path) == Ok(bound.file));
        if there {
            return Ok(false);
        }
        self.bind()?;
        Ok(true)
    }

    /// The listener, if it is bound.
    pub(super) fn listener(&self) -> Option<&UnixListener> {
        self.bound.as_ref().map(|bound| &bound.listener)
    }

    /// Resolves when something was taken out of the socket's directory.
    pub(super) async fn taken(&self) {
        match self.bound.as_ref().and_then(|bound| bound.taken.as_ref()) {
            Some(taken) => taken.happened().await,
            None => pending().await,
        }
    }

    /// Takes away a socket of our own on which nobody listens.
    fn clear_stale(&self) -> Result<(), BindError> {
        let stat = match rustix::fs::lstat(&self.path) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(self.error(format!("cannot be read: {errno}"))),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(self.error("is not a socket: remove it or use another path"));
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(self.error(format!("is a socket of user {}: remove it or use another path", stat.st_uid)));
        }
        match self.somebody_listens() {
            Ok(false) => {}
            Ok(true) => {
                return Err(
                    self.error("is in use: another process listens on it; stop that process or use another path")
                );
            }
            Err(errno) => return Err(self.error(format!("cannot be checked for another listener: {errno}"))),
        }
        match rustix::fs::unlink(&self.path) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => {
                Err(self.error(format!("is left over from a process that is gone and cannot be removed: {errno}")))
            }
        }
    }

    fn somebody_listens(&self) -> Result<bool, Errno> {
        match rustix::net::connect(stream_socket()?, &SocketAddrUnix::new(&self.path)?) {
            // A full backlog also is somebody's.
            Ok(()) | Err(Errno::AGAIN) => Ok(true),
            Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn listen(&self) -> Result<StdListener, Errno> {
        let socket = stream_socket()?;
        // The file takes its mode from the socket, so it never exists with a wider one. A umask would do the same, but it is
        // the whole process's, and other threads make files. Where it is refused, the directory still keeps others out.
        let _ = rustix::fs::fchmod(&socket, self.file_mode());
        rustix::net::bind(socket.as_fd(), &SocketAddrUnix::new(&self.path)?)?;
        // The umask may have taken away bits that are needed.
        rustix::fs::chmod(&self.path, self.file_mode())?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(StdListener::from(socket))
    }

    fn file_mode(&self) -> Mode {
        Mode::from_raw_mode(if self.shared { 0o666 } else { 0o600 })
    }

    fn error(&self, what: impl fmt::Display) -> BindError {
        BindError(format!("the lock socket {} {what}", self.path.display()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(bound) = &self.bound
            && identity(&self.path) == Ok(bound.file)
        {
            // Best effort: the next start clears a stale one away.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

fn stream_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn identity(path: &Path) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::lstat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}
