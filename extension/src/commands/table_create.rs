//! `table create`: a table as locks need it.

use super::problem::{Kind, Problem};
use super::table::Table;
use super::{note, table_check};
use crate::clock;
use crate::store::dynamodb::asking::{Unanswered, Watch};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, PointInTimeRecoverySpecification, ScalarAttributeType,
    TableStatus,
};
use leasekeeper_core::Micros;
use std::time::Duration;
use tokio::time::sleep;

/// How long a new table may take to become usable; seconds as a rule.
const PATIENCE: Micros = 120_000_000;
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Creates the table, waits until it can be used, and checks it; one that is there already is checked alone.
pub(super) async fn perform(table: &Table, protect: bool, recover: bool, json: bool) -> Result<(), Problem> {
    if !create(table, protect).await? {
        note("the table is there already: it is checked, and nothing is changed");
        return table_check::perform(table, json).await;
    }
    let since = clock::now().mono;
    while !is_active(table).await? {
        if clock::now().mono.saturating_sub(since) > PATIENCE {
            let text = "the table is created, but cannot be used yet: look again with `leasekeeper table check`";
            return Err(Problem::new(Kind::Unavailable, text));
        }
        sleep(LOOK_EVERY).await;
    }
    if recover {
        turn_recovery_on(table, since).await?;
    }
    table_check::perform(table, json).await
}

/// Is it new?
async fn create(table: &Table, protect: bool) -> Result<bool, Problem> {
    let (attribute, element) = schema().map_err(|error| Problem::new(Kind::Fault, error.to_string()))?;
    let create = async |client: &Client, watch: Watch| {
        let create = client
            .create_table()
            .table_name(table.name())
            .attribute_definitions(attribute)
            .key_schema(element)
            .billing_mode(BillingMode::PayPerRequest)
            .set_deletion_protection_enabled(protect.then_some(true));
        create.customize().mutate_request(watch.follow()).send().await
    };
    match table.write("dynamodb:CreateTable", create).await {
        Ok(_) => Ok(true),
        Err(Unanswered { said: Some(CreateTableError::ResourceInUseException(_)), .. }) => Ok(false),
        Err(unanswered) => Err(Problem::unanswered(unanswered.answer)),
    }
}

fn schema() -> Result<(AttributeDefinition, KeySchemaElement), BuildError> {
    let attribute = AttributeDefinition::builder().attribute_name("key").attribute_type(ScalarAttributeType::S);
    let element = KeySchemaElement::builder().attribute_name("key").key_type(KeyType::Hash);
    Ok((attribute.build()?, element.build()?))
}

async fn is_active(table: &Table) -> Result<bool, Problem> {
    let describe = async |client: &Client, watch: Watch| {
        client.describe_table().table_name(table.name()).customize().mutate_request(watch.follow()).send().await
    };
    match table.read("dynamodb:DescribeTable", describe).await {
        Ok(described) => {
            let status = described.table.as_ref().and_then(|table| table.table_status());
            Ok(status == Some(&TableStatus::Active))
        }
        // Just created, and not known everywhere.
        Err(unanswered) if unanswered.code() == Some("ResourceNotFoundException") => Ok(false),
        Err(unanswered) => Err(Problem::unanswered(unanswered.answer).context("the table is created")),
    }
}

async fn turn_recovery_on(table: &Table, since: Micros) -> Result<(), Problem> {
    let on = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true).build();
    let on = on.map_err(|error| Problem::new(Kind::Fault, error.to_string()))?;
    loop {
        let update = async |client: &Client, watch: Watch| {
            let update = client.update_continuous_backups().table_name(table.name());
            let update = update.point_in_time_recovery_specification(on.clone());
            update.customize().mutate_request(watch.follow()).send().await
        };
        let unanswered = match table.read("dynamodb:UpdateContinuousBackups", update).await {
            Ok(_) => return Ok(()),
            Err(unanswered) => unanswered,
        };
        let patient = clock::now().mono.saturating_sub(since) <= PATIENCE;
        match unanswered.code() {
            // Said of a table that is new.
            Some("ContinuousBackupsUnavailableException") if patient => sleep(LOOK_EVERY).await,
            Some("UnknownOperationException") => return Ok(()),
            _ => {
                let problem = Problem::unanswered(unanswered.answer);
                return Err(problem.context("the table is created, but point-in-time recovery is not turned on"));
            }
        }
    }
}
