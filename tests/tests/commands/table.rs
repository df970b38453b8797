//! `table create` and `table check`.

use crate::{Ended, perform};
use serde_json::Value;
use testkit::dynamo::{Dynamo, Fault, Operation};

/// The results of `table check --json`, by what was looked at.
fn result<'a>(checked: &'a Value, what: &str) -> (&'a str, &'a str) {
    let checks = checked["checks"].as_array().expect("a list");
    let check = checks.iter().find(|check| check["what"] == what).unwrap_or_else(|| panic!("no {what} in {checked}"));
    (check["result"].as_str().expect("a word"), check["text"].as_str().expect("a text"))
}

/// Failed after it has shown what it looked at.
fn assert_found(ended: &Ended, code: i32, line: &str, conclusion: &str) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.out.contains(line), "no {line:?} in {ended:?}");
    assert!(ended.err.contains(conclusion), "no {conclusion:?} in {ended:?}");
}

#[tokio::test]
async fn a_created_table_can_be_locked_in_and_is_not_created_twice() {
    let dynamo = Dynamo::start().await;
    let created = perform(&dynamo, &["table", "create", "--table", "fresh", "--deletion-protection", "--json"]).await;
    assert_eq!(created.code, Some(0), "{created:?}");
    let checked = created.json();
    for (what, text) in [
        ("status", "the table can be used"),
        ("key", "partition key `key` of type S, no sort key"),
        ("regions", "one Region"),
        ("billing", "on demand"),
        ("deletion protection", "on"),
        ("time to live", "off"),
    ] {
        assert_eq!(result(&checked, what), ("ok", text), "{checked}");
    }
    assert_eq!(result(&checked, "point-in-time recovery").0, "note", "the emulator has none: {checked}");
    let asked = dynamo.requests();
    assert!(asked.iter().any(|sent| sent.operation == Operation::UpdateContinuousBackups), "it was asked for");
    let held = ["run", "--table", "fresh", "--key", "k", "--", "true"];
    assert_eq!(perform(&dynamo, &held).await.code, Some(0));
    let again = perform(&dynamo, &["table", "create", "--table", "fresh"]).await;
    again.assert_done(&["ok       key: partition key"]);
    assert!(again.err.contains("there already"), "{again:?}");
}

#[tokio::test]
async fn the_options_of_a_new_table_are_as_asked() {
    let dynamo = Dynamo::start().await;
    let plain = ["table", "create", "--table", "plain", "--no-point-in-time-recovery"];
    perform(&dynamo, &plain).await.assert_done(&["note     deletion protection: off"]);
    assert_eq!(dynamo.count(Operation::UpdateContinuousBackups), 0);
    let body = dynamo.requests().into_iter().find(|sent| sent.operation == Operation::CreateTable).expect("sent").body;
    assert_eq!((&body["BillingMode"], &body["DeletionProtectionEnabled"]), (&"PAY_PER_REQUEST".into(), &Value::Null));
}

