//! Managed Instances: many invocations at once, no INVOKE, and a time-out that ends the request but not its code.

use super::*;
use testkit::sandbox::{Outcome, Role};

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
