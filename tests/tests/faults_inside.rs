//! The two numbered faults that need thousands of keys or a clock that steps: shown in this process.

use leasekeeper_core::{Acquire, Answer, Config, Core, Entropy, Input, Now, Op, Output};
use leasekeeper_extension::driver::{self, Command, Surroundings};
use leasekeeper_extension::outbox::{Outgoing, outbox};
use leasekeeper_extension::settings::Settings;
use leasekeeper_extension::store::MemoryStore;
use leasekeeper_wire as wire;
use serde_json::Value;
use std::time::Duration;
use testkit::dynamo::attributes::of_json;
use testkit::dynamo::row;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::sleep;

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
    sleep(Duration::from_millis(LEASE_MS)).await;
    // Those that are remembered have been seen unchanged for their lease; the others are looked at for the first time.
    for n in [MORE, MORE + 1, LIMIT / 2, LIMIT + MORE - 1] {
        assert!(client.had(&key(n)).await, "{n} was forgotten");
    }
    for n in [0, MORE - 1] {
        assert!(!client.had(&key(n)).await, "{n} cannot be remembered");
    }
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