#[tokio::test]
async fn backups_that_are_not_ready_are_waited_for_and_a_missing_permission_for_them_is_told() {
    let dynamo = Dynamo::start().await;
    let early = Fault::Error(400, "ContinuousBackupsUnavailableException", "Backups are being enabled.");
    dynamo.fail(Operation::UpdateContinuousBackups, early);
    let on = Fault::Answer(r#"{"ContinuousBackupsDescription":{"ContinuousBackupsStatus":"ENABLED"}}"#);
    dynamo.fail(Operation::UpdateContinuousBackups, on);
    assert_eq!(perform(&dynamo, &["table", "create", "--table", "one"]).await.code, Some(0));
    assert_eq!(dynamo.count(Operation::UpdateContinuousBackups), 2);
    dynamo.fail(Operation::UpdateContinuousBackups, Fault::AccessDenied).always();
    let parts =
        ["the table is created, but point-in-time recovery is not turned on", "dynamodb:UpdateContinuousBackups"];
    perform(&dynamo, &["table", "create", "--table", "two"]).await.assert_failed(77, &parts);
    perform(&dynamo, &["table", "check", "--table", "two"]).await.assert_done(&["ok       key"]);
}

#[tokio::test]
async fn a_table_with_another_key_is_wrong_and_create_does_not_touch_it() {
    let dynamo = Dynamo::start().await;
    dynamo.create_table("other-name", "id", "S", None);
    dynamo.create_table("other-type", "key", "N", None);
    dynamo.create_table("sort-key", "key", "S", Some("range"));
    for (table, shown) in [
        ("other-name", "partition key `id` of type S: it must be"),
        ("other-type", "partition key `key` of type N: it must be"),
        ("sort-key", "partition key `key` of type S, sort key `range` of type S: it must be"),
    ] {
        for command in ["check", "create"] {
            let ended = perform(&dynamo, &["table", command, "--table", table]).await;
            assert_found(
                &ended,
                78,
                &format!("wrong    key: {shown}"),
                "locks do not work in this table, or not safely: key",
            );
        }
    }
}

/// What DescribeTable says of a table of several Regions; `$more` are its last fields.
macro_rules! described {
    ($more:literal) => {
        Fault::Answer(concat!(
            r#"{"Table":{"TableName":"locks","TableStatus":"ACTIVE","TableArn":"arn","#,
            r#""KeySchema":[{"AttributeName":"key","KeyType":"HASH"}],"#,
            r#""AttributeDefinitions":[{"AttributeName":"key","AttributeType":"S"}],"#,
            r#""BillingModeSummary":{"BillingMode":"PAY_PER_REQUEST"},"#,
            $more,
            "}}"
        ))
    };
}

#[tokio::test]
async fn tables_of_several_regions_are_refused_unless_they_are_strongly_consistent() {
    let dynamo = Dynamo::start().await;
    for described in [
        described!(
            r#""Replicas":[{"RegionName":"eu-west-1"},{"RegionName":"us-east-1"}],"GlobalTableVersion":"2019.11.21""#
        ),
        described!(
            r#""Replicas":[{"RegionName":"eu-west-1"},{"RegionName":"us-east-1"}],"MultiRegionConsistency":"EVENTUAL""#
        ),
    ] {
        dynamo.fail(Operation::DescribeTable, described);
        let ended = perform(&dynamo, &["table", "check"]).await;
        let line = "wrong    regions: a global table with eventual consistency (eu-west-1, us-east-1): a lock taken in one Region";
        assert_found(&ended, 78, line, "not safely: regions");
    }
    dynamo.fail(Operation::DescribeTable, described!(r#""GlobalTableVersion":"2017.11.29""#));
    assert_found(&perform(&dynamo, &["table", "check"]).await, 78, "wrong    regions", "not safely: regions");
    dynamo.fail(
        Operation::DescribeTable,
        described!(r#""Replicas":[{"RegionName":"eu-west-1"}],"MultiRegionConsistency":"STRONG""#),
    );
    let strong = perform(&dynamo, &["table", "check"]).await;
    strong.assert_done(&[
        "note     regions: a global table with strong consistency (eu-west-1)",
        "transactions are refused",
    ]);
}

#[tokio::test]
async fn what_else_a_table_may_be_is_told() {
    let dynamo = Dynamo::start().await;
    let expires =
        Fault::Answer(r#"{"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"expires"}}"#);
    dynamo.fail(Operation::DescribeTimeToLive, expires);
    let ended = perform(&dynamo, &["table", "check"]).await;
    assert_found(&ended, 78, "wrong    time to live: on, by the attribute `expires`", "not safely: time to live");
    dynamo.fail(Operation::DescribeTable, described!(r#""TableStatus":"DELETING""#));
    assert_found(&perform(&dynamo, &["table", "check"]).await, 78, "wrong    status: the table is DELETING", "status");
    dynamo.fail(
        Operation::DescribeTable,
        described!(r#""BillingModeSummary":{"BillingMode":"PROVISIONED"},"ProvisionedThroughput":{"ReadCapacityUnits":5,"WriteCapacityUnits":7}"#),
    );
    let provisioned = perform(&dynamo, &["table", "check"]).await;
    provisioned.assert_done(&["note     billing: provisioned (5 read and 7 write units a second)"]);
    for (status, line) in
        [("ENABLED", "ok       point-in-time recovery: on"), ("DISABLED", "note     point-in-time recovery: off")]
    {
        let backups = match status {
            "ENABLED" => {
                r#"{"ContinuousBackupsDescription":{"ContinuousBackupsStatus":"ENABLED","PointInTimeRecoveryDescription":{"PointInTimeRecoveryStatus":"ENABLED"}}}"#
            }
            _ => {
                r#"{"ContinuousBackupsDescription":{"ContinuousBackupsStatus":"ENABLED","PointInTimeRecoveryDescription":{"PointInTimeRecoveryStatus":"DISABLED"}}}"#
            }
        };
        dynamo.fail(Operation::DescribeContinuousBackups, Fault::Answer(backups));
        perform(&dynamo, &["table", "check"]).await.assert_done(&[line]);
    }
}

#[tokio::test]
async fn what_may_not_be_looked_at_is_unknown_and_no_clean_bill() {
    let dynamo = Dynamo::start().await;
    dynamo.fail(Operation::DescribeTimeToLive, Fault::AccessDenied);
    let denied = perform(&dynamo, &["table", "check"]).await;
    assert_found(
        &denied,
        77,
        "unknown  time to live: dynamodb:DescribeTimeToLive",
        "not everything could be looked at: time to live",
    );
    dynamo.fail(Operation::DescribeContinuousBackups, Fault::InternalError).times(3);
    let down = perform(&dynamo, &["table", "check"]).await;
    assert_found(&down, 69, "unknown  point-in-time recovery", "not everything could be looked at");
    dynamo.fail(Operation::DescribeTimeToLive, Fault::Throttle).times(2);
    perform(&dynamo, &["table", "check"]).await.assert_done(&["ok       time to live: off"]);
}
