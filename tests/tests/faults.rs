//! The numbered faults at the end of the lock protocol's description: each is absent from real extension processes.
//! (7 and 11 need thousands of keys and a clock that steps: they are shown without processes.)

use serde_json::{Value, json};
use std::time::Duration;
use testkit::dynamo::{Dynamo, Fault, Operation, Recorded, row};
use testkit::sidecar::Sidecar;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Long enough that nothing is renewed within a test that does not wait for it.
const LONG_MS: u64 = 20_000;

/// Beyond what any test waits for on purpose.
const PATIENCE: Duration = Duration::from_secs(10);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn committed(request: &Recorded, operation: Operation, key: &str) -> bool {
    request.operation == operation && request.key.as_deref() == Some(key) && request.status == Some(200)
}

#[tokio::test]
async fn fault_01_a_renewal_that_commits_after_its_time_out_is_no_loss() {
    // A renewal is sent after 800 ms, times out after 400 and is sent again after 200: it commits between the two.
    const LEASE_MS: u64 = 2_400;
    let late = Fault::DelayBefore(ms(450));
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut holders = JoinSet::new();
    for (key, fault) in [("late", late), ("unheard", Fault::CommitThenHang)] {
        dynamo.fail(Operation::UpdateItem, fault).key(key);
        let mut client = sidecar.connect().await;
        holders.spawn(async move {
            let grant = client.acquire(key, LEASE_MS, 5_000).await.expect("free");
            // Beyond the lease: only a renewal that is believed can have carried it here.
            sleep(ms(LEASE_MS * 5 / 4)).await;
            client.check(grant.lease).await.expect("held");
            client.release(grant.lease).await.expect("held");
        });
    }
    holders.join_all().await;
    for key in ["late", "unheard"] {
        let log = dynamo.requests_for(key);
        let renewals: Vec<_> = log.iter().filter(|request| request.operation == Operation::UpdateItem).collect();
        // The one after the faulty one expects the version from before it: the row tells that the faulty one is committed.
        assert_eq!(renewals[1].body["ExpressionAttributeValues"][":last"], first_version(&log), "{key}");
        assert_eq!(renewals[1].status, Some(400), "{key}: the faulty one had been committed by then");
        let adopted = &renewals[0].body["ExpressionAttributeValues"][":new"];
        assert_eq!(renewals[2].body["ExpressionAttributeValues"][":last"], *adopted, "{key}");
    }
}

fn first_version(log: &[Recorded]) -> Value {
    log[0].body["Item"]["version"].clone()
}

#[tokio::test]
async fn fault_02_one_transient_answer_never_ends_an_acquisition_with_budget_left() {
    let faults = [
        ("throttle", Fault::Throttle),
        ("500", Fault::InternalError),
        ("503", Fault::Unavailable),
        ("conflict", Fault::TransactionConflict),
        ("drop", Fault::Drop),
    ];
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut contenders = JoinSet::new();
    let mut rules = Vec::new();
    for (name, fault) in faults {
        for (step, operation, before) in
            [("create", Operation::PutItem, 0), ("poll", Operation::GetItem, 0), ("takeover", Operation::PutItem, 1)]
        {
            let key = format!("{name} {step}");
            if step != "create" {
                dynamo.put_raw(row(&key, "abandoned", "v", 400));
            }
            rules.push((key.clone(), dynamo.fail(operation, fault).key(&key).after(before)));
            let mut client = sidecar.connect().await;
            contenders.spawn(async move { (client.acquire(&key, LONG_MS, 5_000).await, key) });
        }
    }
    for (acquired, key) in contenders.join_all().await {
        assert!(acquired.is_ok(), "{key}: {acquired:?}");
    }
    for (key, rule) in rules {
        assert_eq!(rule.hits(), 1, "{key}: the fault was not met");
    }
}

#[tokio::test]
async fn fault_03_pooled_connections_that_died_fail_no_acquire_and_no_release() {
    // Its attempts time out after 250 ms: the 4 s of a wait, or the 900 ms of a release, have room for several.
    const LEASE_MS: u64 = 1_500;
    const ALL: usize = 10;
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    for silently in [false, true] {
        let mut clients = Vec::new();
        for number in 0..ALL {
            clients.push((sidecar.connect().await, format!("{silently} {number}")));
        }
        // As many requests at once as there are clients fill the pool.
        let mut held = all(clients, |mut client, key| async move {
            let grant = client.acquire(&key, LEASE_MS, 0).await.expect("free");
            client.release(grant.lease).await.expect("held");
            (client, key)
        })
        .await;
        let die = async || match silently {
            true => dynamo.front().kill_connections(),
            false => dynamo.front().close_connections().await,
        };
        die().await;
        let acquired = all(std::mem::take(&mut held), |mut client, key| async move {
            let acquired = client.acquire(&key, LEASE_MS, 4_000).await;
            (client, (key, acquired))
        })
        .await;
        let failed: Vec<_> = acquired.iter().filter(|(_, (_, acquired))| acquired.is_err()).collect();
        assert!(failed.is_empty(), "{} of {ALL} acquires failed: {failed:?}", failed.len());
        die().await;
        let released = all(acquired, |mut client, (key, grant)| async move {
            let released = client.release(grant.expect("looked at above").lease).await;
            (client, (key, released))
        })
        .await;
        let failed: Vec<_> = released.iter().filter(|(_, (_, released))| released.is_err()).collect();
        assert!(failed.is_empty(), "{} of {ALL} releases failed: {failed:?}", failed.len());
        for (_, (key, _)) in released {
            assert_eq!(dynamo.item(&key), None);
        }
    }
}

