//! The campaign: environments of real processes and pydynox workers compete for locks while they are stopped for longer than
//! their leases, killed in each of their parts, and cut off from DynamoDB. Afterwards the history must be clean: at no moment
//! two believers; and no update under the ownership check is lost.
//!
//! `LEASEKEEPER_PROOF=full` goes on until a thousand faults have fallen into a hold or a write. `LEASEKEEPER_SEED` draws the same
//! faults again; what they meet is up to the processes.

mod history;
mod member;

use aws_sdk_dynamodb::types::AttributeValue;
use fastrand::Rng;
use history::{Belief, Told, overlaps};
use member::Environment;
use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::dynamo::{Dynamo, Recorded};
use testkit::evidence::figure;
use testkit::moments::boot_us;
use testkit::pydynox::Pydynox;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Between the end of a belief and the takeover it leaves 60 ms.
const LEASE_MS: u64 = 600;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What is done to an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Deed {
    StopClient,
    StopExtension,
    StopBoth,
    KillClient,
    KillExtension,
    KillBoth,
    /// Every connection to DynamoDB closes, of everyone on the table.
    CloseConnections,
    /// Every connection to DynamoDB goes silent.
    SilenceConnections,
}

impl Deed {
    const ALL: [Self; 8] = [
        Self::StopClient,
        Self::StopExtension,
        Self::StopBoth,
        Self::KillClient,
        Self::KillExtension,
        Self::KillBoth,
        Self::CloseConnections,
        Self::SilenceConnections,
    ];
}

#[derive(Clone, Debug)]
struct Done {
    deed: Deed,
    to: String,
    at: u64,
}

/// How long a campaign goes on.
#[derive(Clone, Copy)]
struct Plan {
    faults: usize,
    seed: u64,
}

/// What came of one.
#[derive(Default)]
struct Campaign {
    done: Vec<Done>,
    beliefs: Vec<Belief>,
    /// Faults that fell into a hold, or while a request of that environment was under way.
    counted: Vec<Deed>,
    lost_plain: u64,
    refused: u64,
}

/// A pydynox worker that takes the lock again and again; what it believes it says when asked.
async fn pydynox(mut worker: Pydynox, key: String, told: Arc<Mutex<Told>>, over: Arc<AtomicBool>) {
    let say = |line: String| told.lock().expect("nobody panics with it").line("pydynox", &line);
    let lease = Duration::from_millis(LEASE_MS).as_secs_f64();
    while !over.load(Ordering::Relaxed) {
        say(format!("waits {}", boot_us()));
        if worker.acquire("g", &key, lease, 10.0).await.is_err() {
            continue;
        }
        // It says no more than that it holds at the moment at which it is asked.
        let granted = boot_us();
        say(format!("granted {granted} {granted}"));
        for _ in 0..8 {
            let asked = boot_us();
            if worker.check("g").await.is_err() {
                break;
            }
            say(format!("valid {asked} {asked}"));
            sleep(ms(15)).await;
        }
        say(format!("over {}", boot_us()));
        // It may be lost, or DynamoDB out of reach for the moment: then its row runs out.
        let _ = worker.release("g").await;
    }
}

