//! DynamoDB is back after an outage shorter than the validity: the lock is still held, and that was told.

use super::rows::in_tenths;
use super::*;
use testkit::deeds;
use testkit::dynamo::{Fault, Operation, Recorded};
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::sandbox::Role;
use tokio::task::JoinSet;

const ROW: &str = "outage";
/// Renewed after 1 s, in danger after 1.8 s, valid for 2.7 s.
const LEASE_MS: u64 = 3_000;

/// Until a little after the lease is in danger: two thirds of it, from the grant.
async fn outage(db: &Dynamo, fault: Fault, granted: Instant, lease_ms: u64) {
    let rule = db.fail(Operation::Any, fault).always();
    let end = granted + Duration::from_millis(lease_ms * 2 / 3);
    tokio::time::sleep(end.saturating_duration_since(Instant::now())).await;
    rule.lift();
}

/// The renewals that the outage met.
fn met(db: &Dynamo) -> Vec<Recorded> {
    let renewals = db.requests_for("k").into_iter().filter(|request| request.operation == Operation::UpdateItem);
    renewals.filter(|request| request.fault.is_some()).collect()
}

fn is_event(told: &Value, event: &str) -> bool {
    told["event"] == event
}

/// A lease through an outage of this kind: *danger*, *recovered*, and nothing else until after the next renewal.
async fn outlives(fault: Fault, lease_ms: u64) {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let event_soon = || event_within(lease_ms);
    let tell = || json!({"do": "tell"});
    let grant = [acquire_for("k", lease_ms), say("held")];
    let danger = [event_soon(), tell(), check()];
    let recovered = [event_soon(), tell(), check()];
    let silence = [event_within(lease_ms / 3 + 300), check(), json!({"do": "send", "line": {"op": "release"}})];
    let all = grant.into_iter().chain(danger).chain(recovered).chain(silence);
    let call = env.begin(json!({"steps": Value::from_iter(all)}));
    let held = env.wait_for_log(Role::Runtime, "held").await.unwrap().at;
    outage(&db, fault, held, lease_ms).await;
    let back = Instant::now();

    let answer = call.over().await.outcome.json();
    let [_, danger, check, recovered, check_again, silence, last_check, release] = &answer.as_array().unwrap()[..]
    else {
        panic!("{fault:?}: {answer}")
    };
    assert!(is_event(danger, "danger") && is_event(recovered, "recovered"), "{fault:?}: {answer}");
    assert!(silence.is_null(), "{fault:?}: said once: {answer}");
    for checked in [check, check_again, last_check] {
        assert!(checked["ok"]["valid_ms"].as_u64().is_some_and(|ms| ms > 0), "{fault:?}: still held: {answer}");
    }
    assert!(release["ok"].is_object(), "{fault:?}: given back: {answer}");
    assert_eq!(db.item("k"), None, "{fault:?}");
    assert!(!met(&db).is_empty(), "{fault:?} met renewals");
    let told = |event| {
        let lines = env.logs().into_iter().filter(|line| line.text.starts_with("tells "));
        lines.filter(|line| line.text.contains(event)).map(|line| line.at).next().expect("it was told")
    };
    figure(ROW, &format!("lease of {lease_ms} ms: danger told after"), in_tenths(told("danger") - held));
    let recovered = told("recovered").saturating_duration_since(back);
    figure(ROW, &format!("lease of {lease_ms} ms: recovered told after DynamoDB was back"), in_tenths(recovered));
}

#[tokio::test]
async fn a_lock_outlives_an_outage_shorter_than_its_validity_and_danger_and_recovery_are_told_once() {
    let mut outages = JoinSet::new();
    for (fault, lease_ms) in [
        (Fault::Drop, LEASE_MS),
        (Fault::Unavailable, LEASE_MS),
        // An attempt that is not answered takes a sixth of the lease: time for one more after the outage.
        (Fault::Hang, 4_500),
    ] {
        outages.spawn(outlives(fault, lease_ms));
    }
    outages.join_all().await;
}

/// The writes of this outage are done; only their replies are lost.
#[tokio::test]
async fn a_lock_outlives_an_outage_that_loses_the_replies_of_writes_that_were_done() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let events = [event_within(LEASE_MS), event_within(LEASE_MS)];
    let [danger, recovered] = events;
    let call = env.begin(steps([acquire_for("k", LEASE_MS), say("held"), danger, recovered, check()]));
    let held = env.wait_for_log(Role::Runtime, "held").await.unwrap().at;
    let before = db.item("k").unwrap();
    outage(&db, Fault::CommitThenDrop, held, LEASE_MS).await;
    let row = db.item("k").unwrap();
    let answer = call.over().await.outcome.json();

    let version = |request: &Recorded| request.body["ExpressionAttributeValues"][":new"].clone();
    let lost_replies = met(&db);
    assert!(lost_replies.iter().any(|request| version(request) == row["version"]), "a write was done: {row}");
    assert_ne!(row["version"], before["version"]);
    assert_eq!(row["owner"], before["owner"]);
    assert!(is_event(&answer[1], "danger") && is_event(&answer[2], "recovered"), "{answer}");
    assert!(answer[3]["ok"]["valid_ms"].as_u64().is_some_and(|ms| ms > 0), "{answer}");
}

/// A wrapped handler is not told of danger, as its lock is still held; whoever reads the log is.
#[tokio::test]
async fn a_wrapped_handler_in_each_language_works_on_through_an_outage() {
    let mut outages = JoinSet::new();
    for language in [Language::Rust, Language::Python, Language::Node] {
        outages.spawn(async move {
            let db = Dynamo::start().await;
            let lease = LEASE_MS.to_string();
            let env = language.environment(&db).timeout(Duration::from_secs(10)).env("LEASEKEEPER_LEASE_MS", lease);
            let env = env.start().await.unwrap();
            let call = env.begin(deeds::event("k", [json!(["sleep", LEASE_MS])]));
            let held = env.wait_for_log(Role::Runtime, "held").await.unwrap().at;
            outage(&db, Fault::Drop, held, LEASE_MS).await;
            let answer = call.over().await.outcome.json();
            assert!(answer["owner"].is_string(), "{language}: {answer}");
            assert_eq!(db.item("k"), None, "{language}");
            let log = env.log_text(Role::Extension);
            for line in ["no renewal confirmed for most of the lease", "renewals are confirmed again"] {
                assert_eq!(log.matches(line).count(), 1, "{language}: {line}: {log}");
            }
            assert!(!log.contains("\"lost\""), "{language}: {log}");
        });
    }
    outages.join_all().await;
}
