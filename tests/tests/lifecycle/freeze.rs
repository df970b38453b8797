//! Freezes: nothing is renewed or believed across one.

use super::*;
use rustix::process::Signal;
use testkit::dynamo::Operation;
use testkit::evidence::figure;
use testkit::sandbox::Role;

/// Leaks a lease of 3 s, freezes past its renewal's time, and looks at the next invocation, whose events reach the processes
/// `lead` after the thaw.
async fn leak_across_a_freeze(lead: Duration) {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).thaw_lead(lead).start().await.unwrap();
    let first = env.invoke(steps([acquire_for("leak", 3000), keep()])).await;
    let valid = valid_for(&first.outcome.json()[0]);
    assert!(env.is_frozen());
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(db.item("leak").is_some(), "no one may delete it while its holder still believes");

    let second = env.begin(steps([event_within(1000), say("told"), sleep_ms(2000)]));
    env.wait_for_log(Role::Runtime, "told").await.unwrap();
    let gone = gone(&db, "leak").await;
    let second = second.over().await;
    let told = second.outcome.json();
    assert_eq!(told[0]["event"], "lost");
    assert_eq!(told[0]["reason"], "thaw");
    assert!(gone >= first.delivered + valid, "not before the holder's validity is over");
    assert!(gone <= first.answered + Duration::from_millis(3000) + Duration::from_millis(250), "soon after it");
    let ahead = second.delivered - second.asked;
    assert_eq!(
        db.count(Operation::UpdateItem),
        0,
        "never renewed after its invocation; thawed {ahead:?} before INVOKE"
    );
    let late = gone.saturating_duration_since(first.delivered + valid);
    let what = "told lost at the next INVOKE, by the thaw; row gone after the validity's end by";
    figure("leaked-guard", what, format!("{} ms", late.as_millis()));
}

#[tokio::test]
async fn a_leaked_lease_is_told_lost_at_the_next_invoke_and_its_row_goes_when_its_validity_is_over() {
    leak_across_a_freeze(Duration::ZERO).await;
}

#[tokio::test]
async fn a_leaked_lease_is_not_renewed_by_a_thaw_whose_invoke_is_late() {
    leak_across_a_freeze(Duration::from_millis(50)).await;
}

/// The extension wakes, and then gets no processor time until long after its INVOKE has come.
#[tokio::test]
async fn a_leaked_lease_is_not_renewed_by_an_extension_that_is_late_to_read_its_invoke() {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).thaw_lead(Duration::from_millis(40)).start().await.unwrap();
    for round in 0..5 {
        let key = format!("leak{round}");
        env.invoke(steps([acquire_for(&key, 3000), keep()])).await.outcome.json();
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let second = env.begin(steps([event_within(1000), json!({"do": "close"})]));
        tokio::time::sleep(Duration::from_millis(20)).await;
        env.signal(Role::Extension, Signal::STOP).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        env.signal(Role::Extension, Signal::CONT).unwrap();
        let told = second.over().await.outcome.json();
        assert_eq!(told[0]["event"], "lost", "{told}");
        assert_eq!(db.count(Operation::UpdateItem), 0, "round {round}: never renewed after its invocation");
    }
}

#[tokio::test]
async fn a_lease_of_a_later_invocation_works_after_a_freeze() {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).start().await.unwrap();
    for _ in 0..2 {
        let done = env.invoke(steps([acquire("k"), sleep_ms(50), check()])).await.outcome.json();
        assert!(done[1]["ok"]["valid_ms"].is_u64(), "{done}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn invoke_a_little_early_or_late_drops_no_new_lease_and_keeps_no_old_one() {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).start().await.unwrap();
    let mut before: Option<String> = None;
    for offset in [0, -50, 50, -5, 5, 20] {
        env.set_invoke_offset(offset);
        let key = format!("k{offset}");
        // The old connection's event, if there is an old lease, then a connection of our own.
        let wait = if before.is_some() { event_within(1000) } else { say("the first") };
        let close = if before.is_some() { json!({"do": "close"}) } else { say("nothing to close") };
        let event = steps([wait, close, acquire(&key), sleep_ms(150), check(), keep()]);
        let mut answer = env.invoke(event).await.outcome.json();
        if let Some(old) = &before {
            let told = answer.as_array_mut().unwrap().remove(0);
            assert_eq!(told["event"], "lost", "{old} of the invocation before, INVOKE at {offset} ms: {told}");
        }
        granted(&answer[0]);
        assert!(answer[1]["ok"]["valid_ms"].is_u64(), "{key}, INVOKE at {offset} ms: {answer}");
        before = Some(key);
    }
}