/// One table, one key, three environments and a pydynox worker.
async fn campaign(plan: Plan) -> Campaign {
    let mut rng = Rng::with_seed(plan.seed);
    let dynamo = Dynamo::start().await;
    dynamo.create_table("counters", "key", "S", None);
    let key = "k";
    let mut environments = Vec::new();
    for name in ["first", "second", "third"] {
        environments.push(Environment::start(&dynamo, name, key, LEASE_MS).await);
    }
    let told: Arc<Mutex<Told>> = Arc::default();
    let (worker, over) = (Pydynox::start(&dynamo).await, Arc::new(AtomicBool::new(false)));
    let worker_pid = worker.pid();
    let worker = tokio::spawn(pydynox(worker, key.to_owned(), Arc::clone(&told), over.clone()));

    let origin = boot_us().saturating_sub(micros(dynamo.elapsed()));
    let mut campaign = Campaign::default();
    let limit = Instant::now() + Duration::from_secs(20 * 60);
    let foreign = || told.lock().expect("nobody panics with it").beliefs().any(|belief| belief.from < belief.until);
    while campaign.counted.len() < plan.faults || !foreign() {
        assert!(Instant::now() < limit, "only {} faults met anything", campaign.counted.len());
        sleep(ms(rng.u64(10..90))).await;
        if rng.u8(0..12) == 0 {
            stop_worker(worker_pid, &mut rng).await;
            continue;
        }
        let number = target(&environments, &mut rng);
        let deed = Deed::ALL[rng.usize(0..Deed::ALL.len())];
        let at = boot_us();
        let done = Done { deed, to: environments[number].name.clone(), at };
        act(deed, &mut environments[number], &dynamo, &mut rng).await;
        campaign.done.push(done.clone());
        // What a client said before it was stopped or killed has been read by now.
        if met(&done, &environments, &dynamo, origin) {
            campaign.counted.push(deed);
        }
    }
    // Everyone comes to rest with nothing held by the living.
    over.store(true, Ordering::Relaxed);
    worker.await.expect("the worker answers");
    for environment in &mut environments {
        environment.end().await;
    }
    campaign.beliefs.extend(told.lock().expect("nobody panics with it").beliefs().cloned());
    judge(&mut campaign, &environments, &dynamo, key).await;
    campaign
}

/// A holder, mostly: what befalls a mere waiter shows little.
fn target(environments: &[Environment], rng: &mut Rng) -> usize {
    let holder = environments.iter().position(|environment| environment.told().holds().is_some());
    holder.filter(|_| rng.u8(0..8) > 0).unwrap_or_else(|| rng.usize(0..environments.len()))
}

async fn act(deed: Deed, environment: &mut Environment, dynamo: &Dynamo, rng: &mut Rng) {
    let pause = ms(rng.u64(LEASE_MS * 11 / 10..LEASE_MS * 15 / 10));
    match deed {
        Deed::StopClient => {
            environment.signal_client(Signal::STOP);
            sleep(pause).await;
            environment.signal_client(Signal::CONT);
        }
        Deed::StopExtension => {
            environment.signal_extension(Signal::STOP);
            sleep(pause).await;
            environment.signal_extension(Signal::CONT);
        }
        Deed::StopBoth => {
            environment.signal_client(Signal::STOP);
            environment.signal_extension(Signal::STOP);
            sleep(pause).await;
            environment.signal_extension(Signal::CONT);
            environment.signal_client(Signal::CONT);
        }
        Deed::KillClient => {
            environment.kill_client().await;
            environment.start_client();
        }
        Deed::KillExtension => {
            environment.kill_extension().await;
            environment.start_extension().await;
        }
        Deed::KillBoth => {
            environment.end().await;
            environment.start_extension().await;
            environment.start_client();
        }
        Deed::CloseConnections => dynamo.front().close_connections().await,
        Deed::SilenceConnections => dynamo.front().kill_connections(),
    }
}

async fn stop_worker(worker: Pid, rng: &mut Rng) {
    kill_process(worker, Signal::STOP).expect("a child of ours can be signalled");
    sleep(ms(rng.u64(LEASE_MS * 11 / 10..LEASE_MS * 15 / 10))).await;
    kill_process(worker, Signal::CONT).expect("a child of ours can be signalled");
}

/// Did it fall into a hold of that environment, or while it waited for DynamoDB's answer?
fn met(done: &Done, environments: &[Environment], dynamo: &Dynamo, origin: u64) -> bool {
    let environment = environments.iter().find(|environment| environment.name == done.to).expect("one of ours");
    if environment.all_told().any(|told| told.believed(done.at)) {
        return true;
    }
    let under_way = |request: &Recorded| {
        let sent = origin + micros(request.at);
        let ended = request.answered.map_or(u64::MAX, |answered| origin + micros(answered));
        sent <= done.at && done.at < ended
    };
    let log = dynamo.requests();
    log.iter().rev().take(200).any(|request| request.client == done.to && under_way(request))
}

