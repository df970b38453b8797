//! The store's contract: rows, conditions, what a failed condition carries, foreign rows, one winner.

use aws_sdk_dynamodb::types::AttributeValue;
use leasekeeper_core::{Answer, Op, Row, Seen};
use leasekeeper_extension::store::{DynamoStore, MemoryStore, Note, Request, Response, Store, Text};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use testkit::dynamo::{Dynamo, attributes, row as row_json};

/// A store with a look behind its back.
#[derive(Clone)]
pub(crate) enum Bench {
    Memory(MemoryStore),
    DynamoDb(Arc<Dynamo>, Arc<DynamoStore>),
    Remote(Arc<Remote>, Arc<DynamoStore>),
}

/// A table of an emulator that runs elsewhere.
pub(crate) struct Remote {
    pub(crate) client: aws_sdk_dynamodb::Client,
    pub(crate) table: String,
}

impl Bench {
    async fn send(&self, key: &str, op: Op<Text>) -> Response {
        self.send_noted(key, op, Note::default()).await
    }

    async fn send_noted(&self, key: &str, op: Op<Text>, note: Note) -> Response {
        let patience = Duration::from_secs(20);
        let request = Request { key: key.into(), op, timeout: patience, connect_timeout: patience, note };
        match self {
            Self::Memory(store) => store.send(request).await,
            Self::DynamoDb(_, store) | Self::Remote(_, store) => store.send(request).await,
        }
    }

    async fn answer(&self, key: &str, op: Op<Text>) -> Answer<Text> {
        self.send(key, op).await.answer
    }

    async fn put(&self, item: &Value) {
        match self {
            Self::Memory(store) => {
                let key = item["key"]["S"].as_str().expect("an item has a key").to_owned();
                store.put(&key, attributes::of_json(item));
            }
            Self::DynamoDb(dynamo, _) => dynamo.put_raw(item.clone()),
            Self::Remote(remote, _) => {
                let put = remote.client.put_item().table_name(&remote.table).set_item(Some(attributes::of_json(item)));
                put.send().await.expect("the table can be written");
            }
        }
    }

    async fn item(&self, key: &str) -> Option<Value> {
        match self {
            Self::Memory(store) => store.item(key).as_ref().map(attributes::to_json),
            Self::DynamoDb(dynamo, _) => dynamo.item(key),
            Self::Remote(remote, _) => {
                let key = AttributeValue::S(key.to_owned());
                let get = remote.client.get_item().table_name(&remote.table).key("key", key).consistent_read(true);
                let found = get.send().await.expect("the table can be read");
                found.item.as_ref().map(attributes::to_json)
            }
        }
    }
}

fn row(owner: &str, version: &str, lease_ms: u64) -> Row<Text> {
    Row { owner: owner.into(), version: version.into(), lease_ms }
}

fn create(owner: &str, version: &str) -> Op<Text> {
    Op::Create { row: row(owner, version, 20_000) }
}

fn replace(by: Row<Text>, owner: &str, version: &str) -> Op<Text> {
    Op::Replace { row: by, owner: owner.into(), version: version.into() }
}

fn renew(owner: &str, last: &str, new: &str) -> Op<Text> {
    Op::Renew { owner: owner.into(), last: last.into(), new: new.into() }
}

fn delete(owner: &str) -> Op<Text> {
    Op::Delete { owner: owner.into() }
}

fn with(mut item: Value, name: &str, value: Value) -> Value {
    item[name] = value;
    item
}

fn without(mut item: Value, name: &str) -> Value {
    item.as_object_mut().expect("an item is an object").remove(name);
    item
}

