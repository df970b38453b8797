//! The process at the other end of a connection: who it is, and when it dies.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, test_kill_process};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How often a process is looked at where the kernel does not tell of its end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Watches one process. The connection's end is no substitute: a forked child can keep the descriptor open for ever.
#[derive(Debug)]
pub(super) enum Watch {
    /// The kernel tells.
    PidFd(AsyncFd<OwnedFd>),
    /// `/proc` is looked at: the process lives while one of this number and start time does.
    StartTime {
        /// Its number.
        pid: Pid,
        /// When it started, in ticks since boot: a number alone is given out anew.
        started: u64,
    },
    /// It was dead already.
    Dead,
    /// The connection's end is all there is: the peer is in a PID namespace that we do not see, or `/proc` is missing.
    Unknown,
}

impl Watch {
    /// The best watch there is for `pid`, as `SO_PEERCRED` gives it: 0 is a process in a namespace that we do not see.
    pub(super) fn new(pid: Option<i32>) -> Self {
        let Some(pid) = pid.filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
            return Self::Unknown;
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => register(fd).map_or_else(|_| Self::by_start_time(pid), Self::PidFd),
            Err(Errno::SRCH) => Self::Dead,
            // An old kernel, a filter on system calls, no descriptors left.
            Err(_) => Self::by_start_time(pid),
        }
    }

    fn by_start_time(pid: Pid) -> Self {
        if !proc_is_ours() {
            return Self::Unknown;
        }
        match start_time(pid) {
            Ok(Some(started)) => Self::StartTime { pid, started },
            Ok(None) => Self::Dead,
            Err(_) => Self::Unknown,
        }
    }

    /// What tells of the process's death.
    pub(super) fn by(&self) -> &'static str {
        match self {
            Self::PidFd(_) => "the kernel",
            Self::StartTime { .. } => "its start time in /proc",
            Self::Dead | Self::Unknown => "its connection's end alone",
        }
    }

    /// Resolves when the process is certainly dead; never if that cannot be known.
    pub(super) async fn dead(&self) {
        match self {
            Self::PidFd(fd) => match fd.readable().await {
                Ok(_) => {}
                // The runtime's I/O driver is gone: so are we, soon.
                Err(_) => std::future::pending().await,
            },
            Self::StartTime { pid, started } => loop {
                match start_time(*pid) {
                    Ok(now) if now != Some(*started) => return,
                    // Unreadable is not dead.
                    Ok(_) | Err(_) => tokio::time::sleep(LOOK_EVERY).await,
                }
            },
            Self::Dead => {}
            Self::Unknown => std::future::pending().await,
        }
    }
}

/// Its successor is unsafe, as it trusts that the descriptor stays the same one: an [`OwnedFd`] vouches for that.
#[allow(deprecated)]
pub(super) fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Does `/proc` show the processes of our own namespace? Another one's has other processes under our numbers.
fn proc_is_ours() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|own| own.to_str() == Some(&*getpid().as_raw_nonzero().to_string()))
}

/// When the process started; `None` if there is none or it only waits to be reaped.
fn start_time(pid: Pid) -> io::Result<Option<u64>> {
    let stat = match std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
        Ok(stat) => stat,
        // What cannot be read may be hidden from us: only the kernel's word is a death.
        Err(_) if test_kill_process(pid) == Err(Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    parse_stat(&stat).ok_or_else(|| io::Error::other("/proc/PID/stat has another form"))
}

/// Fields 3 (state), 20 (threads) and 22 (start time); the second field, a name in brackets, may hold anything.
///
/// The state is that of the first thread: the process lives on without it for as long as it has others.
fn parse_stat(stat: &str) -> Option<Option<u64>> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    Some((!matches!(state, "Z" | "X" | "x") || threads > 1).then_some(started))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A process that lives until its standard input is closed.
    fn child() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn pid(child: &Child) -> Pid {
        Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
    }

    async fn assert_alive(watch: &Watch) {
        tokio::select! {
            biased;
            () = watch.dead() => panic!("{watch:?} says that a living process is dead"),
            () = tokio::task::yield_now() => {}
        }
    }

    #[tokio::test]
    async fn each_watch_tells_of_a_death_before_the_process_is_reaped() {
        for how in [|pid: Pid| Watch::new(Some(pid.as_raw_nonzero().get())), Watch::by_start_time] {
            let mut child = child();
            let watch = how(pid(&child));
            assert_alive(&watch).await;
            child.kill().unwrap();
            watch.dead().await;
            child.wait().unwrap();
            watch.dead().await;
        }
    }

    #[tokio::test]
    async fn the_kernel_is_asked_first() {
        let mut child = child();
        let watch = Watch::new(Some(pid(&child).as_raw_nonzero().get()));
        assert!(matches!(watch, Watch::PidFd(_)), "{watch:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_number_given_out_anew_is_another_process() {
        let pid = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
        let started = start_time(pid).unwrap().unwrap();
        assert_alive(&Watch::StartTime { pid, started }).await;
        Watch::StartTime { pid, started: started + 1 }.dead().await;
    }

    #[tokio::test]
    async fn a_process_that_is_gone_is_dead_from_the_start() {
        let mut child = child();
        let pid = pid(&child);
        child.kill().unwrap();
        child.wait().unwrap();
        for watch in [Watch::new(Some(pid.as_raw_nonzero().get())), Watch::by_start_time(pid)] {
            assert!(matches!(watch, Watch::Dead), "{watch:?}");
            watch.dead().await;
        }
    }

    #[tokio::test]
    async fn an_unseen_namespace_is_never_taken_for_a_death() {
        for pid in [None, Some(0), Some(-1)] {
            let watch = Watch::new(pid);
            assert!(matches!(watch, Watch::Unknown), "{watch:?}");
            assert_alive(&watch).await;
        }
    }

    #[test]
    fn a_process_name_may_hold_brackets_and_blanks() {
        let fields = "R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(&format!("7 (a) b (c) {fields}")), Some(Some(4711)));
        assert_eq!(parse_stat(&format!("7 (a) {}", fields.replace('R', "Z"))), Some(None));
        let leaderless = fields.replace("R", "Z").replace("0 1 0 4711", "0 2 0 4711");
        assert_eq!(parse_stat(&format!("7 (a) {leaderless}")), Some(Some(4711)), "its other thread lives");
        assert_eq!(parse_stat("7 (a"), None);
        assert_eq!(parse_stat("7 (a) R 1"), None);
    }
}
