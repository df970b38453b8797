//! `break`: deletes a lock row if it is still the one that was looked at.

use super::inspect::foreign;
use super::problem::{Kind, Problem};
use super::say;
use super::shown::{LockRow, Standing, printable, seconds};
use super::table::{Deleted, Table};
use serde_json::json;

/// Deletes the row under `key` if it has this version, and says what follows.
pub(super) async fn perform(table: &Table, key: &str, version: &str, json: bool) -> Result<(), Problem> {
    let place = format!("{} in table {}", printable(key), table.name());
    let row = named(table.standing(key).await?, version, &place)?;
    match table.delete(key, &row.row).await? {
        Deleted::Done => {}
        Deleted::Refused(standing) => {
            // It changed between the two requests; should it show the same version after all, nothing was deleted either.
            named(standing, version, &place)?;
            return Err(Problem::new(
                Kind::Row,
                format!("{place}: its row has just changed hands: nothing was deleted"),
            ));
        }
    }
    let lease = row.lease();
    // A holder renews every third of its lease, and believes for nine tenths of it after the last renewal.
    let (told, believes) = (lease / 3, lease * 9 / 10);
    let text = if json {
        let mut answer = row.json();
        answer.extend([
            ("table".into(), table.name().into()),
            ("key".into(), key.into()),
            ("broken".into(), true.into()),
            ("told_within_ms".into(), json!(told.as_millis() as u64)),
            ("believes_at_most_ms".into(), json!(believes.as_millis() as u64)),
        ]);
        format!("{}\n", serde_json::Value::from(answer))
    } else {
        format!(
            "{place}: the row is deleted, the lock is free\n\
             If its holder lives, its next renewal tells it that the lock is lost (`deleted`, or `stolen` if somebody else has it\n\
             by then): within {} as a rule. Until then it may still believe that it holds the lock, for {} at most: whoever acquires\n\
             it now may work beside the old holder.\n",
            seconds(told),
            seconds(believes)
        )
    };
    say(&text);
    Ok(())
}

/// The lock row with this version, or why there is none to break.
fn named(standing: Standing, version: &str, place: &str) -> Result<LockRow, Problem> {
    let row = match standing {
        Standing::Lock(row) => row,
        Standing::Foreign(why) => return Err(foreign(place, &why)),
        Standing::Nothing => {
            let text = format!(
                "{place}: there is no row, so there is nothing to break: the lock is free, or the key is mistyped"
            );
            return Err(Problem::new(Kind::Row, text));
        }
    };
    if *row.row.version == *version {
        return Ok(row);
    }
    let text = format!(
        "{place}: nothing was deleted, as its version is not {} but {}: it was renewed, or has another owner; inspect it again",
        printable(version),
        printable(&row.row.version)
    );
    Err(Problem::new(Kind::Row, text))
}
