//! The numbered faults at the end of the lock protocol's description: each is absent here.

use leasekeeper_core::{Acquire, Answer, Config, Core, Entropy, Input, Now, Op, Output};
use leasekeeper_extension::driver::{self, Command, Surroundings};
use leasekeeper_extension::outbox::{Outgoing, outbox};
use leasekeeper_extension::settings::Settings;
use leasekeeper_extension::store::MemoryStore;
use leasekeeper_wire as wire;
use serde_json::{Value, json};
use std::time::Duration;
use testkit::dynamo::attributes::of_json;
use testkit::dynamo::{Dynamo, Fault, Operation, Recorded, row};
use testkit::sidecar::Sidecar;
use tokio::sync::mpsc::UnboundedSender;
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

/// One connection to a driver in this process.
struct Client {
    driver: UnboundedSender<Command>,
    lines: Outgoing,
}

impl Client {
    fn start(store: MemoryStore) -> Self {
        let settings = Settings::from_lookup(|name| (name == "LEASEKEEPER_STORE").then(|| "memory".to_owned()));
        let settings = settings.map_err(|error| error.to_string());
        let driver = driver::start(settings, Surroundings::default(), store);
        let (outbox, lines) = outbox();
        driver.send(Command::Open { client: 1, outbox }).expect("the driver runs");
        Self { driver, lines }
    }

    /// Tries once for a lock and gives it back.
    async fn had(&mut self, key: &str) -> bool {
        let ask = wire::Acquire { key: key.to_owned(), wait_ms: Some(0), ..wire::Acquire::default() };
        match self.call(wire::Op::Acquire(ask)).await {
            Ok(granted) => {
                let lease = granted["lease"].as_u64().expect("a grant has a number");
                self.call(wire::Op::Release { lease }).await.expect("held");
                true
            }
            Err(failure) if failure.code == wire::Code::Busy => false,
            Err(failure) => panic!("{failure:?}"),
        }
    }

    async fn call(&mut self, op: wire::Op) -> Result<Value, wire::Failure> {
        self.driver.send(Command::Request { client: 1, id: 1, op }).expect("the driver runs");
        loop {
            let line = self.lines.next().await.expect("the driver answers");
            if let wire::ServerLine::Reply { answer, .. } = wire::ServerLine::decode(line.as_bytes()).expect("a line") {
                return answer;
            }
        }
    }
}

#[tokio::test]
async fn fault_07_the_observations_of_many_keys_are_forgotten_one_by_one() {
    /// What is remembered, and how many more are looked at.
    const LIMIT: usize = 4_096;
    const MORE: usize = 100;
    const LEASE_MS: u64 = 1_000;
    let store = MemoryStore::new();
    let key = |n: usize| format!("k{n}");
    for n in 0..LIMIT + MORE {
        store.put(&key(n), of_json(&row(&key(n), "abandoned", "v", LEASE_MS)));
    }
    let mut client = Client::start(store);
    for n in 0..LIMIT + MORE {
        assert!(!client.had(&key(n)).await, "{n} is held, as far as is known");
    }
    sleep(ms(LEASE_MS)).await;
    // Those that are remembered have been seen unchanged for their lease; the others are looked at for the first time.
    for n in [MORE, MORE + 1, LIMIT / 2, LIMIT + MORE - 1] {
        assert!(client.had(&key(n)).await, "{n} was forgotten");
    }
    for n in [0, MORE - 1] {
        assert!(!client.had(&key(n)).await, "{n} cannot be remembered");
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
    let grant = client.acquire("k", LEASE_MS, 5_000).await.expect("free");
    assert_eq!(client.lost(grant.lease).await, "denied");
    let refused = client.check(grant.lease).await.expect_err("it is lost");
    assert_eq!((&refused["code"], &refused["reason"]), (&json!("lost"), &json!("denied")), "{refused}");
    let message = refused["message"].as_str().expect("a text");
    assert!(message.contains("dynamodb:UpdateItem"), "the action is not named: {message}");
    let errors = sidecar.errors().join("\n");
    assert!(errors.contains("dynamodb:UpdateItem") && errors.contains("AccessDeniedException"), "{errors}");
    // The row goes once nobody can believe in the lock any more, and not before.
    let deleted = |log: &[Recorded]| log.iter().any(|request| committed(request, Operation::DeleteItem, "k"));
    assert!(dynamo.until(PATIENCE, deleted).await);
    let log = dynamo.requests();
    let delete = log.iter().find(|request| request.operation == Operation::DeleteItem).expect("as awaited");
    assert!(delete.at - log[0].at >= ms(LEASE_MS * 9 / 10 - 5), "deleted after {:?}", delete.at - log[0].at);
}

/// Ids in a row, and no jitter.
#[derive(Default)]
struct Counting(u64);

impl Entropy<u64> for Counting {
    fn id(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    fn jitter(&mut self) -> u64 {
        500
    }
}

/// A process's clock cannot be stepped without the machine's: the core is given one that is.
#[test]
fn fault_11_a_wall_clock_that_steps_back_is_no_loss() {
    const SECOND: u64 = 1_000_000;
    const HOUR: u64 = 3_600 * SECOND;
    let mut core = Core::new(Config::default());
    let mut ids = Counting::default();
    let at = |seconds: u64, stepped: u64| {
        let passed = seconds * SECOND;
        Now { boot: passed, mono: passed, wall: 10 * HOUR + passed - stepped }
    };
    let ask =
        Acquire { lease: 1, key: 7, lease_ms: 20_000, wait: SECOND, scope: None, remaining: None, max_hold: None };
    core.handle(at(0, 0), Input::Acquire(ask), &mut ids);
    let mut lost = false;
    let mut renewals = 0;
    for second in 0..60 {
        // Back by an hour in the middle of the second lease.
        let now = at(second, if second < 30 { 0 } else { HOUR });
        core.handle(now, Input::Tick, &mut ids);
        while let Some(output) = core.poll() {
            match output {
                Output::Send(request) => {
                    renewals += usize::from(matches!(request.op, Op::Renew { .. }));
                    core.handle(now, Input::Answer(request.no, Answer::Done), &mut ids);
                }
                Output::Lost(..) => lost = true,
                _ => {}
            }
        }
        assert!(core.valid_for(1).is_some(), "not valid {second} s after the grant");
    }
    assert!(!lost);
    assert!(renewals >= 60 * 3 / 20 - 1, "{renewals} renewals");
}
