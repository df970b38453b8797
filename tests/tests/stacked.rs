//! Handlers that are idempotent by Powertools, and under a lock by the layer's packages: in Lambda's sandbox, with the real
//! extension, and both their tables on the embedded DynamoDB.

use serde_json::json;
use testkit::deeds::{error_kind, gone, hold};
use testkit::dynamo::Dynamo;
use testkit::languages::Language;
use testkit::programs::{node_path, python_path, repository};
use testkit::sandbox::{Builder, Program, Sandbox};

const KEY: &str = "customer:7";

/// The function whose decorators, or middlewares, are stacked.
fn stacked(language: Language, db: &Dynamo) -> Builder {
    let (program, name, path) = match language {
        Language::Rust => unreachable!("Powertools is for Python and Node here"),
        Language::Python => {
            let loops = Program::new(repository(".tools/powertools/bin/python"))
                .arg(repository("tests/functions/python/bootstrap.py"))
                .arg(repository("tests/functions/python/stacked.py"));
            (loops, "PYTHONPATH", vec![python_path()])
        }
        Language::Node => {
            let loops = Program::node(repository("tests/functions/node/runtime.mjs"))
                .arg(repository("tests/functions/node/stacked.mjs"));
            let tools = ["handlers", "sdk"].map(|tool| repository(&format!(".tools/node/{tool}/node_modules")));
            (loops, "NODE_PATH", [vec![node_path()], tools.to_vec()].concat())
        }
    };
    let path = std::env::join_paths(path).expect("paths without colons");
    db.create_table("idempotency", "id", "S", None);
    language.environment(db).runtime(program).env(name, path.to_string_lossy()).env("LEASEKEEPER_WAIT_MS", "0")
}

async fn a_repeated_event_takes_no_lock_and_one_that_was_busy_runs_again(language: Language) {
    let db = Dynamo::start().await;
    let env: Sandbox = stacked(language, &db).start().await.unwrap();
    let first = json!({"customer_id": "7", "order": "1"});
    let answer = env.invoke(first.clone()).await.outcome.json();
    assert!(answer["owner"].is_string(), "{answer}");
    assert_eq!(db.item(KEY), None, "gone with the answer");
    assert_eq!(env.invoke(first.clone()).await.outcome.json(), answer, "the stored result");
    assert_eq!(db.requests_for(KEY).len(), 2, "one put and one delete, all of the first");

    let holder = Language::Rust.environment(&db).start().await.unwrap();
    let _call = hold(&holder, KEY).await;
    let second = json!({"customer_id": "7", "order": "2"});
    assert_eq!(error_kind(env.invoke(second.clone()).await.outcome), language.error("Busy"));
    assert_eq!(env.invoke(first).await.outcome.json(), answer, "though another works on the customer");
    holder.kill_runtime().unwrap();
    gone(&db, KEY).await;
    // Its record was deleted: otherwise it would be said to be in progress.
    let retried = env.invoke(second).await.outcome.json();
    assert!(retried["owner"].is_string() && retried != answer, "{retried}");
    assert_eq!(db.item(KEY), None);
}

#[tokio::test]
async fn under_powertools_in_python_a_repeated_event_takes_no_lock_and_one_that_was_busy_runs_again() {
    a_repeated_event_takes_no_lock_and_one_that_was_busy_runs_again(Language::Python).await;
}

#[tokio::test]
async fn under_middy_and_powertools_in_node_a_repeated_event_takes_no_lock_and_one_that_was_busy_runs_again() {
    a_repeated_event_takes_no_lock_and_one_that_was_busy_runs_again(Language::Node).await;
}
