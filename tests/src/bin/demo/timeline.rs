//! Who held a key when, as the store saw it.

use std::collections::BTreeMap;
use std::time::Duration;
use testkit::dynamo::{Operation, Recorded};

/// One hold: from the answer to the write that won to the arrival of the one that gave it back.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) owner: String,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// The holds of one key, in order, from the store's own log.
pub(crate) fn holds(log: &[Recorded]) -> Vec<Hold> {
    let committed = |request: &&Recorded| request.status == Some(200);
    let text =
        |request: &Recorded, path: &str| request.body.pointer(path).and_then(|value| value.as_str()).map(str::to_owned);
    let mut ends = BTreeMap::new();
    for request in log.iter().filter(committed).filter(|request| request.operation == Operation::DeleteItem) {
        if let Some(values) = request.body["ExpressionAttributeValues"].as_object() {
            for owner in values.values().filter_map(|value| value["S"].as_str()) {
                ends.insert(owner.to_owned(), request.at);
            }
        }
    }
    let puts = log.iter().filter(committed).filter(|request| request.operation == Operation::PutItem);
    let mut holds: Vec<Hold> = puts
        .filter_map(|put| {
            let owner = text(put, "/Item/owner/S")?;
            let to = ends.get(&owner).copied()?;
            Some(Hold { owner, from: put.answered?, to })
        })
        .collect();
    holds.sort_by_key(|hold| hold.from);
    holds
}

/// Does every hold end before the next begins?
pub(crate) fn disjoint(holds: &[Hold]) -> bool {
    holds.windows(2).all(|pair| pair[0].to <= pair[1].from)
}

/// Draws the holds on one axis, a row for each name.
pub(crate) fn draw(holds: &[Hold], name: impl Fn(&Hold) -> String, rows: &[&str]) {
    const WIDTH: usize = 72;
    let (Some(first), Some(last)) = (holds.first(), holds.last()) else { return };
    let (start, span) = (first.from, (last.to - first.from).as_secs_f64().max(0.001));
    let column = |at: Duration| ((at - start).as_secs_f64() / span * WIDTH as f64) as usize;
    for row in rows {
        let mut line = vec!['·'; WIDTH];
        for hold in holds.iter().filter(|hold| name(hold) == *row) {
            let (from, to) = (column(hold.from).min(WIDTH - 1), column(hold.to).min(WIDTH));
            line[from..to.max(from + 1)].fill('█');
        }
        println!("   {row:<8}{}", line.into_iter().collect::<String>());
    }
    println!("   {:<8}0 s{:>width$.2} s", "", span, width = WIDTH - 5);
}
