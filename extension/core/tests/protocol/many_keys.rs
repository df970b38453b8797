//! What one step costs when many keys are waited for: no more than a few looks at each of them.

use leasekeeper_core::{Acquire, Answer, Config, Core, Entropy, Input, Now, Output, Row, Seen};
use std::cell::Cell;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

thread_local! {
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

/// A number that counts how often any two are compared.
#[derive(Clone, Debug)]
struct Counted(u64);

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARED.set(COMPARED.get() + 1);
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Counted {}

struct Ids(u64);

impl Entropy<Counted> for Ids {
    fn id(&mut self) -> Counted {
        self.0 += 1;
        Counted(self.0)
    }

    fn jitter(&mut self) -> u64 {
        500
    }
}

/// Comparisons that one tick and the question for the next one take, with so many keys that one waiter each waits for.
fn compared_in_a_step(keys: u64) -> u64 {
    let mut core = Core::new(Config::default());
    let mut ids = Ids(1_000_000);
    let now = Now { boot: 1, mono: 1, wall: 1 };
    for key in 0..keys {
        let ask = Acquire {
            lease: key + 1,
            key: Counted(key),
            lease_ms: 20_000,
            wait: 60_000_000,
            scope: None,
            remaining: None,
            max_hold: None,
        };
        core.handle(now, Input::Acquire(ask), &mut ids);
        let Some(Output::Send(put)) = core.poll() else { panic!("a Put is sent") };
        let other = Row { owner: Counted(500_000), version: Counted(key), lease_ms: 20_000 };
        core.handle(now, Input::Answer(put.no, Answer::Failed(Seen::Row(other))), &mut ids);
    }
    COMPARED.set(0);
    core.handle(now, Input::Tick, &mut ids);
    core.next_wakeup().expect("the waiters poll");
    COMPARED.get()
}

#[test]
fn a_step_looks_at_each_key_a_few_times_however_many_there_are() {
    let (few, many) = (compared_in_a_step(50), compared_in_a_step(500));
    assert!(few > 0);
    // Ten times as many keys; a search among them has three or four comparisons more.
    assert!(many < 20 * few, "{few} comparisons with 50 keys, {many} with 500");
}
