//! The socket's file and its directory: made, checked, cleared, made anew; and who may come in.

mod common;

use common::{Client, Served, answer, answered, bind, directory, mode, require_root, socket_in, soon};
use leasekeeper_extension::driver::Command;
use leasekeeper_extension::server::{Limits, Socket};
use leasekeeper_wire::Op;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::process::Output;
use tokio::io::BufReader;
use tokio::net::UnixStream;

#[tokio::test]
async fn directory_and_socket_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let socket = bind(&dir).unwrap();
    assert_eq!(mode(&dir.path().join("leasekeeper")), 0o700);
    assert_eq!(mode(socket.path()), 0o600);
    let path = socket.path().to_owned();
    drop(socket);
    assert!(!path.exists(), "its file goes with it");
}

#[tokio::test]
async fn a_stale_socket_is_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    directory(&dir, 0o700);
    // The standard library leaves the file behind, as a killed process does.
    drop(UnixListener::bind(socket_in(dir.path())).unwrap());
    assert!(socket_in(dir.path()).exists());
    bind(&dir).unwrap();
}

#[tokio::test]
async fn a_socket_on_which_somebody_listens_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    directory(&dir, 0o700);
    let listener = UnixListener::bind(socket_in(dir.path())).unwrap();
    let error = bind(&dir).unwrap_err();
    assert!(error.contains("another process listens on it"), "{error}");
    listener.set_nonblocking(true).unwrap();
    listener.accept().expect("it was asked");
    assert!(socket_in(dir.path()).exists());
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    directory(&dir, 0o700);
    fs::write(socket_in(dir.path()), "mine").unwrap();
    let error = bind(&dir).unwrap_err();
    assert!(error.contains("is not a socket"), "{error}");
    assert_eq!(fs::read_to_string(socket_in(dir.path())).unwrap(), "mine");
}

#[tokio::test]
async fn a_stale_socket_of_another_user_is_left_alone() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    directory(&dir, 0o700);
    drop(UnixListener::bind(socket_in(dir.path())).unwrap());
    std::os::unix::fs::chown(socket_in(dir.path()), Some(65_534), None).unwrap();
    let error = bind(&dir).unwrap_err();
    assert!(error.contains("is a socket of user 65534"), "{error}");
    assert!(socket_in(dir.path()).exists());
}

#[tokio::test]
async fn an_emptied_directory_is_filled_again_when_asked_and_open_connections_stay() {
    let mut served = Served::start();
    let mut old = served.connect().await;
    let (_, old_outbox) = served.opened().await;
    fs::remove_dir_all(served.dir.path().join("leasekeeper")).unwrap();
    served.recheck.ask();
    let mut new = connect_once_there(&served).await;
    let (_, new_outbox) = served.opened().await;
    assert_eq!((mode(&served.dir.path().join("leasekeeper")), mode(&served.path())), (0o700, 0o600));
    for (client, outbox) in [(&mut new, new_outbox), (&mut old, old_outbox)] {
        client.ask(1, Op::Hello).await;
        served.request().await;
        outbox.push(answer(1));
        assert_eq!(client.line().await, answered(1));
    }
}

#[tokio::test]
async fn an_emptied_directory_is_filled_again_by_itself_but_not_under_the_hands_of_who_empties_it() {
    let served = Served::start();
    for directory_too in [true, false, true] {
        fs::remove_file(served.path()).unwrap();
        if directory_too {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            fs::remove_dir(served.dir.path().join("leasekeeper")).expect("the socket is not back yet");
        }
        connect_once_there(&served).await;
    }
}

#[tokio::test]
async fn a_socket_or_directory_that_is_renamed_or_replaced_is_made_anew_by_itself() {
    let mut served = Served::start();
    let directory = served.dir.path().join("leasekeeper");
    fs::rename(served.path(), directory.join("renamed")).unwrap();
    connect_once_there(&served).await;
    served.opened().await;
    served.closed().await;
    fs::rename(&directory, served.dir.path().join("elsewhere")).unwrap();
    connect_once_there(&served).await;
    served.opened().await;
    served.closed().await;
    // A socket on which nobody listens, as a killed process leaves one.
    let other = served.dir.path().join("other.sock");
    drop(UnixListener::bind(&other).unwrap());
    fs::rename(&other, served.path()).unwrap();
    connect_once_there(&served).await;
    served.opened().await;
}

