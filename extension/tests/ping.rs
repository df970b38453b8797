//! `ping`, beside a real sidecar: what a health check may believe.

mod common;

use common::process::Extension;
use common::require_root;
use rustix::process::Signal;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::Duration;

/// Its exit code and what it says.
fn ping(extension: &Extension) -> (Option<i32>, String) {
    said(&mut Command::new(env!("CARGO_BIN_EXE_leasekeeper")), extension)
}

fn said(command: &mut Command, extension: &Extension) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        command.arg("ping").env_clear().env("LEASEKEEPER_SOCKET", extension.path()).output().unwrap();
    assert_eq!(stdout, b"");
    (status.code(), String::from_utf8(stderr).unwrap())
}

async fn listening(variables: &[(&str, &str)]) -> Extension {
    let mut extension = Extension::start(variables);
    extension.logged("listening").await;
    extension
}

#[tokio::test]
async fn a_sidecar_that_answers_is_well() {
    let extension = listening(&[]).await;
    assert_eq!(ping(&extension), (Some(0), String::new()));
}

#[tokio::test]
async fn a_full_sidecar_is_alive_and_said_to_be_full() {
    let extension = listening(&[]).await;
    let mut clients = Vec::new();
    for _ in 0..256 {
        clients.push(extension.connect().await);
    }
    // More than are told why at a time.
    for _ in 0..40 {
        let (code, said) = ping(&extension);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("no place for one more connection: 256 connections are open"), "{said}");
    }
    drop(clients);
}

#[tokio::test]
async fn a_sidecar_whose_settings_are_wrong_is_not_well() {
    let extension = listening(&[("LEASEKEEPER_LEASE_MS", "5")]).await;
    let (code, said) = ping(&extension);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("grants no lock") && said.contains("LEASEKEEPER_LEASE_MS is \"5\""), "{said}");
}

#[tokio::test]
async fn a_user_that_may_not_connect_is_told_so_and_not_that_there_is_no_sidecar() {
    require_root();
    for (others, part) in [("", "this user may not connect"), ("4711", "user 65534 may not use this socket")] {
        let extension = listening(&[("LEASEKEEPER_PEER_UIDS", others)]).await;
        std::fs::set_permissions(extension.dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
        // The program may lie where only root can go.
        let program = extension.dir.path().join("program");
        std::fs::copy(env!("CARGO_BIN_EXE_leasekeeper"), &program).unwrap();
        let (code, said) = said(Command::new(&program).uid(65_534), &extension);
        assert_eq!(code, Some(78), "{said}");
        assert!(said.contains(part) && said.contains("LEASEKEEPER_PEER_UIDS"), "{said}");
    }
}

#[tokio::test]
async fn a_sidecar_that_has_stopped_is_not_well_however_many_have_asked_it_before() {
    let extension = listening(&[]).await;
    extension.signal(Signal::STOP);
    let (code, said) = ping(&extension);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("is its process stopped?"), "{said}");
    // Until its queue of connections is full.
    let mut waiting = Vec::new();
    let address = rustix::net::SocketAddrUnix::new(extension.path()).unwrap();
    let one_more = || {
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
        rustix::net::connect(&socket, &address).map(|()| socket)
    };
    while let Ok(socket) = one_more() {
        waiting.push(socket);
        assert!(waiting.len() < 1_000);
    }
    let (code, said) = ping(&extension);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("is its process stopped?"), "{said}");
    extension.signal(Signal::CONT);
}

#[test]
fn an_answer_that_comes_in_drops_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("lock.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let dripping = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut one_more = || {
            std::thread::sleep(Duration::from_millis(100));
            stream.write_all(b" ").is_ok()
        };
        // Until the other side has had enough.
        (0..60).take_while(|_| one_more()).count()
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasekeeper"));
    let output = command.arg("ping").env_clear().env("LEASEKEEPER_SOCKET", &socket).output().unwrap();
    let drops = dripping.join().unwrap();
    assert!(drops < 40, "a tenth of a second each: {drops}");
    assert_eq!(output.status.code(), Some(69));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no sidecar answers in time"), "{said}");
}
