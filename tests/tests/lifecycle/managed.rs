//! Managed Instances: many invocations at once, no INVOKE, and a time-out that ends the request but not its code.

use super::rows::in_tenths;
use super::*;
use std::collections::BTreeMap;
use testkit::dynamo::{Operation, row};
use testkit::evidence::figure;
use testkit::sandbox::{Outcome, Role};

const ROW: &str = "managed-instances";
/// What a busy machine may take until a process runs.
const SCHEDULING: Duration = Duration::from_millis(250);
/// What a request may take from the extension's clock to the store's.
const ON_THE_WAY: Duration = Duration::from_millis(50);

#[tokio::test]
async fn invocations_hold_locks_side_by_side_and_wait_for_each_other() {
    let db = Dynamo::start().await;
    let env = environment(&db).managed_instances(3).start().await.unwrap();
    let hold = |key: &str| env.begin(steps([acquire(key), sleep_ms(400), check()]));
    let calls = [hold("a"), hold("a"), hold("b")];
    for call in calls {
        let answer = call.over().await.outcome.json();
        granted(&answer[0]);
        assert!(answer[1]["ok"]["valid_ms"].is_u64(), "{answer}");
    }
    gone(&db, "a").await;
    gone(&db, "b").await;
    assert!(!env.log_text(Role::Extension).contains("Extension.InvalidEventType"), "INVOKE was not asked for");
}

#[tokio::test]
async fn at_its_deadline_a_lease_is_lost_but_its_row_stays_until_its_validity_is_over() {
    let db = Dynamo::start().await;
    let env = environment(&db).managed_instances(2).timeout(Duration::from_millis(1000)).start().await.unwrap();
    let runtime = env.pid(Role::Runtime);
    let tell = || json!({"do": "tell"});
    let call = env.begin(steps([acquire_for("k", 3000), tell(), event_within(3000), tell(), sleep_ms(2500)]));
    let id = call.id.clone();
    let grant = env.wait_for_log(Role::Runtime, "valid_ms").await.unwrap();
    let granted: Value = serde_json::from_str(grant.text.trim_start_matches("tells ")).unwrap();
    env.wait_for_log(Role::Runtime, "\"reason\": \"deadline\"").await.unwrap();
    assert!(db.item("k").is_some(), "its code still runs and may not have noticed");
    let ended = call.over().await;
    assert_eq!(ended.outcome, Outcome::TimedOut, "{id}");
    let gone = gone(&db, "k").await;
    assert!(gone >= ended.delivered + valid_for(&granted));
    assert_eq!(env.pid(Role::Runtime), runtime);
}

#[tokio::test]
async fn eight_invocations_at_once_wait_for_one_lock_each_by_its_own_budget() {
    let db = Dynamo::start().await;
    db.put_raw(row("k", "someone", "v", 60_000));
    let env = environment(&db).managed_instances(8).start().await.unwrap();
    let wait =
        |ms: u64| env.begin(steps([json!({"do": "send", "line": {"op": "acquire", "key": "k", "wait_ms": ms}})]));
    let waits: Vec<u64> = (1..=8).map(|number| number * 150).collect();
    let calls: Vec<_> = waits.iter().map(|ms| wait(*ms)).collect();
    for (ms, call) in waits.into_iter().zip(calls) {
        let answer = call.over().await.outcome.json();
        let error = &answer[0]["error"];
        assert_eq!(error["code"], "busy", "{answer}");
        let waited = Duration::from_millis(error["metrics"]["wait_ms"].as_u64().unwrap());
        let budget = Duration::from_millis(ms);
        // The last poll is not cut short, and the emulator answers it at once.
        assert!(waited + Duration::from_millis(1) >= budget && waited < budget + SCHEDULING, "{ms}: {waited:?}");
    }
    assert_eq!(db.item("k"), Some(row("k", "someone", "v", 60_000)), "let alone");
}

/// What so many handlers told: each owner's lease, and each lease's loss with the time when it was told.
async fn told(env: &Sandbox, losses: usize) -> (BTreeMap<String, u64>, BTreeMap<u64, (Instant, Value)>) {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let (mut leases, mut lost) = (BTreeMap::new(), BTreeMap::new());
        for line in env.logs() {
            let Some(text) = line.text.strip_prefix("tells ") else { continue };
            let says: Value = serde_json::from_str(text).unwrap();
            let grant = &says["ok"];
            match (grant["owner"].as_str(), grant["lease"].as_u64(), says["lease"].as_u64()) {
                (Some(owner), Some(lease), None) => leases.insert(owner.to_owned(), lease).map(drop),
                (None, None, Some(lease)) => lost.insert(lease, (line.at, says["reason"].clone())).map(drop),
                _ => panic!("neither a grant nor a loss: {says}"),
            };
        }
        if lost.len() == losses {
            return (leases, lost);
        }
        assert!(Instant::now() < end, "{} losses were told", lost.len());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Eight invocations that begin one after the other and never end: each lease is lost at its own deadline, is not renewed
/// after it, and its row stays for as long as its holder may believe in it.
#[tokio::test]
async fn eight_invocations_at_once_lose_their_leases_each_at_its_own_deadline() {
    const TIME: Duration = Duration::from_millis(1_201);
    let db = Dynamo::start().await;
    let env = environment(&db).managed_instances(8).timeout(TIME).start().await.unwrap();
    let tell = || json!({"do": "tell"});
    let mut calls = BTreeMap::new();
    for number in 0..8 {
        let key = format!("k{number}");
        let event = steps([acquire_for(&key, 3_000), tell(), event_within(5_000), tell(), sleep_ms(4_000)]);
        calls.insert(key, env.begin(event));
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let mut ends = BTreeMap::new();
    for (key, call) in calls {
        let done = call.over().await;
        assert_eq!(done.outcome, Outcome::TimedOut, "{key}");
        assert!(db.item(&key).is_some(), "{key}: its code still runs and may not have noticed");
        ends.insert(key, done.asked + TIME);
    }
    let (leases, told) = told(&env, 8).await;
    for (key, deadline) in ends {
        let row = db.item(&key).expect("it stands until its validity is over");
        let (at, reason) = &told[&leases[row["owner"]["S"].as_str().unwrap()]];
        assert_eq!(reason, "deadline", "{key}");
        let off = at.saturating_duration_since(deadline);
        assert!(
            *at + Duration::from_millis(1) >= deadline && off < SCHEDULING,
            "{key}: told {off:?} after its deadline"
        );
        figure(ROW, "raw client, 8 at once: told Lost after its own deadline", in_tenths(off));
        gone(&db, &key).await;
        let log = db.requests_for(&key);
        let last = |operation| log.iter().rfind(|request| request.operation == operation).expect("there was one").at;
        let (renewed, deleted) = (last(Operation::UpdateItem), last(Operation::DeleteItem));
        assert!(db.front().moment(renewed) < deadline, "{key}: renewed after its deadline");
        let stood = deleted - renewed;
        // Validity counts from before the renewal was sent, a little earlier than its arrival.
        assert!(stood > Duration::from_millis(2_700) - ON_THE_WAY, "{key}: deleted {stood:?} after its last renewal");
    }
}