/// Reads what everyone told and what is in the table, and says what must hold.
async fn judge(campaign: &mut Campaign, environments: &[Environment], dynamo: &Dynamo, key: &str) {
    let (mut plain, mut guarded, mut unknown) = (0, 0, 0);
    for told in environments.iter().flat_map(Environment::all_told) {
        campaign.beliefs.extend(told.beliefs().cloned());
        plain += told.plain;
        guarded += told.guarded;
        unknown += told.unknown;
        campaign.refused += told.refused;
    }
    // A client that was killed may have been on its way with one write of each kind.
    let kills = campaign.done.iter().filter(|done| matches!(done.deed, Deed::KillClient | Deed::KillBoth)).count();
    let unheard =
        unknown + u64::try_from(kills).expect("not that many") + u64::try_from(environments.len()).expect("three");
    let overlaps = overlaps(campaign.beliefs.clone());
    let deeds = |of: &Belief| {
        let near = |done: &&Done| done.at.abs_diff(of.from) < 3_000_000;
        campaign.done.iter().filter(near).cloned().collect::<Vec<_>>()
    };
    let told: Vec<_> = overlaps.iter().map(|(one, other)| (one, other, deeds(other))).collect();
    assert!(told.is_empty(), "two believe at once, and what was done to them about then: {told:#?}");
    let counted = count(dynamo, &format!("{key} guarded")).await;
    assert!(
        (guarded..=guarded + unheard).contains(&counted),
        "{guarded} guarded updates were confirmed, {unheard} may have been made unheard, {counted} are counted"
    );
    campaign.lost_plain = plain.saturating_sub(count(dynamo, &format!("{key} plain")).await);
}

async fn count(dynamo: &Dynamo, name: &str) -> u64 {
    let read = dynamo.client().await.get_item().table_name("counters").key("key", AttributeValue::S(name.to_owned()));
    let item = read.send().await.expect("the table can be read").item.unwrap_or_default();
    item.get("n").map_or(0, |n| n.as_n().expect("a number").parse().expect("a whole number"))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("less than an age")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_killed_and_cut_off_no_two_believe_at_once_and_no_guarded_update_is_lost() {
    let full = std::env::var("LEASEKEEPER_PROOF").is_ok_and(|proof| proof == "full");
    let seed = std::env::var("LEASEKEEPER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!(
        "replay: LEASEKEEPER_SEED={seed} cargo test -p leasekeeper-tests --test processes stopped_killed_and_cut_off"
    );
    // Side by side, as most of a campaign is waiting for leases to run out.
    let (tables, faults) = if full { (4, 260) } else { (1, 8) };
    let mut campaigns = JoinSet::new();
    for table in 0..tables {
        campaigns.spawn(campaign(Plan { faults, seed: seed + table }));
    }
    let campaigns = campaigns.join_all().await;
    let counted: Vec<Deed> = campaigns.iter().flat_map(|campaign| campaign.counted.clone()).collect();
    let beliefs: usize = campaigns.iter().map(|campaign| campaign.beliefs.len()).sum();
    if full {
        assert!(counted.len() >= 1_000, "{} faults", counted.len());
        for deed in Deed::ALL {
            assert!(counted.contains(&deed), "{deed:?} never met anything");
        }
        let lost: u64 = campaigns.iter().map(|campaign| campaign.lost_plain).sum();
        assert!(lost > 0, "a pause between check and write must lose plain updates: nothing was shown");
        figure("effect", "updates lost without the ownership check", format!("{lost} updates"));
    }
    let drawn: usize = campaigns.iter().map(|campaign| campaign.done.len()).sum();
    let refused: u64 = campaigns.iter().map(|campaign| campaign.refused).sum();
    figure("processes", "faults into a hold or a request", format!("{} of {drawn}", counted.len()));
    figure("processes", "holds", format!("{beliefs} holds"));
    figure("effect", "late writes that the ownership check refused", format!("{refused} writes"));
    for deed in Deed::ALL {
        let times = counted.iter().filter(|of| **of == deed).count();
        figure("processes", &format!("{deed:?}"), format!("{times} times"));
    }
}