#[tokio::test]
async fn a_directory_that_was_moved_away_from_further_up_is_made_anew_when_a_client_has_left() {
    let mut served = Served::start();
    let client = served.connect().await;
    let _ = served.opened().await;
    let away = served.dir.path().with_extension("away");
    fs::rename(served.dir.path(), &away).unwrap();
    fs::create_dir(served.dir.path()).unwrap();
    drop(client);
    served.closed().await;
    connect_once_there(&served).await;
    served.opened().await;
    fs::remove_dir_all(away).unwrap();
}

async fn connect_once_there(served: &Served) -> Client {
    let there = async {
        loop {
            match UnixStream::connect(served.path()).await {
                Ok(stream) => return Client { stream: BufReader::new(stream) },
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    soon("the socket's return", there).await
}

#[tokio::test]
async fn a_socket_that_is_there_is_not_made_anew() {
    let mut served = Served::start();
    let before = fs::metadata(served.path()).unwrap().ino();
    served.recheck.ask();
    served.assert_quiet().await;
    assert_eq!(fs::metadata(served.path()).unwrap().ino(), before);
    served.connect().await;
    served.opened().await;
}

#[tokio::test]
async fn a_socket_that_could_not_be_bound_is_bound_when_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    directory(&dir, 0o755);
    let mut socket = Socket::new(socket_in(dir.path()), false);
    socket.bind().unwrap_err();
    let mut served = Served::serve(dir, socket, Limits::default());
    served.recheck.ask();
    served.assert_quiet().await;
    assert!(!served.path().exists());
    fs::set_permissions(served.dir.path().join("leasekeeper"), Permissions::from_mode(0o700)).unwrap();
    served.recheck.ask();
    connect_once_there(&served).await;
    served.opened().await;
}

/// Connects as another user, says hello and prints what comes.
const STRANGER: &str = r#"
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
    s.sendall(b'{"v":1,"id":1,"op":"hello"}\n')
    print(s.makefile().readline(), end="")
except PermissionError:
    print('"no way in"')
"#;

async fn stranger(served: &Served, uid: u32) -> Output {
    fs::set_permissions(served.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let mut command = tokio::process::Command::new("python3");
    command.arg("-c").arg(STRANGER).arg(served.path()).arg(uid.to_string()).kill_on_drop(true);
    soon("the stranger", command.output()).await.unwrap()
}

fn said(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[tokio::test]
async fn another_user_does_not_get_at_the_socket() {
    require_root();
    let mut served = Served::start();
    assert_eq!(said(&stranger(&served, 65_533).await), json!("no way in"));
    served.assert_quiet().await;
}

#[tokio::test]
async fn with_more_users_allowed_the_others_are_still_refused() {
    require_root();
    let limits = Limits { peer_uids: vec![65_533], ..Limits::default() };
    let mut served = Served::with(limits, true);
    assert_eq!((mode(&served.dir.path().join("leasekeeper")), mode(&served.path())), (0o711, 0o666));
    let refused = said(&stranger(&served, 65_532).await);
    assert_eq!(refused["error"]["code"], "config", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("user 65532"), "{refused}");
    served.assert_quiet().await;
    let mut commands = served.commands.take().unwrap();
    let greet = async {
        match soon("the listed user", commands.recv()).await {
            Some(Command::Open { outbox, .. }) => outbox.push(answer(1)),
            other => panic!("expected a connection to begin, not {other:?}"),
        }
    };
    let (allowed, ()) = tokio::join!(stranger(&served, 65_533), greet);
    assert_eq!(said(&allowed), answered(1));
}
