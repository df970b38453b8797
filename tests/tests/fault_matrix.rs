//! Every fault × every request × every phase of a hold, through the extension, the AWS SDK and the emulator: no false loss, no
//! give-up with budget left, no row left behind, and one loss with the right reason where there is one.
//!
//! `LEASEKEEPER_PROOF=full` lets each request meet every pair of faults instead of each fault once.

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use testkit::dynamo::{Dynamo, Fault, Operation, Recorded, row};
use testkit::evidence::figure;
use testkit::sidecar::{Grant, Sidecar, SocketClient};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// A request has 500 ms and a retry comes after 250: from a renewal's begin at 1,000 there are 1,700 ms of validity, and two
/// faults that both cost a time-out take 1,500.
const LEASE_MS: u64 = 3_000;

/// Longer than a request's time-out on an open connection: the answer comes when nobody waits for it.
const LATE: Duration = Duration::from_millis(700);

/// What a wait has: a takeover of an abandoned row takes a lease, faults and polls come on top.
const WAIT_MS: u64 = 12_000;

/// How long a row may be left after its release or loss: the clean-up's budget of 0.6 leases, and a late Put's delay.
const CLEANUP: Duration = Duration::from_millis(LEASE_MS * 6 / 10 + 700);

/// So many holds at a time: more would measure the machine.
const AT_ONCE: usize = 32;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What never ends a lock or a wait by itself.
const TRANSIENT: [Fault; 14] = [
    Fault::Throttle,
    Fault::Error(400, "ThrottlingException", "Rate exceeded."),
    Fault::TransactionConflict,
    Fault::Error(400, "ReplicatedWriteConflictException", "Another Region writes."),
    Fault::InternalError,
    Fault::Unavailable,
    Fault::Alien(502),
    Fault::Drop,
    Fault::Hang,
    Fault::CommitThenDrop,
    Fault::CommitThenError,
    Fault::CommitThenHang,
    Fault::CommitThenTear,
    Fault::DelayBefore(LATE),
];

/// In which phase of a hold a request meets its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first Put, on a free key.
    Create,
    /// A waiter's read while the holder works.
    Poll,
    /// A waiter's read of a row whose holder is dead.
    PollAbandoned,
    /// The Put that takes over a dead holder's row.
    Takeover,
    /// The Put that hands a lock to the next waiter of one environment.
    HandOver,
    FirstRenewal,
    LaterRenewal,
    Release,
    /// The delete after the client closed its connection.
    Disconnect,
}

impl Phase {
    const ALL: [Self; 9] = [
        Self::Create,
        Self::Poll,
        Self::PollAbandoned,
        Self::Takeover,
        Self::HandOver,
        Self::FirstRenewal,
        Self::LaterRenewal,
        Self::Release,
        Self::Disconnect,
    ];

    /// The request, and how many of its kind for the key come before it.
    fn request(self) -> (Operation, usize) {
        match self {
            Self::Create => (Operation::PutItem, 0),
            Self::Poll | Self::PollAbandoned => (Operation::GetItem, 0),
            // The Put that found the row, or the holder's.
            Self::Takeover => (Operation::PutItem, 1),
            Self::HandOver => (Operation::PutItem, 1),
            Self::FirstRenewal => (Operation::UpdateItem, 0),
            Self::LaterRenewal => (Operation::UpdateItem, 1),
            Self::Release | Self::Disconnect => (Operation::DeleteItem, 0),
        }
    }
}

/// Holds `key` through this phase as an application would, and asserts at every step that it was not disturbed.
async fn hold(phase: Phase, key: String, sidecar: Arc<Sidecar>, other: Arc<Sidecar>) {
    let key = key.as_str();
    let mut client = sidecar.connect().await;
    let grant = match phase {
        Phase::Poll => {
            let mut holder = other.connect().await;
            let held = holder.acquire(key, LEASE_MS, WAIT_MS).await.expect("free");
            let (grant, ()) = tokio::join!(client.acquire(key, LEASE_MS, WAIT_MS), async {
                sleep(ms(600)).await;
                holder.release(held.lease).await.expect("held");
            });
            grant
        }
        Phase::HandOver => {
            let mut holder = sidecar.connect().await;
            let held = holder.acquire(key, LEASE_MS, WAIT_MS).await.expect("free");
            let (grant, ()) = tokio::join!(client.acquire(key, LEASE_MS, WAIT_MS), async {
                sleep(ms(200)).await;
                holder.release(held.lease).await.expect("held");
            });
            grant
        }
        _ => client.acquire(key, LEASE_MS, WAIT_MS).await,
    };
    let grant = grant.unwrap_or_else(|error| panic!("{phase:?}, {key}: gave up: {error}"));
    let hold = match phase {
        // Beyond the lease of the grant: only renewals carry it here.
        Phase::FirstRenewal => ms(LEASE_MS + 300),
        Phase::LaterRenewal => ms(LEASE_MS * 5 / 3),
        _ => ms(50),
    };
    let until = Instant::now() + hold;
    while Instant::now() < until {
        check(&mut client, &grant, &format!("{phase:?}, {key}")).await;
        sleep(ms(100)).await;
    }
    if phase != Phase::Disconnect {
        client.release(grant.lease).await.unwrap_or_else(|error| panic!("{phase:?}, {key}: not released: {error}"));
        assert!(client.losses().is_empty(), "{phase:?}, {key}: {:?}", client.losses());
    }
}

