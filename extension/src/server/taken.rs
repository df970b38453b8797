//! Notices at once that something was taken out of the socket's directory, or the directory itself.

use super::peer;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use tokio::io::unix::AsyncFd;

/// What ends the socket's name. Who removes or renames a directory further up is not seen: the next invocation looks.
const TAKEN: WatchFlags = WatchFlags::DELETE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Watches one directory, for as long as it lives.
#[derive(Debug)]
pub(super) struct Taken(AsyncFd<OwnedFd>);

impl Taken {
    /// # Errors
    /// The kernel has no place for one more watch, or does not know of such.
    pub(super) fn out_of(directory: &Path) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        inotify::add_watch(&fd, directory, TAKEN)?;
        peer::register(fd).map(Self)
    }

    /// Resolves when something was taken since this resolved last.
    pub(super) async fn happened(&self) {
        loop {
            let Ok(mut ready) = self.0.readable().await else { return pending().await };
            // What it was does not matter: the socket itself is looked at.
            let mut events = [0; 4096];
            match rustix::io::read(self.0.get_ref(), &mut events) {
                Ok(_) => return,
                Err(_) => ready.clear_ready(),
            }
        }
    }
}
