//! What goes wrong around the extension must neither end it nor delay a function that takes no lock.

use super::*;
use testkit::sandbox::{Fault, Role};

#[tokio::test]
async fn the_process_stays_whatever_the_extensions_api_answers() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    let pid = env.pid(Role::Extension);
    for fault in [Fault::Garbage, Fault::UnknownEvent, Fault::Closed, Fault::Torn, Fault::Status(500)] {
        env.inject(fault);
        env.faults_sent().await.unwrap();
    }
    env.extension_parked().await.unwrap();
    granted(&env.invoke(steps([acquire("k")])).await.outcome.json()[0]);
    assert_eq!(env.pid(Role::Extension), pid);
}

#[tokio::test]
async fn torn_answers_to_its_registration_are_outlived() {
    let db = Dynamo::start().await;
    let builder = environment(&db).register_fault(Fault::Closed).register_fault(Fault::Garbage);
    let env = builder.register_fault(Fault::Status(500)).start().await.unwrap();
    granted(&env.invoke(steps([acquire("k")])).await.outcome.json()[0]);
    assert_eq!(env.starts(Role::Extension), 1);
}

#[tokio::test]
async fn after_a_handler_emptied_tmp_the_next_invoke_finds_the_socket_again() {
    let db = Dynamo::start().await;
    let env = environment(&db).start().await.unwrap();
    env.invoke(steps([acquire("k")])).await;
    env.empty_tmp().unwrap();
    assert!(!env.socket().exists());
    // The handler's own start gives the extension no head start here: it waits for the socket a moment.
    let again = env.invoke(steps([sleep_ms(100), acquire("k")])).await.outcome.json();
    granted(&again[0]);
}

#[tokio::test]
async fn with_wrong_settings_the_extension_stays_and_names_them_to_whoever_asks_for_a_lock() {
    let db = Dynamo::start().await;
    let wrong = [("LEASEKEEPER_TABLE", ""), ("LEASEKEEPER_LEASE_MS", "20s")];
    for (name, value) in wrong {
        let env = environment(&db).env(name, value).start().await.unwrap();
        let answer = env.invoke(steps([acquire("k")])).await.outcome.json();
        assert_eq!(answer[0]["error"]["code"], "config");
        assert!(answer[0]["error"]["message"].as_str().unwrap().contains(name), "{answer}");
        env.wait_for_log(Role::Extension, name).await.expect("loud in the log");
        assert_eq!((env.starts(Role::Extension), env.pid(Role::Extension).is_some()), (1, true));
    }
    assert!(db.requests().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_table_that_does_not_exist_is_named_at_the_first_request() {
    let db = Dynamo::start().await;
    let env = environment(&db).env("LEASEKEEPER_TABLE", "no-such-table").start().await.unwrap();
    let answer = env.invoke(steps([acquire("k")])).await.outcome.json();
    assert_eq!(answer[0]["error"]["code"], "config", "{answer}");
    assert!(answer[0]["error"]["message"].as_str().unwrap().contains("no-such-table"), "{answer}");
}

#[tokio::test]
async fn a_handler_that_keeps_the_only_cpu_busy_keeps_its_lock_for_twice_the_lease() {
    let db = Dynamo::start().await;
    let env = environment(&db).one_cpu().start().await.unwrap();
    let spin = json!({"do": "spin", "threads": 4, "ms": 2400});
    let metrics = json!({"do": "send", "line": {"op": "metrics"}});
    let answer = env.invoke(steps([acquire_for("k", 1200), spin, check(), metrics])).await.outcome.json();
    granted(&answer[0]);
    assert!(answer[1]["ok"]["valid_ms"].is_u64(), "{answer}");
    assert!(answer[2]["ok"]["renewals"].as_u64().unwrap() >= 4, "{answer}");
}
