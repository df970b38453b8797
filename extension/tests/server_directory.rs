//! The socket's directory: whose it must be, what it may hold, and what is said where it cannot be used.

mod common;

use common::{bind, directory, mode, require_root, socket_in};
use leasekeeper_extension::server::Socket;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use tempfile::TempDir;

/// What to do about most of it.
const ELSEWHERE: &str = "use a path such as /tmp/leasekeeper/lock.sock, whose directory Leasekeeper makes itself";

#[tokio::test]
async fn a_directory_of_a_previous_run_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    directory(&dir, 0o700);
    bind(&dir).unwrap();
}

#[tokio::test]
async fn a_directory_that_others_can_use_is_refused_as_it_is() {
    for wrong in [0o755, 0o710, 0o701, 0o777, 0o500] {
        let dir = tempfile::tempdir().unwrap();
        directory(&dir, wrong);
        let error = bind(&dir).unwrap_err();
        assert!(error.contains(&format!("has mode {:04o}, not 0700", wrong & 0o777)), "{error}");
        assert!(error.contains(ELSEWHERE), "{error}");
        let chmod = format!("run `chmod 700 {}`", dir.path().join("leasekeeper").display());
        assert!(error.ends_with(&chmod), "{error}");
        assert_eq!(mode(&dir.path().join("leasekeeper")), wrong, "it is not changed");
    }
}

#[tokio::test]
async fn a_directory_that_others_use_is_not_to_be_taken_from_them() {
    for (mode, file) in [(0o1777, None), (0o1777, Some("theirs")), (0o755, Some("theirs")), (0o777, Some("theirs"))] {
        let dir = tempfile::tempdir().unwrap();
        directory(&dir, mode);
        let used = dir.path().join("leasekeeper");
        file.inspect(|file| fs::write(used.join(file), "").unwrap());
        let error = bind(&dir).unwrap_err();
        assert!(error.contains(&format!("has mode {mode:04o}, not 0700")) && error.ends_with(ELSEWHERE), "{error}");
        assert_eq!(self::mode(&used), mode, "it is not changed");
    }
}

#[tokio::test]
async fn a_symbolic_link_is_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), dir.path().join("leasekeeper")).unwrap();
    let error = bind(&dir).unwrap_err();
    assert!(error.contains("symbolic link") && error.ends_with(ELSEWHERE), "{error}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_file_in_the_directorys_place_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("leasekeeper"), "mine").unwrap();
    let error = bind(&dir).unwrap_err();
    assert!(error.contains("not a directory") && error.ends_with(ELSEWHERE), "{error}");
}

#[tokio::test]
async fn a_missing_parent_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut socket = Socket::new(dir.path().join("missing/leasekeeper/lock.sock"), false);
    let error = socket.bind().unwrap_err().to_string();
    assert!(error.contains("missing/leasekeeper cannot be created"), "{error}");
    let parent = dir.path().join("missing");
    assert!(error.ends_with(&format!("create its parent first (`mkdir -p {}`)", parent.display())), "{error}");
}

#[tokio::test]
async fn a_directory_of_another_user_is_refused() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    directory(&dir, 0o700);
    std::os::unix::fs::chown(dir.path().join("leasekeeper"), Some(65_534), None).unwrap();
    let error = bind(&dir).unwrap_err();
    assert!(error.contains("belongs to user 65534, not to user 0") && error.ends_with(ELSEWHERE), "{error}");
}

#[tokio::test]
async fn a_parent_that_is_no_directory_is_told_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "mine").unwrap();
    let mut socket = Socket::new(dir.path().join("file/leasekeeper/lock.sock"), false);
    let error = socket.bind().unwrap_err().to_string();
    assert!(error.contains("file/leasekeeper cannot be created") && error.ends_with(ELSEWHERE), "{error}");
}

/// Binds with the other setting of `LEASEKEEPER_PEER_UIDS` than the previous run had.
fn bind_shared(dir: &TempDir, shared: bool) -> Result<(), String> {
    Socket::new(socket_in(dir.path()), shared).bind().map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_directory_of_a_run_with_other_users_or_without_is_changed_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    for (shared, expected) in [(false, 0o700), (true, 0o711), (true, 0o711), (false, 0o700)] {
        bind_shared(&dir, shared).unwrap();
        assert_eq!(mode(&dir.path().join("leasekeeper")), expected);
        // A killed process leaves its socket behind.
        drop(UnixListener::bind(socket_in(dir.path())).unwrap());
    }
}

#[tokio::test]
async fn a_directory_that_holds_something_else_keeps_its_mode() {
    for (shared, old, wanted) in [(true, 0o700, "711"), (false, 0o711, "700")] {
        let dir = tempfile::tempdir().unwrap();
        directory(&dir, old);
        fs::write(dir.path().join("leasekeeper/.profile"), "mine").unwrap();
        let error = bind_shared(&dir, shared).unwrap_err();
        assert!(error.contains(&format!("has mode 0{old:o}, not 0{wanted}")), "{error}");
        assert!(error.ends_with(ELSEWHERE), "it may be somebody's home: {error}");
        assert_eq!(mode(&dir.path().join("leasekeeper")), old);
    }
}