pub(crate) async fn create_writes_the_whole_row(bench: Bench) {
    let note = Note {
        function: Some("import".to_owned()),
        request_id: Some("8476a536".to_owned()),
        log_stream: Some("2026/01/01/[1]ab".to_owned()),
        host: Some("web-1, process 7".to_owned()),
        acquired_at: Some("2026-01-01T00:00:00Z".to_owned()),
    };
    let response = bench.send_noted("k", create("o1", "v1"), note).await;
    assert_eq!(response.answer, Answer::Done);
    assert_eq!((response.read_units, response.write_units), (0.0, 1.0));
    assert_eq!(
        bench.item("k").await,
        Some(json!({
            "key": {"S": "k"},
            "owner": {"S": "o1"},
            "version": {"S": "v1"},
            "lease_ms": {"N": "20000"},
            "protocol": {"N": "1"},
            "function": {"S": "import"},
            "request_id": {"S": "8476a536"},
            "log_stream": {"S": "2026/01/01/[1]ab"},
            "host": {"S": "web-1, process 7"},
            "acquired_at": {"S": "2026-01-01T00:00:00Z"},
        }))
    );
    assert_eq!(bench.answer("bare", create("o1", "v1")).await, Answer::Done);
    assert_eq!(bench.item("bare").await, Some(row_json("bare", "o1", "v1", 20_000)), "an empty note adds nothing");
}

pub(crate) async fn create_fails_with_the_row_that_is_there(bench: Bench) {
    let there = with(row_json("k", "other", "v9", 5_000), "function", json!({"S": "theirs"}));
    bench.put(&there).await;
    let response = bench.send("k", create("o1", "v1")).await;
    assert_eq!(response.answer, Answer::Failed(Seen::Row(row("other", "v9", 5_000))));
    assert_eq!(response.note, Some(Note { function: Some("theirs".to_owned()), ..Note::default() }));
    assert_eq!((response.read_units, response.write_units), (0.0, 0.0));
    assert_eq!(bench.item("k").await, Some(there));
}

pub(crate) async fn replace_writes_the_whole_row_and_drops_what_else_was_there(bench: Bench) {
    bench.put(&with(row_json("k", "dead", "v9", 5_000), "acquired_at", json!({"S": "yesterday"}))).await;
    let response = bench.send("k", replace(row("o1", "v1", 30_000), "dead", "v9")).await;
    assert_eq!(response.answer, Answer::Done);
    assert_eq!(response.write_units, 1.0);
    assert_eq!(bench.item("k").await, Some(row_json("k", "o1", "v1", 30_000)));
}

pub(crate) async fn replace_fails_unless_owner_and_version_are_those(bench: Bench) {
    let there = row_json("k", "other", "v9", 5_000);
    bench.put(&there).await;
    for (owner, version) in [("other", "v8"), ("another", "v9"), ("another", "v8"), ("v9", "other")] {
        let answer = bench.answer("k", replace(row("o1", "v1", 20_000), owner, version)).await;
        assert_eq!(answer, Answer::Failed(Seen::Row(row("other", "v9", 5_000))), "over {owner} {version}");
        assert_eq!(bench.item("k").await, Some(there.clone()));
    }
    let answer = bench.answer("gone", replace(row("o1", "v1", 20_000), "other", "v9")).await;
    assert_eq!(answer, Answer::Failed(Seen::Nothing));
    assert_eq!(bench.item("gone").await, None);
}

pub(crate) async fn read_finds_the_row_and_who_holds_it(bench: Bench) {
    let nothing = bench.send("k", Op::Read).await;
    assert_eq!((nothing.answer, nothing.note), (Answer::Found(Seen::Nothing), None));
    let mut there = row_json("k", "o1", "v1", 20_000);
    there["request_id"] = json!({"S": "8476a536"});
    there["function"] = json!({"N": "7"});
    there["tags"] = json!({"L": [{"S": "a"}, {"BOOL": true}]});
    bench.put(&there).await;
    let found = bench.send("k", Op::Read).await;
    assert_eq!(found.answer, Answer::Found(Seen::Row(row("o1", "v1", 20_000))));
    assert_eq!(found.note, Some(Note { request_id: Some("8476a536".to_owned()), ..Note::default() }));
    assert_eq!((found.read_units, found.write_units), (1.0, 0.0));
}

pub(crate) async fn renew_moves_the_version_and_nothing_else(bench: Bench) {
    let there = with(row_json("k", "o1", "v1", 20_000), "acquired_at", json!({"S": "yesterday"}));
    bench.put(&there).await;
    let response = bench.send("k", renew("o1", "v1", "v2")).await;
    assert_eq!(response.answer, Answer::Done);
    assert_eq!(response.write_units, 1.0);
    assert_eq!(bench.item("k").await, Some(with(there, "version", json!({"S": "v2"}))));
}

