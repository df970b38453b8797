//! Every fault of the way to DynamoDB gets the answer that is true, and no request is ever sent twice.

use aws_config::{BehaviorVersion, Region};
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use leasekeeper_core::{Answer, Op, Refusal, Row, Seen};
use leasekeeper_extension::store::{DynamoStore, Note, Request, Store, Text};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::dynamo::{Dynamo, Fault, Operation, row as row_json};

/// Longer than any answer that comes takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Each thing that a lock client asks for, with the row that it needs to succeed and the operation that is sent.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    Replace,
    Read,
    Renew,
    Delete,
}

const STEPS: [Step; 5] = [Step::Create, Step::Replace, Step::Read, Step::Renew, Step::Delete];

impl Step {
    fn op(self) -> Op<Text> {
        let row = Row { owner: "o1".into(), version: "v1".into(), lease_ms: 20_000 };
        match self {
            Self::Create => Op::Create { row },
            Self::Replace => Op::Replace { row, owner: "o0".into(), version: "v0".into() },
            Self::Read => Op::Read,
            Self::Renew => Op::Renew { owner: "o0".into(), last: "v0".into(), new: "v1".into() },
            Self::Delete => Op::Delete { owner: "o0".into() },
        }
    }

    fn operation(self) -> Operation {
        match self {
            Self::Create | Self::Replace => Operation::PutItem,
            Self::Read => Operation::GetItem,
            Self::Renew => Operation::UpdateItem,
            Self::Delete => Operation::DeleteItem,
        }
    }

    fn action(self) -> &'static str {
        match self {
            Self::Create | Self::Replace => "dynamodb:PutItem",
            Self::Read => "dynamodb:GetItem",
            Self::Renew => "dynamodb:UpdateItem",
            Self::Delete => "dynamodb:DeleteItem",
        }
    }

    /// Puts in place what the step's condition asks for.
    fn prepare(self, dynamo: &Dynamo, key: &str) {
        match self {
            Self::Create => dynamo.delete_raw(key),
            _ => dynamo.put_raw(row_json(key, "o0", "v0", 20_000)),
        }
    }

    /// What stands there when the step was committed.
    fn committed(self, key: &str) -> Option<Value> {
        match self {
            Self::Create | Self::Replace => Some(row_json(key, "o1", "v1", 20_000)),
            Self::Read => Some(row_json(key, "o0", "v0", 20_000)),
            Self::Renew => Some(row_json(key, "o0", "v1", 20_000)),
            Self::Delete => None,
        }
    }

    /// What it is told when nothing goes wrong.
    fn success(self) -> Answer<Text> {
        match self {
            Self::Read => Answer::Found(Seen::Row(Row { owner: "o0".into(), version: "v0".into(), lease_ms: 20_000 })),
            _ => Answer::Done,
        }
    }
}

async fn send(store: &DynamoStore, key: &str, step: Step) -> Answer<Text> {
    send_within(store, key, step, PATIENCE, PATIENCE).await
}

async fn send_within(
    store: &DynamoStore,
    key: &str,
    step: Step,
    timeout: Duration,
    connect_timeout: Duration,
) -> Answer<Text> {
    let request = Request { key: key.into(), op: step.op(), timeout, connect_timeout, note: Note::default() };
    store.send(request).await.answer
}

/// An answer without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Throttled,
    Unavailable,
    Unknown,
    Denied,
    Config,
    Settled,
}

fn kind(answer: &Answer<Text>) -> Kind {
    match answer {
        Answer::Throttled(_) => Kind::Throttled,
        Answer::Unavailable(_) => Kind::Unavailable,
        Answer::Unknown(_) => Kind::Unknown,
        Answer::Denied(Refusal::Denied, _) => Kind::Denied,
        Answer::Denied(Refusal::Config, _) => Kind::Config,
        Answer::Done | Answer::Found(_) | Answer::Failed(_) => Kind::Settled,
    }
}

fn refused(answer: Answer<Text>, expected: Refusal) -> String {
    match answer {
        Answer::Denied(refusal, text) if refusal == expected => text,
        other => panic!("{other:?} instead of {expected:?}"),
    }
}

