//! DynamoDB hangs when a lock is given back: the response is out in time all the same, and the extension goes on trying.

use super::rows::{in_ms, until_freed};
use super::*;
use testkit::dynamo::{Fault, Operation};
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::moments::{Lateness, last_word};
use testkit::sandbox::{Invocation, Outcome, Role};

const ROW: &str = "release-hangs";

/// Kept of every invocation for posting its response.
const KEPT: Duration = Duration::from_millis(200);

/// Between a handler's last word and its response there are two questions to the extension, the hand-back and the post; an
/// answer is made of them by an interpreter. Each is a turn of one process.
fn turns(lateness: &Lateness) -> Duration {
    Duration::from_millis(30) + lateness.of_turns(7)
}

/// An environment that has been used: no later invocation pays for first connections.
async fn used(builder: Builder) -> Sandbox {
    let env = builder.start().await.unwrap();
    env.invoke(json!({"key": "before"})).await;
    env
}

/// Works under `k` for so long while its delete hangs. What came of the invocation, and from its last word to its response.
async fn invoke(env: &Sandbox, work_ms: u64) -> (Invocation, Duration) {
    let call = env.invoke(json!({"key": "k", "deeds": [["sleep", work_ms], ["word", "done"]]})).await;
    assert!(matches!(call.outcome, Outcome::Response(_)), "the work is done: {:?}", call.outcome);
    let took = call.answered - last_word(&env.log_text(Role::Runtime), "done");
    (call, took)
}

async fn the_response_is_out_in_time(language: Language) {
    let db = Dynamo::start().await;
    let _hang = db.fail(Operation::DeleteItem, Fault::Hang).key("k").always();
    let lateness = Lateness::watch();
    let env = used(language.environment(&db).timeout(Duration::from_secs(10))).await;
    let (_, took) = invoke(&env, 0).await;
    assert!(took >= Duration::from_millis(950), "the release was waited for: {took:?}");
    assert!(took <= Duration::from_secs(1) + turns(&lateness), "{took:?}");
    assert!(db.item("k").is_some(), "the delete hangs");
    env.wait_for_log(Role::Runtime, "release_unconfirmed").await.expect("it is logged");
    figure(ROW, "9 s left: response after the work's end", in_ms(took));
}

#[tokio::test]
async fn a_rust_functions_response_is_out_within_a_second() {
    the_response_is_out_in_time(Language::Rust).await;
}

#[tokio::test]
async fn a_python_functions_response_is_out_within_a_second() {
    the_response_is_out_in_time(Language::Python).await;
}

#[tokio::test]
async fn a_node_functions_response_is_out_within_a_second() {
    the_response_is_out_in_time(Language::Node).await;
}

#[tokio::test]
async fn the_extension_deletes_the_row_when_the_hang_is_over() {
    let db = Dynamo::start().await;
    let hang = db.fail(Operation::DeleteItem, Fault::Hang).key("k").always();
    let lateness = Lateness::watch();
    let env = used(Language::Rust.environment(&db).timeout(Duration::from_secs(10))).await;
    invoke(&env, 0).await;
    let lifted = Instant::now();
    hang.lift();
    let took = until_freed(&db, "k").await.committed - lifted;
    // The attempt that hangs has made a connection of its own, for which it has three seconds; the next follows it at once.
    assert!(took <= Duration::from_secs(3) + turns(&lateness), "{took:?}");
    env.wait_for_log(Role::Extension, "\"released\",\"lease\":2").await.expect("it has not given up");
    figure(ROW, "row gone after the hang's end", in_ms(took));
}

/// So little is left of the invocation when the work is done that the other bound acts.
async fn what_is_left_is_not_used_up(language: Language) {
    const TIMEOUT: Duration = Duration::from_millis(2_000);
    let db = Dynamo::start().await;
    let _hang = db.fail(Operation::DeleteItem, Fault::Hang).key("k").always();
    let lateness = Lateness::watch();
    let env = used(language.environment(&db).timeout(TIMEOUT)).await;
    let (call, took) = invoke(&env, 1_200).await;
    let left = (call.delivered + TIMEOUT).saturating_duration_since(call.answered);
    assert!(left + turns(&lateness) >= KEPT, "{left:?} were left when the response was out");
    assert!(took >= Duration::from_millis(100), "the release was waited for: {took:?}");
    assert!(took < Duration::from_millis(800), "a second was not to be had: {took:?}");
    env.wait_for_log(Role::Runtime, "release_unconfirmed").await.expect("it is logged");
    figure(ROW, "about 0.8 s left: response before the deadline by", in_ms(left));
}

#[tokio::test]
async fn a_rust_function_with_little_time_left_keeps_200_ms_of_it() {
    what_is_left_is_not_used_up(Language::Rust).await;
}

#[tokio::test]
async fn a_python_function_with_little_time_left_keeps_200_ms_of_it() {
    what_is_left_is_not_used_up(Language::Python).await;
}

#[tokio::test]
async fn a_node_function_with_little_time_left_keeps_200_ms_of_it() {
    what_is_left_is_not_used_up(Language::Node).await;
}

#[tokio::test]
async fn the_extension_goes_on_with_the_delete_after_a_freeze() {
    let db = Dynamo::start().await;
    let hang = db.fail(Operation::DeleteItem, Fault::Hang).key("k").always();
    let env = used(Language::Rust.environment(&db).freeze(true).timeout(Duration::from_secs(2))).await;
    invoke(&env, 1_200).await;
    assert!(env.is_frozen());
    hang.lift();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(db.item("k").is_some(), "nothing runs in a freeze");
    env.set_timeout(Duration::from_secs(10));
    let thawed = Instant::now();
    let _next = env.begin(json!({"deeds": [["sleep", 5_000]]}));
    let freed = until_freed(&db, "k").await;
    assert!(freed.asked >= thawed);
    figure(ROW, "row gone after a thaw, the hang being over", in_ms(freed.committed - thawed));
}

#[tokio::test]
async fn a_release_that_is_not_confirmed_within_the_extensions_own_time_is_logged_and_counted_by_it() {
    let db = Dynamo::start().await;
    let _hang = db.fail(Operation::DeleteItem, Fault::Hang).always();
    let env = environment(&db).start().await.unwrap();
    // It has six tenths of the lease: a client with more patience hears of it.
    let release = json!({"do": "send", "line": {"op": "release"}});
    let answer = env.invoke(steps([acquire_for("k", 1_000), release])).await.outcome.json();
    let error = &answer[1]["error"];
    assert_eq!(error["code"], "release_unconfirmed", "{answer}");
    assert_eq!(error["metrics"]["cleanup_failures"], 1, "{answer}");
    env.wait_for_log(Role::Extension, "release_unconfirmed").await.expect("it is logged");
}
