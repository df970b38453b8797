//! How connections end, and that the driver hears of it as what it is.

mod common;

use common::{Served, answer, answered, soon};
use leasekeeper_extension::driver::Gone;
use leasekeeper_extension::server::Limits;
use leasekeeper_wire::{Event, EventKind, Op, Request};
use serde_json::Value;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

#[tokio::test]
async fn a_closed_connection_is_told() {
    let mut served = Served::start();
    let client = served.connect().await;
    let (id, _) = served.opened().await;
    drop(client);
    assert_eq!(served.closed().await, (id, Gone::Closed));
}

#[tokio::test]
async fn connections_are_never_taken_for_each_other() {
    let mut served = Served::start();
    let first = served.connect().await;
    let (first_id, _) = served.opened().await;
    drop(first);
    served.closed().await;
    let mut second = served.connect().await;
    let (second_id, _) = served.opened().await;
    assert_ne!(first_id, second_id);
    second.ask(1, Op::Hello).await;
    assert_eq!(served.request().await.0, second_id);
}

#[tokio::test]
async fn half_close_counts_as_close_and_what_is_said_is_still_written() {
    let mut served = Served::start();
    let mut client = served.connect().await;
    client.ask(1, Op::Hello).await;
    client.ask(2, Op::Hello).await;
    client.half_close().await;
    let (id, outbox) = served.opened().await;
    assert_eq!(served.request().await.1, 1);
    outbox.push(answer(1));
    assert_eq!(served.request().await.1, 2);
    assert_eq!(served.closed().await, (id, Gone::Closed));
    // Said after the close, as by a driver that has only now come to it; then it lets go.
    outbox.push(answer(2));
    drop(outbox);
    for line in [answered(1), answered(2), Value::Null] {
        assert_eq!(client.line().await, line);
    }
}

#[tokio::test]
async fn what_is_still_to_be_said_does_not_hold_a_connection_for_ever() {
    let limits = Limits { flush: std::time::Duration::from_millis(20), ..Limits::default() };
    let mut served = Served::with(limits, false);
    let mut client = served.connect().await;
    client.half_close().await;
    let (_, _outbox) = served.opened().await;
    served.closed().await;
    assert_eq!(client.line().await, Value::Null, "closed though the outbox lives");
}

#[tokio::test]
async fn a_torn_last_line_is_not_obeyed_and_told() {
    let mut served = Served::start();
    let mut client = served.connect().await;
    client.send(r#"{"v":1,"id":1,"op":"hello"}"#).await;
    client.half_close().await;
    let (id, outbox) = served.opened().await;
    assert_eq!(served.closed().await, (id, Gone::Closed));
    drop(outbox);
    let line = client.line().await;
    assert_eq!(line["error"]["code"], "protocol", "{line}");
    assert_eq!(client.line().await, Value::Null);
}

#[tokio::test]
async fn a_close_behind_unread_lines_is_seen() {
    let mut served = Served::with(Limits { in_flight: 2, ..Limits::default() }, false);
    for half in [false, true] {
        let mut client = served.connect().await;
        // At once, as each write takes more of the socket's buffer than its bytes.
        let lines: String = (0..1_000).map(|id| Request { id, op: Op::Hello }.encode()).collect();
        client.send(lines).await;
        let (id, _outbox) = served.opened().await;
        served.request().await;
        served.request().await;
        served.assert_quiet().await;
        if half {
            client.half_close().await;
        } else {
            drop(client);
        }
        assert_eq!(served.closed().await, (id, Gone::Closed), "half: {half}");
    }
}

#[tokio::test]
async fn who_only_stops_reading_has_not_left() {
    let mut served = Served::start();
    let client = served.connect().await;
    let (id, outbox) = served.opened().await;
    rustix::net::shutdown(client.stream.get_ref(), rustix::net::Shutdown::Read).unwrap();
    outbox.push(Event { lease: 1, kind: EventKind::Danger }.encode());
    assert_eq!(served.closed().await, (id, Gone::Faulted));
}

#[tokio::test]
async fn who_leaves_with_lines_unread_has_left() {
    let mut served = Served::start();
    let client = served.connect().await;
    let (id, outbox) = served.opened().await;
    outbox.push(Event { lease: 1, kind: EventKind::Danger }.encode());
    client.stream.get_ref().readable().await.unwrap();
    drop(client);
    assert_eq!(served.closed().await, (id, Gone::Closed));
}

#[tokio::test]
async fn when_the_server_ends_no_client_is_taken_for_gone() {
    let mut served = Served::start();
    let mut client = served.connect().await;
    let (id, _) = served.opened().await;
    served.shutdown.take().unwrap().send(()).unwrap();
    assert_eq!(served.closed().await, (id, Gone::Faulted));
    soon("the server's end", &mut served.task).await.unwrap();
    assert_eq!(client.line().await, Value::Null);
    assert!(!served.path().exists(), "its file is taken away");
}

/// Connects, then forks a child that inherits the connection, prints the child's number and waits.
const HOLDER: &str = r"
import os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
time.sleep(60)
";

async fn holder(served: &Served) -> (Child, i32) {
    let mut command = Command::new("python3");
    command.arg("-c").arg(HOLDER).arg(served.path()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut holder = command.spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let child = soon("the child's number", lines.next_line()).await.unwrap().unwrap();
    (holder, child.parse().unwrap())
}

#[tokio::test]
async fn a_dead_peer_is_gone_though_its_child_holds_the_connection_open() {
    let mut served = Served::start();
    let (mut holder, child) = holder(&served).await;
    let (id, _outbox) = served.opened().await;
    let child = rustix::process::Pid::from_raw(child).unwrap();
    served.assert_quiet().await;
    holder.start_kill().unwrap();
    assert_eq!(served.closed().await, (id, Gone::Closed));
    rustix::process::test_kill_process(child).expect("the child lives, and with it the connection's other end");
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    holder.wait().await.unwrap();
}

#[tokio::test]
async fn a_dead_child_that_was_lent_the_connection_changes_nothing() {
    let mut served = Served::start();
    let (mut holder, child) = holder(&served).await;
    served.opened().await;
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    // A round trip of another connection: had the death counted, it would have come first.
    let mut other = served.connect().await;
    other.ask(1, Op::Hello).await;
    served.opened().await;
    assert_eq!(served.request().await.1, 1);
    holder.kill().await.unwrap();
    served.closed().await;
}

#[tokio::test]
async fn a_stopped_peer_is_not_dead() {
    let mut served = Served::start();
    let (mut holder, child) = holder(&served).await;
    served.opened().await;
    let pid = |raw: i32| rustix::process::Pid::from_raw(raw).unwrap();
    let parent = pid(holder.id().unwrap().try_into().unwrap());
    rustix::process::kill_process(parent, rustix::process::Signal::STOP).unwrap();
    served.assert_quiet().await;
    rustix::process::kill_process(pid(child), rustix::process::Signal::KILL).unwrap();
    holder.kill().await.unwrap();
    served.closed().await;
}
