//! DynamoDB is back after an outage shorter than the validity: the lock is still held, and that was told.

use super::rows::in_tenths;
use super::*;
use testkit::deeds;
use testkit::dynamo::{Fault, Operation, Recorded};
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::sandbox::Role;

const ROW: &str = "outage";
/// Renewed after 1.5 s, in danger after 2.7 s, valid for 4.05 s.
const LEASE_MS: u64 = 4_500;

/// Begins when the lock is acquired and ends a little after its lease is in danger. When the lock was acquired.
async fn outage(db: &Dynamo, fault: Fault) -> Instant {
    let acquired = |log: &[Recorded]| log.iter().any(|request| request.answered.is_some());
    assert!(db.until(Duration::from_secs(5), acquired).await, "nothing was acquired");
    let rule = db.fail(Operation::Any, fault).always();
    let acquired = db.front().moment(db.requests_for("k")[0].at);
    let end = acquired + Duration::from_millis(LEASE_MS * 2 / 3);
    tokio::time::sleep(end.saturating_duration_since(Instant::now())).await;
    rule.lift();
    acquired
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
async fn outlives(fault: Fault) {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let event_soon = || event_within(LEASE_MS);
    let tell = || json!({"do": "tell"});
    let grant = [acquire_for("k", LEASE_MS)];
    let danger = [event_soon(), tell(), check()];
    let recovered = [event_soon(), tell(), check()];
    let silence = [event_within(LEASE_MS / 3 + 300), check(), json!({"do": "send", "line": {"op": "release"}})];
    let all = grant.into_iter().chain(danger).chain(recovered).chain(silence);
    let call = env.begin(json!({"steps": Value::from_iter(all)}));
    let acquired = outage(&db, fault).await;
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
    figure(ROW, &format!("lease of {LEASE_MS} ms: danger told after"), in_tenths(told("danger") - acquired));
    let recovered = told("recovered").saturating_duration_since(back);
    figure(ROW, &format!("lease of {LEASE_MS} ms: recovered told after DynamoDB was back"), in_tenths(recovered));
}

#[tokio::test]
async fn a_lock_outlives_an_outage_shorter_than_its_validity_and_danger_and_recovery_are_told_once() {
    tokio::join!(outlives(Fault::Drop), outlives(Fault::Unavailable), outlives(Fault::Hang));
}

/// The writes of this outage are done; only their replies are lost.
#[tokio::test]
async fn a_lock_outlives_an_outage_that_loses_the_replies_of_writes_that_were_done() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let events = [event_within(LEASE_MS), event_within(LEASE_MS)];
    let [danger, recovered] = events;
    let call = env.begin(steps([acquire_for("k", LEASE_MS), danger, recovered, check()]));
    outage(&db, Fault::CommitThenDrop).await;
    let row = db.item("k").unwrap();
    let answer = call.over().await.outcome.json();

    let version = |request: &Recorded| request.body["ExpressionAttributeValues"][":new"].clone();
    let lost_replies = met(&db);
    assert!(lost_replies.iter().any(|request| version(request) == row["version"]), "a write was done: {row}");
    let put = &db.requests_for("k")[0].body["Item"];
    assert_ne!(row["version"], put["version"]);
    assert_eq!(row["owner"], put["owner"]);
    assert!(is_event(&answer[1], "danger") && is_event(&answer[2], "recovered"), "{answer}");
    assert!(answer[3]["ok"]["valid_ms"].as_u64().is_some_and(|ms| ms > 0), "{answer}");
}

async fn works_on(language: Language) {
    let db = Dynamo::start().await;
    let env = language.environment(&db).timeout(Duration::from_secs(10));
    let env = env.env("LEASEKEEPER_LEASE_MS", LEASE_MS.to_string()).start().await.unwrap();
    let call = env.begin(deeds::event("k", [json!(["sleep", LEASE_MS])]));
    outage(&db, Fault::Drop).await;
    let answer = call.over().await.outcome.json();
    assert!(answer["owner"].is_string(), "{language}: {answer}");
    assert_eq!(db.item("k"), None, "{language}");
    let log = env.log_text(Role::Extension);
    for line in ["no renewal confirmed for most of the lease", "renewals are confirmed again"] {
        assert_eq!(log.matches(line).count(), 1, "{language}: {line}: {log}");
    }
    assert!(!log.contains("\"lost\""), "{language}: {log}");
}

/// A wrapped handler is not told of danger, as its lock is still held; whoever reads the log is.
#[tokio::test]
async fn a_wrapped_handler_in_each_language_works_on_through_an_outage() {
    tokio::join!(works_on(Language::Rust), works_on(Language::Python), works_on(Language::Node));
}
