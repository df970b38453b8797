//! Connections to DynamoDB that died while the environment was frozen, or under a lock: requests go on without them.

use super::*;
use rustix::process::Signal;
use testkit::evidence::figure;
use testkit::moments::last_word;
use testkit::sandbox::Role;

const ROW: &str = "dead-connections";
const ROUNDS: usize = 5;
/// An attempt has a sixth of it: within a second of giving back there is room for several.
const LEASE_MS: u64 = 1_500;
const WAIT: Duration = Duration::from_secs(4);
const ATTEMPT: Duration = Duration::from_millis(LEASE_MS / 6);
/// What giving back may cost an invocation.
const RELEASE: Duration = Duration::from_secs(1);

/// How connections die.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// The other side has closed them.
    Closed,
    /// Nothing comes any more, not even a refusal.
    BlackHole,
}

impl Death {
    async fn comes(self, db: &Dynamo) {
        match self {
            Self::Closed => db.front().close_connections().await,
            Self::BlackHole => db.front().kill_connections(),
        }
    }
}

/// What the worst of the rounds cost.
#[derive(Debug, Default)]
struct Worst {
    acquire: Duration,
    release: Duration,
}

/// One environment, frozen between its rounds. In each, connections die three times: in the freeze, under the held lock (in every
/// other round with all processes stopped), and just before the release.
async fn rounds(death: Death) -> Worst {
    let db = Dynamo::start().await;
    let env = environment(&db).freeze(true).start().await.unwrap();
    env.invoke(steps([acquire("warm")])).await.outcome.json();
    let mut worst = Worst::default();
    for round in 0..ROUNDS {
        let case = format!("{death:?}, round {round}");
        let key = format!("k{round}");
        assert!(env.is_frozen() && db.front().open() > 0, "{case}: a pooled connection");
        death.comes(&db).await;
        let made = db.front().accepted();
        let (held, releasing, go) = (format!("held {key}"), format!("releasing {key}"), format!("go-{key}"));
        let wait_ms = u64::try_from(WAIT.as_millis()).unwrap();
        let ask = |line: Value| json!({"do": "send", "line": line});
        let word = |label: &str| json!({"do": "word", "label": label});
        let call = env.begin(steps([
            ask(json!({"op": "acquire", "key": key, "lease_ms": LEASE_MS, "wait_ms": wait_ms})),
            say(&held),
            // Past the validity: only a renewal that was confirmed can have carried it here.
            sleep_ms(LEASE_MS),
            check(),
            ask(json!({"op": "metrics"})),
            say(&releasing),
            json!({"do": "await", "name": go}),
            word("asked"),
            ask(json!({"op": "release"})),
            word("told"),
        ]));
        env.wait_for_log(Role::Runtime, &held).await.unwrap();
        assert!(db.front().accepted() > made, "{case}: the dead connection is not used");
        death.comes(&db).await;
        if round % 2 == 1 {
            stop_for(&env, Duration::from_millis(300)).await;
        }
        env.wait_for_log(Role::Runtime, &releasing).await.unwrap();
        death.comes(&db).await;
        std::fs::write(env.tmp().join(&go), "").unwrap();
        let answer = call.over().await.outcome.json();
        let waited = granted(&answer[0])["waited_ms"].as_u64().map(Duration::from_millis).unwrap();
        assert!(waited < WAIT + ATTEMPT, "{case}: {waited:?}");
        assert!(answer[1]["ok"]["valid_ms"].is_u64(), "{case}: {answer}");
        assert!(answer[2]["ok"]["renewals"].as_u64() >= Some(1), "{case}: {answer}");
        assert!(answer[3]["ok"]["metrics"].is_object(), "{case}: {answer}");
        assert_eq!(db.item(&key), None, "{case}");
        let log = env.log_text(Role::Runtime);
        let released = last_word(&log, "told") - last_word(&log, "asked");
        assert!(released < RELEASE, "{case}: {released:?}");
        worst = Worst { acquire: worst.acquire.max(waited), release: worst.release.max(released) };
    }
    worst
}

/// Stops both processes for a part of the lease.
async fn stop_for(env: &Sandbox, time: Duration) {
    for (signal, pause) in [(Signal::STOP, time), (Signal::CONT, Duration::ZERO)] {
        for role in [Role::Extension, Role::Runtime] {
            env.signal(role, signal).unwrap();
        }
        tokio::time::sleep(pause).await;
    }
}

#[tokio::test]
async fn with_connections_that_died_every_acquire_renewal_and_release_succeeds_within_its_budget_20_of_20() {
    let (a, b, c, d) =
        tokio::join!(rounds(Death::Closed), rounds(Death::BlackHole), rounds(Death::Closed), rounds(Death::BlackHole));
    for (how, one, other) in [("closed", a, c), ("black-holed", b, d)] {
        let rounds = 2 * ROUNDS;
        let (acquire, release) = (one.acquire.max(other.acquire), one.release.max(other.release));
        let told = format!("{rounds} of {rounds}; at most {} ms and {} ms", acquire.as_millis(), release.as_millis());
        figure(ROW, &format!("{how} connections: acquired, renewed and released; slowest acquire and release"), told);
    }
}
