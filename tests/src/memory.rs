//! A control group with a memory limit, as the kernel offers one: version 1 or version 2.

use crate::sandbox::Program;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A group of processes that may use so much memory together. It is removed when it is dropped, once they have ended.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    /// The file that counts the kernel's kills.
    events: &'static str,
}

/// What the two versions call the same things.
struct Names {
    limit: &'static str,
    /// The same with swapped memory, or swapped memory alone: none is wanted.
    swap: (&'static str, bool),
    events: &'static str,
}

const VERSION_1: Names =
    Names { limit: "memory.limit_in_bytes", swap: ("memory.memsw.limit_in_bytes", true), events: "memory.oom_control" };
const VERSION_2: Names = Names { limit: "memory.max", swap: ("memory.swap.max", false), events: "memory.events" };

impl MemoryGroup {
    /// Makes one of so many bytes.
    ///
    /// # Errors
    /// Why this machine does not let us: each place that was tried, with what the kernel said.
    pub fn new(bytes: u64) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut tried = Vec::new();
        for (parent, names) in places(&mounts, &own) {
            match Self::below(&parent, &names, bytes) {
                Ok(group) => return Ok(group),
                Err(error) => tried.push(format!("{}: {error}", parent.display())),
            }
        }
        Err(if tried.is_empty() { "no memory control groups are mounted".into() } else { tried.join("; ") })
    }

    fn below(parent: &Path, names: &Names, bytes: u64) -> io::Result<Self> {
        if names.limit == VERSION_2.limit {
            // It may be on already, and then this may be refused.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("leasekeeper-memory-{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Self { path, events: names.events };
        fs::write(group.path.join(names.limit), bytes.to_string())?;
        let (swap, with_memory) = names.swap;
        if group.path.join(swap).exists() {
            fs::write(group.path.join(swap), if with_memory { bytes } else { 0 }.to_string())?;
        }
        Ok(group)
    }

    /// The program, run in this group. `score` is added to what the kernel goes by when it picks whom to kill.
    pub fn run(&self, program: &Program, score: u32) -> Program {
        let enter = r#"echo $$ > "$1" && echo "$2" > /proc/self/oom_score_adj && shift 2 && exec "$@""#;
        let shell = Program::new("sh").arg("-c").arg(enter).arg("sh").arg(self.path.join("cgroup.procs"));
        let shell = shell.arg(score.to_string()).arg(program.path());
        program.arguments().iter().fold(shell, Program::arg)
    }

    /// How many of its processes the kernel has killed for want of memory.
    ///
    /// # Panics
    /// The kernel does not say.
    pub fn kills(&self) -> u64 {
        let events = fs::read_to_string(self.path.join(self.events)).expect("the group exists");
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).expect("kernels count kills since 4.13")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Its processes have been killed, and may need a moment to be gone.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("the control group {} is left behind", self.path.display());
    }
}

/// Where a group could be made: below our own group, or below the hierarchy's root.
fn places(mounts: &str, own: &str) -> Vec<(PathBuf, Names)> {
    let mut places = Vec::new();
    for mount in mounts.lines() {
        let Some((before, after)) = mount.split_once(" - ") else { continue };
        let (mut before, mut after) = (before.split(' '), after.split(' '));
        let (Some(root), Some(point), Some(kind)) = (before.nth(3), before.next(), after.next()) else { continue };
        let (names, line): (_, fn(&str) -> bool) = match kind {
            "cgroup" if after.nth(1).is_some_and(|options| options.split(',').any(|option| option == "memory")) => {
                (VERSION_1, |controllers| controllers.split(',').any(|controller| controller == "memory"))
            }
            "cgroup2" => (VERSION_2, str::is_empty),
            _ => continue,
        };
        let group = own.lines().find_map(|entry| {
            let mut parts = entry.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            line(controllers).then(|| parts.next())?
        });
        let below = group.unwrap_or("/").strip_prefix(root).unwrap_or("").trim_start_matches('/');
        for parent in [Path::new(point).join(below), PathBuf::from(point)] {
            places.push((parent, if names.limit == VERSION_1.limit { VERSION_1 } else { VERSION_2 }));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_found_where_they_are_mounted() {
        let mounts = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 23 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                      33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "4:memory:/a/b\n1:cpu:/\n0::/c\n";
        let found: Vec<_> = places(mounts, own).into_iter().map(|(path, names)| (path, names.limit)).collect();
        let expected = [
            ("/sys/fs/cgroup/memory/a/b", VERSION_1.limit),
            ("/sys/fs/cgroup/memory", VERSION_1.limit),
            ("/sys/fs/cgroup/unified/c", VERSION_2.limit),
            ("/sys/fs/cgroup/unified", VERSION_2.limit),
        ];
        assert_eq!(found, expected.map(|(path, limit)| (PathBuf::from(path), limit)));
    }

    #[test]
    fn without_control_groups_there_is_no_place() {
        assert!(places("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "0::/\n").is_empty());
    }
}
