//! A lock row as DynamoDB attributes: what is written, and what is accepted from others.

use super::{Note, Text};
use aws_sdk_dynamodb::types::AttributeValue;
use leasekeeper_core::{Row, Seen};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// A stored item.
pub type Item = HashMap<String, AttributeValue>;

/// The lock protocol's version, as it stands in a row.
const PROTOCOL: &str = "1";
/// What a stored lease may be, in milliseconds.
const LEASE_MS: RangeInclusive<u64> = 100..=86_400_000;

/// The item that stands for `row` under `key`.
pub(super) fn item(key: &str, row: &Row<Text>, note: &Note) -> Item {
    let mut item = Item::from([
        ("key".to_owned(), AttributeValue::S(key.to_owned())),
        ("owner".to_owned(), AttributeValue::S(row.owner.to_string())),
        ("version".to_owned(), AttributeValue::S(row.version.to_string())),
        ("lease_ms".to_owned(), AttributeValue::N(row.lease_ms.to_string())),
        ("protocol".to_owned(), AttributeValue::N(PROTOCOL.to_owned())),
    ]);
    let people = [
        ("function", &note.function),
        ("request_id", &note.request_id),
        ("log_stream", &note.log_stream),
        ("host", &note.host),
        ("acquired_at", &note.acquired_at),
    ];
    for (name, value) in people {
        // An empty text says nothing to anybody.
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            item.insert(name.to_owned(), AttributeValue::S(value.clone()));
        }
    }
    item
}

/// What an item, or its absence, means to the lock protocol. Attributes that the protocol does not know are ignored.
pub(crate) fn seen(item: Option<&Item>) -> Seen<Text> {
    match item.map(row) {
        None => Seen::Nothing,
        Some(Ok(row)) => Seen::Row(row),
        Some(Err(reason)) => Seen::Foreign(reason),
    }
}

/// What an item says of its holder. Attributes that are no text are other people's and are left out.
pub(crate) fn note(item: &Item) -> Note {
    let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned();
    Note {
        function: text("function"),
        request_id: text("request_id"),
        log_stream: text("log_stream"),
        host: text("host"),
        acquired_at: text("acquired_at"),
    }
}

fn row(item: &Item) -> Result<Row<Text>, String> {
    let protocol = number(item, "protocol", "the number 1")?;
    if protocol != PROTOCOL {
        return Err(format!("attribute `protocol` is {protocol}, expected the number 1"));
    }
    let expected = "a whole number of milliseconds from 100 to 86400000";
    let lease = number(item, "lease_ms", expected)?;
    let lease_ms = lease
        .parse()
        .ok()
        .filter(|lease_ms| LEASE_MS.contains(lease_ms))
        .ok_or_else(|| format!("attribute `lease_ms` is {lease}, expected {expected}"))?;
    Ok(Row { owner: text(item, "owner")?, version: text(item, "version")?, lease_ms })
}

fn number<'i>(item: &'i Item, name: &str, expected: &str) -> Result<&'i str, String> {
    match item.get(name) {
        Some(AttributeValue::N(digits)) => Ok(digits),
        other => Err(unfit(name, other, &format!("{expected} (type N)"))),
    }
}

fn text(item: &Item, name: &str) -> Result<Text, String> {
    match item.get(name) {
        Some(AttributeValue::S(text)) if !text.is_empty() => Ok(Text::from(text.as_str())),
        other => Err(unfit(name, other, "a non-empty string (type S)")),
    }
}

/// Names the attribute and what is wrong with it; never a text value, which may be private.
fn unfit(name: &str, value: Option<&AttributeValue>, expected: &str) -> String {
    let found = match value {
        None => "missing",
        Some(AttributeValue::S(text)) if text.is_empty() => "empty",
        Some(AttributeValue::S(_)) => "of type S",
        Some(AttributeValue::N(_)) => "of type N",
        Some(AttributeValue::B(_)) => "of type B",
        Some(AttributeValue::Bool(_)) => "of type BOOL",
        Some(AttributeValue::Null(_)) => "of type NULL",
        Some(_) => "of another type",
    };
    format!("attribute `{name}` is {found}, expected {expected}")
}
