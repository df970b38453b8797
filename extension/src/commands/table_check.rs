//! `table check`: is the table what a lock table must be?

use super::problem::{Kind, Problem};
use super::say;
use super::table::Table;
use crate::store::dynamodb::asking::{Unanswered, Watch};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    BillingMode, KeyType, MultiRegionConsistency, PointInTimeRecoveryStatus, ScalarAttributeType, TableDescription,
    TableStatus, TimeToLiveStatus,
};
use serde_json::{Value, json};

/// What one look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Ok,
    /// It works, and is worth knowing.
    Note,
    /// Locks do not work, or not safely.
    Wrong,
    /// It could not be looked at: why, for the exit code.
    Unknown(Kind),
}

struct Look {
    what: &'static str,
    result: Found,
    text: String,
}

/// Looks at everything, and tells; fails if anything is wrong, or could not be looked at.
pub(super) async fn perform(table: &Table, json: bool) -> Result<(), Problem> {
    let describe = async |client: &Client, watch: Watch| {
        client.describe_table().table_name(table.name()).customize().mutate_request(watch.follow()).send().await
    };
    let described = table.read("dynamodb:DescribeTable", describe).await.map_err(|e| Problem::unanswered(e.answer))?;
    let Some(description) = described.table else {
        return Err(Problem::new(Kind::Fault, "DescribeTable answered without a table"));
    };
    let mut looks = described_looks(&description);
    looks.push(time_to_live(table).await);
    looks.push(backups(table).await);
    say(&if json { as_json(table, &description, &looks) } else { as_text(table, &looks) });
    verdict(&looks)
}

fn verdict(looks: &[Look]) -> Result<(), Problem> {
    let wrong: Vec<&str> = looks.iter().filter(|look| look.result == Found::Wrong).map(|look| look.what).collect();
    if !wrong.is_empty() {
        let text = format!("locks do not work in this table, or not safely: {}", wrong.join(", "));
        return Err(Problem::new(Kind::Config, text));
    }
    let unknown = looks.iter().find_map(|look| match look.result {
        Found::Unknown(kind) => Some((kind, look.what)),
        _ => None,
    });
    match unknown {
        Some((kind, what)) => Err(Problem::new(kind, format!("not everything could be looked at: {what}"))),
        None => Ok(()),
    }
}

fn look(what: &'static str, result: Found, text: impl Into<String>) -> Look {
    Look { what, result, text: text.into() }
}

fn described_looks(table: &TableDescription) -> Vec<Look> {
    vec![status(table), key(table), regions(table), billing(table), protection(table)]
}

fn status(table: &TableDescription) -> Look {
    match table.table_status() {
        Some(TableStatus::Active | TableStatus::Updating) => look("status", Found::Ok, "the table can be used"),
        status => {
            let status = status.map_or("unknown", |status| status.as_str());
            look("status", Found::Wrong, format!("the table is {status}: it cannot be used"))
        }
    }
}

fn key(table: &TableDescription) -> Look {
    let kind = |name: &str| {
        let of_name = table.attribute_definitions().iter().find(|definition| definition.attribute_name() == name);
        of_name.map(|definition| definition.attribute_type().clone())
    };
    let shown: Vec<String> = table
        .key_schema()
        .iter()
        .map(|element| {
            let name = element.attribute_name();
            let kind = kind(name).map_or_else(|| "?".to_owned(), |kind| kind.as_str().to_owned());
            format!(
                "{} key `{name}` of type {kind}",
                if *element.key_type() == KeyType::Hash { "partition" } else { "sort" }
            )
        })
        .collect();
    let right = match table.key_schema() {
        [only] => only.attribute_name() == "key" && kind("key") == Some(ScalarAttributeType::S),
        _ => false,
    };
    match right {
        true => look("key", Found::Ok, "partition key `key` of type S, no sort key"),
        false => {
            let text = format!("{}: it must be partition key `key` of type S and no sort key", shown.join(", "));
            look("key", Found::Wrong, text)
        }
    }
}

