//! `inspect`: who holds a lock, and does its row change as a living holder's does?

use super::problem::{Kind, Problem};
use super::shown::{LockRow, Standing, printable, seconds};
use super::table::Table;
use super::{note, say};
use crate::clock;
use leasekeeper_core::Now;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// Between two looks: a twentieth of the lease, within these.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What watching has told.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It changed under one owner: the holder lives.
    Renewed(LockRow),
    /// It has another owner now.
    HandedOver(LockRow),
    /// It is gone.
    GivenBack,
    /// It stayed the same for its whole lease.
    Abandoned,
    /// It stayed the same for as long as was watched.
    Unverified,
}

/// Shows the row under `key` and watches it for `watch`, or for its whole lease.
pub(super) async fn perform(table: &Table, key: &str, watch: Option<Duration>, json: bool) -> Result<(), Problem> {
    let place = format!("{} in table {}", printable(key), table.name());
    let row = match table.standing(key).await? {
        Standing::Nothing => {
            match json {
                true => say_json(key, table, "free", None, Duration::ZERO),
                false => say(&format!("{place}: free, there is no row\n")),
            }
            return Ok(());
        }
        Standing::Foreign(why) => return Err(foreign(&place, &why)),
        Standing::Lock(row) => row,
    };
    let watch = watch.unwrap_or(row.lease());
    if !json {
        say(&format!("{place}:\n{}", row.lines()));
        if !watch.is_zero() {
            note(&format!("watching it for up to {} (--for MS)", seconds(watch)));
        }
    }
    let (verdict, observed) = observe(table, key, &row, watch).await?;
    if json {
        let (state, last) = match &verdict {
            Verdict::Renewed(row) | Verdict::HandedOver(row) => ("held", Some(row)),
            Verdict::GivenBack => ("free", None),
            Verdict::Abandoned => ("abandoned", Some(&row)),
            Verdict::Unverified => ("unverified", Some(&row)),
        };
        say_json(key, table, state, last, observed);
    } else {
        say(&sentence(&verdict, &row, observed));
    }
    Ok(())
}

/// The key holds something else: nothing here touches it.
pub(super) fn foreign(place: &str, why: &str) -> Problem {
    let text = format!(
        "{place}: this is no lock row of protocol version 1 ({why}); another library or program wrote it, so it is left alone"
    );
    Problem::new(Kind::Row, text)
}

async fn observe(table: &Table, key: &str, first: &LockRow, watch: Duration) -> Result<(Verdict, Duration), Problem> {
    // From the first answer on: the row may have changed before it was read, but not since.
    let since = clock::now();
    let lease = first.lease();
    let pause = (lease / 20).clamp(PAUSE.0, PAUSE.1);
    let mut unchanged = Duration::ZERO;
    while unchanged < watch && unchanged < lease {
        sleep(pause.min(watch.min(lease) - unchanged)).await;
        // Before the request: what it shows was still so then.
        let sent = passed(since, clock::now());
        let standing = table.standing(key).await?;
        let verdict = match standing {
            Standing::Lock(row) if row.row == first.row => {
                unchanged = sent;
                continue;
            }
            Standing::Lock(row) if row.row.owner == first.row.owner => Verdict::Renewed(row),
            Standing::Lock(row) => Verdict::HandedOver(row),
            Standing::Nothing => Verdict::GivenBack,
            Standing::Foreign(why) => return Err(foreign(key, &why)),
        };
        return Ok((verdict, passed(since, clock::now())));
    }
    Ok((if unchanged >= lease { Verdict::Abandoned } else { Verdict::Unverified }, unchanged))
}

/// As a contender counts: by the slower of the two clocks that never step.
fn passed(since: Now, now: Now) -> Duration {
    let boot = now.boot.saturating_sub(since.boot);
    Duration::from_micros(boot.min(now.mono.saturating_sub(since.mono)))
}

fn sentence(verdict: &Verdict, first: &LockRow, observed: Duration) -> String {
    let (after, lease) = (seconds(observed), seconds(first.lease()));
    match verdict {
        Verdict::Renewed(row) => format!(
            "held: it was renewed within {after}, so its holder is alive; its version is now {}\n",
            printable(&row.row.version)
        ),
        Verdict::HandedOver(row) => format!("held: within {after} it went to another owner:\n{}", row.lines()),
        Verdict::GivenBack => format!("free: within {after} its holder gave it back\n"),
        Verdict::Abandoned => format!(
            "abandoned: unchanged for its whole lease of {lease}, so its holder is dead or cut off; whoever waits for the lock takes it over, and nothing needs to be done\n"
        ),
        Verdict::Unverified => format!(
            "unverified: unchanged for {after} of its lease of {lease}, which a living holder's row may be too; only --for {} tells\n",
            first.row.lease_ms
        ),
    }
}

fn say_json(key: &str, table: &Table, state: &str, row: Option<&LockRow>, observed: Duration) {
    let row = row.map_or(Value::Null, |row| row.json().into());
    let observed_ms = u64::try_from(observed.as_millis()).unwrap_or(u64::MAX);
    let answer = json!({"table": table.name(), "key": key, "state": state, "observed_ms": observed_ms, "row": row});
    say(&format!("{answer}\n"));
}
