//! Promises P3, P4, P6 and P7, each kept by real extension processes on one store.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use leasekeeper::{Code, Lease};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, SystemTime};
use testkit::dynamo::{Dynamo, Fault, Operation, Recorded};
use testkit::sidecar::Sidecar;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Long enough that nothing is renewed within a test that does not wait for it.
const LONG_MS: u64 = 20_000;

/// What a test allows for processes that wait for their turn on a busy machine with two processors.
const SCHEDULING: Duration = Duration::from_millis(250);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A Put over another owner's row that was committed.
fn is_takeover(request: &Recorded) -> bool {
    let condition = request.body["ConditionExpression"].as_str().unwrap_or("");
    request.operation == Operation::PutItem && request.status == Some(200) && condition.contains("#version")
}

/// The application's own write, in one transaction with the check of the ownership. False if the check refused it.
async fn write_under(application: &Client, lease: &Lease) -> bool {
    let put = Put::builder().table_name("orders").item("key", AttributeValue::S("order".to_owned()));
    let put = TransactWriteItem::builder().put(put.build().expect("complete")).build();
    let transaction = application.transact_write_items().transact_items(lease.condition_check()).transact_items(put);
    let Err(error) = transaction.send().await else { return true };
    let error = error.into_service_error();
    assert!(error.is_transaction_canceled_exception(), "{error}");
    false
}

#[tokio::test]
async fn p3_a_guarded_write_is_refused_after_the_release_and_after_a_takeover() {
    const LEASE_MS: u64 = 600;
    let dynamo = Dynamo::start().await;
    dynamo.create_table("orders", "key", "S", None);
    let application = dynamo.client().await;
    let first = Sidecar::start(&dynamo, "first", &[]).await;
    let second = Sidecar::start(&dynamo, "second", &[]).await;

    let released = first.locks().acquire("k").lease(ms(LEASE_MS)).await.expect("free");
    let lease = released.lease();
    assert!(write_under(&application, &lease).await, "held");
    // Renewals keep the owner.
    sleep(ms(LEASE_MS)).await;
    assert!(write_under(&application, &lease).await, "held and renewed");
    released.release().await.expect("held");
    assert!(!write_under(&application, &lease).await, "released");

    let stopped = first.locks().acquire("k").lease(ms(LEASE_MS)).await.expect("free");
    assert!(write_under(&application, &stopped).await, "held");
    assert!(!write_under(&application, &lease).await, "held by a later guard");
    first.signal(Signal::STOP);
    let taken = second.locks().acquire("k").lease(ms(LONG_MS)).wait(ms(5_000)).await.expect("abandoned");
    assert!(!write_under(&application, &stopped).await, "taken over, though its extension could not tell");
    assert!(write_under(&application, &taken).await, "held by the new owner");
    first.signal(Signal::CONT);
    assert_eq!(stopped.check().await.expect_err("taken over").code(), Code::Lost);
    assert!(write_under(&application, &taken).await, "undisturbed");
    taken.release().await.expect("held");
}

#[tokio::test]
async fn p4_a_dead_holders_lock_is_taken_after_its_lease_and_soon() {
    const LEASE_MS: u64 = 1_200;
    // What is seen of the last write is seen at a poll, and polls are at most so far apart.
    const POLL: Duration = Duration::from_millis(120);
    const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];
    let dynamo = Dynamo::start().await;
    let mut dead = Sidecar::start(&dynamo, "dead", &[]).await;
    let waiting = Sidecar::start(&dynamo, "waiting", &[]).await;
    let mut holders = Vec::new();
    let mut waiters = JoinSet::new();
    for key in KEYS {
        let mut holder = dead.connect().await;
        holder.acquire(key, LEASE_MS, 5_000).await.expect("free");
        holders.push(holder);
        let mut waiter = waiting.connect().await;
        waiters.spawn(async move {
            let grant = waiter.acquire(key, LONG_MS, 10_000).await.expect("abandoned");
            waiter.release(grant.lease).await.expect("held");
        });
        // Each key's last write is at another point of the waiter's polls.
        sleep(ms(30)).await;
    }
    // Beyond the first renewals, which come after 400 ms, and before the second.
    sleep(ms(500)).await;
    dead.kill().await;
    waiters.join_all().await;
    for key in KEYS {
        let log = dynamo.requests_for(key);
        // One that was under way when its sender was killed is committed too.
        let last = log.iter().rfind(|request| request.client == "dead" && request.status != Some(400));
        let last = last.expect("it was held");
        assert_eq!(last.operation, Operation::UpdateItem, "{key} was renewed");
        let taken = log.iter().find(|request| is_takeover(request)).expect("it was taken over");
        assert_eq!(taken.client, "waiting");
        let trip = |request: &Recorded| request.answered.map_or(Duration::ZERO, |answered| answered - request.at);
        let longest = log.iter().filter(|request| request.client == "waiting").map(trip).max().unwrap_or_default();
        let after = taken.at - last.at;
        assert!(after >= ms(LEASE_MS), "{key} was taken {after:?} after its last write");
        let most = ms(LEASE_MS) + POLL + 2 * longest + SCHEDULING;
        assert!(after <= most, "{key} was taken {after:?} after its last write, with round trips of {longest:?}");
    }
}