#[tokio::test]
async fn every_fault_gets_its_answer_from_one_request() {
    let cases = [
        (Fault::Throttle, Kind::Throttled),
        (Fault::TransactionConflict, Kind::Throttled),
        (Fault::Error(400, "ThrottlingException", ""), Kind::Throttled),
        (Fault::Error(400, "Throttling", ""), Kind::Throttled),
        (Fault::Error(400, "RequestThrottled", ""), Kind::Throttled),
        (Fault::Error(400, "RequestLimitExceeded", ""), Kind::Throttled),
        (Fault::Error(400, "LimitExceededException", ""), Kind::Throttled),
        (Fault::Error(400, "ReplicatedWriteConflictException", ""), Kind::Throttled),
        (Fault::Error(400, "TransactionInProgressException", ""), Kind::Throttled),
        (Fault::Error(503, "SlowDown", ""), Kind::Throttled),
        (Fault::Alien(429), Kind::Throttled),
        (Fault::InternalError, Kind::Unknown),
        (Fault::Unavailable, Kind::Unknown),
        (Fault::Error(500, "NobodyKnowsThis", ""), Kind::Unknown),
        (Fault::Alien(502), Kind::Unknown),
        (Fault::Alien(200), Kind::Unknown),
        (Fault::Drop, Kind::Unknown),
        (Fault::CommitThenDrop, Kind::Unknown),
        (Fault::CommitThenError, Kind::Unknown),
        (Fault::CommitThenTear, Kind::Unknown),
        (Fault::AccessDenied, Kind::Denied),
        (Fault::Error(400, "UnrecognizedClientException", "The security token is invalid."), Kind::Denied),
        (Fault::Error(400, "ExpiredTokenException", "The security token is expired."), Kind::Denied),
        (Fault::Error(400, "MissingAuthenticationTokenException", ""), Kind::Denied),
        (Fault::Error(400, "InvalidSignatureException", "The signatures do not match."), Kind::Denied),
        (Fault::Error(400, "InvalidSignatureException", "Signature expired: it is too old."), Kind::Unavailable),
        (Fault::Error(400, "InvalidSignatureException", "Signature not yet current."), Kind::Unavailable),
        (Fault::Alien(403), Kind::Denied),
        (Fault::Error(400, "ResourceNotFoundException", ""), Kind::Config),
        (Fault::Error(400, "ValidationException", ""), Kind::Config),
        (Fault::Error(400, "NobodyKnowsThis", ""), Kind::Config),
        (Fault::Alien(404), Kind::Config),
        (Fault::DelayAfter(Duration::from_millis(1)), Kind::Settled),
        (Fault::DelayBefore(Duration::from_millis(1)), Kind::Settled),
    ];
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    for (number, (fault, expected)) in cases.into_iter().enumerate() {
        for step in STEPS {
            let key = format!("{number} {step:?}");
            step.prepare(&dynamo, &key);
            let before = dynamo.item(&key);
            let rule = dynamo.fail(step.operation(), fault);
            let answer = send(&store, &key, step).await;
            assert_eq!(kind(&answer), expected, "{step:?} under {fault:?}: {answer:?}");
            assert_eq!(rule.hits(), 1);
            assert_eq!(dynamo.requests_for(&key).len(), 1, "{step:?} under {fault:?} is sent once");
            let after = if fault.commits() { step.committed(&key) } else { before };
            assert_eq!(dynamo.item(&key), after, "{step:?} under {fault:?}");
        }
    }
}

