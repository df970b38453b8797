//! A child of the handler lives on with what it has inherited: the lock is free on the handler's death, and no use of the child's.

use super::rows::{at_a_death, in_tenths, until_freed};
use super::*;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::collections::BTreeSet;
use testkit::dynamo::Operation;
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::moments::Lateness;
use testkit::sandbox::Role;

const ROW: &str = "child-inherits";

/// The handler's child, killed when the test is over.
struct Child(Pid);

impl Child {
    /// The child that the handler has told of.
    async fn of(env: &Sandbox) -> Self {
        let line = env.wait_for_log(Role::Runtime, "child ").await.unwrap().text;
        let pid = line.trim_start_matches("child ").parse().ok().and_then(Pid::from_raw);
        Self(pid.unwrap_or_else(|| panic!("no process id: {line}")))
    }

    fn lives(&self) -> bool {
        test_kill_process(self.0).is_ok()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// The sockets that a process has open, by their numbers.
fn sockets(pid: u32) -> BTreeSet<String> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    let targets = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let number =
        |target: std::path::PathBuf| target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned);
    targets.filter_map(number).collect()
}

/// The numbers of all Unix sockets.
fn unix_sockets() -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/net/unix").expect("the kernel tells");
    table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(6).map(str::to_owned)).collect()
}

/// Kills the handler: its lock is free at once, though its child lives.
async fn free_on_the_handlers_death(db: &Dynamo, env: &Sandbox, child: &Child) {
    let lateness = Lateness::watch();
    let killed = Instant::now();
    env.kill_runtime().unwrap();
    let freed = until_freed(db, "k").await;
    let took = freed.asked - killed;
    assert!(took <= at_a_death(&lateness), "{took:?}");
    assert!(child.lives(), "it was the handler's death, not the child's");
    figure(ROW, "free after the handler's death, its child living", in_tenths(freed.committed - killed));
}

/// A program that the handler starts gets nothing of its locks.
async fn a_program_inherits_nothing(language: Language) {
    let db = Dynamo::start().await;
    let env = language.environment(&db).notice(Duration::from_millis(300)).timeout(Duration::from_secs(10));
    let env = env.start().await.unwrap();
    let _call = env.begin(json!({"key": "k", "deeds": [["child", "sleep 20"], ["sleep", 60_000]]}));
    let child = Child::of(&env).await;
    let of_handler = sockets(env.pid(Role::Runtime).expect("it runs"));
    assert!(of_handler.intersection(&unix_sockets()).next().is_some(), "the lock's connection is open");
    let of_child = sockets(child.0.as_raw_nonzero().get().unsigned_abs());
    assert_eq!(of_handler.intersection(&of_child).collect::<Vec<_>>(), Vec::<&String>::new(), "{language}");
    free_on_the_handlers_death(&db, &env, &child).await;
}

#[tokio::test]
async fn a_program_that_a_rust_handler_starts_gets_no_socket_and_holds_no_lock() {
    a_program_inherits_nothing(Language::Rust).await;
}

#[tokio::test]
async fn a_program_that_a_python_handler_starts_gets_no_socket_and_holds_no_lock() {
    a_program_inherits_nothing(Language::Python).await;
}

#[tokio::test]
async fn a_program_that_a_node_handler_starts_gets_no_socket_and_holds_no_lock() {
    a_program_inherits_nothing(Language::Node).await;
}

#[tokio::test]
async fn a_forked_child_may_not_use_the_guard_of_a_python_handler_living_or_dead() {
    let db = Dynamo::start().await;
    let env = Language::Python.environment(&db).notice(Duration::from_millis(500)).timeout(Duration::from_secs(10));
    let env = env.start().await.unwrap();
    // The parent goes on asking: it would hear if its child had released anything.
    let _call = env.begin(json!({"key": "k", "deeds": [["fork", 100], ["checks", 60_000]]}));
    let child = Child::of(&env).await;
    env.wait_for_log(Role::Runtime, "child of a living parent: release ").await.unwrap();
    // Some checks later.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!env.log_text(Role::Runtime).contains("refused lost"), "{}", env.log_text(Role::Runtime));
    assert!(
        db.item("k").is_some() && db.count(Operation::DeleteItem) == 0,
        "the parent's lock is not the child's to release"
    );
    free_on_the_handlers_death(&db, &env, &child).await;
    env.wait_for_log(Role::Runtime, "child of a dead parent: release ").await.unwrap();
    let told = env.log_text(Role::Runtime);
    let uses: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("child of a ")).collect();
    assert_eq!(uses.len(), 10, "{told}");
    for told in uses {
        assert!(told.ends_with(" refused ForkedGuard protocol"), "{told}");
    }
}

/// A client of one's own, whose connection a child has got.
async fn lent(how: &str) {
    let db = Dynamo::start().await;
    let env = environment(&db).notice(Duration::from_millis(500)).start().await.unwrap();
    let lend = json!({"do": "lend", "how": how});
    let _call = env.begin(steps([acquire("k"), lend, for_ever()]));
    let child = Child::of(&env).await;
    assert!(db.item("k").is_some());
    free_on_the_handlers_death(&db, &env, &child).await;
    env.wait_for_log(Role::Runtime, "heir: acquire ").await.unwrap();
    let told = env.log_text(Role::Runtime);
    let uses: Vec<_> = told.lines().filter_map(|line| line.strip_prefix("heir: ")).collect();
    assert_eq!(uses.len(), 3, "{told}");
    assert!(uses.iter().all(|told| told.contains(" refused: ")), "{told}");
    assert_eq!(db.item("inherited"), None, "and nothing came of it");
}

#[tokio::test]
async fn a_connection_that_a_forked_child_holds_open_ends_with_the_process_that_made_it() {
    lent("fork").await;
}

#[tokio::test]
async fn a_connection_that_a_program_was_handed_ends_with_the_process_that_made_it() {
    lent("spawn").await;
}
