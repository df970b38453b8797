//! Wrong settings, wrong tables, missing permissions and wrong lines, against the real extension.

use serde_json::{Value, json};
use std::time::Duration;
use testkit::dynamo::{Dynamo, Fault, Operation, row};
use testkit::sidecar::{Sidecar, SocketClient};
use tokio::task::JoinSet;
use tokio::time::Instant;

const LEASE_MS: u64 = 20_000;

/// Longer than an answer that is given at once takes on a busy machine, shorter than any wait that is asked for here.
const AT_ONCE: Duration = Duration::from_secs(2);
const WAIT_MS: u64 = 30_000;

/// The code and the text of an error.
fn told(error: &Value) -> (&str, &str) {
    (error["code"].as_str().expect("an error has a code"), error["message"].as_str().expect("and a text"))
}

/// Asks for a lock with much time to wait in, and expects an error that waits for nothing.
async fn refused(client: &mut SocketClient, key: &str) -> Value {
    let asked = Instant::now();
    let error = client.acquire(key, LEASE_MS, WAIT_MS).await.expect_err("it cannot be had");
    assert!(asked.elapsed() < AT_ONCE, "answered after {:?}: {error}", asked.elapsed());
    error
}

#[tokio::test]
async fn with_wrong_settings_it_comes_up_and_every_lock_request_names_the_variable() {
    let wrong = [
        ("LEASEKEEPER_TABLE", None),
        ("LEASEKEEPER_TABLE", Some("")),
        ("LEASEKEEPER_TABLE", Some("a table")),
        ("LEASEKEEPER_LEASE_MS", Some("99")),
        ("LEASEKEEPER_LEASE_MS", Some("86400001")),
        ("LEASEKEEPER_LEASE_MS", Some("20s")),
        ("LEASEKEEPER_WAIT_MS", Some("-1")),
        ("LEASEKEEPER_WAIT_MS", Some("NaN")),
        ("LEASEKEEPER_RESERVE_MS", Some("1.5")),
        ("LEASEKEEPER_MAX_HOLD_MS", Some("0")),
        ("LEASEKEEPER_PEER_UIDS", Some("root")),
        ("LEASEKEEPER_PLAIN_KEYS", Some("yes")),
        ("LEASEKEEPER_STORE", Some("redis")),
        ("LEASEKEEPER_LOG", Some("leasekeeper=loud")),
        ("LEASEKEEPER_LOG_FORMAT", Some("xml")),
    ];
    let dynamo = Dynamo::start().await;
    for (name, value) in wrong {
        let variables = dynamo.env().into_iter().filter(|(known, _)| *known != name);
        let mut sidecar = Sidecar::start_with(variables.chain(value.map(|value| (name, value.to_owned())))).await;
        let mut client = sidecar.connect().await;
        for key in ["k", "another"] {
            let error = refused(&mut client, key).await;
            let (code, message) = told(&error);
            assert_eq!(code, "config", "{name}={value:?}: {error}");
            assert!(message.contains(name), "{name}={value:?}: {message}");
        }
        client.ask(json!({"op": "hello"})).await.expect("what needs no setting works");
        sidecar.logged("ERROR", name).await;
        assert!(sidecar.is_running(), "{name}={value:?}");
    }
    assert!(dynamo.requests().is_empty());
}

#[tokio::test]
async fn two_wrong_settings_are_both_named_and_an_unknown_one_is_logged() {
    let dynamo = Dynamo::start().await;
    let settings = [("LEASEKEEPER_TABLE", "?"), ("LEASEKEEPER_LEASE_MS", "?"), ("LEASEKEEPER_LEASE", "20")];
    let sidecar = Sidecar::start(&dynamo, "", &settings).await;
    let error = refused(&mut sidecar.connect().await, "k").await;
    let (code, message) = told(&error);
    assert_eq!(code, "config");
    assert!(message.contains("LEASEKEEPER_TABLE") && message.contains("LEASEKEEPER_LEASE_MS"), "{message}");
    sidecar.logged("WARN", "\"LEASEKEEPER_LEASE\"").await;
}

#[tokio::test]
async fn a_table_that_is_missing_or_has_another_key_is_named_with_what_was_expected() {
    let dynamo = Dynamo::start().await;
    dynamo.create_table("other-name", "id", "S", None);
    dynamo.create_table("other-type", "key", "N", None);
    dynamo.create_table("sort-key", "key", "S", Some("range"));
    for table in ["missing", "other-name", "other-type", "sort-key"] {
        let mut sidecar = Sidecar::start(&dynamo, table, &[("LEASEKEEPER_TABLE", table)]).await;
        let mut client = sidecar.connect().await;
        let error = refused(&mut client, "k").await;
        let (code, message) = told(&error);
        assert_eq!(code, "config", "{table}: {error}");
        let mut parts = vec![table, "dynamodb:PutItem", "partition key `key` of type S", "no sort key"];
        if table == "missing" {
            parts.extend(["there is no table", "eu-central-1"]);
        }
        let errors = sidecar.logged("ERROR", "dynamodb:PutItem").await;
        for part in parts {
            assert!(message.contains(part), "{table}: no {part:?} in {message:?}");
            assert!(errors.contains(part), "{table}: no {part:?} in the log: {errors}");
        }
        let sent = dynamo.requests().iter().filter(|request| request.client == table).count();
        assert_eq!(sent, 1, "{table}: the first request meets it, and it is not sent again");
        assert!(sidecar.is_running());
    }
}

