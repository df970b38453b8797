//! `inspect`: the row, who holds it, and whether it changes.

use crate::{finish, leasekeeper, perform};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit::dynamo::{COMMANDS, Dynamo, Operation, row};
use testkit::sidecar::Sidecar;

/// Reads and nothing else.
fn assert_read_only(dynamo: &Dynamo) {
    let writes: Vec<_> = dynamo.requests().into_iter().filter(|sent| sent.client == COMMANDS).collect();
    assert!(writes.iter().all(|sent| sent.operation == Operation::GetItem), "{writes:?}");
}

#[tokio::test]
async fn a_key_without_a_row_is_free() {
    let dynamo = Dynamo::start().await;
    perform(&dynamo, &["inspect", "k"]).await.assert_done(&["k in table locks: free"]);
    let json = perform(&dynamo, &["inspect", "k", "--json"]).await.json();
    assert_eq!(json, json!({"table": "locks", "key": "k", "state": "free", "observed_ms": 0, "row": null}));
}

#[tokio::test]
async fn a_living_holder_is_seen_to_renew_and_its_row_says_where_it_is() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    let grant = client.acquire("k", 3_000, 10_000).await.expect("a free key");
    let host = format!(", process {}", sidecar.pid());
    let shown = perform(&dynamo, &["inspect", "k"]).await;
    let (owner, lease) = (format!("owner        {}", grant.owner), "lease        3 s");
    shown.assert_done(&[&owner, lease, "host         ", &host, "acquired at  20", "held: it was renewed within"]);
    assert!(shown.err.contains("watching it for up to 3 s"), "{shown:?}");
    let json = perform(&dynamo, &["inspect", "k", "--json"]).await.json();
    assert_eq!((&json["state"], &json["row"]["owner"]), (&json!("held"), &json!(grant.owner)), "{json}");
    assert!(json["row"]["host"].as_str().is_some_and(|shown| shown.ends_with(&host)), "{json}");
    // Renewed every third of the lease, and looked at every twentieth.
    assert!(json["observed_ms"].as_u64().is_some_and(|ms| ms < 3_000), "{json}");
    assert_read_only(&dynamo);
    client.check(grant.lease).await.expect("it is still held");
}

#[tokio::test]
async fn who_holds_it_under_lambda_is_shown() {
    let dynamo = Dynamo::start().await;
    let mut item = row("k", "o", "v", 30_000);
    item["function"] = json!({"S": "import"});
    item["request_id"] = json!({"S": "8476"});
    item["log_stream"] = json!({"S": "2026/01/01/[1]a"});
    dynamo.put_raw(item);
    perform(&dynamo, &["inspect", "k", "--for", "0"]).await.assert_done(&[
        "function     import",
        "request id   8476",
        "log stream   2026/01/01/[1]a",
        "unverified: unchanged for 0 s of its lease of 30 s",
        "--for 30000",
    ]);
    assert_eq!(dynamo.requests().len(), 1, "it was read once");
}

#[tokio::test]
async fn a_row_that_stays_the_same_for_its_lease_is_abandoned_and_for_less_unverified() {
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("k", "o", "v", 400));
    let begun = Instant::now();
    perform(&dynamo, &["inspect", "k"]).await.assert_done(&["abandoned: unchanged for its whole lease of 0.4 s"]);
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
    let json = perform(&dynamo, &["inspect", "k", "--for", "150", "--json"]).await.json();
    assert_eq!((&json["state"], &json["row"]["version"]), (&json!("unverified"), &json!("v")), "{json}");
    assert!(json["observed_ms"].as_u64().is_some_and(|ms| (150..400).contains(&ms)), "{json}");
    assert_read_only(&dynamo);
}

/// Begins to inspect `k` and changes its row once that was read.
async fn meanwhile(item: Option<Value>) -> Value {
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("k", "o", "v", 5_000));
    let child = leasekeeper(&dynamo, COMMANDS, &["inspect", "k", "--json"]).spawn().expect("the program starts");
    assert!(dynamo.until(Duration::from_secs(10), |sent| sent.iter().any(|sent| sent.answered.is_some())).await);
    match item {
        Some(item) => dynamo.put_raw(item),
        None => dynamo.delete_raw("k"),
    }
    let ended = finish(child).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.json()
}

#[tokio::test]
async fn a_row_that_goes_or_gets_another_owner_while_it_is_watched_is_told_so() {
    let gone = meanwhile(None).await;
    assert_eq!((&gone["state"], &gone["row"]), (&json!("free"), &Value::Null), "{gone}");
    let handed = meanwhile(Some(row("k", "another", "w", 5_000))).await;
    assert_eq!((&handed["state"], &handed["row"]["owner"]), (&json!("held"), &json!("another")), "{handed}");
}

#[tokio::test]
async fn another_librarys_row_is_named_and_left_alone() {
    let dynamo = Dynamo::start().await;
    let item = json!({"key": {"S": "k"}, "leaseDuration": {"S": "20000"}});
    dynamo.put_raw(item.clone());
    let parts = ["k in table locks", "no lock row of protocol version 1", "`protocol` is missing", "left alone"];
    perform(&dynamo, &["inspect", "k"]).await.assert_failed(65, &parts);
    assert_eq!(dynamo.item("k"), Some(item));
    assert_read_only(&dynamo);
}

#[tokio::test]
async fn what_a_row_says_does_nothing_to_a_terminal() {
    let dynamo = Dynamo::start().await;
    let mut item = row("k\u{1b}[2J", "o\u{7}", "v", 30_000);
    item["host"] = json!({"S": "\u{1b}]0;title\u{7}"});
    dynamo.put_raw(item);
    let shown = perform(&dynamo, &["inspect", "k\u{1b}[2J", "--for", "0"]).await;
    shown.assert_done(&["k\\u{1b}[2J in table", "o\\u{7}", "\\u{1b}]0;title\\u{7}"]);
    let listed = perform(&dynamo, &["list"]).await;
    listed.assert_done(&["k\\u{1b}[2J"]);
    assert!(!shown.out.contains('\u{1b}') && !listed.out.contains('\u{1b}'));
}
