//! A second emulator of DynamoDB, by other people: what both say is not one emulator's mistake.

use crate::contract::{Bench, Remote};
use aws_config::{BehaviorVersion, ConfigLoader, Region};
use aws_credential_types::Credentials;
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use leasekeeper_extension::store::DynamoStore;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;
use testkit::programs::repository;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// Ministack from PyPI in a process of its own, killed when dropped.
pub(crate) struct Ministack {
    endpoint: String,
    _child: Child,
    _home: tempfile::TempDir,
}

impl Ministack {
    pub(crate) async fn start() -> Self {
        let made = Command::new(repository("scripts/python-venv"))
            .args(["ministack", "scripts/requirements-ministack.txt"])
            .current_dir(repository("."))
            .stderr(Stdio::inherit())
            .output()
            .await
            .expect("scripts/python-venv runs");
        assert!(made.status.success(), "scripts/python-venv ministack failed: {}", made.status);
        let venv = String::from_utf8(made.stdout).expect("a path is text");
        let port = {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            free.local_addr().expect("its address").port()
        };
        let home = tempfile::TempDir::new().expect("a directory for its files");
        let mut child = Command::new(format!("{}/bin/python", venv.trim()))
            .args(["-m", "ministack"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env("BIND_HOST", "127.0.0.1")
            .env("MINISTACK_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("SERVICES", "dynamodb")
            .env("LOG_LEVEL", "ERROR")
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the environment has a Python");
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert_eq!(child.try_wait().expect("a child of ours"), None, "ministack ended");
            assert!(Instant::now() < deadline, "ministack does not listen");
            sleep(Duration::from_millis(20)).await;
        }
        Self { endpoint: format!("http://127.0.0.1:{port}"), _child: child, _home: home }
    }

    /// A new and empty lock table with this name.
    pub(crate) async fn bench(&self, table: &str) -> Bench {
        let http = aws_smithy_http_client::Builder::new().build_http();
        let client = aws_sdk_dynamodb::Client::new(&loader(&self.endpoint).http_client(http).load().await);
        let key = KeySchemaElement::builder().attribute_name("key").key_type(KeyType::Hash);
        let kind = AttributeDefinition::builder().attribute_name("key").attribute_type(ScalarAttributeType::S);
        let create = client
            .create_table()
            .table_name(table)
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(key.build().expect("complete"))
            .attribute_definitions(kind.build().expect("complete"));
        create.send().await.expect("the table is new");
        let endpoint = self.endpoint.clone();
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