/// An extension whose role may do everything but `operation`.
async fn without(operation: Operation) -> (Dynamo, Sidecar, SocketClient) {
    let dynamo = Dynamo::start().await;
    dynamo.fail(operation, Fault::AccessDenied).always();
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let client = sidecar.connect().await;
    (dynamo, sidecar, client)
}

/// The error and the log name the action and the table.
async fn assert_named(sidecar: &Sidecar, message: &str, action: &str) {
    let errors = sidecar.logged("ERROR", action).await;
    for part in [action, "`locks`", "AccessDeniedException"] {
        assert!(message.contains(part), "no {part:?} in {message:?}");
        assert!(errors.contains(part), "no {part:?} in the log: {errors}");
    }
}

#[tokio::test]
async fn without_put_item_an_acquire_is_denied_at_once() {
    let (dynamo, sidecar, mut client) = without(Operation::PutItem).await;
    let error = refused(&mut client, "k").await;
    let (code, message) = told(&error);
    assert_eq!(code, "denied");
    assert_named(&sidecar, message, "dynamodb:PutItem").await;
    assert_eq!(dynamo.requests().len(), 1, "it is not sent again");
}

#[tokio::test]
async fn without_get_item_a_wait_is_denied_at_its_first_poll_and_what_needs_none_works() {
    let (dynamo, sidecar, mut client) = without(Operation::GetItem).await;
    dynamo.put_raw(row("held", "someone", "v", 60_000));
    let error = refused(&mut client, "held").await;
    let (code, message) = told(&error);
    assert_eq!(code, "denied");
    assert_named(&sidecar, message, "dynamodb:GetItem").await;
    let busy = client.acquire("held", LEASE_MS, 0).await.expect_err("held");
    assert_eq!(busy["code"], "busy", "{busy}");
    let grant = client.acquire("free", LEASE_MS, WAIT_MS).await.expect("free");
    client.release(grant.lease).await.expect("held");
}

#[tokio::test]
async fn without_update_item_a_lock_is_lost_as_denied_at_its_first_renewal() {
    let (dynamo, sidecar, mut client) = without(Operation::UpdateItem).await;
    let grant = client.acquire("k", 1_200, WAIT_MS).await.expect("free");
    assert_eq!(client.lost(grant.lease).await, "denied");
    assert_eq!(dynamo.count(Operation::UpdateItem), 1);
    let error = client.release(grant.lease).await.expect_err("it is lost");
    let (code, message) = told(&error);
    assert_eq!((code, &error["reason"]), ("lost", &json!("denied")));
    assert_named(&sidecar, message, "dynamodb:UpdateItem").await;
}

#[tokio::test]
async fn without_delete_item_a_release_is_unconfirmed_at_once_and_names_the_action() {
    let (dynamo, sidecar, mut client) = without(Operation::DeleteItem).await;
    let grant = client.acquire("k", LEASE_MS, WAIT_MS).await.expect("free");
    let asked = Instant::now();
    let error = client.release(grant.lease).await.expect_err("it may not");
    assert!(asked.elapsed() < AT_ONCE, "answered after {:?}", asked.elapsed());
    let (code, message) = told(&error);
    assert_eq!(code, "release_unconfirmed");
    assert_named(&sidecar, message, "dynamodb:DeleteItem").await;
    assert!(dynamo.item("k").is_some());
    // The environment itself knows that nobody believes in its old row.
    client.acquire("k", LEASE_MS, 0).await.expect("its own row of before");
}

