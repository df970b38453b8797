//! The store in DynamoDB: one request, one attempt, one answer.

#[cfg(feature = "commands")]
pub(crate) mod asking;
mod connections;
mod sort;

use super::row;
use super::{Note, Request, Response, Store, Text};
use crate::http::{Attempt, read_certificates};
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{Builder, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::error::ConditionalCheckFailedException;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConsumedCapacity, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use connections::Connections;
use leasekeeper_core::{Op, Row};
use sort::Place;
use std::error::Error;
use std::fmt;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::timeout;

const ALL_OLD: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;
const TOTAL: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;

/// How long a connection that nobody waits for may take.
const WARM: Duration = Duration::from_secs(3);

type Loader = dyn Fn() -> ConfigLoader + Send + Sync;

/// Rows in a DynamoDB table with the partition key `key` (S) and no sort key.
pub struct DynamoStore {
    table: String,
    loader: Box<Loader>,
    connections: Connections,
    /// Made with the first request: reading certificates and settings would delay the extension's registration.
    client: OnceCell<Client>,
}

impl DynamoStore {
    /// Region, credentials and endpoint are found as the AWS SDK finds them. Cheap: nothing is read before the first
    /// request or [`DynamoStore::warm`].
    pub fn new(table: impl Into<String>) -> Self {
        Self::configured(table, || aws_config::defaults(BehaviorVersion::latest()))
    }

    /// Like [`DynamoStore::new`], with the configuration that `loader` begins. HTTP client, retries and time-outs are
    /// the store's own whatever it says.
    pub fn configured(table: impl Into<String>, loader: impl Fn() -> ConfigLoader + Send + Sync + 'static) -> Self {
        let (connections, client) = Default::default();
        Self { table: table.into(), loader: Box::new(loader), connections, client }
    }

    /// Loads settings and credentials and opens one connection, so that the first lock need not wait for them. Touches
    /// no row and needs no permission: a GET of the endpoint itself. Whatever fails here is met again, and told, by the
    /// request that needs it.
    pub async fn warm(&self) {
        let greeting = async {
            // The table's name makes the operation valid; what is sent is not the operation.
            let operation = self.client().await.get_item().table_name(&self.table).key("key", text("-"));
            operation.customize().mutate_request(into_greeting).send().await
        };
        match timeout(WARM, greeting).await {
            Ok(Err(SdkError::DispatchFailure(failure))) => tracing::debug!(?failure, "no connection to DynamoDB yet"),
            Err(_) => tracing::debug!("no connection to DynamoDB yet: timed out"),
            Ok(_) => {}
        }
    }

    async fn client(&self) -> &Client {
        let build = async || {
            // Not on the thread that serves and renews. If it fails, the first connector reads them.
            let _ = tokio::task::spawn_blocking(read_certificates).await;
            let shared = (self.loader)().http_client(self.connections.clone()).load().await;
            // The core repeats, never the SDK: a Put sent twice could bring back a row that was deleted in between.
            let config = Builder::from(&shared)
                .retry_config(RetryConfig::disabled())
                .timeout_config(TimeoutConfig::disabled())
                .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
                .build();
            Client::from_conf(config)
        };
        self.client.get_or_init(build).await
    }

    fn place<'p>(&'p self, op: &Op<Text>) -> Place<'p> {
        let action = match op {
            Op::Create { .. } | Op::Replace { .. } => "dynamodb:PutItem",
            Op::Read => "dynamodb:GetItem",
            Op::Renew { .. } => "dynamodb:UpdateItem",
            Op::Delete { .. } => "dynamodb:DeleteItem",
        };
        Place { action, table: &self.table, region: self.region() }
    }

    /// The Region, once the settings are loaded.
    fn region(&self) -> Option<&str> {
        self.client.get().and_then(|client| client.config().region()).map(AsRef::as_ref)
    }

    async fn exchange(&self, request: &Request, attempt: &Attempt) -> Response {
        let client = self.client().await;
        let call = Call { client, table: &self.table, key: &request.key, attempt, place: self.place(&request.op) };
        match &request.op {
            Op::Create { row } => call.put(row, &request.note, None).await,
            Op::Replace { row, owner, version } => call.put(row, &request.note, Some((owner, version))).await,
            Op::Read => call.get().await,
            Op::Renew { owner, last, new } => call.update(owner, last, new).await,
            Op::Delete { owner } => call.delete(owner).await,
        }
    }
}

impl fmt::Debug for DynamoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoStore").field("table", &self.table).finish_non_exhaustive()
    }
}

impl Store for DynamoStore {
    async fn send(&self, request: Request) -> Response {
        let attempt = Attempt::default();
        let mut exchange = Box::pin(self.exchange(&request, &attempt));
        if let Ok(response) = timeout(request.timeout, &mut exchange).await {
            return response;
        }
        if !attempt.pooled() {
            let more = request.connect_timeout.saturating_sub(request.timeout);
            if let Ok(response) = timeout(more, &mut exchange).await {
                return response;
            }
        }
        drop(exchange);
        Response::free(sort::timed_out(&attempt, self.place(&request.op)))
    }

