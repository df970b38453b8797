//! The emulator: dynoxide in memory, on a thread and a runtime of its own.

use dynoxide::Database;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A running emulator. SQLite works on the thread that asks it, so that thread is nobody else's.
pub(super) struct Emulator {
    database: Database,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    pub(super) fn start() -> Self {
        let database = Database::memory().expect("a database in memory opens");
        let listener = listen();
        let address = listener.local_addr().expect("a bound listener has an address");
        let (stop, stopped) = oneshot::channel();
        let served = database.clone();
        let thread = std::thread::Builder::new()
            .name("dynoxide".to_owned())
            .spawn(move || {
                serve(async move {
                    let listener = tokio::net::TcpListener::from_std(listener).expect("the listener is non-blocking");
                    tokio::select! {
                        () = dynoxide::server::serve_on(listener, served) => {}
                        // An error is the emulator dropped without a word: end too.
                        _ = stopped => {}
                    }
                });
            })
            .expect("a thread starts");
        Self { database, address, stop: Some(stop), thread: Some(thread) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn create_table(&self, name: &str, key: &str, kind: &str, range: Option<&str>) {
        let mut schema = vec![json!({"AttributeName": key, "KeyType": "HASH"})];
        let mut attributes = vec![json!({"AttributeName": key, "AttributeType": kind})];
        if let Some(range) = range {
            schema.push(json!({"AttributeName": range, "KeyType": "RANGE"}));
            attributes.push(json!({"AttributeName": range, "AttributeType": "S"}));
        }
        let request = json!({
            "TableName": name,
            "KeySchema": schema,
            "AttributeDefinitions": attributes,
            "BillingMode": "PAY_PER_REQUEST",
        });
        self.database.create_table(request_of(request)).expect("the table is new and valid");
    }

    pub(super) fn item(&self, table: &str, key: &str) -> Option<Value> {
        let request = json!({"TableName": table, "Key": {"key": {"S": key}}, "ConsistentRead": true});
        let found = self.database.get_item(request_of(request)).expect("the table can be read");
        let mut found = serde_json::to_value(found).expect("a reply is JSON");
        found.get_mut("Item").map(Value::take)
    }

    pub(super) fn put(&self, table: &str, item: Value) {
        let request = json!({"TableName": table, "Item": item});
        self.database.put_item(request_of(request)).expect("the item is valid");
    }

    pub(super) fn delete(&self, table: &str, key: &str) {
        let request = json!({"TableName": table, "Key": {"key": {"S": key}}});
        self.database.delete_item(request_of(request)).expect("the table can be written");
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; a second one here would hide the test's own.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulator").field("address", &self.address).finish_non_exhaustive()
    }
}

fn request_of<R: DeserializeOwned>(request: Value) -> R {
    serde_json::from_value(request).expect("the request is well-formed")
}

/// A listener on a free loopback port, ready for a runtime.
pub(super) fn listen() -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on the loopback interface");
    listener.set_nonblocking(true).expect("a socket can be non-blocking");
    listener
}

/// Runs `server` on a runtime of this thread; what it has spawned ends with it.
pub(super) fn serve(server: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(server);
}