#[tokio::test]
async fn a_row_of_another_kind_is_refused_at_once_and_left_alone() {
    let good = row("k", "owner", "v", 20_000);
    let with = |name: &str, value: Value| {
        let mut item = good.clone();
        item[name] = value;
        item
    };
    let without = |name: &str| {
        let mut item = good.clone();
        item.as_object_mut().expect("an item").remove(name);
        item
    };
    let rows = [
        without("protocol"),
        with("protocol", json!({"N": "2"})),
        with("protocol", json!({"S": "1"})),
        without("lease_ms"),
        with("lease_ms", json!({"S": "20000"})),
        with("lease_ms", json!({"N": "1.5"})),
        with("lease_ms", json!({"N": "99"})),
        with("lease_ms", json!({"N": "86400001"})),
        without("owner"),
        with("owner", json!({"S": ""})),
        with("owner", json!({"N": "7"})),
        without("version"),
        with("version", json!({"N": "7"})),
    ];
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    for item in rows {
        dynamo.put_raw(item.clone());
        let error = refused(&mut client, "k").await;
        assert_eq!(told(&error).0, "foreign_row", "{item}: {error}");
        assert_eq!(dynamo.item("k"), Some(item), "left alone");
    }
    assert_eq!(dynamo.count(Operation::PutItem), dynamo.requests().len(), "the attempt itself shows the row");
}