pub(crate) async fn renew_fails_unless_owner_and_version_are_those(bench: Bench) {
    let there = row_json("k", "o1", "v9", 20_000);
    bench.put(&there).await;
    for (owner, last) in [("o1", "v8"), ("o2", "v9"), ("o2", "v8")] {
        let answer = bench.answer("k", renew(owner, last, "v10")).await;
        assert_eq!(answer, Answer::Failed(Seen::Row(row("o1", "v9", 20_000))), "{owner} at {last}");
        assert_eq!(bench.item("k").await, Some(there.clone()));
    }
    assert_eq!(bench.answer("gone", renew("o1", "v9", "v10")).await, Answer::Failed(Seen::Nothing));
    assert_eq!(bench.item("gone").await, None, "a renewal never makes a row");
}

pub(crate) async fn delete_removes_the_row(bench: Bench) {
    bench.put(&row_json("k", "o1", "any", 20_000)).await;
    let response = bench.send("k", delete("o1")).await;
    assert_eq!(response.answer, Answer::Done);
    assert_eq!(response.write_units, 1.0);
    assert_eq!(bench.item("k").await, None);
}

pub(crate) async fn delete_fails_unless_the_owner_is_that(bench: Bench) {
    let there = row_json("k", "other", "v9", 20_000);
    bench.put(&there).await;
    assert_eq!(bench.answer("k", delete("o1")).await, Answer::Failed(Seen::Row(row("other", "v9", 20_000))));
    assert_eq!(bench.item("k").await, Some(there));
    assert_eq!(bench.answer("gone", delete("o1")).await, Answer::Failed(Seen::Nothing));
}

pub(crate) async fn foreign_rows_are_named_and_left_alone(bench: Bench) {
    let good = || row_json("k", "o1", "v1", 20_000);
    let cases = [
        ("protocol", without(good(), "protocol")),
        ("protocol", with(good(), "protocol", json!({"S": "1"}))),
        ("protocol", with(good(), "protocol", json!({"N": "2"}))),
        ("protocol", with(good(), "protocol", json!({"N": "1.5"}))),
        ("protocol", with(good(), "protocol", json!({"BOOL": true}))),
        ("lease_ms", without(good(), "lease_ms")),
        ("lease_ms", with(good(), "lease_ms", json!({"S": "20000"}))),
        ("lease_ms", with(good(), "lease_ms", json!({"S": "20s"}))),
        ("lease_ms", with(good(), "lease_ms", json!({"N": "20000.5"}))),
        ("lease_ms", with(good(), "lease_ms", json!({"N": "99"}))),
        ("lease_ms", with(good(), "lease_ms", json!({"N": "0"}))),
        ("lease_ms", with(good(), "lease_ms", json!({"N": "-20000"}))),
        ("lease_ms", with(good(), "lease_ms", json!({"N": "86400001"}))),
        ("lease_ms", with(good(), "lease_ms", json!({"N": "1767225600000"}))),
        ("lease_ms", with(good(), "lease_ms", json!({"N": "100000000000000000000000000000000000"}))),
        ("lease_ms", with(good(), "lease_ms", json!({"NULL": true}))),
        ("owner", without(good(), "owner")),
        ("owner", with(good(), "owner", json!({"S": ""}))),
        ("owner", with(good(), "owner", json!({"N": "1"}))),
        ("version", without(good(), "version")),
        ("version", with(good(), "version", json!({"S": ""}))),
        ("version", with(good(), "version", json!({"L": []}))),
        // As lock libraries for Java, Go and Rust write them.
        (
            "protocol",
            json!({"key": {"S": "k"}, "ownerName": {"S": "host"}, "leaseDuration": {"S": "20000"},
                   "recordVersionNumber": {"S": "4f1b"}}),
        ),
        (
            "protocol",
            json!({"key": {"S": "k"}, "ownerName": {"S": "host"}, "leaseDuration": {"S": "20s"},
                   "recordVersionNumber": {"S": "4f1b"}, "isReleased": {"S": "1"}}),
        ),
        ("protocol", json!({"key": {"S": "k"}, "lease_expiry": {"N": "1767225600"}, "lease_version": {"S": "4f1b"}})),
        // A fencing counter is no lock.
        ("protocol", json!({"key": {"S": "k"}, "fence": {"N": "7"}, "for": {"S": "lock"}})),
    ];
    for (attribute, item) in cases {
        bench.put(&item).await;
        let reason = match bench.answer("k", Op::Read).await {
            Answer::Found(Seen::Foreign(reason)) => reason,
            other => panic!("{other:?} for {item}"),
        };
        assert!(reason.starts_with(&format!("attribute `{attribute}` is ")), "{reason:?} for {item}");
        assert!(reason.contains(", expected "), "{reason:?} for {item}");
        let conditions =
            [create("o9", "v9"), replace(row("o9", "v9", 20_000), "o8", "v8"), renew("o8", "v8", "v9"), delete("o8")];
        for op in conditions {
            let answer = bench.answer("k", op.clone()).await;
            assert_eq!(answer, Answer::Failed(Seen::Foreign(reason.clone())), "{op:?} on {item}");
        }
        assert_eq!(bench.item("k").await, Some(item));
    }
}