#[tokio::test]
async fn p6_transient_faults_lose_no_lock_and_end_no_wait() {
    // Time-outs are 300 ms and retries come after 150: from the first renewal's begin to the end of its validity there are
    // 1,020 ms, and a pair of faults with at most one time-out takes 600.
    const LEASE_MS: u64 = 1_800;
    let slow = ms(450);
    let pairs = [
        (Fault::Throttle, Fault::CommitThenDrop),
        (Fault::Hang, Fault::InternalError),
        (Fault::TransactionConflict, Fault::CommitThenHang),
        (Fault::Unavailable, Fault::Drop),
        (Fault::CommitThenError, Fault::CommitThenTear),
        (Fault::DelayAfter(slow), Fault::Throttle),
        (Fault::Drop, Fault::DelayBefore(slow)),
    ];
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut rules = Vec::new();
    let mut holders = JoinSet::new();
    for first in 0..pairs.len() {
        let key = format!("k{first}");
        // Every pair is followed by one renewal that succeeds.
        for (before, (one, other)) in pairs.iter().cycle().skip(first).take(4).enumerate() {
            for fault in [*one, *other] {
                rules.push((key.clone(), dynamo.fail(Operation::UpdateItem, fault).key(&key).after(before)));
            }
        }
        let (one, other) = pairs[first];
        for operation in [Operation::PutItem, Operation::DeleteItem] {
            for fault in [one, other] {
                dynamo.fail(operation, fault).key(&key);
            }
        }
        let mut client = sidecar.connect().await;
        holders.spawn(async move {
            let grant = client.acquire(&key, LEASE_MS, 5_000).await.unwrap_or_else(|error| panic!("{key}: {error}"));
            let until = Instant::now() + ms(3_600);
            while Instant::now() < until {
                sleep(ms(50)).await;
                client.check(grant.lease).await.unwrap_or_else(|error| panic!("{key}: {error}"));
            }
            client.release(grant.lease).await.unwrap_or_else(|error| panic!("{key}: {error}"));
            key
        });
    }
    for key in holders.join_all().await {
        assert_eq!(dynamo.item(&key), None, "{key}");
        let met: usize = rules.iter().filter(|(of, _)| *of == key).map(|(_, rule)| rule.hits()).sum();
        assert!(met >= 4, "{key}: its renewals met {met} faults only");
    }
}

#[tokio::test]
async fn p6_connections_that_died_lose_no_lock() {
    // Renewals come every 600 ms, and have 1,020 from there for time-outs of 300 and pauses of 150.
    const LEASE_MS: u64 = 1_800;
    const ALL: usize = 6;
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut acquiring = JoinSet::new();
    for number in 0..ALL {
        let locks = sidecar.locks();
        acquiring.spawn(async move { locks.acquire(format!("k{number}")).lease(ms(LEASE_MS)).await });
    }
    let guards: Vec<_> = acquiring.join_all().await.into_iter().map(|guard| guard.expect("free")).collect();
    sleep(ms(300)).await;
    dynamo.front().kill_connections();
    sleep(ms(1_500)).await;
    dynamo.front().close_connections().await;
    sleep(ms(1_500)).await;
    for guard in guards {
        guard.check().await.unwrap_or_else(|error| panic!("{}: {error}", guard.key()));
        guard.release().await.expect("held");
    }
    assert!(dynamo.count(Operation::UpdateItem) >= 4 * ALL, "they were renewed all the while");
}