#[tokio::test]
async fn requests_are_those_of_the_protocol_word_by_word() {
    let dynamo = Dynamo::start().await;
    let store = dynamo.store();
    for step in STEPS {
        step.prepare(&dynamo, "k");
        assert_eq!(send(&store, "k", step).await, step.success());
    }
    let row = row_json("k", "o1", "v1", 20_000);
    let expected = [
        json!({
            "TableName": "locks",
            "Item": row,
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": "key"},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            "ReturnConsumedCapacity": "TOTAL",
        }),
        json!({
            "TableName": "locks",
            "Item": row,
            "ConditionExpression": "#owner = :seen_owner AND #version = :seen_version",
            "ExpressionAttributeNames": {"#owner": "owner", "#version": "version"},
            "ExpressionAttributeValues": {":seen_owner": {"S": "o0"}, ":seen_version": {"S": "v0"}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            "ReturnConsumedCapacity": "TOTAL",
        }),
        json!({
            "TableName": "locks",
            "Key": {"key": {"S": "k"}},
            "ConsistentRead": true,
            "ReturnConsumedCapacity": "TOTAL",
        }),
        json!({
            "TableName": "locks",
            "Key": {"key": {"S": "k"}},
            "UpdateExpression": "SET #version = :new",
            "ConditionExpression": "#owner = :mine AND #version = :last",
            "ExpressionAttributeNames": {"#owner": "owner", "#version": "version"},
            "ExpressionAttributeValues": {":mine": {"S": "o0"}, ":last": {"S": "v0"}, ":new": {"S": "v1"}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            "ReturnConsumedCapacity": "TOTAL",
        }),
        json!({
            "TableName": "locks",
            "Key": {"key": {"S": "k"}},
            "ConditionExpression": "#owner = :mine",
            "ExpressionAttributeNames": {"#owner": "owner"},
            "ExpressionAttributeValues": {":mine": {"S": "o0"}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            "ReturnConsumedCapacity": "TOTAL",
        }),
    ];
    let sent: Vec<_> = dynamo.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(sent, expected);
    assert_eq!(dynamo.front().accepted(), 1, "one connection carried them all");
}

#[tokio::test]
async fn each_permission_that_is_missing_is_named() {
    for denied in STEPS {
        let dynamo = Dynamo::start().await;
        let store = dynamo.store();
        let rule = dynamo.fail(denied.operation(), Fault::AccessDenied).always();
        for step in STEPS {
            step.prepare(&dynamo, "k");
            let answer = send(&store, "k", step).await;
            if step.operation() == denied.operation() {
                let text = refused(answer, Refusal::Denied);
                assert!(text.contains(step.action()) && text.contains("`locks`"), "{text}");
            } else {
                assert_eq!(answer, step.success(), "{step:?} without {denied:?}");
            }
        }
        rule.lift();
        denied.prepare(&dynamo, "k");
        assert_eq!(send(&store, "k", denied).await, denied.success(), "granted meanwhile");
    }
}

#[tokio::test]
async fn a_missing_table_and_a_wrong_key_are_named() {
    let dynamo = Dynamo::start().await;
    dynamo.create_table("other-name", "id", "S", None);
    dynamo.create_table("other-type", "key", "N", None);
    dynamo.create_table("sort-key", "key", "S", Some("sort"));
    for table in ["absent", "other-name", "other-type", "sort-key"] {
        let store = dynamo.store_of(table);
        for step in STEPS {
            let text = refused(send(&store, "k", step).await, Refusal::Config);
            for part in [step.action(), &format!("`{table}`"), "partition key `key` of type S, no sort key"] {
                assert!(text.contains(part), "{part:?} is missing in {text:?}");
            }
        }
    }
    let text = refused(send(&dynamo.store_of("absent"), "k", Step::Read).await, Refusal::Config);
    assert!(text.contains("eu-central-1"), "the Region is the usual mistake: {text}");
}

/// A source of credentials in a bad way.
#[derive(Debug)]
enum Source {
    None,
    Misconfigured,
    Failing,
    TimedOut,
    Silent,
}

impl ProvideCredentials for Source {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let error = match self {
            Self::None => CredentialsError::not_loaded("nothing is configured"),
            Self::Misconfigured => CredentialsError::invalid_configuration("a profile that is a loop"),
            Self::Failing => CredentialsError::provider_error("HTTP 503"),
            Self::TimedOut => CredentialsError::provider_timed_out(Duration::from_secs(1)),
            Self::Silent => return future::ProvideCredentials::new(std::future::pending()),
        };
        future::ProvideCredentials::ready(Err(error))
    }
}

fn store_with(dynamo: &Dynamo, source: impl Fn() -> Source + Send + Sync + 'static) -> DynamoStore {
    let endpoint = dynamo.endpoint();
    DynamoStore::configured(dynamo.table(), move || {
        aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(source())
            .endpoint_url(endpoint.clone())
    })
}

#[tokio::test]
async fn missing_credentials_are_final_and_failing_ones_are_not() {
    let dynamo = Dynamo::start().await;
    for step in STEPS {
        for source in [|| Source::None, || Source::Misconfigured] {
            let text = refused(send(&store_with(&dynamo, source), "k", step).await, Refusal::Denied);
            assert!(text.contains("credentials") && text.contains(step.action()), "{text}");
        }
        for source in [|| Source::Failing, || Source::TimedOut] {
            let answer = send(&store_with(&dynamo, source), "k", step).await;
            assert_eq!(kind(&answer), Kind::Unavailable, "{:?}: {answer:?}", source());
        }
        let soon = Duration::from_millis(20);
        let answer = send_within(&store_with(&dynamo, || Source::Silent), "k", step, soon, soon).await;
        assert!(matches!(&answer, Answer::Unavailable(text) if text.contains("credentials")), "{answer:?}");
    }
    assert_eq!(dynamo.requests().len(), 0, "nothing can be sent unsigned");
}

#[tokio::test]
async fn a_missing_region_is_named() {
    let dynamo = Dynamo::start().await;
    let store = DynamoStore::configured(dynamo.table(), || {
        aws_config::defaults(BehaviorVersion::latest())
            .region(None::<Region>)
            .credentials_provider(aws_credential_types::Credentials::for_tests())
    });
    let text = refused(send(&store, "k", Step::Create).await, Refusal::Config);
    assert!(text.to_lowercase().contains("region"), "{text}");
}

fn store_at(endpoint: String) -> DynamoStore {
    DynamoStore::configured("locks", move || {
        aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(aws_credential_types::Credentials::for_tests())
            .endpoint_url(endpoint.clone())
    })
}

#[tokio::test]
async fn what_was_never_sent_is_known_to_be_unavailable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let refusing = free.local_addr().expect("its address");
    drop(free);
    for endpoint in [format!("http://{refusing}"), "http://no..host".to_owned()] {
        for step in STEPS {
            let answer = send(&store_at(endpoint.clone()), "k", step).await;
            assert_eq!(kind(&answer), Kind::Unavailable, "{step:?} at {endpoint}: {answer:?}");
        }
    }
}
