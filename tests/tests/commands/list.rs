//! `list`: every lock row, however many pages there are.

use crate::perform;
use serde_json::{Value, json};
use testkit::dynamo::{Dynamo, Operation, row};

#[tokio::test]
async fn every_lock_row_is_listed_and_what_else_is_there_is_counted() {
    let dynamo = Dynamo::start().await;
    perform(&dynamo, &["list"]).await.assert_done(&["no lock rows; it took"]);
    let mut held = row("customer:2", "o2", "v2", 20_000);
    held["function"] = json!({"S": "import"});
    dynamo.put_raw(held);
    dynamo.put_raw(row("customer:1", "o1", "v1", 1_500));
    dynamo.put_raw(row("order:1", "o3", "v3", 20_000));
    dynamo.put_raw(json!({"key": {"S": "theirs"}, "fence": {"N": "7"}}));
    let shown = perform(&dynamo, &["list"]).await;
    shown.assert_done(&["3 lock rows, 1 that are none and are left out; it took"]);
    let lines: Vec<&str> = shown.out.lines().take(4).collect();
    let expected = [
        "KEY         LEASE  VERSION  HOLDER",
        "customer:1  1.5 s  v1",
        "customer:2   20 s  v2       import",
        "order:1      20 s  v3",
    ];
    assert_eq!(lines, expected);
    let json = perform(&dynamo, &["list", "--prefix", "customer:", "--json"]).await.json();
    assert_eq!(
        json,
        json!({"table": "locks", "others": 1, "locks": [
            {"key": "customer:1", "owner": "o1", "version": "v1", "lease_ms": 1_500},
            {"key": "customer:2", "owner": "o2", "version": "v2", "lease_ms": 20_000, "function": "import"},
        ]})
    );
    let scans = dynamo.requests();
    assert!(scans.iter().all(|sent| sent.operation == Operation::Scan), "{scans:?}");
}

#[tokio::test]
async fn a_table_of_many_pages_is_listed_whole() {
    let dynamo = Dynamo::start().await;
    let keys: Vec<String> = (0..30).map(|n| format!("k{n:02}")).collect();
    for key in &keys {
        let mut item = row(key, "o", "v", 20_000);
        // A page holds a mebibyte.
        item["log_stream"] = json!({"S": "x".repeat(100_000)});
        dynamo.put_raw(item);
    }
    let json = perform(&dynamo, &["list", "--json"]).await.json();
    let listed: Vec<&Value> = json["locks"].as_array().expect("a list").iter().map(|lock| &lock["key"]).collect();
    assert_eq!(listed, keys.iter().collect::<Vec<_>>());
    assert!(dynamo.count(Operation::Scan) >= 3, "{} pages", dynamo.count(Operation::Scan));
}
