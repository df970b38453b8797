//! Promise P1: at no instant do two clients of one key both believe that they hold it.

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::dynamo::{Dynamo, Operation, Recorded};
use testkit::sidecar::{Sidecar, SocketClient};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Short, so that a few seconds see many holders. Between validity and takeover it leaves 60 ms.
const LEASE_MS: u64 = 600;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The clock that goes on whatever happens to a process.
fn boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).expect("below a second"))
}

/// The time during which a client believes that it holds the lock.
#[derive(Clone, Debug)]
struct Belief {
    /// The number of its extension.
    extension: usize,
    from: Duration,
    until: Duration,
}

#[derive(Debug, Default)]
struct History {
    beliefs: Mutex<Vec<Belief>>,
    /// The extension whose client was granted the lock last.
    holder: AtomicUsize,
}

impl History {
    fn note(&self, belief: Belief) {
        self.beliefs.lock().expect("nobody panics with it").push(belief);
    }

    /// In the order in which they began.
    fn beliefs(&self) -> Vec<Belief> {
        let mut beliefs = self.beliefs.lock().expect("nobody panics with it").clone();
        beliefs.sort_by_key(|belief| belief.from);
        beliefs
    }
}

/// Beliefs that begin before the one before them is over.
fn overlaps(beliefs: &[Belief]) -> Vec<&[Belief]> {
    beliefs.windows(2).filter(|pair| pair[0].until > pair[1].from).collect()
}

/// Takes the lock again and again until `end`, and notes what it believes. Returns early when its extension has gone.
async fn contend(mut client: SocketClient, extension: usize, end: Duration, history: Arc<History>) {
    while boot() < end {
        let sent = boot();
        let request = json!({"op": "acquire", "key": "k", "lease_ms": LEASE_MS, "wait_ms": 10_000});
        let Some(granted) = client.try_ask(request).await else { return };
        let granted = granted.expect("its turn comes");
        let number = |field: &str| granted[field].as_u64().expect("a whole number");
        history.holder.store(extension, Ordering::SeqCst);
        // As much as a client may believe: only its own release ends it early, not even news that it has not read.
        let until = sent + ms(number("waited_ms") + number("valid_ms"));
        let mut belief = Belief { extension, from: boot(), until };
        for _ in 0..6 {
            sleep(ms(40)).await;
            let sent = boot();
            match client.try_ask(json!({"op": "check", "lease": number("lease")})).await {
                Some(Ok(checked)) => {
                    let valid = ms(checked["valid_ms"].as_u64().expect("a whole number"));
                    belief.until = belief.until.max(sent + valid);
                }
                Some(Err(lost)) => assert_eq!(lost["code"], "lost", "{lost}"),
                None => return history.note(belief),
            }
        }
        belief.until = belief.until.min(boot());
        history.note(belief);
        match client.try_ask(json!({"op": "release", "lease": number("lease")})).await {
            Some(Ok(_)) => {}
            Some(Err(lost)) => assert_eq!(lost["code"], "lost", "{lost}"),
            None => return,
        }
    }
}

/// An extension with two clients.
async fn start(dynamo: &Dynamo, extension: usize, end: Duration, history: &Arc<History>) -> (Sidecar, JoinSet<()>) {
    let sidecar = Sidecar::start(dynamo, &extension.to_string(), &[]).await;
    let mut clients = JoinSet::new();
    for _ in 0..2 {
        clients.spawn(contend(sidecar.connect().await, extension, end, history.clone()));
    }
    (sidecar, clients)
}

/// A Put over another owner's row that was committed.
fn is_takeover(request: &Recorded) -> bool {
    let condition = request.body["ConditionExpression"].as_str().unwrap_or("");
    request.operation == Operation::PutItem && request.status == Some(200) && condition.contains("#version")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_no_two_believe_at_once_though_their_extensions_are_stopped_and_killed() {
    let dynamo = Dynamo::start().await;
    let history = Arc::new(History::default());
    let end = boot() + ms(3_500);
    let mut running = Vec::new();
    let mut all = Vec::new();
    for extension in 0..3 {
        let (sidecar, clients) = start(&dynamo, extension, end, &history).await;
        running.push(sidecar);
        all.push(clients);
    }
    let mut disturbed = 0;
    while boot() + ms(1_000) < end {
        sleep(ms(100)).await;
        // By turns the one that holds is stopped for longer than its lease, or killed and started anew.
        let number = history.holder.load(Ordering::SeqCst);
        if disturbed % 2 == 0 {
            running[number].signal(Signal::STOP);
            sleep(ms(LEASE_MS * 5 / 4)).await;
            running[number].signal(Signal::CONT);
        } else {
            running[number].kill().await;
            let (sidecar, clients) = start(&dynamo, number, end, &history).await;
            running[number] = sidecar;
            all.push(clients);
        }
        disturbed += 1;
    }
    for clients in all {
        clients.join_all().await;
    }
    let beliefs = history.beliefs();
    assert!(overlaps(&beliefs).is_empty(), "{:#?}", overlaps(&beliefs));
    let takeovers = dynamo.requests().iter().filter(|request| is_takeover(request)).count();
    assert!(disturbed >= 3 && takeovers >= 2, "{disturbed} disturbances, {takeovers} takeovers: nothing was shown");
    for extension in 0..3 {
        assert!(beliefs.iter().any(|belief| belief.extension == extension), "{extension} never held it: {beliefs:#?}");
    }
}

/// The assumption that nobody edits rows by hand is needed, and the checker sees when it does not hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_a_row_deleted_by_hand_lets_two_believe_at_once() {
    let dynamo = Dynamo::start().await;
    let history = Arc::new(History::default());
    let end = boot() + ms(1_500);
    let mut all = Vec::new();
    for extension in 0..2 {
        all.push(start(&dynamo, extension, end, &history).await);
    }
    while boot() < end {
        sleep(ms(100)).await;
        dynamo.delete_raw("k");
    }
    for (_running, clients) in all {
        clients.join_all().await;
    }
    assert!(!overlaps(&history.beliefs()).is_empty());
}
