//! The one HTTP client, for DynamoDB, for credentials and for the Extensions API: HTTP/1.1, with or without TLS.
//!
//! The SDK's own client can speak HTTP/2 too, which none of them asks for, and would be an eighth of the binary.

mod attempt;
mod fault;
mod tls;

pub(crate) use attempt::Attempt;
pub(crate) use tls::read_certificates;

use aws_smithy_runtime_api::client::connection::{CaptureSmithyConnection, ConnectionMetadata};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{CaptureConnection, HttpConnector as TcpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use std::future::pending;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Shorter than what the service keeps an idle connection for; a held lease uses one far more often.
const IDLE: Duration = Duration::from_secs(30);
/// More than one burst of waiters needs; the process has 1,024 descriptors in all.
const MAX_IDLE: usize = 16;

/// One pool of connections. It never sends a request twice, but for one that no connection has taken.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    pool: Client<HttpsConnector<TcpConnector>, SdkBody>,
}

impl Http {
    /// An empty pool that trusts the system's root certificates, which the first of them reads: milliseconds of file access.
    pub(crate) fn new() -> Self {
        Self::with(tls::system())
    }

    /// An empty pool for addresses without TLS. Nothing is read.
    pub(crate) fn plain() -> Self {
        Self::with(tls::nobody())
    }

    fn with(tls: ClientConfig) -> Self {
        let mut tcp = TcpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(MAX_IDLE);
        Self { pool: builder.build(connector) }
    }

    /// Sends a request as it is.
    pub(crate) fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.call_within(request, None, None)
    }

    /// `connect` is how long it may take to get a connection, `read` how long the answer on it.
    fn call_within(
        &self,
        request: HttpRequest,
        connect: Option<Duration>,
        read: Option<Duration>,
    ) -> HttpConnectorFuture {
        let mut request = match request.try_into_http1x() {
            Ok(request) => request,
            Err(error) => return HttpConnectorFuture::ready(Err(ConnectorError::user(error.into()))),
        };
        let connection = capture_connection(&mut request);
        if let Some(sdk) = request.extensions().get::<CaptureSmithyConnection>() {
            let connection = connection.clone();
            sdk.set_connection_retriever(move || metadata(&connection));
        }
        let attempt = request.extensions().get::<Attempt>().cloned().unwrap_or_default();
        let answer = attempt.follow(connection.clone(), self.pool.request(request));
        HttpConnectorFuture::new(async move {
            let answer = tokio::select! {
                biased;
                answer = answer => answer.map_err(fault::sort)?,
                () = too_long(connection, connect, read) => return Err(ConnectorError::timeout("no answer in time".into())),
            };
            let answer = answer.map(SdkBody::from_body_1_x);
            HttpResponse::try_from(answer).map_err(|error| ConnectorError::other(error.into(), None))
        })
    }

    /// As the SDK wants it, with its time-outs.
    pub(crate) fn connector(&self, settings: &HttpConnectorSettings) -> SharedHttpConnector {
        SharedHttpConnector::new(Within {
            http: self.clone(),
            connect: settings.connect_timeout(),
            read: settings.read_timeout(),
        })
    }
}

#[derive(Debug)]
struct Within {
    http: Http,
    connect: Option<Duration>,
    read: Option<Duration>,
}

impl HttpConnector for Within {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.http.call_within(request, self.connect, self.read)
    }
}

/// Returns when the connection, or then the answer, has taken too long.
async fn too_long(mut connection: CaptureConnection, connect: Option<Duration>, read: Option<Duration>) {
    let connected = connection.wait_for_connection_metadata();
    match connect {
        Some(limit) => {
            if timeout(limit, connected).await.is_err() {
                return;
            }
        }
        None => drop(connected.await),
    }
    match read {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// What the SDK wants of a connection: to close it after a fault.
fn metadata(connection: &CaptureConnection) -> Option<ConnectionMetadata> {
    let proxied = connection.connection_metadata().as_ref()?.is_proxied();
    let connection = connection.clone();
    let close = move || {
        if let Some(connected) = connection.connection_metadata().as_ref() {
            connected.poison();
        }
    };
    Some(ConnectionMetadata::builder().proxied(proxied).poison_fn(close).build())
}
