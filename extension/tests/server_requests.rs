//! What clients send, good and bad, and what bounds it.

mod common;

use common::{Client, Served, answer, answered, soon};
use leasekeeper_extension::driver::Gone;
use leasekeeper_extension::outbox::MAX_WAITING;
use leasekeeper_extension::server::Limits;
use leasekeeper_wire::{Acquire, Event, EventKind, LostReason, MAX_LINE, Op, Request};
use serde_json::{Value, json};

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

#[tokio::test]
async fn pipelined_requests_and_their_replies_keep_their_order() {
    let mut served = Served::start();
    let mut client = served.connect().await;
    let ops = [Op::Hello, Op::Acquire(Acquire { key: "k".into(), ..Acquire::default() }), Op::Check { lease: 3 }];
    let lines: String = (0..60).map(|id| Request { id, op: ops[id as usize % 3].clone() }.encode()).collect();
    // In two pieces that cut a line.
    client.send(&lines[..777]).await;
    client.send(&lines[777..]).await;
    let (client_id, outbox) = served.opened().await;
    for id in 0..60 {
        assert_eq!(served.request().await, (client_id, id, ops[id as usize % 3].clone()));
        outbox.push(answer(id));
        if id == 30 {
            outbox.push(Event { lease: 3, kind: EventKind::Danger }.encode());
        }
    }
    for id in 0..60 {
        assert_eq!(client.line().await, answered(id));
        if id == 30 {
            assert_eq!(client.line().await, json!({"lease": 3, "event": "danger"}));
        }
    }
}

#[tokio::test]
async fn each_bad_line_is_answered_and_the_connection_goes_on() {
    let mut served = Served::start();
    let mut client = served.connect().await;
    let (_, outbox) = served.opened().await;
    let long = "x".repeat(MAX_LINE);
    let nested = "[".repeat(MAX_LINE - 1);
    let long_id = format!(r#"{{"v":1,"id":4,"op":"{}"}}"#, "y".repeat(MAX_LINE));
    let cases: &[(&[u8], Value, &str)] = &[
        (b"", Value::Null, "empty"),
        (b"\r", Value::Null, "empty"),
        (b"hello", Value::Null, "not JSON"),
        (b"\xff\xfe\x00", Value::Null, "not JSON"),
        (b"[1]", Value::Null, "not one JSON object"),
        (b"{\"v\":1,\"id\":1,\"op\":\"hello\"} {}", Value::Null, "not JSON"),
        (nested.as_bytes(), Value::Null, "not"),
        (long.as_bytes(), Value::Null, "longer than 65536 bytes"),
        (long_id.as_bytes(), Value::Null, "longer than 65536 bytes"),
        (b"{\"id\":5,\"op\":\"hello\"}", json!(5), "field v is required"),
        (b"{\"v\":2,\"id\":5,\"op\":\"hello\"}", json!(5), "field v is 2"),
        (b"{\"v\":1,\"id\":5,\"op\":\"steal\"}", json!(5), "field op is unknown"),
        (b"{\"v\":1,\"id\":5,\"op\":\"hello\",\"fence\":true}", json!(5), "field \"fence\" is unknown"),
        (b"{\"v\":1,\"id\":5,\"op\":\"acquire\",\"key\":\"\"}", json!(5), "field key must have 1 to 2048 bytes"),
    ];
    for (line, id, message) in cases {
        client.send(line).await;
        client.send("\n").await;
        let reply = client.line().await;
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]);
        assert_eq!((&reply["id"], &reply["error"]["code"]), (id, &json!("protocol")), "{shown}: {reply}");
        assert!(reply["error"]["message"].as_str().unwrap().contains(message), "{shown}: {reply}");
        client.ask(9, Op::Hello).await;
        assert_eq!(served.request().await.1, 9, "only good lines reach the driver");
        outbox.push(answer(9));
        assert_eq!(client.line().await, answered(9), "after {shown}");
    }
}

#[tokio::test]
async fn an_endless_line_is_answered_once_before_its_end_and_skipped() {
    let mut served = Served::start();
    let mut client = served.connect().await;
    let (_, outbox) = served.opened().await;
    let piece = vec![b'x'; 1024 * 1024];
    for _ in 0..32 {
        client.send(&piece).await;
    }
    assert_eq!(client.line().await["error"]["code"], "protocol", "told while the line still goes on");
    client.send("\n").await;
    client.ask(1, Op::Hello).await;
    assert_eq!(served.request().await.1, 1);
    outbox.push(answer(1));
    assert_eq!(client.line().await, answered(1), "told once only");
}

#[tokio::test]
async fn the_longest_line_is_a_request() {
    let mut served = Served::start();
    let mut client = served.connect().await;
    served.opened().await;
    let request = Request { id: 3, op: Op::Hello }.encode();
    let padded = format!("{}{request}", " ".repeat(MAX_LINE - request.len()));
    assert_eq!(padded.len(), MAX_LINE);
    client.send(&padded).await;
    assert_eq!(served.request().await.1, 3);
    client.send(format!(" {padded}")).await;
    assert_eq!(client.line().await["error"]["code"], "protocol");
}

