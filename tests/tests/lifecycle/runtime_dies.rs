//! The handler's process dies: its lock is free within 100 ms and a round trip, without the platform's help.

use super::rows::{at_a_death, freed, in_tenths};
use super::*;
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::moments::{Lateness, last_word};
use testkit::sandbox::{Outcome, Role, ShutdownReason};

const ROW: &str = "runtime-dies";

/// How long the platform takes to notice: whatever happens before that is not SHUTDOWN's doing.
const NOTICE: Duration = Duration::from_millis(300);

async fn dies(language: Language) {
    let db = Dynamo::start().await;
    let env = language.environment(&db).notice(NOTICE).timeout(Duration::from_secs(10)).start().await.unwrap();
    let deaths = [
        ("exit(0)", json!(["exit", 0])),
        ("exit(1)", json!(["exit", 1])),
        ("abort", json!(["abort", null])),
        ("SIGKILL", json!(["kill", null])),
    ];
    for (number, (death, deed)) in deaths.into_iter().enumerate() {
        let lateness = Lateness::watch();
        let call = env.invoke(json!({"key": death, "deeds": [["word", "last"], deed]})).await;
        assert!(
            matches!(&call.outcome, Outcome::Error { kind, .. } if kind == "Runtime.ExitError"),
            "{:?}",
            call.outcome
        );
        // It died between the two.
        let last = last_word(&env.log_text(Role::Runtime), "last");
        let reaped = env.ends().iter().rfind(|end| end.role == Role::Runtime).expect("it has ended").at;
        let freed = freed(&db, death);
        let took = freed.asked.saturating_duration_since(reaped);
        assert!(freed.asked >= last && took <= at_a_death(&lateness), "{death}: {took:?}");
        let shutdown = env.shutdowns()[number];
        assert_eq!((shutdown.reason, shutdown.code), (ShutdownReason::Failure, Some(0)), "{death}");
        assert!(freed.committed < shutdown.at, "{death}: it was SHUTDOWN that gave the lock back");
        figure(ROW, "free after the process's last word", in_tenths(freed.committed - last));
        figure(ROW, "before SHUTDOWN, which came 300 ms after the end, by", in_tenths(shutdown.at - freed.committed));
    }
    assert_eq!(env.starts(Role::Runtime), 4, "each began anew");
}

#[tokio::test]
async fn however_a_rust_functions_process_dies_its_lock_is_free_within_100_ms_before_shutdown() {
    dies(Language::Rust).await;
}

#[tokio::test]
async fn however_a_python_functions_process_dies_its_lock_is_free_within_100_ms_before_shutdown() {
    dies(Language::Python).await;
}

#[tokio::test]
async fn however_a_node_functions_process_dies_its_lock_is_free_within_100_ms_before_shutdown() {
    dies(Language::Node).await;
}
