//! The SDK's way to a pool of connections that can be dropped.

use crate::http::Http;
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// One pool of connections, replaced as a whole when they may be dead.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections {
    /// Made with the first request: it reads certificates.
    pool: Arc<RwLock<OnceLock<Http>>>,
}

impl Connections {
    /// Requests under way end on the connections that they have; all later ones make their own.
    pub(super) fn drop_all(&self) {
        self.pool.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl HttpClient for Connections {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        let pool = self.pool.read().unwrap_or_else(PoisonError::into_inner);
        pool.get_or_init(Http::new).connector(settings)
    }
}
