//! Hold mode: work that goes on after the response keeps its lock and its CPU.

use super::*;
use testkit::dynamo::Operation;
use testkit::evidence::figure;
use testkit::moments::Lateness;
use testkit::sandbox::{Invocation, Outcome, Role};

const ROW: &str = "hold-mode";

/// Turns that processes take, one after the other, between a moment here and what it is compared with.
const TURNS: u32 = 4;

/// An environment that freezes, and waits so long for an invocation's first lock.
fn holding(db: &Dynamo, first_lock_ms: u64) -> Builder {
    environment(db).freeze(true).env("LEASEKEEPER_HOLD_MS", first_lock_ms.to_string())
}

fn later(ms: u64) -> Value {
    json!({"do": "later", "ms": ms})
}

/// From the response to the moment when the environment may freeze.
fn held_up(invocation: &Invocation) -> Duration {
    invocation.over - invocation.answered
}

#[tokio::test]
async fn the_environment_freezes_only_after_a_guard_that_outlived_its_response_is_given_back() {
    let db = Dynamo::start().await;
    let env = holding(&db, 1000).start().await.unwrap();
    let lateness = Lateness::watch();
    let done = env.invoke(steps([acquire_for("k", 900), later(500)])).await;
    granted(&done.outcome.json()[0]);
    assert!(env.is_frozen());
    assert_eq!(db.item("k"), None, "given back before the freeze");
    assert!(db.count(Operation::UpdateItem) >= 1, "renewed after the response");
    env.wait_for_log(Role::Runtime, "later {\"id\": 2, \"ok\"").await.unwrap();
    let held_up = held_up(&done);
    figure(
        ROW,
        "guard given back 500 ms after the response: may freeze after it by",
        format!("{} ms", held_up.as_millis()),
    );
    let most = Duration::from_millis(600) + lateness.of_turns(TURNS);
    assert!(held_up >= Duration::from_millis(500) && held_up < most, "{held_up:?}, {most:?}");
}

#[tokio::test]
async fn a_guard_that_is_never_given_back_holds_the_freeze_up_to_a_margin_before_the_deadline() {
    let db = Dynamo::start().await;
    let env = holding(&db, 1000).timeout(Duration::from_millis(1500)).start().await.unwrap();
    let lateness = Lateness::watch();
    let first = env.invoke(steps([acquire_for("k", 900), keep()])).await;
    granted(&first.outcome.json()[0]);
    assert!(env.is_frozen() && first.afterwards.is_none(), "no time-out: {:?}", first.afterwards);
    let over = first.over - first.delivered;
    figure(ROW, "never given back, time-out 1,500 ms: may freeze after", format!("{} ms", over.as_millis()));
    // Deadlines are told in whole milliseconds.
    let (least, most) = (Duration::from_millis(1298), Duration::from_millis(1350) + lateness.of_turns(TURNS));
    assert!(over >= least && over < most, "{over:?}, {least:?} to {most:?}");
    let renewals = db.count(Operation::UpdateItem);
    assert!(renewals >= 3, "{renewals} renewals while it was held");
    assert!(db.item("k").is_some());

    tokio::time::sleep(Duration::from_millis(250)).await;
    let told = env.invoke(steps([event_within(1000), json!({"do": "close"})])).await.outcome.json();
    assert_eq!((&told[0]["event"], &told[0]["reason"]), (&json!("lost"), &json!("deadline")), "{told}");
    gone(&db, "k").await;
    assert_eq!(db.count(Operation::UpdateItem), renewals, "never renewed after the freeze");
}

