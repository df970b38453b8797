//! The SDK's HTTP client: a pool that can be dropped, and what became of one request in it.

use aws_smithy_http_client::{Builder, Connector, tls};
use aws_smithy_runtime_api::client::connection::CaptureSmithyConnection;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::task::Poll;
use std::time::Duration;

/// Shorter than what the service keeps an idle connection for; a held lease uses one far more often.
const IDLE: Duration = Duration::from_secs(30);
/// More than one burst of waiters needs; the process has 1,024 descriptors in all.
const MAX_IDLE: usize = 16;

/// One pool of connections, replaced as a whole when they may be dead.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    pool: Arc<RwLock<SharedHttpClient>>,
}

impl Connections {
    /// Cheap: nothing is read or connected yet.
    pub(super) fn new() -> Self {
        Self { pool: Arc::new(RwLock::new(pool())) }
    }

    /// Requests under way end on the connections that they have; all later ones make their own.
    pub(super) fn drop_all(&self) {
        *self.pool.write().unwrap_or_else(PoisonError::into_inner) = pool();
    }
}

fn pool() -> SharedHttpClient {
    Builder::new().pool_idle_timeout(IDLE).pool_max_idle_per_host(MAX_IDLE).tls_provider(provider()).build_https()
}

fn provider() -> tls::Provider {
    tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring)
}

/// Reads the system's root certificates, once for the process and for all pools: milliseconds of file access.
pub(super) fn read_certificates() {
    drop(Connector::builder().tls_provider(provider()).build());
}

impl HttpClient for Connections {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let pool = self.pool.read().unwrap_or_else(PoisonError::into_inner).clone();
        SharedHttpConnector::new(Watched { connector: pool.http_connector(settings, components) })
    }
}

/// What became of one request below the SDK. Travels with it as an extension.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempt {
    /// The pool had an open connection for it.
    pooled: Arc<AtomicBool>,
    /// Knows the connection from the moment the request is handed to it.
    connection: Arc<OnceLock<CaptureSmithyConnection>>,
}

impl Attempt {
    /// Did it find an open connection, so that none has to be made?
    pub(super) fn pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    /// Did it get as far as asking for a connection? Before that the SDK loads settings and credentials.
    pub(super) fn dispatched(&self) -> bool {
        self.connection.get().is_some()
    }

    /// Was it handed to a connection? If not, the store can never have seen it, nor will it after its future is dropped.
    pub(super) fn sent(&self) -> bool {
        self.connection.get().is_some_and(|connection| connection.get().is_some())
    }
}

/// Tells an [`Attempt`] how its request fares. Requests without one, such as those for credentials, pass as they are.
#[derive(Debug)]
struct Watched {
    connector: SharedHttpConnector,
}

impl HttpConnector for Watched {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let Some(attempt) = request.extension::<Attempt>().cloned() else {
            return self.connector.call(request);
        };
        // The SDK's own, if it follows the connection too: it does not use one again that brought a transient error.
        let connection = request.extension::<CaptureSmithyConnection>().cloned().unwrap_or_else(|| {
            let connection = CaptureSmithyConnection::new();
            request.add_extension(connection.clone());
            connection
        });
        attempt.connection.get_or_init(|| connection);
        let mut call = self.connector.call(request);
        HttpConnectorFuture::new(async move {
            // The pool hands out an idle connection at the first poll or not at all.
            let first = poll_fn(|context| Poll::Ready(Pin::new(&mut call).poll(context))).await;
            attempt.pooled.store(attempt.sent(), Ordering::Relaxed);
            match first {
                Poll::Ready(answer) => answer,
                Poll::Pending => call.await,
            }
        })
    }
}
