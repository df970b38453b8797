//! What locks cost, counted in the store: writes and reads of real extension processes.

use serde_json::json;
use std::time::Duration;
use testkit::dynamo::{Dynamo, Operation, Recorded, row};
use testkit::sidecar::Sidecar;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Long enough that nothing is renewed, and no request times out, within a test that does not wait for it.
const LONG_MS: u64 = 20_000;

fn writes(requests: &[Recorded]) -> usize {
    requests.iter().filter(|request| request.operation != Operation::GetItem).count()
}

fn reads(requests: &[Recorded]) -> usize {
    requests.len() - writes(requests)
}

#[tokio::test]
async fn an_uncontended_cycle_is_two_writes_and_no_read() {
    const CYCLES: usize = 20;
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    for _ in 0..CYCLES {
        let grant = client.acquire("k", LONG_MS, 5_000).await.expect("free");
        let released = client.release(grant.lease).await.expect("held");
        let metrics = &released["metrics"];
        assert_eq!((&metrics["write_requests"], &metrics["read_requests"]), (&json!(2), &json!(0)), "{metrics}");
    }
    let requests = dynamo.requests();
    assert_eq!((writes(&requests), reads(&requests)), (2 * CYCLES, 0));
}

#[tokio::test]
async fn a_contended_zero_wait_attempt_is_one_request() {
    const ATTEMPTS: usize = 20;
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("k", "someone", "v", LONG_MS));
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    for attempt in 1..=ATTEMPTS {
        let refused = client.acquire("k", LONG_MS, 0).await.expect_err("held");
        assert_eq!((&refused["code"], &refused["holder"]["owner"]), (&json!("busy"), &json!("someone")), "{refused}");
        assert_eq!(dynamo.requests().len(), attempt);
    }
    assert_eq!(dynamo.count(Operation::PutItem), ATTEMPTS, "the attempt itself shows who holds it");
}

#[tokio::test]
async fn a_hold_of_n_renewals_is_two_and_n_writes() {
    // Its time-outs are 400 ms: far beyond what a busy machine adds to a request that takes one or two.
    const LEASE_MS: u64 = 2_400;
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    let grant = client.acquire("k", LEASE_MS, 5_000).await.expect("free");
    sleep(Duration::from_millis(LEASE_MS * 3 / 2)).await;
    let released = client.release(grant.lease).await.expect("held");
    let renewals = released["metrics"]["renewals"].as_u64().expect("a number");
    // Every third of the lease: four in one and a half, the last of which may be under way.
    assert!((3..=4).contains(&renewals), "{renewals} renewals");
    assert_eq!(released["metrics"]["write_requests"], 2 + renewals);
    let requests = dynamo.requests();
    assert_eq!((writes(&requests) as u64, reads(&requests)), (2 + renewals, 0));
}

#[tokio::test]
async fn a_waiter_sends_fewer_than_25_requests_in_any_second() {
    let dynamo = Dynamo::start().await;
    dynamo.put_raw(row("k", "someone", "v", LONG_MS));
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    // Five that wait in one environment share one poller.
    let mut waiters = JoinSet::new();
    for _ in 0..5 {
        let mut client = sidecar.connect().await;
        waiters.spawn(async move { client.acquire("k", LONG_MS, 3_000).await.expect_err("held") });
    }
    for refused in waiters.join_all().await {
        assert_eq!(refused["code"], "busy", "{refused}");
    }
    let arrivals: Vec<_> = dynamo.requests().iter().map(|request| request.at).collect();
    let second = Duration::from_secs(1);
    let busiest =
        arrivals.iter().map(|from| arrivals.iter().filter(|at| (*from..*from + second).contains(*at)).count());
    let busiest = busiest.max().expect("there are requests");
    // The first attempt of each is a Put; after it they poll together.
    assert_eq!(dynamo.count(Operation::PutItem), 5);
    assert!(busiest < 25, "{busiest} requests in one second");
    // Polls are 120 ms apart at most, so that a release is seen soon: a third of that in a machine that lets them starve.
    assert!(dynamo.count(Operation::GetItem) >= 8, "{} polls in 3 s", dynamo.count(Operation::GetItem));
}

#[tokio::test]
async fn a_hand_off_between_environments_costs_at_most_two_failed_writes() {
    let dynamo = Dynamo::start().await;
    let until = Instant::now() + Duration::from_secs(3);
    let mut contenders = JoinSet::new();
    for name in ["first", "second", "third"] {
        let sidecar = Sidecar::start(&dynamo, name, &[]).await;
        let mut client = sidecar.connect().await;
        contenders.spawn(async move {
            let mut holds = 0;
            while Instant::now() < until {
                let grant = client.acquire("k", LONG_MS, 20_000).await.expect("its turn comes");
                sleep(Duration::from_millis(30)).await;
                client.release(grant.lease).await.expect("held");
                holds += 1;
                // Without a pause the one that has just released would always be the next.
                sleep(Duration::from_millis(60)).await;
            }
            drop(sidecar);
            holds
        });
    }
    let holds: Vec<usize> = contenders.join_all().await;
    assert!(holds.iter().all(|holds| *holds > 0), "everyone has a turn: {holds:?}");
    let holds: usize = holds.iter().sum();
    let failed =
        dynamo.requests().iter().filter(|r| r.operation == Operation::PutItem && r.status == Some(400)).count();
    let writes = writes(&dynamo.requests());
    assert_eq!(writes, 2 * holds + failed, "nothing else is written");
    assert!(failed <= 2 * holds, "{failed} failed writes in {holds} hand-offs");
}
