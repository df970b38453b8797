//! A handler, or anybody else, that empties `/tmp`: the socket comes back, and who is connected goes on.

use super::*;
use testkit::deeds::event;
use testkit::evidence::figure;
use testkit::languages::Language;
use testkit::sandbox::Role;

const ROW: &str = "emptied-tmp";

/// An environment of this language's function, whose first invocation is over.
async fn warm(language: Language, db: &Dynamo) -> Sandbox {
    let env = language.environment(db).freeze(true).timeout(Duration::from_secs(10)).start().await.unwrap();
    env.invoke(event("warm", [])).await.outcome.json();
    env
}

#[tokio::test]
async fn a_lock_held_while_tmp_is_emptied_goes_on_and_another_can_be_had_at_once_in_every_language() {
    for language in [Language::Rust, Language::Python, Language::Node] {
        let db = Dynamo::start().await;
        let env = warm(language, &db).await;
        for round in 0..3 {
            let empty = json!(["empty", null]);
            let also = json!(["also", format!("other {round}")]);
            let done = env.invoke(event(&format!("k{round}"), [empty, also])).await;
            // It ends with a check of the lock that it held meanwhile.
            assert!(done.outcome.json()["owner"].is_string(), "{language}: {:?}", done.outcome);
            let took = done.answered - done.delivered;
            figure(
                ROW,
                "lock in a handler that has just emptied /tmp: the whole invocation",
                format!("{} ms", took.as_millis()),
            );
        }
        for key in ["k0", "other 0", "k2", "other 2"] {
            assert_eq!(db.requests_for(key).len(), 2, "{language}, {key}: one put, one delete");
        }
        env.wait_for_log(Role::Extension, "the lock socket was missing and has been created again").await.unwrap();
    }
}

#[tokio::test]
async fn a_handler_locks_first_thing_after_somebody_emptied_tmp_in_every_language() {
    for language in [Language::Rust, Language::Python, Language::Node] {
        let db = Dynamo::start().await;
        let env = warm(language, &db).await;
        for round in 0..10 {
            // In every other round the extension hears of the invocation long after the handler.
            env.set_invoke_offset(if round % 2 == 1 { 200 } else { 0 });
            env.empty_tmp().unwrap();
            assert!(env.is_frozen() && !env.socket().exists());
            let done = env.invoke(event(&format!("k{round}"), [])).await.outcome;
            assert!(done.json()["owner"].is_string(), "{language}, round {round}: {done:?}");
        }
        figure(ROW, "lock first thing after /tmp was emptied in the freeze", "10 of 10");
    }
}

#[tokio::test]
async fn a_raw_clients_lease_is_renewed_checked_and_released_though_tmp_was_emptied_and_the_socket_is_back_in_the_invocation()
 {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let metrics = json!({"do": "send", "line": {"op": "metrics"}});
    let release = json!({"do": "send", "line": {"op": "release"}});
    let call = env.begin(steps([
        acquire_for("old", 900),
        json!({"do": "empty"}),
        say("emptied"),
        sleep_ms(1_000),
        check(),
        metrics,
        release,
        json!({"do": "close"}),
        acquire("new"),
    ]));
    let emptied = env.wait_for_log(Role::Runtime, "emptied").await.unwrap().at;
    let end = Instant::now() + Duration::from_secs(5);
    while !env.socket().exists() {
        assert!(Instant::now() < end, "it does not come back within the invocation");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    figure(ROW, "socket back after /tmp was emptied", format!("{} ms", emptied.elapsed().as_millis()));
    let answer = call.over().await.outcome.json();
    granted(&answer[0]);
    assert!(answer[1]["ok"]["valid_ms"].is_u64(), "{answer}");
    assert!(answer[2]["ok"]["renewals"].as_u64() >= Some(2), "{answer}");
    assert!(answer[3]["ok"]["metrics"].is_object(), "{answer}");
    granted(&answer[4]);
}
