//! How many locks one process has at a time, and what it remembers of those that are lost.

mod common;

use common::Client;
use common::process::Extension;
use leasekeeper_wire::{Acquire, Op};
use serde_json::{Value, json};

const LIMIT: u64 = 1_024;

async fn started(variables: &[(&str, &str)]) -> (Extension, Client) {
    let mut extension = Extension::start(variables);
    extension.logged("listening").await;
    let client = extension.connect().await;
    (extension, client)
}

/// The reply to this request; events before it are passed over.
async fn answer(client: &mut Client, id: u64, op: Op) -> Value {
    client.ask(id, op).await;
    loop {
        let line = client.line().await;
        if line["id"] == id {
            return line;
        }
    }
}

fn acquire(key: u64) -> Op {
    Op::Acquire(Acquire { key: format!("k{key}"), wait_ms: Some(0), ..Acquire::default() })
}

#[tokio::test]
async fn locks_that_are_lost_and_over_count_no_more_though_nobody_lets_go_of_them_and_the_last_are_remembered() {
    let variables = [("LEASEKEEPER_LEASE_MS", "200"), ("LEASEKEEPER_MAX_HOLD_MS", "100"), ("LEASEKEEPER_LOG", "off")];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("leasekeeper/lock.sock");
    let socket = [("LEASEKEEPER_SOCKET", path.to_str().unwrap())];
    let _extension = Extension::start(&[&variables[..], &socket[..]].concat());
    while !path.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let mut client = Client::connect(&path).await;
    let many = 3 * LIMIT;
    for id in 1..=many {
        let granted = answer(&mut client, id, acquire(id)).await;
        assert_eq!(granted["ok"]["lease"], id, "{granted}");
        if id % (LIMIT / 2) == 0 {
            // Lost after 100 ms, and what its row may need is over 300 ms after it was written.
            tokio::time::sleep(std::time::Duration::from_millis(350)).await;
        }
    }
    for (lease, code) in [(1, "protocol"), (many / 3, "protocol"), (many - LIMIT / 2, "lost"), (many, "lost")] {
        let told = answer(&mut client, many + lease, Op::Check { lease }).await;
        assert_eq!(told["error"]["code"], code, "{told}");
    }
    let told = answer(&mut client, 3 * many, Op::Check { lease: 1 }).await;
    assert!(told["error"]["message"].as_str().unwrap().contains("lost long ago"), "{told}");
}

#[tokio::test]
async fn past_the_limit_an_acquire_is_refused_until_one_is_given_back() {
    let (_extension, mut client) = started(&[("LEASEKEEPER_LOG", "info")]).await;
    for id in 1..=LIMIT {
        let granted = answer(&mut client, id, acquire(id)).await;
        assert!(granted["ok"].is_object(), "{granted}");
    }
    let refused = answer(&mut client, LIMIT + 1, acquire(LIMIT + 1)).await;
    assert_eq!(refused["error"]["code"], "unavailable", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("1024 locks are held") && message.contains("give some back"), "{message}");
    let released = answer(&mut client, LIMIT + 2, Op::Release { lease: 1 }).await;
    assert!(released["ok"].is_object(), "{released}");
    let granted = answer(&mut client, LIMIT + 3, acquire(LIMIT + 3)).await;
    assert_eq!(granted["ok"]["token"], json!(null), "{granted}");
}