/// Lines that are no requests, each with the id that its error echoes.
fn bad_lines() -> Vec<(Vec<u8>, Value)> {
    let line = |text: &str, id: Value| (text.as_bytes().to_vec(), id);
    let acquire = |fields: &str| format!(r#"{{"v":1,"id":7,"op":"acquire",{fields}}}"#);
    let mut lines = vec![
        // Too long, whatever it says.
        (format!(r#"{{"v":1,"id":7,"op":"hello","x":"{}"}}"#, "x".repeat(64 * 1024)).into_bytes(), Value::Null),
        (vec![b'x'; 1024 * 1024], Value::Null),
        // Not JSON, not text, not an object.
        line("", Value::Null),
        line("hello", Value::Null),
        line(r#"{"v":1,"id":7"#, Value::Null),
        line(r#"{"v":1,"id":7,"op":"hello"} {}"#, Value::Null),
        (vec![0xff, 0xfe, 0x00], Value::Null),
        line("[]", Value::Null),
        line("7", Value::Null),
        line("null", Value::Null),
        line(r#""hello""#, Value::Null),
        (vec![b'['; 60_000], Value::Null),
        // An id that is none.
        line(r#"{"v":1,"op":"hello"}"#, Value::Null),
        line(r#"{"v":1,"id":"7","op":"hello"}"#, Value::Null),
        line(r#"{"v":1,"id":-1,"op":"hello"}"#, Value::Null),
        // Unknown version, operation, field; a field twice.
        line(r#"{"id":7,"op":"hello"}"#, json!(7)),
        line(r#"{"v":2,"id":7,"op":"hello"}"#, json!(7)),
        line(r#"{"v":"1","id":7,"op":"hello"}"#, json!(7)),
        line(r#"{"v":1,"id":7}"#, json!(7)),
        line(r#"{"v":1,"id":7,"op":"steal"}"#, json!(7)),
        line(r#"{"v":1,"id":7,"op":7}"#, json!(7)),
        line(r#"{"v":1,"id":7,"op":"hello","extra":true}"#, json!(7)),
        line(&acquire(r#""key":"k","fence":true"#), json!(7)),
        line(&acquire(r#""key":"k","key":"l""#), Value::Null),
        // Leases that are not this connection's.
        line(r#"{"v":1,"id":7,"op":"check","lease":12345}"#, json!(7)),
        line(r#"{"v":1,"id":7,"op":"release","lease":12345}"#, json!(7)),
        line(r#"{"v":1,"id":7,"op":"release"}"#, json!(7)),
        line(r#"{"v":1,"id":7,"op":"metrics","lease":"1"}"#, json!(7)),
    ];
    // Keys.
    let long = format!(r#""key":"{}""#, "k".repeat(2_049));
    let long_in_bytes = format!(r#""key":"{}""#, "é".repeat(1_025));
    let keys =
        [r#""wait_ms":0"#, r#""key":"""#, &long, &long_in_bytes, r#""key":7"#, r#""key":null"#, r#""key":["k"]"#];
    lines.extend(keys.map(|key| line(&acquire(key), json!(7))));
    // Waits and leases; what is no JSON number makes the line none.
    for field in ["wait_ms", "lease_ms"] {
        for value in ["-1", "1000.5", "1e3", "\"1000\"", "null", "true", "86400001", "18446744073709551616"] {
            lines.push(line(&acquire(&format!(r#""key":"k","{field}":{value}"#)), json!(7)));
        }
        for value in ["NaN", "Infinity", "1e999"] {
            lines.push(line(&acquire(&format!(r#""key":"k","{field}":{value}"#)), Value::Null));
        }
    }
    lines.extend(["0", "99"].map(|lease| line(&acquire(&format!(r#""key":"k","lease_ms":{lease}"#)), json!(7))));
    lines
}

#[tokio::test]
async fn a_bad_line_is_answered_with_a_code_and_the_connection_still_serves() {
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    for (mut line, id) in bad_lines() {
        let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        line.push(b'\n');
        client.write(&line).await.expect("it stays open");
        let reply = client.reply().await.unwrap_or_else(|| panic!("{shown}: the connection was closed"));
        assert_eq!((told(&reply["error"]).0, &reply["id"]), ("protocol", &id), "{shown}: {reply}");
        client.ask(json!({"op": "hello"})).await.expect("the same connection serves");
    }
    assert!(dynamo.requests().is_empty(), "nothing is sent for any of them");
    let grant = client.acquire("k", LEASE_MS, WAIT_MS).await.expect("free");
    client.release(grant.lease).await.expect("held");
    assert!(sidecar.is_running());
}

#[tokio::test]
async fn the_largest_key_wait_and_lease_are_good() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    for key in ["k".repeat(2_048), "é".repeat(1_024)] {
        let grant = client.acquire(&key, 86_400_000, 86_400_000).await.expect("in range");
        assert_eq!(dynamo.item(&key).expect("held")["lease_ms"]["N"], "86400000");
        client.release(grant.lease).await.expect("held");
    }
}

#[tokio::test]
async fn a_line_that_ends_in_the_middle_is_not_obeyed() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    client.write(br#"{"v":1,"id":1,"op":"acquire","key":"k"}"#).await.expect("open");
    drop(client);
    sidecar.connect().await.acquire("later", LEASE_MS, WAIT_MS).await.expect("free");
    assert!(dynamo.requests_for("k").is_empty());
}

#[tokio::test]
async fn memory_stays_bounded_under_bad_lines_long_lines_and_clients_that_do_not_read() {
    const CLIENTS: usize = 16;
    /// What each sends in all, if it is let.
    const BYTES: usize = 2 * 1024 * 1024;
    // A connection may have one line of 64 KiB and one chunk of its input, and 64 unanswered lines whose errors are short:
    // 2 MiB for all of them, and as much again for what the allocator keeps of the buffers. Whoever keeps what is
    // swallowed grows by 16 MiB.
    const MOST_KIB: u64 = 4 * 1024;
    let dynamo = Dynamo::start().await;
    let mut sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    let grant = client.acquire("k", LEASE_MS, WAIT_MS).await.expect("free");
    let before = sidecar.resident_kib();
    let mut flood = JoinSet::new();
    for number in 0..CLIENTS {
        let mut client = sidecar.connect().await;
        flood.spawn(async move {
            let piece = match number % 4 {
                // One line without an end.
                0 => vec![b'x'; 64 * 1024],
                // Lines that are too long.
                1 => [vec![b'x'; 70_000], vec![b'\n']].concat(),
                // Short bad lines.
                2 => b"{\"v\":1,\"id\":1,\"op\":\"steal\"}\n".repeat(2_000),
                // Good requests about leases that are not theirs.
                _ => b"{\"v\":1,\"id\":1,\"op\":\"check\",\"lease\":1}\n".repeat(2_000),
            };
            // No reply is read. What needs few is swallowed whole; of the rest the extension stops reading.
            let swallowed = number % 4 < 2;
            let send = async {
                for _ in 0..BYTES / piece.len() {
                    client.write(&piece).await.expect("it stays open");
                }
            };
            let patience = Duration::from_secs(if swallowed { 30 } else { 1 });
            let sent_all = tokio::time::timeout(patience, send).await.is_ok();
            assert_eq!(sent_all, swallowed, "client {number}");
            client
        });
    }
    let flooding = flood.join_all().await;
    let grown = sidecar.resident_kib().saturating_sub(before);
    assert!(grown < MOST_KIB, "{grown} KiB more than before");
    // Nobody else is kept from anything.
    client.check(grant.lease).await.expect("held");
    client.release(grant.lease).await.expect("held");
    drop(flooding);
    assert!(sidecar.is_running());
}

#[tokio::test]
async fn lock_operations_never_create_or_change_a_table() {
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("abandoned", "someone", "v", 300));
    for table in ["locks", "missing"] {
        let sidecar = Sidecar::start(&dynamo, table, &[("LEASEKEEPER_TABLE", table)]).await;
        let mut client = sidecar.connect().await;
        for key in ["free", "abandoned"] {
            let Ok(grant) = client.acquire(key, 900, 5_000).await else { continue };
            tokio::time::sleep(Duration::from_millis(500)).await;
            client.release(grant.lease).await.expect("held");
        }
    }
    let sent = |operation| dynamo.count(operation) > 0;
    let locks = [Operation::PutItem, Operation::GetItem, Operation::UpdateItem, Operation::DeleteItem];
    assert!(locks.into_iter().all(sent), "every lock operation was among them");
    // The front answers any other operation with an error and keeps it here.
    assert_eq!(dynamo.front().violations(), Vec::<String>::new());
    let all = dynamo.requests();
    assert!(all.iter().all(|request| locks.contains(&request.operation)), "{all:?}");
}
