//! Hard time-outs: the lock is free soon after the deadline, and the next invocation is not kept waiting.

use super::rows::{in_ms, in_tenths, until_freed};
use super::*;
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::moments::{Lateness, last_word, words};
use testkit::sandbox::{Invocation, Outcome, Role, Shutdown, ShutdownReason};

const ROW: &str = "hard-timeout";

const TIMEOUT: Duration = Duration::from_secs(1);

/// What an invocation that follows an ended environment waits for beside the start of its own processes: from its caller's
/// request to its event, less the time in which its extension and runtime start.
fn delay(next: &Invocation) -> Duration {
    (next.delivered - next.asked).saturating_sub(next.init)
}

/// What must be over in 200 ms, on this machine: from a time-out to the next event several processes take their turns.
fn at_once(lateness: &Lateness) -> Duration {
    Duration::from_millis(200) + lateness.of_turns(6)
}

/// The one SHUTDOWN, which the extension must have obeyed by itself.
fn shutdown_at_the_timeout(env: &Sandbox, lateness: &Lateness) -> Shutdown {
    let [shutdown] = env.shutdowns()[..] else { panic!("one SHUTDOWN: {:?}", env.shutdowns()) };
    let told = (shutdown.reason, shutdown.delivered, shutdown.killed, shutdown.code);
    assert_eq!(told, (ShutdownReason::Timeout, true, false, Some(0)), "{shutdown:?}");
    assert!(shutdown.took < at_once(lateness), "the extension leaves at once: {shutdown:?}");
    shutdown
}

async fn times_out(language: Language) {
    let db = Dynamo::start().await;
    let env = language.environment(&db).timeout(TIMEOUT).start().await.unwrap();
    let lateness = Lateness::watch();
    // A handler that waits would be told that its lock is lost, and might answer in time.
    let mut call = env.begin(json!({"key": "k", "deeds": [["block", 60_000]]}));
    assert_eq!(call.outcome().await, Outcome::TimedOut);
    // The next one starts its processes within its own time.
    env.set_timeout(Duration::from_secs(10));
    let next = env.begin(json!({"key": "k"}));
    let (call, next) = (call.over().await, next.over().await);
    let deadline = call.asked + TIMEOUT;
    let shutdown = shutdown_at_the_timeout(&env, &lateness);

    let log = db.requests_for("k");
    assert!(matches!(next.outcome, Outcome::Response(_)), "the lock is free: {:?}", next.outcome);
    let first = log.iter().find(|request| rows::is_delete(request)).expect("it was given back");
    let moment = |since: Option<Duration>| db.front().moment(since.expect("it was answered"));
    let (asked, committed) = (moment(Some(first.at)), moment(first.answered));
    assert!(asked >= deadline, "not before its time is over");
    assert!(committed <= deadline + Duration::from_secs(2), "{:?}", committed - deadline);
    assert!(delay(&next) < at_once(&lateness), "{:?}", delay(&next));

    let died = env.ends().iter().find(|end| end.role == Role::Runtime).expect("the runtime was ended").at;
    assert!(committed < next.delivered, "before the next invocation began");
    figure(ROW, "free after the deadline", in_ms(committed - deadline));
    figure(ROW, "free after the runtime's end", in_tenths(committed.saturating_duration_since(died)));
    figure(ROW, "extension gone after SHUTDOWN", in_tenths(shutdown.took));
    figure(ROW, "next invocation kept waiting", in_ms(delay(&next)));
}

#[tokio::test]
async fn after_a_rust_functions_hard_timeout_its_lock_is_free_and_the_next_invocation_not_delayed() {
    times_out(Language::Rust).await;
}

#[tokio::test]
async fn after_a_python_functions_hard_timeout_its_lock_is_free_and_the_next_invocation_not_delayed() {
    times_out(Language::Python).await;
}

#[tokio::test]
async fn after_a_node_functions_hard_timeout_its_lock_is_free_and_the_next_invocation_not_delayed() {
    times_out(Language::Node).await;
}

#[tokio::test]
async fn a_handler_that_outlives_its_deadline_is_not_contradicted_before_it_is_dead() {
    let db = Dynamo::start().await;
    let env = Language::Python.environment(&db).timeout(TIMEOUT).start().await.unwrap();
    let lateness = Lateness::watch();
    // The platform asks it to end, waits a while and kills it; SHUTDOWN comes after that.
    let mut call = env.begin(json!({"key": "k", "deeds": [["stay", 60_000]]}));
    assert_eq!(call.outcome().await, Outcome::TimedOut);
    let freed = until_freed(&db, "k").await;
    let deadline = call.over().await.asked + TIMEOUT;
    let alive = last_word(&env.log_text(Role::Runtime), "alive");
    assert!(alive >= deadline + Duration::from_millis(400), "it has ignored SIGTERM");
    assert!(freed.asked >= alive, "its row was deleted {:?} before its last word", alive - freed.asked);
    assert!(freed.committed <= deadline + Duration::from_secs(2), "{:?}", freed.committed - deadline);
    let told = words(&env.log_text(Role::Runtime), "lost");
    let [told] = told[..] else { panic!("told once: {told:?}") };
    // Deadlines are told in whole milliseconds.
    assert!(told + Duration::from_millis(1) >= deadline, "renewing stops {:?} before the deadline", deadline - told);
    env.wait_for_log(Role::Runtime, "lost deadline").await.expect("and it is told so");
    let shutdown = shutdown_at_the_timeout(&env, &lateness);
    let order = if freed.asked < shutdown.at { "before" } else { "after" };
    figure(ROW, "a handler that ignores SIGTERM: free after the deadline", in_ms(freed.committed - deadline));
    figure(ROW, "a handler that ignores SIGTERM: delete sent at its death,", format!("{order} SHUTDOWN"));
}
