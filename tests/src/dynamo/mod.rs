//! A DynamoDB of the test's own: an emulator in memory, and before it a front that injects faults and keeps a log.

pub mod attributes;
mod emulator;
mod fault;
mod front;
mod reply;
mod rules;
mod strict;

pub use fault::{Fault, Operation};
pub use front::{Front, Recorded};
pub use rules::Rule;

use aws_config::{BehaviorVersion, ConfigLoader, Region};
use aws_sdk_dynamodb::config::Credentials;
use emulator::Emulator;
use leasekeeper_extension::store::DynamoStore;
use serde_json::{Value, json};
use std::time::Duration;

/// The lock table's name.
const TABLE: &str = "locks";

/// The name under which pydynox works on the table.
pub const PYDYNOX: &str = "pydynox";

/// The name under which commands that people run work on the table: they may ask for what no lock client needs.
pub const COMMANDS: &str = "commands";

/// One DynamoDB with one empty lock table. Both its threads end when it is dropped.
///
/// Dropping it panics if a client broke the rules that [`Front::violations`] names.
#[derive(Debug)]
pub struct Dynamo {
    front: Front,
    emulator: Emulator,
}

impl Dynamo {
    /// Starts it on a free port of the loopback interface.
    pub async fn start() -> Self {
        tokio::task::spawn_blocking(Self::start_blocking).await.expect("the emulator starts")
    }

    /// Like [`Dynamo::start`], outside a runtime.
    pub fn start_blocking() -> Self {
        let emulator = Emulator::start();
        emulator.create_table(TABLE, "key", "S", None);
        let front = Front::start(emulator.address(), TABLE);
        Self { front, emulator }
    }

    /// The front's URL: what `AWS_ENDPOINT_URL_DYNAMODB` is set to.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.front.address())
    }

    /// The same for a client whose requests the log tells from others' by this name. [`PYDYNOX`] may send what only the
    /// extension must not.
    pub fn endpoint_as(&self, client: &str) -> String {
        format!("{}/{client}", self.endpoint())
    }

    /// The lock table's name.
    pub fn table(&self) -> &'static str {
        TABLE
    }

    /// The front: its connections and what it saw go wrong.
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// Environment variables that lead an AWS SDK of any language, and the extension, here and nowhere else.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        self.env_as("")
    }

    /// The same for a client with a name: see [`Dynamo::endpoint_as`].
    pub fn env_as(&self, client: &str) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", self.endpoint_as(client)),
            ("AWS_REGION", "eu-central-1".to_owned()),
            ("AWS_DEFAULT_REGION", "eu-central-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIDTESTKIT".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            ("LEASEKEEPER_TABLE", TABLE.to_owned()),
        ]
    }

    /// The same for an SDK in this process, whatever its environment says.
    pub fn loader(&self) -> ConfigLoader {
        loader(self.endpoint())
    }

    /// The extension's own store on the lock table.
    pub fn store(&self) -> DynamoStore {
        self.store_of(TABLE)
    }

    /// The extension's own store on another table.
    pub fn store_of(&self, table: &str) -> DynamoStore {
        let endpoint = self.endpoint();
        DynamoStore::configured(table, move || loader(endpoint.clone()))
    }

    /// An SDK client with the SDK's defaults, as an application has one.
    pub async fn client(&self) -> aws_sdk_dynamodb::Client {
        let http = aws_smithy_http_client::Builder::new().build_http();
        aws_sdk_dynamodb::Client::new(&self.loader().http_client(http).load().await)
    }

    /// Creates another table. `range` is a sort key of type S.
    pub fn create_table(&self, name: &str, key: &str, kind: &str, range: Option<&str>) {
        self.emulator.create_table(name, key, kind, range);
    }

    /// What stands under `key` in the lock table, in DynamoDB's JSON: `item["owner"]["S"]`. Not counted as a request.
    pub fn item(&self, key: &str) -> Option<Value> {
        self.emulator.item(TABLE, key)
    }

    /// Puts an item, in DynamoDB's JSON, into the lock table without any condition. Not counted as a request.
    pub fn put_raw(&self, item: Value) {
        self.emulator.put(TABLE, item);
    }

    /// Deletes what stands under `key` without any condition, as an operator might. Not counted as a request.
    pub fn delete_raw(&self, key: &str) {
        self.emulator.delete(TABLE, key);
    }

    /// From now on the next request of this operation meets this fault, once: see [`Rule`] for more.
    pub fn fail(&self, operation: Operation, fault: Fault) -> Rule {
        self.front.fail(operation, fault)
    }

    /// How long it has been there: the clock of [`Recorded::at`] and [`Recorded::answered`].
    pub fn elapsed(&self) -> Duration {
        self.front.elapsed()
    }

    /// Every request so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        self.front.requests()
    }

    /// How many requests of an operation there were.
    pub fn count(&self, operation: Operation) -> usize {
        self.requests().iter().filter(|request| operation.matches(request.operation)).count()
    }

    /// The requests for one key.
    pub fn requests_for(&self, key: &str) -> Vec<Recorded> {
        self.requests().into_iter().filter(|request| request.key.as_deref() == Some(key)).collect()
    }

    /// Waits until the log satisfies `wanted`; false if it does not within `limit`.
    pub async fn until(&self, limit: Duration, wanted: impl Fn(&[Recorded]) -> bool) -> bool {
        self.front.until(limit, wanted).await
    }
}

fn loader(endpoint: String) -> ConfigLoader {
    aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("AKIDTESTKIT", "secret", None, None, "testkit"))
        .endpoint_url(endpoint)
}

/// A row of lock protocol version 1 in DynamoDB's JSON.
pub fn row(key: &str, owner: &str, version: &str, lease_ms: u64) -> Value {
    json!({
        "key": {"S": key},
        "owner": {"S": owner},
        "version": {"S": version},
        "lease_ms": {"N": lease_ms.to_string()},
        "protocol": {"N": "1"},
    })
}