async fn check(client: &mut SocketClient, grant: &Grant, what: &str) {
    client.check(grant.lease).await.unwrap_or_else(|error| panic!("{what}: lost: {error}"));
}

/// The faults that the requests of one key meet, one after the other.
fn sequences() -> Vec<Vec<Fault>> {
    if std::env::var("LEASEKEEPER_PROOF").is_ok_and(|proof| proof == "full") {
        TRANSIENT.iter().flat_map(|one| TRANSIENT.iter().map(|other| vec![*one, *other])).collect()
    } else {
        TRANSIENT.iter().map(|one| vec![*one]).collect()
    }
}

/// What was to be done, though nobody was told of it, must have been done; a later one of the same key may find the earlier
/// one's work, and one that comes late what others did meanwhile.
fn assert_done(log: &[Recorded], name: &str) {
    let first = log.iter().find_map(|request| request.fault.map(|fault| (fault, request.stored)));
    let (fault, stored) = first.unwrap_or_else(|| panic!("{name}: no fault was met"));
    if fault.commits() && fault != Fault::DelayBefore(LATE) {
        assert_eq!(stored, Some(200), "{name}");
    }
}

/// Has everything reached the store that is under way to it?
fn landed(log: &[Recorded]) -> bool {
    log.iter().all(|request| !request.fault.is_some_and(Fault::commits) || request.stored.is_some())
}

/// The operations of which one must meet the fault at this place of a sequence. What a first Put left at a hand-over may be
/// settled by a read: the holder's delete, which finds the heir's row, wakes the heir's poller about when its retry is due.
fn meeting(phase: Phase, faults: &[Fault], place: usize) -> Vec<(Operation, usize)> {
    if phase == Phase::HandOver && place > 0 && faults[0].commits() {
        return vec![phase.request(), Phase::Poll.request()];
    }
    vec![phase.request()]
}

/// All fault sequences in one phase.
async fn transient_faults_disturb_nothing(phase: Phase) {
    let dynamo = Dynamo::start().await;
    let quiet = [("LEASEKEEPER_LOG", "error")];
    let sidecar = Arc::new(Sidecar::start(&dynamo, "holder", &quiet).await);
    let other = Arc::new(Sidecar::start(&dynamo, "other", &quiet).await);
    let sequences: Vec<_> = sequences().into_iter().enumerate().collect();
    for batch in sequences.chunks(AT_ONCE) {
        let mut rules = Vec::new();
        let mut holds = JoinSet::new();
        for (number, faults) in batch {
            let key = format!("{number} {phase:?} {faults:?}");
            if matches!(phase, Phase::Takeover | Phase::PollAbandoned) {
                dynamo.put_raw(row(&key, "dead", "v", LEASE_MS / 3));
            }
            for (place, &fault) in faults.iter().enumerate() {
                let meeting = meeting(phase, faults, place).into_iter();
                let rule = |(operation, before)| dynamo.fail(operation, fault).key(&key).after(before);
                rules.push((key.clone(), meeting.map(rule).collect::<Vec<_>>()));
            }
            holds.spawn(hold(phase, key, sidecar.clone(), other.clone()));
        }
        holds.join_all().await;
        let until = Instant::now() + CLEANUP;
        for (key, alternatives) in &rules {
            let hits = || alternatives.iter().map(|rule| rule.hits()).sum::<usize>();
            while hits() == 0 || !landed(&dynamo.requests_for(key)) || dynamo.item(key).is_some() {
                let hits = hits();
                assert!(Instant::now() < until, "{key}: row or fault ({hits} met) is left: {:?}", told(&dynamo, key));
                sleep(ms(10)).await;
            }
            assert_done(&dynamo.requests_for(key), key);
        }
    }
    figure("fault-matrix", "holds that met transient faults, none disturbed", format!("{} holds", sequences.len()));
}

