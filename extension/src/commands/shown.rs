//! Rows as people and scripts see them.

use crate::store::{Item, Note, Text, row};
use leasekeeper_core::{Row, Seen};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// A lock row, with what it says of its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockRow {
    pub(super) row: Row<Text>,
    pub(super) note: Note,
}

/// What stands under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Nothing,
    Lock(LockRow),
    /// No row of lock protocol version 1, and why.
    Foreign(String),
}

impl Standing {
    pub(super) fn of(item: Option<&Item>) -> Self {
        match (row::seen(item), item) {
            (Seen::Row(row), Some(item)) => Self::Lock(LockRow { row, note: row::note(item) }),
            (Seen::Foreign(why), _) => Self::Foreign(why),
            _ => Self::Nothing,
        }
    }
}

impl LockRow {
    pub(super) fn lease(&self) -> Duration {
        Duration::from_millis(self.row.lease_ms)
    }

    /// What the row says of its holder, by its attributes' names.
    fn notes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Note { function, request_id, log_stream, host, acquired_at } = &self.note;
        let all = [
            ("function", function),
            ("request_id", request_id),
            ("log_stream", log_stream),
            ("host", host),
            ("acquired_at", acquired_at),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// One line for each attribute.
    pub(super) fn lines(&self) -> String {
        let lease = seconds(self.lease());
        let own = [("owner", &*self.row.owner), ("version", &*self.row.version), ("lease", lease.as_str())];
        own.into_iter().chain(self.notes()).fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "  {:<11}  {}", name.replace('_', " "), printable(value));
            text
        })
    }

    /// Who holds it, in one line; empty where the row does not say.
    pub(super) fn holder(&self) -> String {
        let words = self.notes().filter(|(name, _)| *name != "log_stream");
        let words: Vec<String> = words
            .map(|(name, value)| match name {
                "request_id" => format!("request {}", printable(value)),
                "acquired_at" => format!("since {}", printable(value)),
                _ => printable(value).into_owned(),
            })
            .collect();
        words.join(", ")
    }

    pub(super) fn json(&self) -> Map<String, Value> {
        let Row { owner, version, lease_ms } = &self.row;
        let own = [("owner", (&**owner).into()), ("version", (&**version).into()), ("lease_ms", (*lease_ms).into())];
        let notes = self.notes().map(|(name, value)| (name, Value::from(value)));
        own.into_iter().chain(notes).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// A row's text may come from anybody: on a terminal its control characters must do nothing.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) { Cow::Owned(text.escape_debug().to_string()) } else { Cow::Borrowed(text) }
}

/// A duration as people read it: to a tenth of a second where it is short of ten seconds.
pub(super) fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_millis() {
        ms if ms < 10_000 && ms % 1_000 != 0 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_nothing_on_a_terminal() {
        assert_eq!(printable("customer:é 1"), "customer:é 1");
        assert_eq!(printable("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
    }

    #[test]
    fn durations_are_as_exact_as_they_are_long() {
        for (ms, shown) in [(0, "0 s"), (90, "0.1 s"), (2_000, "2 s"), (6_660, "6.7 s"), (20_400, "20 s")] {
            assert_eq!(seconds(Duration::from_millis(ms)), shown);
        }
    }
}