pub(crate) async fn unusual_rows_of_the_protocol_are_accepted(bench: Bench) {
    for (owner, version, lease_ms) in [("not a uuid", "é", 100), ("o", "v", 86_400_000), ("1", "2", 20_000)] {
        bench.put(&row_json("k", owner, version, lease_ms)).await;
        let found = bench.answer("k", Op::Read).await;
        assert_eq!(found, Answer::Found(Seen::Row(row(owner, version, lease_ms))));
    }
}

pub(crate) async fn keys_of_every_length_are_kept_apart(bench: Bench) {
    let keys = ["k", "kk", "K", &"日".repeat(682), &format!("{}ab", "日".repeat(682)), "a\u{1F}b", " "];
    for key in keys {
        assert_eq!(bench.answer(key, create(&format!("owner of {}", key.len()), key)).await, Answer::Done);
    }
    for key in keys {
        let found = bench.answer(key, Op::Read).await;
        assert_eq!(found, Answer::Found(Seen::Row(row(&format!("owner of {}", key.len()), key, 20_000))));
    }
}

/// Sends them all at once, each from a task of its own.
async fn race(bench: &Bench, op: impl Fn(usize) -> Op<Text>) -> Vec<Answer<Text>> {
    let start = Arc::new(tokio::sync::Barrier::new(32));
    let racers: Vec<_> = (0..32)
        .map(|racer| {
            let (bench, op, start) = (bench.clone(), op(racer), start.clone());
            tokio::spawn(async move {
                start.wait().await;
                bench.answer("k", op).await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for racer in racers {
        answers.push(racer.await.expect("a racer does not panic"));
    }
    answers
}

/// Exactly one is done, and all others were refused with the winner's row.
fn assert_one_winner(answers: &[Answer<Text>]) {
    let winners: Vec<_> = answers.iter().enumerate().filter(|(_, answer)| **answer == Answer::Done).collect();
    let [(winner, _)] = winners[..] else { panic!("{} winners", winners.len()) };
    let seen = Answer::Failed(Seen::Row(row(&format!("o{winner}"), &format!("v{winner}"), 20_000)));
    assert_eq!(answers.iter().filter(|answer| **answer == seen).count(), 31, "{answers:?}");
}

pub(crate) async fn of_32_creators_one_wins(bench: Bench) {
    assert_one_winner(&race(&bench, |racer| create(&format!("o{racer}"), &format!("v{racer}"))).await);
}

pub(crate) async fn of_32_takeovers_one_wins(bench: Bench) {
    bench.put(&row_json("k", "dead", "v", 20_000)).await;
    let by = |racer| row(&format!("o{racer}"), &format!("v{racer}"), 20_000);
    assert_one_winner(&race(&bench, |racer| replace(by(racer), "dead", "v")).await);
}