#[tokio::test]
async fn p6_late_success_never_revives_a_guard_that_was_given_up() {
    const LEASE_MS: u64 = 900;
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    // Every renewal is committed after the guard is over.
    let late = dynamo.fail(Operation::UpdateItem, Fault::DelayBefore(ms(LEASE_MS))).always();
    let mut client = sidecar.connect().await;
    let grant = client.acquire("k", LEASE_MS, 0).await.expect("free");
    // Giving the row back is not what is looked at here: it stays, so that the late renewals find it.
    let kept = dynamo.fail(Operation::DeleteItem, Fault::Throttle).always();
    assert_eq!(client.lost(grant.lease).await, "expired");
    let first = dynamo.item("k").expect("it stands")["version"].clone();
    let landed = Instant::now();
    while dynamo.item("k").expect("it stands")["version"] == first {
        assert!(landed.elapsed() < ms(5_000), "no renewal has landed");
        sleep(ms(10)).await;
    }
    late.lift();
    for _ in 0..10 {
        let error = client.check(grant.lease).await.expect_err("given up");
        assert_eq!((&error["code"], &error["reason"]), (&json!("lost"), &json!("expired")), "{error}");
        sleep(ms(20)).await;
    }
    kept.lift();
    assert_eq!(client.release(grant.lease).await.expect_err("given up")["code"], "lost");
}

#[tokio::test]
async fn p7_an_acquire_returns_by_its_wait_and_one_time_out_though_dynamodb_has_stopped() {
    const LEASE_MS: u64 = 1_800;
    const TIME_OUT: Duration = Duration::from_millis(LEASE_MS / 6);
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    dynamo.fail(Operation::Any, Fault::Hang).always();
    let mut tasks = JoinSet::new();
    for wait in [0, 100, 350, 700, 1_000] {
        let locks = sidecar.locks();
        tasks.spawn(async move {
            let asked = Instant::now();
            let acquired = locks.acquire(format!("k{wait}")).lease(ms(LEASE_MS)).wait(ms(wait)).await;
            let took = asked.elapsed();
            let error = acquired.expect_err("nothing answers");
            assert_eq!(error.code(), Code::Unavailable, "{error}");
            assert!(took <= ms(wait) + TIME_OUT + SCHEDULING, "a wait of {wait} ms took {took:?}");
            assert!(took >= ms(wait), "a wait of {wait} ms was over after {took:?}");
        });
    }
    tasks.join_all().await;
}

#[tokio::test]
async fn p7_with_the_invocations_time_used_up_nothing_is_sent() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let error = sidecar.locks().acquire("k").invocation("r", SystemTime::now()).await.expect_err("no time is left");
    assert_eq!(error.code(), Code::BudgetExhausted, "{error}");
    let mut client = sidecar.connect().await;
    let request = json!({"op": "acquire", "key": "k", "request_id": "r", "remaining_ms": 0, "wait_ms": 5_000});
    let error = client.ask(request).await.expect_err("no time is left");
    assert_eq!(error["code"], "budget_exhausted", "{error}");
    assert!(dynamo.requests().is_empty());
}

#[tokio::test]
async fn p7_giving_back_costs_an_invocation_little_and_the_extension_goes_on_trying() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let stopped = dynamo.fail(Operation::DeleteItem, Fault::Hang).always();
    let mut tasks = JoinSet::new();
    // What remains of the invocation, and min(1 s, that less 200 ms).
    for (remaining, most) in [(60_000, 1_000), (900, 700), (450, 250)] {
        let locks = sidecar.locks();
        let deadline = SystemTime::now() + ms(remaining);
        tasks.spawn(async move {
            let key = format!("k{remaining}");
            let guard = locks.acquire(key.as_str()).invocation(key.as_str(), deadline).await.expect("free");
            let asked = Instant::now();
            let error = guard.release().await.expect_err("nothing answers");
            assert_eq!(error.code(), Code::ReleaseUnconfirmed, "{error}");
            assert!(asked.elapsed() <= ms(most) + SCHEDULING, "{remaining} ms remain, {:?} went", asked.elapsed());
            key
        });
    }
    let keys = tasks.join_all().await;
    for key in &keys {
        assert!(dynamo.item(key).is_some(), "{key} cannot be gone yet");
    }
    stopped.lift();
    // One time-out of a second, and the pauses between attempts of at most as much again.
    let until = Instant::now() + ms(2_000) + SCHEDULING;
    while keys.iter().any(|key| dynamo.item(key).is_some()) {
        assert!(Instant::now() < until, "the extension has given up");
        sleep(ms(10)).await;
    }
}
