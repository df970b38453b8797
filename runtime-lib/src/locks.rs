//! Where locks come from.

use crate::Acquire;
use crate::key::IntoKey;
use crate::settings::Settings;
use std::path::PathBuf;
use std::sync::Arc;

/// The way to the extension. Cheap to clone; opens a connection for each lock and none before.
#[derive(Clone, Debug)]
pub struct Locks {
    settings: Arc<Settings>,
}

impl Locks {
    /// Reads `LEASEKEEPER_SOCKET` (default `/tmp/leasekeeper/lock.sock`), `LEASEKEEPER_STRICT_RELEASE` (default false),
    /// `LEASEKEEPER_WAIT_MS` and `LEASEKEEPER_LEASE_MS`; for the last two see [`Acquire::wait`].
    ///
    /// Never fails: a wrong value is reported when a lock is asked for, as
    /// [`LockError::Config`](crate::LockError::Config) that names the variable.
    pub fn from_env() -> Self {
        Self { settings: Arc::new(Settings::read(|name| std::env::var_os(name))) }
    }

    /// Speaks to the extension at this socket and reads nothing of the environment.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { settings: Arc::new(Settings::at(socket.into())) }
    }

    /// Asks for a lock: `locks.acquire("customer:123").context(&event.context).await`.
    pub fn acquire(&self, key: impl IntoKey) -> Acquire {
        Acquire::new(&self.settings, key)
    }

    /// Asks for a lock once, without waiting: [`LockError::Busy`](crate::LockError::Busy) if someone else holds it.
    pub fn try_acquire(&self, key: impl IntoKey) -> Acquire {
        self.acquire(key).try_once()
    }

    /// Wraps a handler so that it runs under the lock that `key` names.
    ///
    /// `key` gives a [`Key`](crate::Key), a text, or a `Result` of one; the [`key!`](crate::key!) macro makes it from a
    /// template. `handler` gets the event and a [`Lease`](crate::Lease), and may be a closure that owns state. Its future
    /// is called once for each invocation and never retried. The result goes to `lambda_runtime::run` or `run_concurrent`.
    #[cfg(feature = "lambda")]
    pub fn locked_handler<Q, K, L, H, Fut, R, B, S, E>(&self, key: K, handler: H) -> crate::LockedHandler<K, H, R, B, S>
    where
        Q: crate::Invocation,
        K: Fn(&Q) -> L,
        L: IntoKey,
        H: Fn(Q, crate::Lease) -> Fut,
        Fut: Future<Output = Result<R, E>>,
        R: lambda_runtime::IntoFunctionResponse<B, S>,
        E: Into<lambda_runtime::Diagnostic> + std::fmt::Debug + 'static,
    {
        crate::LockedHandler::new(&self.settings, key, handler)
    }
    /// A `tower::Layer` that takes the lock that `key` names around each call of the service below it.
    ///
    /// `key` is as in [`Locks::locked_handler`], for a `lambda_runtime::LambdaEvent` or, with the feature `http`, for a
    /// `lambda_http::Request`.
    #[cfg(feature = "lambda")]
    pub fn layer<Q, K, L>(&self, key: K) -> crate::LockLayer<K>
    where
        Q: crate::Invocation,
        K: Fn(&Q) -> L,
        L: IntoKey,
    {
        crate::LockLayer::new(&self.settings, key)
    }
}
