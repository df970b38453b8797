//! Whom TLS trusts: the system's root certificates.

use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, LazyLock};

/// One for all pools: certificates are read once, and a pool that replaces another resumes its sessions.
static SYSTEM: LazyLock<ClientConfig> = LazyLock::new(|| config(system_roots()));

/// Reads the system's root certificates unless that has been done: milliseconds of file access.
pub(crate) fn read_certificates() {
    LazyLock::force(&SYSTEM);
}

/// Trusts what the system trusts, or `SSL_CERT_FILE` and `SSL_CERT_DIR` where they are set.
pub(super) fn system() -> ClientConfig {
    SYSTEM.clone()
}

/// Trusts no certificate.
pub(super) fn nobody() -> ClientConfig {
    config(RootCertStore::empty())
}

fn config(roots: RootCertStore) -> ClientConfig {
    // ring rather than aws-lc: no entropy pause at the first handshake of a small function.
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has suites for both versions of TLS");
    builder.with_root_certificates(roots).with_no_client_auth()
}

fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (valid, invalid) = roots.add_parsable_certificates(found.certs);
    if valid == 0 || !found.errors.is_empty() {
        tracing::warn!(valid, invalid, errors = ?found.errors, "root certificates could not be read: connections with TLS may fail");
    }
    roots
}
