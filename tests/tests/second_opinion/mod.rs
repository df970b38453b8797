//! A second emulator of DynamoDB, by other people: what both say is not one emulator's mistake.

use crate::contract::{Bench, Remote};
use aws_config::{BehaviorVersion, ConfigLoader, Region};
use aws_credential_types::Credentials;
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use leasekeeper_extension::store::DynamoStore;

/// DynamoDB as Ministack sees it.
pub(crate) struct Ministack(testkit::ministack::Ministack);

impl Ministack {
    pub(crate) async fn start() -> Self {
        Self(testkit::ministack::Ministack::start("dynamodb").await)
    }

    /// A new and empty lock table with this name.
    pub(crate) async fn bench(&self, table: &str) -> Bench {
        let http = aws_smithy_http_client::Builder::new().build_http();
        let client = aws_sdk_dynamodb::Client::new(&loader(self.0.endpoint()).http_client(http).load().await);
        let key = KeySchemaElement::builder().attribute_name("key").key_type(KeyType::Hash);
        let kind = AttributeDefinition::builder().attribute_name("key").attribute_type(ScalarAttributeType::S);
        let create = client
            .create_table()
            .table_name(table)
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(key.build().expect("complete"))
            .attribute_definitions(kind.build().expect("complete"));
        create.send().await.expect("the table is new");
        let endpoint = self.0.endpoint().to_owned();
        let store = DynamoStore::configured(table, move || loader(&endpoint));
        Bench::Remote(Remote { client, table: table.to_owned() }.into(), store.into())
    }
}

fn loader(endpoint: &str) -> ConfigLoader {
    aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::for_tests())
        .endpoint_url(endpoint)
}
