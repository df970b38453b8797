//! The lock socket's directory: made, checked, and kept for the socket alone.

use leasekeeper_wire::DEFAULT_SOCKET;
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Nobody else gets in.
const PRIVATE: u32 = 0o700;
/// Others may go through to the socket, and do nothing else.
const SHARED: u32 = 0o711;

/// Everybody may put files there, and nobody may take away another's.
const STICKY: u32 = 0o1000;

/// Makes `directory` if it is missing, and checks that nobody else can put anything into it; `socket` is the socket's name in it.
///
/// # Errors
/// What is wrong with the directory and what to do.
pub(super) fn prepare(directory: &Path, socket: &OsStr, shared: bool) -> Result<(), String> {
    // The mode that it gets, the mode that it has after a run with the other setting, and what no mode may allow.
    let (wanted, other, forbidden) = if shared { (SHARED, PRIVATE, 0o022) } else { (PRIVATE, SHARED, 0o077) };
    let made = make(directory)?;
    let opened = open(directory)?;
    let set_mode = || {
        rustix::fs::fchmod(&opened, Mode::from_raw_mode(wanted))
            .map_err(|errno| format!("cannot be given mode {wanted:04o}: {errno}"))
    };
    if made {
        // The umask may have taken bits away from the mode, or a shared socket needs more.
        set_mode()?;
    }
    let stat = rustix::fs::fstat(&opened).map_err(|errno| format!("cannot be read: {errno}"))?;
    let own = rustix::process::geteuid().as_raw();
    if stat.st_uid != own {
        return Err(format!("belongs to user {}, not to user {own}; {}", stat.st_uid, elsewhere(directory)));
    }
    if stat.st_mode & 0o7777 == other && holds_nothing_but(&opened, socket) {
        let mode = format!("{wanted:04o}");
        tracing::info!(directory = %directory.display(), mode, "the mode of the lock socket's directory is being changed");
        return set_mode();
    }
    let mode = stat.st_mode & 0o7777;
    if mode & forbidden != 0 || mode & wanted != wanted {
        // Never of one that others use, such as /tmp, whether or not there is anything in it now.
        let ours = mode & STICKY == 0 && holds_nothing_but(&opened, socket);
        let chmod = if ours { format!(", or run `chmod {wanted:o} {}`", directory.display()) } else { String::new() };
        return Err(format!("has mode {mode:04o}, not {wanted:04o}; {}{chmod}", elsewhere(directory)));
    }
    Ok(())
}

/// Was it missing?
fn make(directory: &Path) -> Result<bool, String> {
    match rustix::fs::mkdir(directory, Mode::from_raw_mode(PRIVATE)) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno @ Errno::NOENT) => {
            let parent = directory.parent().unwrap_or(directory).display();
            Err(format!("cannot be created: {errno}; create its parent first (`mkdir -p {parent}`)"))
        }
        Err(errno) => Err(format!("cannot be created: {errno}; {}", elsewhere(directory))),
    }
}

fn open(directory: &Path) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => format!("is a symbolic link or not a directory; {}", elsewhere(directory)),
        errno => format!("cannot be opened: {errno}; {}", elsewhere(directory)),
    })
}

/// A directory that holds anything else was not made for the socket: somebody's home may have the same mode.
fn holds_nothing_but(directory: &OwnedFd, socket: &OsStr) -> bool {
    let known = |name: &[u8]| name == b"." || name == b".." || name == socket.as_bytes();
    let all_known =
        |mut entries: Dir| entries.all(|entry| entry.is_ok_and(|entry| known(entry.file_name().to_bytes())));
    Dir::read_from(directory).is_ok_and(all_known)
}

/// What helps where the directory cannot be used.
fn elsewhere(directory: &Path) -> String {
    let example = match Path::new(DEFAULT_SOCKET).parent() == Some(directory) {
        true => format!("/tmp/leasekeeper-{}/lock.sock", rustix::process::geteuid().as_raw()),
        false => DEFAULT_SOCKET.into(),
    };
    format!("use a path such as {example}, whose directory Leasekeeper makes itself")
}
