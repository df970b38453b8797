//! The store in this process's memory: the same rows, conditions and answers as DynamoDB, no network.

use super::row::{self, Item};
use super::{Note, Request, Response, Store, Text};
use aws_sdk_dynamodb::types::AttributeValue;
use leasekeeper_core::Op;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a consistent read of a row costs: one unit for each 4 KiB that are begun.
const READ_UNITS: f64 = 1.0;
/// What a committed write of a row costs: one unit for each KiB that is begun.
const WRITE_UNITS: f64 = 1.0;

/// Rows in memory, shared by clones. Capacity is reported as DynamoDB does for a row below 1 KiB.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    items: Arc<Mutex<HashMap<Text, Item>>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// What stands under `key`, as it is.
    pub fn item(&self, key: &str) -> Option<Item> {
        self.items().get(key).cloned()
    }

    /// Stores `item` under `key` without any condition, as nobody but a test does.
    pub fn put(&self, key: &str, item: Item) {
        self.items().insert(Text::from(key), item);
    }

    fn items(&self) -> MutexGuard<'_, HashMap<Text, Item>> {
        // No step below leaves the map half changed.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, key: &Text, op: &Op<Text>, note: &Note) -> Response {
        let mut items = self.items();
        let old = items.get(key);
        let (holds, new) = match op {
            Op::Read => return Response::found(old, READ_UNITS),
            Op::Create { row } => (old.is_none(), Some(row::item(key, row, note))),
            Op::Replace { row, owner, version } => {
                (has(old, "owner", owner) && has(old, "version", version), Some(row::item(key, row, note)))
            }
            Op::Renew { owner, last, new } => {
                let renewed = old.cloned().map(|mut item| {
                    item.insert("version".to_owned(), AttributeValue::S(new.to_string()));
                    item
                });
                (has(old, "owner", owner) && has(old, "version", last), renewed)
            }
            Op::Delete { owner } => (has(old, "owner", owner), None),
        };
        if !holds {
            return Response::failed(old);
        }
        match new {
            Some(item) => items.insert(key.clone(), item),
            None => items.remove(key),
        };
        Response::done(WRITE_UNITS)
    }
}

/// Is the attribute this very text? An attribute of another type is equal to none.
fn has(item: Option<&Item>, name: &str, text: &str) -> bool {
    matches!(item.and_then(|item| item.get(name)), Some(AttributeValue::S(stored)) if stored == text)
}

impl Store for MemoryStore {
    async fn send(&self, request: Request) -> Response {
        self.apply(&request.key, &request.op, &request.note)
    }

    fn drop_connections(&self) {}
}
