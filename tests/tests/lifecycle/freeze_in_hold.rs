//! A freeze in the middle of a hold of three locks: by SIGSTOP alone, and with clocks that stand still meanwhile.

use super::*;
use rustix::process::Signal;
use testkit::clocks::{Clock, Clocks};
use testkit::dynamo::{Fault, Operation, Recorded};
use testkit::evidence::figure;
use testkit::sandbox::Role;
use testkit::sidecar::{Sidecar, SocketClient};

const ROW: &str = "freeze";
const KEYS: [&str; 3] = ["taken", "flying", "free"];
const LEASE_MS: u64 = 3_000;
/// The frozen environment's name in the request log.
const FROZEN: &str = "frozen";

/// What came of one freeze.
struct Thawed {
    db: Dynamo,
    /// What the handler's first checks after the thaw were answered, in the keys' order.
    checks: Vec<Value>,
    /// How many requests there had been before the thaw.
    before: usize,
    /// Who has taken one key over, the lease, and the row as it was at the thaw.
    contender: (Sidecar, SocketClient, u64, Value),
}

impl Thawed {
    /// What the environment has sent since the thaw.
    fn sent(&self) -> Vec<Recorded> {
        let since = self.db.requests().split_off(self.before);
        since.into_iter().filter(|request| request.client == FROZEN).collect()
    }

    /// The lock that someone else holds is as it was.
    async fn assert_untouched(&mut self) {
        let (_, client, lease, row) = &mut self.contender;
        client.check(*lease).await.expect("still held");
        let now = self.db.item("taken").expect("still held");
        assert_eq!((&now["owner"], &now["version"]), (&row["owner"], &row["version"]));
    }
}

/// Stops the environment while it renews three leases, until someone else has taken one of them over; meanwhile `stopped` stand
/// still.
async fn freeze(shim: Option<&Clocks>, stopped: &[Clock]) -> Thawed {
    let db = Dynamo::start().await;
    let contender = Sidecar::start(&db, "contender", &[]).await;
    let shim_env = shim.map(Clocks::env).unwrap_or_default();
    let env = environment(&db).envs(db.env_as(FROZEN)).envs(shim_env).timeout(Duration::from_secs(20));
    let env = env.start().await.unwrap();
    // The answer comes when nobody can read it: the renewal is committed, and its success is seen after the thaw.
    let late = db.fail(Operation::UpdateItem, Fault::DelayAfter(Duration::from_millis(300))).key("flying");
    let check = |lease: u64| json!({"do": "send", "line": {"op": "check", "lease": lease}});
    let holds = KEYS.map(|key| acquire_for(key, LEASE_MS));
    let steps =
        holds.into_iter().chain([say("held"), json!({"do": "await", "name": "thawed"})]).chain([1, 2, 3].map(check));
    let call = env.begin(json!({"steps": Value::from_iter(steps)}));
    env.wait_for_log(Role::Runtime, "held").await.unwrap();
    let renewing = |log: &[Recorded]| KEYS.iter().all(|key| is_renewed(log, key));
    assert!(db.until(Duration::from_secs(10), renewing).await, "renewals of all three");
    let begun = Instant::now();
    for role in [Role::Extension, Role::Runtime] {
        env.signal(role, Signal::STOP).unwrap();
    }
    assert_eq!(late.hits(), 1);
    let (flying, row) = (db.requests_for("flying"), db.item("flying").expect("it is held"));
    let late = flying.iter().find(|request| request.fault.is_some()).expect("its renewal");
    assert_eq!(late.body["ExpressionAttributeValues"][":new"], row["version"], "the renewal was committed");

    let mut client = contender.connect().await;
    let grant = client.acquire("taken", 20_000, 10_000).await.expect("after the lease it is taken over");
    let (taken, before) = (db.item("taken").expect("the contender's"), db.requests().len());
    std::fs::write(env.tmp().join("thawed"), "").unwrap();
    let frozen = begun.elapsed();
    if let Some(shim) = shim {
        shim.take_off(stopped, frozen);
    }
    for role in [Role::Extension, Role::Runtime] {
        env.signal(role, Signal::CONT).unwrap();
    }
    let mut answer = call.over().await.outcome.json();
    let checks = answer.as_array_mut().unwrap().split_off(KEYS.len());
    Thawed { db, checks, before, contender: (contender, client, grant.lease, taken) }
}

fn is_renewed(log: &[Recorded], key: &str) -> bool {
    let renewal =
        |request: &Recorded| request.operation == Operation::UpdateItem && request.key.as_deref() == Some(key);
    // Of the one whose answer is late the store's own word is not in the log yet.
    log.iter().any(|request| renewal(request) && (key == "flying" || request.answered.is_some()))
}

async fn lost_at_the_first_check(shim: Option<&Clocks>, stopped: &[Clock]) {
    let case = format!("clocks that stood still: {stopped:?}");
    let mut thawed = freeze(shim, stopped).await;
    for check in &thawed.checks {
        let error = &check["error"];
        assert_eq!((&error["code"], &error["reason"]), (&json!("lost"), &json!("expired")), "{case}: {check}");
    }
    for key in ["flying", "free"] {
        gone(&thawed.db, key).await;
    }
    let sent = thawed.sent();
    for request in &sent {
        assert_eq!(request.operation, Operation::DeleteItem, "{case}: nothing is renewed or acquired: {request:?}");
        let taken = request.key.as_deref() == Some("taken");
        assert!(!taken || request.status != Some(200), "{case}: another's row is left alone");
    }
    thawed.assert_untouched().await;
    let told = format!("3 of 3 lost at the first check; {} conditional deletes, no other write", sent.len());
    figure(ROW, &case, told);
}

#[tokio::test]
async fn three_leases_are_lost_at_the_first_check_after_a_freeze_and_another_holders_lock_is_untouched() {
    lost_at_the_first_check(None, &[]).await;
}

#[tokio::test]
async fn three_leases_are_lost_though_the_monotonic_clock_stood_still_over_the_freeze() {
    lost_at_the_first_check(Some(&Clocks::start()), &[Clock::Mono]).await;
}

#[tokio::test]
async fn three_leases_are_lost_though_only_the_wall_clock_or_only_the_boot_clock_went_on() {
    let (one, other) = (Clocks::start(), Clocks::start());
    tokio::join!(
        lost_at_the_first_check(Some(&one), &[Clock::Mono, Clock::Boot]),
        lost_at_the_first_check(Some(&other), &[Clock::Mono, Clock::Wall]),
    );
}

#[tokio::test]
async fn three_leases_are_lost_though_the_boot_clock_or_the_wall_clock_stood_still() {
    let (one, other) = (Clocks::start(), Clocks::start());
    tokio::join!(
        lost_at_the_first_check(Some(&one), &[Clock::Boot]),
        lost_at_the_first_check(Some(&other), &[Clock::Wall]),
    );
}

/// What no process can see. It also shows that the processes of these tests do read the clocks that are made to stand still.
#[tokio::test]
async fn a_freeze_that_no_clock_shows_is_beyond_the_promise_and_the_next_renewal_finds_out() {
    let mut thawed = freeze(Some(&Clocks::start()), &[Clock::Boot, Clock::Mono, Clock::Wall]).await;
    for check in &thawed.checks {
        assert!(check["ok"]["valid_ms"].is_u64(), "{check}");
    }
    thawed.assert_untouched().await;
}
