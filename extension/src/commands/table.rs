//! The lock table as the commands ask it: reads are repeated a little, writes never.

use super::arguments::Common;
use super::note;
use super::problem::{Kind, Problem};
use super::shown::Standing;
use crate::settings::values;
use crate::store::DynamoStore;
use crate::store::dynamodb::asking::{Unanswered, Watch};
use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::scan::ScanOutput;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use leasekeeper_core::{Answer, Row};
use std::collections::HashMap;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;
use tokio::time::sleep;

/// What one attempt may take: connections of a laptop are slow, and nobody renews a lock through here.
const WITHIN: Duration = Duration::from_secs(5);

/// Pauses between the attempts of a request that changes nothing.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// Whoever waits for longer is told what for.
const SILENCE: Duration = Duration::from_secs(2);

/// One table.
pub(super) struct Table(DynamoStore);

/// What became of a conditional delete.
pub(super) enum Deleted {
    Done,
    /// The row is not the one that was named: this stands there.
    Refused(Standing),
}

impl Table {
    /// The table that the command line names, or the environment.
    pub(super) fn named(common: &Common) -> Result<Self, Problem> {
        let name = match &common.table {
            Some(name) => name.clone(),
            None => from_environment()?,
        };
        Ok(Self(store(name, common)))
    }

    pub(super) fn name(&self) -> &str {
        self.0.table()
    }

    /// Sends a request that may be sent again, up to three times.
    pub(super) async fn read<T, E>(
        &self,
        action: &'static str,
        call: impl AsyncFn(&Client, Watch) -> Result<T, SdkError<E, HttpResponse>>,
    ) -> Result<T, Unanswered<E>>
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let mut asking = pin!(async {
            let mut pauses = PAUSES.iter();
            loop {
                let unanswered = match self.0.ask(action, WITHIN, &call).await {
                    Ok(answer) => return Ok(answer),
                    Err(unanswered) => unanswered,
                };
                let again =
                    matches!(unanswered.answer, Answer::Throttled(_) | Answer::Unavailable(_) | Answer::Unknown(_));
                match pauses.next() {
                    Some(pause) if again => sleep(*pause).await,
                    _ => return Err(unanswered),
                }
            }
        });
        tokio::select! {
            biased;
            answered = &mut asking => return answered,
            () = sleep(SILENCE) => {
                note(&format!("no answer to {action} so far; it is tried for {} s at most", (WITHIN * 3).as_secs()));
            }
        }
        asking.await
    }

    /// Sends a request once.
    pub(super) async fn write<T, E>(
        &self,
        action: &'static str,
        call: impl AsyncFnOnce(&Client, Watch) -> Result<T, SdkError<E, HttpResponse>>,
    ) -> Result<T, Unanswered<E>>
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        self.0.ask(action, WITHIN, call).await
    }

    /// What stands under `key`, consistently.
    pub(super) async fn standing(&self, key: &str) -> Result<Standing, Problem> {
        let get = async |client: &Client, watch: Watch| {
            let get = client.get_item().table_name(self.name()).key("key", text(key)).consistent_read(true);
            let get = get.return_consumed_capacity(ReturnConsumedCapacity::Total);
            get.customize().mutate_request(watch.follow()).send().await
        };
        let found = self.read("dynamodb:GetItem", get).await.map_err(|e| Problem::unanswered(e.answer))?;
        Ok(Standing::of(found.item.as_ref()))
    }

    /// One page of everything, from behind `after` on.
    pub(super) async fn page(&self, after: Option<HashMap<String, AttributeValue>>) -> Result<ScanOutput, Problem> {
        let scan = async |client: &Client, watch: Watch| {
            let scan = client.scan().table_name(self.name()).set_exclusive_start_key(after.clone());
            let scan = scan.return_consumed_capacity(ReturnConsumedCapacity::Total);
            scan.customize().mutate_request(watch.follow()).send().await
        };
        self.read("dynamodb:Scan", scan).await.map_err(|e| Problem::unanswered(e.answer))
    }

    /// Deletes the row under `key` if it still is exactly this one.
    pub(super) async fn delete(&self, key: &str, row: &Row<crate::store::Text>) -> Result<Deleted, Problem> {
        let delete = async |client: &Client, watch: Watch| {
            let delete = client
                .delete_item()
                .table_name(self.name())
                .key("key", text(key))
                .condition_expression("#owner = :owner AND #version = :version")
                .expression_attribute_names("#owner", "owner")
                .expression_attribute_names("#version", "version")
                .expression_attribute_values(":owner", text(&row.owner))
                .expression_attribute_values(":version", text(&row.version))
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
                .return_consumed_capacity(ReturnConsumedCapacity::Total);
            delete.customize().mutate_request(watch.follow()).send().await
        };
        match self.write("dynamodb:DeleteItem", delete).await {
            Ok(_) => Ok(Deleted::Done),
            Err(Unanswered { said: Some(DeleteItemError::ConditionalCheckFailedException(failed)), .. }) => {
                Ok(Deleted::Refused(Standing::of(failed.item.as_ref())))
            }
            Err(Unanswered { answer: answer @ Answer::Unknown(_), .. }) => {
                Err(Problem::unanswered(answer).context("nobody knows whether the row was deleted: inspect it again"))
            }
            Err(unanswered) => Err(Problem::unanswered(unanswered.answer)),
        }
    }
}

fn from_environment() -> Result<String, Problem> {
    let Some(name) = std::env::var_os("LEASEKEEPER_TABLE") else {
        let memory = std::env::var_os("LEASEKEEPER_STORE").is_some_and(|store| store == "memory");
        let why = if memory { " (this looks at DynamoDB: a store in memory has no rows to look at)" } else { "" };
        let text = format!("no table is named: use --table NAME, or set LEASEKEEPER_TABLE{why}");
        return Err(Problem::new(Kind::Config, text));
    };
    let name = name.to_string_lossy();
    values::table(&name)
        .map_err(|must| Problem::new(Kind::Config, format!("LEASEKEEPER_TABLE is {name:?}: it must be {must}")))
}

/// The store of a table, where the command line leads.
pub(super) fn store(table: String, common: &Common) -> DynamoStore {
    let (region, endpoint) = (common.region.clone(), common.endpoint.clone());
    DynamoStore::configured(table, move || {
        let mut loader = aws_config::defaults(BehaviorVersion::latest());
        if let Some(region) = &region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        loader
    })
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}