/// Does the same for all at once.
async fn all<C, I, O, F>(clients: Vec<(C, I)>, work: impl Fn(C, I) -> F) -> Vec<(C, O)>
where
    F: Future<Output = (C, O)> + Send + 'static,
    C: Send + 'static,
    O: Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (client, input) in clients {
        tasks.spawn(work(client, input));
    }
    tasks.join_all().await
}

#[tokio::test]
async fn fault_04_a_failed_release_is_tried_again() {
    let faults = [
        ("throttle", Fault::Throttle),
        ("500", Fault::InternalError),
        ("503", Fault::Unavailable),
        ("conflict", Fault::TransactionConflict),
        ("drop", Fault::Drop),
        ("commit, drop", Fault::CommitThenDrop),
        ("commit, 500", Fault::CommitThenError),
        ("hang", Fault::Hang),
    ];
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut holders = JoinSet::new();
    for (key, fault) in faults {
        // Twice, unless each of them costs a time-out: here a second.
        dynamo.fail(Operation::DeleteItem, fault).key(key).times(if fault == Fault::Hang { 1 } else { 2 });
        let mut client = sidecar.connect().await;
        holders.spawn(async move {
            let grant = client.acquire(key, LONG_MS, 5_000).await.expect("free");
            (key, client.release(grant.lease).await)
        });
    }
    for (key, released) in holders.join_all().await {
        assert!(released.is_ok(), "{key}: {released:?}");
        assert_eq!(dynamo.item(key), None, "{key}");
        let deletes = dynamo.requests_for(key).iter().filter(|r| r.operation == Operation::DeleteItem).count();
        assert!(deletes >= 2, "{key}: {deletes} deletes");
    }
}

#[tokio::test]
async fn fault_05_the_last_poll_of_a_wait_ends_as_busy_and_as_nothing_else() {
    const LANES: u64 = 8;
    const WAITS: u64 = 5;
    let dynamo = Dynamo::start().await;
    dynamo.fail(Operation::Any, Fault::DelayBefore(ms(60))).always();
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let key = format!("k{lane}");
        dynamo.put_raw(row(&key, "someone", "v", 60_000));
        let mut client = sidecar.connect().await;
        lanes.spawn(async move {
            for n in 0..WAITS {
                // All of different lengths, so that they end at every point of a poll.
                let wait = 70 + 7 * (lane * WAITS + n);
                let asked = Instant::now();
                let refused = client.acquire(&key, LONG_MS, wait).await.expect_err("held");
                assert_eq!(refused["code"], "busy", "after a wait of {wait} ms: {refused}");
                assert!(asked.elapsed() >= ms(wait), "it waits for as long as it was asked to");
            }
        });
    }
    lanes.join_all().await;
}

#[tokio::test]
async fn fault_06_a_put_that_lands_after_its_time_out_leaves_no_row() {
    // A Put times out after 300 ms; what it may have left is looked for through another 1,080.
    const LEASE_MS: u64 = 1_800;
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut tasks = JoinSet::new();
    for (key, fault) in [("late", Fault::DelayBefore(ms(700))), ("unheard", Fault::CommitThenHang)] {
        dynamo.fail(Operation::PutItem, fault).key(key);
        let mut client = sidecar.connect().await;
        tasks.spawn(async move { client.acquire(key, LEASE_MS, 0).await.expect_err("no answer") });
    }
    for refused in tasks.join_all().await {
        assert_eq!(refused["code"], "unavailable", "{refused}");
    }
    for key in ["late", "unheard"] {
        let deleted = |log: &[Recorded]| log.iter().any(|request| committed(request, Operation::DeleteItem, key));
        assert!(dynamo.until(PATIENCE, deleted).await, "{key}: nothing was deleted");
        let log = dynamo.requests_for(key);
        let put = log.iter().find(|request| request.operation == Operation::PutItem).expect("it was sent").at;
        let delete = log.iter().find(|request| committed(request, Operation::DeleteItem, key)).expect("as awaited").at;
        assert!(delete - put < ms(LEASE_MS), "{key}: an observer would have had it sooner");
        assert_eq!(dynamo.item(key), None, "{key}");
    }
}

