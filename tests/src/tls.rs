//! TLS before a server of the loopback interface, under an authority of the test's own.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{HandshakeKind, ServerConfig};

/// The name that the server's certificate is for.
const NAME: &str = "localhost";

/// Ends TLS and passes on what is inside.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    ca_file: PathBuf,
    handshakes: Arc<Handshakes>,
    server: AbortHandle,
    _home: TempDir,
}

/// How many connections came about.
#[derive(Debug, Default)]
struct Handshakes {
    full: AtomicU64,
    resumed: AtomicU64,
}

impl TlsFront {
    /// Starts one before `upstream`; its tasks run in the current runtime and end when this is dropped.
    ///
    /// # Panics
    /// There is no free port, or no place for a file.
    pub async fn start(upstream: SocketAddr) -> Self {
        let home = TempDir::new().expect("a directory for the certificate");
        let ca_file = home.path().join("ca.pem");
        let acceptor = TlsAcceptor::from(Arc::new(server_config(&ca_file)));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port on the loopback interface");
        let address = listener.local_addr().expect("a bound listener has an address");
        let handshakes = Arc::new(Handshakes::default());
        let server = tokio::spawn(accept(listener, acceptor, upstream, handshakes.clone())).abort_handle();
        Self { address, ca_file, handshakes, server, _home: home }
    }

    /// The URL that leads here.
    pub fn endpoint(&self) -> String {
        format!("https://{NAME}:{}", self.address.port())
    }

    /// The authority's certificate: what `SSL_CERT_FILE` is set to.
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// How many handshakes there were: in full, and resumed from an earlier session.
    pub fn handshakes(&self) -> (u64, u64) {
        (self.handshakes.full.load(Ordering::SeqCst), self.handshakes.resumed.load(Ordering::SeqCst))
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A certificate for [`NAME`], signed by a new authority whose own is written to `ca_file`.
fn server_config(ca_file: &Path) -> ServerConfig {
    let key = || KeyPair::generate().expect("a key can be drawn");
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, key()).expect("an authority signs itself");
    std::fs::write(ca_file, authority.pem()).expect("the directory can be written");
    let own = key();
    let certificate = CertificateParams::new([NAME.to_owned()]).expect("a host name");
    let certificate = certificate.signed_by(&own, &authority).expect("an authority signs");
    let own = PrivateKeyDer::try_from(own.serialize_der()).expect("a key that was just drawn");
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has suites for both versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], own)
        .expect("the key is the certificate's")
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, upstream: SocketAddr, handshakes: Arc<Handshakes>) {
    // Dropped, and its tasks with it, when the front is.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(pass(stream, acceptor.clone(), upstream, handshakes.clone()));
    }
}

async fn pass(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    upstream: SocketAddr,
    handshakes: Arc<Handshakes>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut inside = acceptor.accept(stream).await?;
    match inside.get_ref().1.handshake_kind() {
        Some(HandshakeKind::Resumed) => &handshakes.resumed,
        _ => &handshakes.full,
    }
    .fetch_add(1, Ordering::SeqCst);
    let mut upstream = TcpStream::connect(upstream).await?;
    upstream.set_nodelay(true)?;
    copy_bidirectional(&mut inside, &mut upstream).await.map(drop)
}