#[tokio::test]
async fn lines_past_the_limit_in_flight_stay_unread_until_replies_go_out() {
    let mut served = Served::with(limits(|limits| limits.in_flight = 4), false);
    let mut client = served.connect().await;
    for id in 0..10 {
        client.ask(id, Op::Hello).await;
    }
    let (_, outbox) = served.opened().await;
    for id in 0..4 {
        assert_eq!(served.request().await.1, id);
    }
    served.assert_quiet().await;
    // An event is no reply.
    outbox.push(Event { lease: 1, kind: EventKind::Renewed }.encode());
    assert_eq!(client.line().await["event"], "renewed");
    served.assert_quiet().await;
    outbox.push(answer(2));
    assert_eq!(served.request().await.1, 4);
    served.assert_quiet().await;
    assert_eq!(client.line().await, answered(2));
}

#[tokio::test]
async fn bad_lines_in_a_flood_do_not_pass_the_limit_either() {
    let mut served = Served::start();
    let client = served.connect().await;
    served.opened().await;
    let (reading, mut writing) = client.stream.into_inner().into_split();
    let flood = tokio::spawn(async move {
        for _ in 0..100 {
            tokio::io::AsyncWriteExt::write_all(&mut writing, "\n".repeat(1_000).as_bytes()).await.unwrap();
        }
        writing
    });
    // 100,000 errors are 8 MB, far more than may wait for a slow reader; the server waits for this one instead.
    served.assert_quiet().await;
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(reading));
    for n in 0..100_000 {
        let line = soon("an error line", lines.next_line()).await.unwrap();
        assert!(line.is_some_and(|line| line.contains("protocol")), "line {n}");
    }
    flood.await.unwrap();
}

#[tokio::test]
async fn a_reader_that_does_not_read_is_given_up_and_not_taken_for_gone() {
    let mut served = Served::start();
    let client = served.connect().await;
    let (id, outbox) = served.opened().await;
    let event = Event { lease: 1, kind: EventKind::Lost { reason: LostReason::Stolen } }.encode();
    for _ in 0..2 * MAX_WAITING / event.len() {
        outbox.push(event.clone());
    }
    assert_eq!(served.closed().await, (id, Gone::Faulted));
    drop(client);
    served.assert_quiet().await;
}

#[tokio::test]
async fn a_slow_reader_within_the_bound_gets_every_line() {
    let mut served = Served::start();
    let mut client = served.connect().await;
    let (_, outbox) = served.opened().await;
    let filler = "f".repeat(10_000);
    let line = |n: u64| json!({"event": "test", "lease": n, "filler": filler}).to_string() + "\n";
    for n in 0..100 {
        outbox.push(line(n));
    }
    served.assert_quiet().await;
    for n in 0..100 {
        assert_eq!(client.line().await["lease"], n);
    }
}

#[tokio::test]
async fn connections_past_the_limit_are_told_why_and_closed() {
    let mut served = Served::with(limits(|limits| limits.connections = 2), false);
    let first = served.connect().await;
    let (first_id, _outbox) = served.opened().await;
    let _second = served.connect().await;
    served.opened().await;
    let mut third = served.connect().await;
    let line = third.line().await;
    assert_eq!((&line["id"], &line["error"]["code"]), (&Value::Null, &json!("unavailable")), "{line}");
    assert!(line["error"]["message"].as_str().unwrap().contains("2 connections"), "{line}");
    assert_eq!(third.line().await, Value::Null);
    served.assert_quiet().await;
    // Its place is free again.
    drop((first, _outbox));
    assert_eq!(served.closed().await, (first_id, Gone::Closed));
    let _fourth = served.connect().await;
    served.opened().await;
}

#[tokio::test]
async fn a_driver_that_is_gone_is_answered_for() {
    let mut served = Served::start();
    let mut client = served.connect().await;
    client.ask(1, Op::Hello).await;
    client.ask(2, Op::Hello).await;
    let (_, outbox) = served.opened().await;
    assert_eq!(served.request().await.1, 1);
    assert_eq!(served.request().await.1, 2);
    outbox.push(answer(1));
    assert_eq!(client.line().await, answered(1));
    drop((served.commands.take(), outbox));
    let failed = |id: u64, line: Value| {
        assert_eq!((&line["id"], &line["error"]["code"]), (&json!(id), &json!("unavailable")), "{line}");
        assert!(line["error"]["message"].as_str().unwrap().starts_with("the extension failed"), "{line}");
    };
    failed(2, client.line().await);
    client.ask(3, Op::Hello).await;
    failed(3, client.line().await);
    // New connections are answered too.
    let mut other = Client::connect(&served.path()).await;
    other.ask(7, Op::Hello).await;
    failed(7, other.line().await);
    client.ask(4, Op::Hello).await;
    failed(4, client.line().await);
}
