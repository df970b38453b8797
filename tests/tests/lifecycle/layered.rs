//! A Rust function of `tower` layers behind `lambda_http`: the lock is one of the layers.

use super::rows::freed;
use super::*;
use testkit::dynamo::{Fault, Operation};
use testkit::sandbox::Outcome;

fn function(db: &Dynamo) -> Builder {
    environment(db).runtime(Program::new(built("layered")))
}

/// What an HTTP API sends for a request to `/orders/{order_id}`.
fn order(id: &str, work_ms: u64) -> Value {
    json!({
        "version": "2.0",
        "routeKey": "POST /orders/{order_id}",
        "rawPath": format!("/orders/{id}"),
        "rawQueryString": format!("work_ms={work_ms}"),
        "headers": {"host": "example.com"},
        "pathParameters": {"order_id": id},
        "requestContext": {
            "http": {"method": "POST", "path": format!("/orders/{id}"), "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
            "stage": "$default",
        },
        "isBase64Encoded": false,
    })
}

#[tokio::test]
async fn a_request_is_answered_after_its_lock_is_given_back_though_a_timeout_above_the_lock_cuts_it_off() {
    let db = Dynamo::start().await;
    let env = function(&db).start().await.unwrap();
    for (id, work_ms) in [("short", 10), ("long", 60_000)] {
        let key = format!("order:{id}");
        db.fail(Operation::DeleteItem, Fault::DelayBefore(Duration::from_millis(300))).key(&key);
        let call = env.invoke(order(id, work_ms)).await;
        assert!(freed(&db, &key).committed <= call.answered, "{id}: answered before the row was gone");
        if id == "short" {
            let answer = call.outcome.json();
            assert_eq!(answer["statusCode"], 200);
            assert!(answer["body"].as_str().unwrap().starts_with("order:short by "), "{answer}");
        } else {
            let Outcome::Error { message, .. } = call.outcome else { panic!("it was cut off: {:?}", call.outcome) };
            assert!(message.contains("request timed out"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_request_whose_path_names_no_lock_fails_in_plain_words_and_sends_nothing() {
    let db = Dynamo::start().await;
    let env = function(&db).start().await.unwrap();
    let mut event = order("7", 0);
    event["pathParameters"] = json!({"id": "7"});
    let Outcome::Error { kind, message } = env.invoke(event).await.outcome else { panic!("there is no key") };
    assert_eq!(kind, "Leasekeeper.Protocol");
    assert!(message.contains("the request has no path parameter"), "{message}");
    assert!(db.requests().is_empty());
}

#[tokio::test]
async fn of_two_requests_at_once_one_is_served_and_the_other_told_to_come_back() {
    let db = Dynamo::start().await;
    let env = function(&db).managed_instances(3).start().await.unwrap();
    let served = env.begin(order("7", 1_000));
    let taken = db.until(Duration::from_secs(5), |log| log.iter().any(|put| put.status == Some(200)));
    assert!(taken.await, "the first has its lock");
    let (refused, other) = (env.begin(order("7", 0)), env.begin(order("8", 0)));
    let refused = refused.over().await.outcome.json();
    assert_eq!((&refused["statusCode"], &refused["body"]), (&json!(409), &json!(r#"{"error":"busy"}"#)));
    assert!(refused["headers"]["retry-after"].is_string(), "{refused}");
    assert_eq!(other.over().await.outcome.json()["statusCode"], 200);
    assert_eq!(served.over().await.outcome.json()["statusCode"], 200);
}

#[tokio::test]
async fn a_streamed_answer_flows_under_the_lock_which_is_back_before_its_end_is_seen() {
    let db = Dynamo::start().await;
    let env = function(&db).env("STREAMS", "1").start().await.unwrap();
    let call = env.begin(order("7", 200));
    env.streamed(&call, "order:7 is ").await.unwrap();
    assert!(db.item("order:7").is_some(), "held while the body flows");
    let done = call.over().await;
    assert!(matches!(&done.outcome, Outcome::Response(text) if text.ends_with("order:7 is held")), "{done:?}");
    let freed = freed(&db, "order:7").committed;
    assert!(done.answered < freed && freed <= done.ended, "{done:?}");
}