/// Conditional writes exclude each other in one Region, or where every Region agrees before a write is answered.
fn regions(table: &TableDescription) -> Look {
    let regions: Vec<&str> = table.replicas().iter().filter_map(|replica| replica.region_name()).collect();
    let old = table.global_table_version() == Some("2017.11.29");
    if regions.is_empty() && !old {
        return look("regions", Found::Ok, "one Region");
    }
    let regions = if regions.is_empty() { "several Regions".to_owned() } else { regions.join(", ") };
    match table.multi_region_consistency() {
        Some(MultiRegionConsistency::Strong) => look(
            "regions",
            Found::Note,
            format!(
                "a global table with strong consistency ({regions}): locks exclude each other in all of them, and each write waits for another \
                 Region; transactions are refused there, so `condition_check()` cannot guard a write. Not checked on AWS"
            ),
        ),
        _ => look(
            "regions",
            Found::Wrong,
            format!(
                "a global table with eventual consistency ({regions}): a lock taken in one Region does not exclude one taken in another; \
                 use a table without replicas"
            ),
        ),
    }
}

fn billing(table: &TableDescription) -> Look {
    let mode = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    if mode == Some(&BillingMode::PayPerRequest) {
        return look("billing", Found::Ok, "on demand");
    }
    let units = table.provisioned_throughput().map(|units| {
        (units.read_capacity_units().unwrap_or_default(), units.write_capacity_units().unwrap_or_default())
    });
    let (reads, writes) = units.unwrap_or_default();
    let text = format!(
        "provisioned ({reads} read and {writes} write units a second): past them locks are throttled, and late"
    );
    look("billing", Found::Note, text)
}

fn protection(table: &TableDescription) -> Look {
    match table.deletion_protection_enabled() {
        Some(true) => look("deletion protection", Found::Ok, "on"),
        _ => look("deletion protection", Found::Note, "off: deleting the table loses every lock at once"),
    }
}

async fn time_to_live(table: &Table) -> Look {
    let describe = async |client: &Client, watch: Watch| {
        client.describe_time_to_live().table_name(table.name()).customize().mutate_request(watch.follow()).send().await
    };
    let described = match table.read("dynamodb:DescribeTimeToLive", describe).await {
        Ok(described) => described
            .time_to_live_description
            .unwrap_or_else(|| aws_sdk_dynamodb::types::TimeToLiveDescription::builder().build()),
        Err(unanswered) => return unknown("time to live", unanswered),
    };
    match described.time_to_live_status() {
        None | Some(TimeToLiveStatus::Disabled | TimeToLiveStatus::Disabling) => look("time to live", Found::Ok, "off"),
        Some(_) => {
            let name = described.attribute_name().unwrap_or("?");
            let text = format!(
                "on, by the attribute `{name}`: a lock row that has it may be deleted under its holder; turn it off"
            );
            look("time to live", Found::Wrong, text)
        }
    }
}

async fn backups(table: &Table) -> Look {
    let describe = async |client: &Client, watch: Watch| {
        let describe = client.describe_continuous_backups().table_name(table.name());
        describe.customize().mutate_request(watch.follow()).send().await
    };
    let described = match table.read("dynamodb:DescribeContinuousBackups", describe).await {
        Ok(described) => described.continuous_backups_description,
        Err(unanswered) => return unknown("point-in-time recovery", unanswered),
    };
    let recovery = described.as_ref().and_then(|backups| backups.point_in_time_recovery_description());
    match recovery.and_then(|recovery| recovery.point_in_time_recovery_status()) {
        Some(PointInTimeRecoveryStatus::Enabled) => look("point-in-time recovery", Found::Ok, "on"),
        _ => look("point-in-time recovery", Found::Note, "off"),
    }
}

/// An emulator does not know every operation: that is no fault of the table.
fn unknown<E: ProvideErrorMetadata>(what: &'static str, unanswered: Unanswered<E>) -> Look {
    if unanswered.code() == Some("UnknownOperationException") {
        return look(what, Found::Note, "this endpoint cannot tell");
    }
    let problem = Problem::unanswered(unanswered.answer);
    look(what, Found::Unknown(problem.kind), problem.text())
}

fn word(result: Found) -> &'static str {
    match result {
        Found::Ok => "ok",
        Found::Note => "note",
        Found::Wrong => "wrong",
        Found::Unknown(_) => "unknown",
    }
}

fn as_text(table: &Table, looks: &[Look]) -> String {
    let lines = looks.iter().map(|look| format!("  {:<7}  {}: {}\n", word(look.result), look.what, look.text));
    format!("table {}\n{}", table.name(), lines.collect::<String>())
}

fn as_json(table: &Table, description: &TableDescription, looks: &[Look]) -> String {
    let looks: Vec<Value> =
        looks.iter().map(|look| json!({"what": look.what, "result": word(look.result), "text": look.text})).collect();
    format!("{}\n", json!({"table": table.name(), "arn": description.table_arn(), "checks": looks}))
}
