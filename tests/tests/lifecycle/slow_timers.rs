//! Timers that come late because there is little processor time, which is no freeze: nothing is lost.

use super::*;
use testkit::evidence::figure;
use testkit::quota::Tenth;
use testkit::sandbox::Role;

const ROW: &str = "slow-timers";

/// The handler keeps the tenth of a processor, which it shares with the extension, busy for so long under leases of these lengths:
/// how often each was renewed.
async fn renewals(slowed: impl Fn(&[u32]) -> Tenth, leases_ms: &[u64], busy_ms: u64) -> Vec<u64> {
    let db = Dynamo::start().await;
    let env = environment(&db).timeout(Duration::from_secs(120)).start().await.unwrap();
    let pids = [Role::Extension, Role::Runtime].map(|role| env.pid(role).expect("it runs"));
    let slow = slowed(&pids);
    let ask = |op: &str, lease: usize| json!({"do": "send", "line": {"op": op, "lease": lease}});
    let mut list: Vec<Value> = leases_ms.iter().map(|ms| acquire_for(&format!("k{ms}"), *ms)).collect();
    list.push(json!({"do": "spin", "threads": 2, "ms": busy_ms}));
    list.extend(
        (1..=leases_ms.len()).flat_map(|lease| [ask("check", lease), ask("metrics", lease), ask("release", lease)]),
    );
    let answer = env.invoke(json!({"steps": list})).await.outcome.json();
    let how = slow.how();
    drop(slow);
    let answers = answer.as_array().expect("a list");
    let mut renewals = Vec::new();
    for (asked, lease_ms) in answers[leases_ms.len()..].chunks(3).zip(leases_ms) {
        let [check, metrics, release] = asked else { panic!("three answers: {asked:?}") };
        assert!(check["ok"]["valid_ms"].is_u64(), "a lease of {lease_ms} ms, {how}: {check}");
        assert!(release["ok"]["metrics"].is_object(), "a lease of {lease_ms} ms, {how}: {release}");
        renewals.push(metrics["ok"]["renewals"].as_u64().expect("a count"));
        figure(
            ROW,
            &format!("{how}, lease of {lease_ms} ms, {busy_ms} ms: renewals"),
            renewals.last().expect("pushed"),
        );
        assert_eq!(db.item(&format!("k{lease_ms}")), None);
    }
    let log = env.log_text(Role::Extension);
    assert!(!log.contains("\"lost\""), "{log}");
    renewals
}

#[tokio::test]
async fn with_a_tenth_of_a_processor_and_a_busy_handler_no_lease_of_20_s_is_lost() {
    let renewed = renewals(Tenth::of, &[20_000, 5_000], 19_500).await;
    // Each third of a lease; beyond nine tenths of one, so that without them it would be lost.
    assert!(renewed[0] >= 2 && renewed[1] >= 10, "{renewed:?}");
}

#[tokio::test]
async fn processes_that_stand_nine_tenths_of_the_time_lose_no_lease_of_3_s() {
    let renewed = renewals(Tenth::by_stopping, &[3_000], 4_000).await;
    assert!(renewed[0] >= 3, "{renewed:?}");
}