/// What was sent for a key, and what came of it.
fn told(dynamo: &Dynamo, key: &str) -> Vec<String> {
    let line = |request: &Recorded| {
        format!("{:?} {:?} {:?} → {:?}", request.at, request.operation, request.fault, request.status)
    };
    dynamo.requests_for(key).iter().map(line).collect()
}

macro_rules! phases {
    ($($name:ident $phase:ident)*) => {
        $(#[tokio::test]
        async fn $name() {
            transient_faults_disturb_nothing(Phase::$phase).await;
        })*

        #[test]
        fn every_phase_is_tried() {
            assert_eq!([$(Phase::$phase),*], Phase::ALL);
        }
    };
}

phases! {
    transient_faults_of_a_first_put Create
    transient_faults_of_a_waiters_read Poll
    transient_faults_of_a_read_of_an_abandoned_row PollAbandoned
    transient_faults_of_a_takeover Takeover
    transient_faults_of_a_hand_over HandOver
    transient_faults_of_a_first_renewal FirstRenewal
    transient_faults_of_a_later_renewal LaterRenewal
    transient_faults_of_a_release Release
    transient_faults_of_a_delete_after_the_connections_end Disconnect
}

/// What ends a hold, and the reason its client must be told.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Every renewal meets this until the lease is over.
    Renewals(Fault),
    /// Another owner stands in the row.
    Taken,
    Deleted,
}

/// How long a lost hold may take to be told: its validity, and the way of the event.
const SOON: Duration = ms(300);

#[tokio::test]
async fn a_lease_that_ends_is_told_lost_once_with_its_reason_and_leaves_no_row() {
    let dynamo = Dynamo::start().await;
    let sidecar = Arc::new(Sidecar::start(&dynamo, "", &[("LEASEKEEPER_LOG", "error")]).await);
    let mut ends: Vec<_> = TRANSIENT.map(End::Renewals).into();
    ends.extend([End::Renewals(Fault::AccessDenied), End::Taken, End::Deleted]);
    let mut holds = JoinSet::new();
    let count = ends.len();
    for end in ends {
        let key = format!("{end:?}");
        let rule = match end {
            End::Renewals(fault) => Some(dynamo.fail(Operation::UpdateItem, fault).key(&key).always()),
            End::Taken | End::Deleted => None,
        };
        let sidecar = sidecar.clone();
        holds.spawn(async move {
            let mut client = sidecar.connect().await;
            let asked = Instant::now();
            let grant = client.acquire(&key, LEASE_MS, 0).await.expect("free");
            (end, key, client, grant, asked, rule)
        });
    }
    let mut holds: Vec<_> = holds.join_all().await;
    for (end, key, ..) in &holds {
        match end {
            End::Taken => dynamo.put_raw(row(key, "thief", "v", LEASE_MS)),
            End::Deleted => dynamo.delete_raw(key),
            End::Renewals(_) => {}
        }
    }
    for (end, key, client, grant, asked, rule) in &mut holds {
        let expected = match end {
            End::Renewals(Fault::AccessDenied) => "denied",
            End::Renewals(Fault::Throttle | Fault::TransactionConflict) => "throttled",
            End::Renewals(Fault::Error(400, ..)) => "throttled",
            End::Renewals(_) => "expired",
            End::Taken => "stolen",
            End::Deleted => "deleted",
        };
        assert_eq!(client.lost(grant.lease).await, expected, "{key}");
        assert!(asked.elapsed() < ms(LEASE_MS * 9 / 10) + SOON, "{key}: told after {:?}", asked.elapsed());
        let error = client.check(grant.lease).await.expect_err("over");
        assert_eq!((&error["code"], &error["reason"]), (&json!("lost"), &json!(expected)), "{key}");
        assert!(rule.as_ref().is_none_or(|rule| rule.hits() > 0), "{key}: no renewal was sent");
    }
    // Once: nothing more comes in the time in which the row is cleaned up.
    sleep(CLEANUP).await;
    for (end, key, client, grant, ..) in &mut holds {
        let error = client.check(grant.lease).await.expect_err("over");
        assert_eq!(error["code"], "lost", "{key}");
        assert!(client.losses().is_empty(), "{key}: told again: {:?}", client.losses());
        match end {
            End::Taken => assert_eq!(dynamo.item(key).expect("another's")["owner"]["S"], "thief"),
            _ => assert_eq!(dynamo.item(key), None, "{key}: its row is left behind: {:?}", told(&dynamo, key)),
        }
    }
    figure("fault-matrix", "holds that ended, each told once", format!("{count} holds"));
}

