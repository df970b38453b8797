//! A held lock: the guard that gives it back, and the lease that tells how it stands.

use crate::LockError;
use crate::connection::{Connection, Owned};
use crate::key::Key;
use crate::state::Phase;
use leasekeeper_wire::{Granted, LostReason, Metrics};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Owns a held lock. [`Guard::release`] gives it back and waits for the confirmation; dropping the guard only starts it.
///
/// Dropping it closes the connection to the extension, which then gives the row back on its own. Everything that
/// [`Lease`] tells can be asked of the guard too.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct Guard {
    owned: Owned,
    lease: Lease,
}

impl Guard {
    pub(crate) fn new(owned: Owned, key: Key, granted: Granted) -> Self {
        let lease = Lease { connection: owned.0.clone(), row: Arc::new(Row { key, granted }) };
        Self { owned, lease }
    }

    /// A handle that can be cloned and outlive the guard; it does not keep the lock.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Gives the lock back: at most min(1 s, what remains of the invocation − 200 ms), outside an invocation 11 s.
    ///
    /// Dropping the future before it resolves gives the lock back as dropping the guard does.
    ///
    /// # Errors
    /// [`LockError::ReleaseUnconfirmed`] if DynamoDB has not confirmed it by then; the extension goes on trying.
    /// [`LockError::Lost`] if the lease was over before.
    pub async fn release(self) -> Result<(), LockError> {
        self.owned.0.release().await
    }

    /// The same, blocking this thread; done at once where the lock is not held any more.
    #[cfg(feature = "lambda")]
    pub(crate) fn release_blocking(&self) {
        self.owned.0.release_blocking();
    }
}

impl Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.describe(f, "Guard")
    }
}

/// Tells how a lock stands. Clones are handles to the same lease, and none of them keeps it: the guard does.
#[derive(Clone)]
pub struct Lease {
    connection: Arc<Connection>,
    row: Arc<Row>,
}

struct Row {
    key: Key,
    granted: Granted,
}

impl Lease {
    /// Asks the extension whether the lease is valid, and for how long from now at least. Sends nothing to DynamoDB.
    ///
    /// This is the question to ask before an effect. Between the answer and the effect a process can still be paused:
    /// an effect that must not happen after a takeover needs `condition_check` in the same transaction.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it is over, [`LockError::Protocol`] if it was given back, [`LockError::Unavailable`] if the
    /// extension does not answer within 3 s or what remains of the invocation.
    pub async fn check(&self) -> Result<Duration, LockError> {
        self.connection.check().await
    }

    /// Waits until the lease is lost; never resolves if it is given back, so await it beside the work it guards.
    pub async fn lost(&self) -> LostReason {
        self.connection.lost().await
    }

    /// Is the lease known to be lost? Looks at what the extension has said up to now.
    pub fn is_lost(&self) -> bool {
        matches!(self.connection.phase(), Phase::Lost(_))
    }

    /// How long the lease is valid without another renewal, at least: zero when it was lost or given back, or when the extension is gone.
    ///
    /// A lower bound from the last answer that was read. It is kept fresh while the async runtime runs; after a long
    /// computation that blocked the runtime it can be zero though the extension has renewed the lease: then [`Lease::check`].
    pub fn remaining(&self) -> Duration {
        self.connection.remaining()
    }

    /// The row's owner, which a transaction's condition compares.
    pub fn owner(&self) -> &str {
        &self.row.granted.owner
    }

    /// The lock's key.
    pub fn key(&self) -> &str {
        self.row.key.as_str()
    }

    /// The lock table's name.
    pub fn table(&self) -> &str {
        &self.row.granted.table
    }

    /// The fencing token; `None` without fencing.
    pub fn token(&self) -> Option<u64> {
        self.row.granted.token
    }

    /// How long the acquire took.
    pub fn waited(&self) -> Duration {
        Duration::from_millis(self.row.granted.waited_ms)
    }

    /// The lease's figures up to now, also after it was lost; once they cannot be asked for any more, the last that the
    /// extension told.
    ///
    /// # Errors
    /// Why there was no answer while the lease is held: [`LockError::Unavailable`] if none came in time.
    pub async fn metrics(&self) -> Result<Metrics, LockError> {
        self.connection.metrics().await
    }

    /// Gives the lock back before its guard does; every clone is over then. Dropping the future takes nothing back.
    ///
    /// # Errors
    /// As [`Guard::release`]; [`LockError::ReleaseUnconfirmed`] too once the guard was dropped, since nothing confirms that.
    pub async fn release(&self) -> Result<(), LockError> {
        self.connection.release().await
    }

    /// A check of the ownership to put into your own DynamoDB transaction: the transaction is refused once the lock was
    /// given back or taken over. No clock is involved.
    #[cfg(feature = "aws-sdk-dynamodb")]
    pub fn condition_check(&self) -> aws_sdk_dynamodb::types::TransactWriteItem {
        use aws_sdk_dynamodb::types::{
            AttributeValue, ConditionCheck, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
        };
        let check = ConditionCheck::builder()
            .table_name(self.table())
            .key("key", AttributeValue::S(self.key().to_owned()))
            .condition_expression("#owner = :mine")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":mine", AttributeValue::S(self.owner().to_owned()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .expect("every required field is set above");
        TransactWriteItem::builder().condition_check(check).build()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f, "Lease")
    }
}

impl Lease {
    /// Neither the key nor the connection's bytes, which can have it: keys are often customers' ids.
    fn describe(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        f.debug_struct(name)
            .field("key", &self.row.key)
            .field("owner", &self.owner())
            .field("table", &self.table())
            .field("phase", &self.connection.last_phase())
            .finish()
    }
}
