//! What the extension adds to an invocation that takes no lock.

use crate::sandbox::Sandbox;
use serde_json::json;

const BATCHES: usize = 5;
const ROUNDS: usize = 40;

/// By how much an invocation without a lock is longer in the first environment than in the second: the median, in
/// microseconds, of pairs of invocations made one right after the other, so that whatever else the machine does meets both.
/// Of several batches the one counts in which both were quickest: where all CPUs are busy they measure the scheduler.
///
/// Both environments run `tests/functions/python/runtime.py`.
pub async fn added(with: &Sandbox, without: &Sandbox) -> i128 {
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        let (mut longer, mut both) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let mut took = [0, 0];
            for turn in [round % 2, (round + 1) % 2] {
                let done = [with, without][turn].invoke(json!({"steps": []})).await;
                took[turn] = (done.over - done.delivered).as_micros() as i128;
            }
            longer.push(took[0] - took[1]);
            both.push(took[0] + took[1]);
        }
        batches.push((median(both), median(longer)));
    }
    let (_, longer) = batches.into_iter().min().expect("there are batches");
    longer
}

/// The middle of them.
///
/// # Panics
/// There are none.
pub fn median<T: Ord + Copy>(mut all: Vec<T>) -> T {
    all.sort();
    all[all.len() / 2]
}