#[tokio::test]
async fn fault_06_a_put_whose_reply_was_lost_is_found_and_granted_within_the_budget() {
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let faults = [Fault::CommitThenDrop, Fault::CommitThenError, Fault::CommitThenTear, Fault::CommitThenHang];
    let mut tasks = JoinSet::new();
    for (n, fault) in faults.into_iter().enumerate() {
        let key = format!("k{n}");
        dynamo.fail(Operation::PutItem, fault).key(&key);
        let mut client = sidecar.connect().await;
        tasks.spawn(async move {
            // Its time-out is 400 ms and its validity 2,160: the row is granted, not waited for.
            let grant = client.acquire(&key, 2_400, 5_000).await.expect("its own");
            client.check(grant.lease).await.expect("held");
            client.release(grant.lease).await.expect("held");
            (key, fault, grant)
        });
    }
    for (key, fault, grant) in tasks.join_all().await {
        let log = dynamo.requests_for(&key);
        assert_eq!(log[0].body["Item"]["owner"]["S"], grant.owner.as_str(), "{fault:?}: that of the Put that landed");
        assert_eq!(dynamo.item(&key), None, "{fault:?}");
    }
}

#[tokio::test]
async fn fault_08_a_lease_that_is_too_short_for_the_network_is_an_error_that_says_so() {
    let dynamo = Dynamo::start().await;
    dynamo.fail(Operation::Any, Fault::DelayAfter(ms(60))).always();
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let mut client = sidecar.connect().await;
    // Nothing is known of the network yet: it is tried, and the error names what the attempts had.
    let refused = client.acquire("new", 300, 500).await.expect_err("no attempt can end in time");
    assert_eq!(refused["code"], "unavailable", "{refused}");
    let message = refused["message"].as_str().expect("a text");
    assert!(message.contains("a sixth of the lease (300 ms)"), "{message}");
    // Three round trips are enough to know.
    for _ in 0..2 {
        let grant = client.acquire("k", LONG_MS, 5_000).await.expect("free");
        client.release(grant.lease).await.expect("held");
    }
    let before = dynamo.requests_for("short").len();
    let refused = client.acquire("short", 300, 5_000).await.expect_err("it can never work");
    assert_eq!(refused["code"], "config", "{refused}");
    let message = refused["message"].as_str().expect("a text");
    for part in ["300 ms", "a sixth", "round trip", "LEASEKEEPER_LEASE_MS"] {
        assert!(message.contains(part), "no {part:?} in {message:?}");
    }
    assert_eq!(dynamo.requests_for("short").len(), before, "nothing is sent for it");
}

#[tokio::test]
async fn fault_09_transaction_conflicts_end_neither_acquire_nor_renewal_nor_release() {
    const LEASE_MS: u64 = 1_800;
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    let conflict = |operation| dynamo.fail(operation, Fault::TransactionConflict).times(3);
    let rules = [Operation::PutItem, Operation::UpdateItem, Operation::DeleteItem].map(conflict);
    let mut client = sidecar.connect().await;
    let grant = client.acquire("k", LEASE_MS, 5_000).await.expect("free");
    sleep(ms(LEASE_MS * 5 / 4)).await;
    client.check(grant.lease).await.expect("held");
    client.release(grant.lease).await.expect("held");
    assert_eq!(rules.map(|rule| rule.hits()), [3; 3]);
    assert_eq!(dynamo.item("k"), None);
}

#[tokio::test]
async fn fault_10_a_denied_renewal_is_lost_as_denied_with_its_cause_in_the_log() {
    const LEASE_MS: u64 = 1_200;
    let dynamo = Dynamo::start().await;
    let sidecar = Sidecar::start(&dynamo, "", &[]).await;
    dynamo.fail(Operation::UpdateItem, Fault::AccessDenied).always();
    let mut client = sidecar.connect().await;
    let sent = Instant::now();
    let granted = client.ask(json!({"op": "acquire", "key": "k", "lease_ms": LEASE_MS})).await.expect("free");
    let number = |field: &str| granted[field].as_u64().expect("a whole number");
    let believed = sent + ms(number("waited_ms") + number("valid_ms"));
    let lease = number("lease");
    assert_eq!(client.lost(lease).await, "denied");
    let refused = client.check(lease).await.expect_err("it is lost");
    assert_eq!((&refused["code"], &refused["reason"]), (&json!("lost"), &json!("denied")), "{refused}");
    let message = refused["message"].as_str().expect("a text");
    assert!(message.contains("dynamodb:UpdateItem"), "the action is not named: {message}");
    let errors = sidecar.logged("ERROR", "dynamodb:UpdateItem").await;
    assert!(errors.contains("AccessDeniedException"), "{errors}");
    // The row goes once nobody can believe in the lock any more, and not before.
    while dynamo.item("k").is_some() {
        assert!(sent.elapsed() < PATIENCE, "it stays");
        sleep(ms(2)).await;
    }
    assert!(Instant::now() >= believed, "deleted while a client could still believe");
}