#[tokio::test]
async fn an_acquire_that_meets_nothing_but_faults_ends_by_its_budget_and_leaves_no_row() {
    const WAIT: Duration = ms(1_200);
    const ATTEMPT: Duration = ms(LEASE_MS / 6);
    let dynamo = Dynamo::start().await;
    let sidecar = Arc::new(Sidecar::start(&dynamo, "", &[("LEASEKEEPER_LOG", "error")]).await);
    let mut acquires = JoinSet::new();
    let count = TRANSIENT.len();
    for fault in TRANSIENT {
        let key = format!("{fault:?}");
        let rule = dynamo.fail(Operation::PutItem, fault).key(&key).always();
        let sidecar = sidecar.clone();
        acquires.spawn(async move {
            let mut client = sidecar.connect().await;
            let asked = Instant::now();
            let result = client.acquire(&key, LEASE_MS, WAIT.as_millis() as u64).await;
            (fault, key, result, asked.elapsed(), rule, client)
        });
    }
    let ended = acquires.join_all().await;
    let until = Instant::now() + CLEANUP;
    for (fault, key, result, took, rule, _client) in &ended {
        assert!(rule.hits() > 0, "{key}");
        assert!(*took < WAIT + ATTEMPT + SOON, "{key} took {took:?}");
        match result {
            // A Put that was done and not heard of is found in the row and granted after all.
            Ok(_) => assert!(fault.commits(), "{key} was granted by nothing"),
            Err(error) => {
                let code = error["code"].as_str().unwrap_or_default();
                assert!(matches!(code, "unavailable" | "busy"), "{key}: {error}");
            }
        }
        if fault.commits() {
            assert!(
                dynamo.requests_for(key).iter().any(|request| request.stored == Some(200)),
                "{key} was never stored"
            );
        }
    }
    for (_, key, result, ..) in &ended {
        while result.is_err() && dynamo.item(key).is_some() {
            assert!(Instant::now() < until, "{key}: an orphan is left behind: {:?}", told(&dynamo, key));
            sleep(ms(10)).await;
        }
    }
    figure("fault-matrix", "acquires that met nothing but faults", format!("{count} acquires"));
}

#[tokio::test]
async fn a_release_that_meets_nothing_but_faults_is_unconfirmed_and_its_row_is_taken_over_at_once() {
    let dynamo = Dynamo::start().await;
    let sidecar = Arc::new(Sidecar::start(&dynamo, "", &[("LEASEKEEPER_LOG", "error")]).await);
    let mut holds = JoinSet::new();
    let count = TRANSIENT.len();
    for fault in TRANSIENT {
        let key = format!("{fault:?}");
        let rule = dynamo.fail(Operation::DeleteItem, fault).key(&key).always();
        let sidecar = sidecar.clone();
        holds.spawn(async move {
            let mut client = sidecar.connect().await;
            let grant = client.acquire(&key, LEASE_MS, 0).await.expect("free");
            let released = client.release(grant.lease).await;
            assert!(client.losses().is_empty(), "{key}: {:?}", client.losses());
            (fault, key, released, rule, client)
        });
    }
    for (fault, key, released, rule, mut client) in holds.join_all().await {
        rule.lift();
        match released {
            // A delete that was done and not heard of: the next one finds no row.
            Ok(_) => assert!(fault.commits(), "{key}: confirmed by nothing"),
            Err(error) => assert_eq!(error["code"], "release_unconfirmed", "{key}"),
        }
        assert_eq!(dynamo.item(&key).is_some(), !fault.commits(), "{key}");
        let asked = Instant::now();
        let again = client.acquire(&key, LEASE_MS, WAIT_MS).await.unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(asked.elapsed() < ms(LEASE_MS / 2), "{key}: an owner that was given up is not waited for");
        client.release(again.lease).await.unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(dynamo.item(&key), None, "{key}");
    }
    figure("fault-matrix", "releases that met nothing but faults", format!("{count} releases"));
}
