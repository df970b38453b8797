//! `list`: every lock row of the table.

use super::problem::Problem;
use super::say;
use super::shown::{LockRow, Standing, printable, seconds};
use super::table::Table;
use serde_json::{Value, json};

/// What the whole table holds.
#[derive(Default)]
struct Found {
    locks: Vec<(String, LockRow)>,
    others: u64,
    read_units: f64,
}

/// Lists the lock rows whose keys begin with `prefix`.
pub(super) async fn perform(table: &Table, prefix: &str, json: bool) -> Result<(), Problem> {
    let mut found = read_all(table, prefix).await?;
    found.locks.sort_by(|(one, _), (other, _)| one.cmp(other));
    say(&if json { as_json(table, found) } else { as_text(&found) });
    Ok(())
}

async fn read_all(table: &Table, prefix: &str) -> Result<Found, Problem> {
    let mut found = Found::default();
    let mut after = None;
    loop {
        let page = table.page(after).await?;
        found.read_units += page.consumed_capacity.and_then(|capacity| capacity.capacity_units).unwrap_or_default();
        for item in page.items.unwrap_or_default() {
            let key = item.get("key").and_then(|key| key.as_s().ok()).cloned();
            match (key, Standing::of(Some(&item))) {
                (Some(key), Standing::Lock(row)) if key.starts_with(prefix) => found.locks.push((key, row)),
                (Some(_), Standing::Lock(_)) => {}
                _ => found.others += 1,
            }
        }
        after = page.last_evaluated_key.filter(|last| !last.is_empty());
        if after.is_none() {
            return Ok(found);
        }
    }
}

fn as_json(table: &Table, found: Found) -> String {
    let locks = found.locks.into_iter().map(|(key, row)| {
        let mut lock = row.json();
        lock.insert("key".into(), key.into());
        Value::from(lock)
    });
    let locks: Vec<Value> = locks.collect();
    format!("{}\n", json!({"table": table.name(), "locks": locks, "others": found.others}))
}

fn as_text(found: &Found) -> String {
    let mut text = String::new();
    let mut rows = vec![["KEY", "LEASE", "VERSION", "HOLDER"].map(str::to_owned)];
    rows.extend(found.locks.iter().map(|(key, row)| {
        [printable(key).into_owned(), seconds(row.lease()), printable(&row.row.version).into_owned(), row.holder()]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    for [key, lease, version, holder] in rows.iter().filter(|_| !found.locks.is_empty()) {
        let line = format!("{key:<0$}  {lease:>1$}  {version:<2$}  {holder}", widths[0], widths[1], widths[2]);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let locks = match found.locks.len() {
        0 => "no lock rows".to_owned(),
        1 => "1 lock row".to_owned(),
        many => format!("{many} lock rows"),
    };
    let others = match found.others {
        0 => String::new(),
        others => format!(", {others} that are none and are left out"),
    };
    text.push_str(&format!("{locks}{others}; it took {} read units\n", found.read_units));
    text
}