#[tokio::test]
async fn an_invocation_without_a_lock_is_over_when_the_time_for_its_first_one_is() {
    let db = Dynamo::start().await;
    let env = holding(&db, 250).start().await.unwrap();
    let lateness = Lateness::watch();
    let done = env.invoke(steps([])).await;
    let late = lateness.of_turns(TURNS);
    let answered = done.answered - done.delivered;
    assert!(answered < Duration::from_millis(100) + late, "its caller does not wait: {answered:?}");
    let over = done.over - done.delivered;
    figure(ROW, "without a lock, LEASEKEEPER_HOLD_MS=250: may freeze after", format!("{} ms", over.as_millis()));
    assert!(over >= Duration::from_millis(250) && over < Duration::from_millis(300) + late, "{over:?}");
    assert!(env.is_frozen() && db.requests().is_empty());
}

#[tokio::test]
async fn locks_that_are_given_back_or_refused_before_the_response_hold_nothing_up() {
    let db = Dynamo::start().await;
    db.put_raw(testkit::dynamo::row("busy", "someone", "v", 60_000));
    let env = holding(&db, 5000).start().await.unwrap();
    let refused = json!({"do": "send", "line": {"op": "acquire", "key": "busy", "wait_ms": 0}});
    let release = json!({"do": "send", "line": {"op": "release"}});
    for (name, event) in [("given back", steps([acquire("k"), release])), ("refused", steps([refused]))] {
        let lateness = Lateness::watch();
        let held_up = held_up(&env.invoke(event).await);
        figure(
            ROW,
            "all locks over before the response: may freeze after it by",
            format!("{} ms", held_up.as_millis()),
        );
        assert!(held_up < Duration::from_millis(50) + lateness.of_turns(TURNS), "{name}: {held_up:?}");
    }
}

#[tokio::test]
async fn a_runtime_that_dies_in_the_hold_frees_its_lock_and_shutdown_is_seen() {
    let db = Dynamo::start().await;
    let env = holding(&db, 1000).start().await.unwrap();
    let mut call = env.begin(steps([acquire("k"), keep()]));
    granted(&call.outcome().await.json()[0]);
    // The response is out, and the environment is still awake.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!env.is_frozen() && db.item("k").is_some());
    let (lateness, killed) = (Lateness::watch(), Instant::now());
    env.kill_runtime().unwrap();
    let took = gone(&db, "k").await - killed;
    assert!(took < rows::at_a_death(&lateness), "{took:?}");
    let afterwards = call.over().await.afterwards;
    assert!(matches!(&afterwards, Some(Outcome::Error { kind, .. }) if kind == "Runtime.ExitError"), "{afterwards:?}");
    let shutdown = env.shutdowns()[0];
    assert_eq!((shutdown.delivered, shutdown.killed, shutdown.code), (true, false, Some(0)));
}

#[tokio::test]
async fn a_handler_that_holds_its_lock_into_the_time_out_is_still_given_back_by_shutdown() {
    let db = Dynamo::start().await;
    let env = holding(&db, 1000).timeout(Duration::from_millis(1000)).start().await.unwrap();
    let call = env.begin(steps([acquire("k"), for_ever()]));
    assert_eq!(call.over().await.outcome, Outcome::TimedOut);
    let shutdown = env.shutdowns()[0];
    assert_eq!((shutdown.delivered, shutdown.killed, shutdown.code), (true, false, Some(0)));
    assert_eq!(db.item("k"), None);
}

#[tokio::test]
async fn without_the_setting_a_leaked_guard_holds_nothing_up() {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).start().await.unwrap();
    let lateness = Lateness::watch();
    let held_up = held_up(&env.invoke(steps([acquire("k"), keep()])).await);
    assert!(held_up < Duration::from_millis(50) + lateness.of_turns(TURNS), "{held_up:?}");
    assert!(env.is_frozen() && db.item("k").is_some());
}

#[tokio::test]
async fn where_nothing_freezes_the_setting_is_said_to_change_nothing() {
    let db = Dynamo::start().await;
    let env = environment(&db).managed_instances(2).env("LEASEKEEPER_HOLD_MS", "1000").start().await.unwrap();
    env.wait_for_log(Role::Extension, "LEASEKEEPER_HOLD_MS changes nothing here").await.unwrap();
    granted(&env.invoke(steps([acquire("k")])).await.outcome.json()[0]);
}
