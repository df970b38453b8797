//! The extension is killed alone: handlers are told, invocations fail by name, and the lock is taken when its lease is over.

use super::rows::in_tenths;
use super::takeover::{Takeover, taken_in_time};
use super::*;
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::moments::{Lateness, last_word};
use testkit::sandbox::{Outcome, Role};
use testkit::sidecar::Sidecar;

const ROW: &str = "extension-dies";

const LEASE_MS: u64 = 1_200;

async fn dies_in_the_middle_of_a_hold(language: Language) {
    let db = Dynamo::start().await;
    let env = language
        .environment(&db)
        .env("LEASEKEEPER_LEASE_MS", LEASE_MS.to_string())
        // The handler's checks are to find out, and not what the library makes of the loss by itself.
        .env("FUNCTION_NOTIFY", "1")
        // The platform is slow to notice: the handler is the first that does.
        .notice(Duration::from_secs(1))
        .timeout(Duration::from_secs(10));
    let env = env.start().await.unwrap();
    let contender = Sidecar::start(&db, "contender", &[]).await;
    let waiting = tokio::spawn({
        let locks = contender.locks();
        let held = env.begin(json!({"key": "k", "deeds": [["checks", 8_000]]}));
        env.wait_for_log(Role::Runtime, "held").await.unwrap();
        async move { (held, locks.acquire("k").wait(Duration::from_secs(10)).await.expect("abandoned")) }
    });
    // Past its first renewal.
    tokio::time::sleep(Duration::from_millis(LEASE_MS / 2)).await;
    let lateness = Lateness::watch();
    let killed = Instant::now();
    env.kill_extension().unwrap();
    env.wait_for_log(Role::Runtime, "word refused ").await.expect("the next check tells");
    assert!(env.log_text(Role::Runtime).contains("refused lost extension_failed"), "{}", env.log_text(Role::Runtime));
    let told = last_word(&env.log_text(Role::Runtime), "refused") - killed;
    // Checks are 20 ms apart, and no answer is waited for that cannot come.
    assert!(told <= Duration::from_millis(60) + lateness.of_turns(6), "{told:?}");
    assert!(env.socket().exists(), "what a killed process leaves behind");

    let (call, guard) = waiting.await.unwrap();
    let call = call.over().await;
    let Outcome::Error { kind, message } = &call.outcome else { panic!("{:?}", call.outcome) };
    assert_eq!(*kind, language.error("Lost"), "{message}");
    assert!(message.contains("extension_failed"), "{message}");
    assert!(call.answered - killed < Duration::from_secs(1), "no hang: {:?}", call.answered - killed);
    let crash = Some(Outcome::Error { kind: "Extension.Crash".into(), message: String::new() });
    let afterwards = call.afterwards.map(|after| match after {
        Outcome::Error { kind, .. } => Outcome::Error { kind, message: String::new() },
        other => other,
    });
    assert_eq!(afterwards, crash, "and the platform notices in its own time");
    let Takeover { after, .. } = taken_in_time(&db, "k", Duration::from_millis(LEASE_MS), "contender", &lateness);
    guard.release().await.expect("held by the contender");

    let again = env.invoke(json!({"key": "k"})).await;
    assert!(
        matches!(again.outcome, Outcome::Response(_)),
        "a socket that was left behind is in nobody's way: {again:?}"
    );
    assert_eq!(env.starts(Role::Extension), 2);
    figure(ROW, "handler's check says Lost after the kill", in_tenths(told));
    figure(ROW, "invocation failed after the kill", in_tenths(call.answered - killed));
    figure(ROW, "lease 1.2 s: taken after the last write", rows::in_ms(after));
}

#[tokio::test]
async fn a_rust_handler_whose_extension_is_killed_is_told_and_its_lock_taken_after_the_lease() {
    dies_in_the_middle_of_a_hold(Language::Rust).await;
}

#[tokio::test]
async fn a_python_handler_whose_extension_is_killed_is_told_and_its_lock_taken_after_the_lease() {
    dies_in_the_middle_of_a_hold(Language::Python).await;
}

#[tokio::test]
async fn a_node_handler_whose_extension_is_killed_is_told_and_its_lock_taken_after_the_lease() {
    dies_in_the_middle_of_a_hold(Language::Node).await;
}

/// A handler that never looks: the library, or else the platform, ends its invocation by name.
async fn who_never_looks_does_not_hang(language: Language, work: Value, notice: Duration, expected: &str) {
    let db = Dynamo::start().await;
    let env = language.environment(&db).notice(notice).timeout(Duration::from_secs(10)).start().await.unwrap();
    let call = env.begin(work);
    env.wait_for_log(Role::Runtime, "held").await.unwrap();
    let killed = Instant::now();
    env.kill_extension().unwrap();
    let call = call.over().await;
    let Outcome::Error { kind, message } = &call.outcome else { panic!("{:?}", call.outcome) };
    assert_eq!(kind, expected, "{message}");
    assert!(call.answered - killed < Duration::from_secs(1), "{:?}", call.answered - killed);
    let what = if notice.is_zero() { "Extension.Crash" } else { "Lost" };
    figure(ROW, &format!("handler never looks: {what} after the kill"), in_tenths(call.answered - killed));
}

#[tokio::test]
async fn work_that_waits_and_never_looks_is_ended_by_its_library() {
    for language in [Language::Rust, Language::Python, Language::Node] {
        let waits = json!({"key": "k", "deeds": [["sleep", 60_000]], "give_up_ms": 60_000});
        who_never_looks_does_not_hang(language, waits, Duration::from_millis(500), &language.error("Lost")).await;
    }
}

#[tokio::test]
async fn work_that_blocks_and_never_looks_is_ended_by_the_platform() {
    for language in [Language::Rust, Language::Python, Language::Node] {
        let blocks = json!({"key": "k", "deeds": [["block", 60_000]]});
        who_never_looks_does_not_hang(language, blocks, Duration::ZERO, "Extension.Crash").await;
    }
}