    fn drop_connections(&self) {
        self.connections.drop_all();
    }
}

/// One request under way.
struct Call<'c> {
    client: &'c Client,
    table: &'c str,
    key: &'c str,
    attempt: &'c Attempt,
    place: Place<'c>,
}

impl Call<'_> {
    /// Puts the whole row: over the one with this owner and version, or where there is none.
    async fn put(&self, row: &Row<Text>, note: &Note, over: Option<(&Text, &Text)>) -> Response {
        let put = self.client.put_item().table_name(self.table).set_item(Some(row::item(self.key, row, note)));
        let put = match over {
            None => put.condition_expression("attribute_not_exists(#key)").expression_attribute_names("#key", "key"),
            Some((owner, version)) => put
                .condition_expression("#owner = :seen_owner AND #version = :seen_version")
                .expression_attribute_names("#owner", "owner")
                .expression_attribute_names("#version", "version")
                .expression_attribute_values(":seen_owner", text(owner))
                .expression_attribute_values(":seen_version", text(version)),
        };
        let put = put.return_values_on_condition_check_failure(ALL_OLD).return_consumed_capacity(TOTAL);
        let result = put.customize().mutate_request(self.watch()).send().await;
        self.written(result.map(|done| done.consumed_capacity), |error| match error {
            PutItemError::ConditionalCheckFailedException(failed) => Some(failed),
            _ => None,
        })
    }

    async fn get(&self) -> Response {
        let get = self
            .client
            .get_item()
            .table_name(self.table)
            .key("key", text(self.key))
            .consistent_read(true)
            .return_consumed_capacity(TOTAL);
        match get.customize().mutate_request(self.watch()).send().await {
            Ok(found) => Response::found(found.item.as_ref(), units(found.consumed_capacity)),
            Err(error) => Response::free(sort::answer(&error, self.attempt, self.place)),
        }
    }

    /// Moves the version from `last` to `new`.
    async fn update(&self, owner: &str, last: &str, new: &str) -> Response {
        let update = self
            .client
            .update_item()
            .table_name(self.table)
            .key("key", text(self.key))
            .update_expression("SET #version = :new")
            .condition_expression("#owner = :mine AND #version = :last")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_names("#version", "version")
            .expression_attribute_values(":mine", text(owner))
            .expression_attribute_values(":last", text(last))
            .expression_attribute_values(":new", text(new))
            .return_values_on_condition_check_failure(ALL_OLD)
            .return_consumed_capacity(TOTAL);
        let result = update.customize().mutate_request(self.watch()).send().await;
        self.written(result.map(|done| done.consumed_capacity), |error| match error {
            UpdateItemError::ConditionalCheckFailedException(failed) => Some(failed),
            _ => None,
        })
    }

    async fn delete(&self, owner: &str) -> Response {
        let delete = self
            .client
            .delete_item()
            .table_name(self.table)
            .key("key", text(self.key))
            .condition_expression("#owner = :mine")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":mine", text(owner))
            .return_values_on_condition_check_failure(ALL_OLD)
            .return_consumed_capacity(TOTAL);
        let result = delete.customize().mutate_request(self.watch()).send().await;
        self.written(result.map(|done| done.consumed_capacity), |error| match error {
            DeleteItemError::ConditionalCheckFailedException(failed) => Some(failed),
            _ => None,
        })
    }

    /// Lets the attempt follow its request below the SDK.
    fn watch(&self) -> impl Fn(&mut HttpRequest) + Send + Sync + use<> {
        let attempt = self.attempt.clone();
        move |request| request.add_extension(attempt.clone())
    }

    fn written<E>(
        &self,
        result: Result<Option<ConsumedCapacity>, SdkError<E, HttpResponse>>,
        condition: impl Fn(&E) -> Option<&ConditionalCheckFailedException>,
    ) -> Response
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let error = match result {
            Ok(capacity) => return Response::done(units(capacity)),
            Err(error) => error,
        };
        match error.as_service_error().and_then(condition) {
            Some(failed) => Response::failed(failed.item.as_ref()),
            None => Response::free(sort::answer(&error, self.attempt, self.place)),
        }
    }
}

/// Makes a plain GET of the endpoint out of an operation's request; it is signed afterwards like any other.
fn into_greeting(request: &mut HttpRequest) {
    if request.set_method("GET").is_ok() {
        *request.body_mut() = SdkBody::empty();
        for name in ["content-length", "content-type", "x-amz-target"] {
            request.headers_mut().remove(name);
        }
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn units(capacity: Option<ConsumedCapacity>) -> f64 {
    capacity.and_then(|capacity| capacity.capacity_units).unwrap_or_default()
}
