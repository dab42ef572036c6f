//! Connections to the upstream.

use super::lookup;
use crate::address;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use saggar_policy::ApiUpstream;
use saggar_policy::UpstreamScheme;
use saggar_policy::hosts::DestinationHost;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Maximum size of a response head, in bytes.
const MAX_HEAD_SIZE: usize = 64 << 10;
/// Time limit of a connect to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the TLS handshake.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a file of certificates, in bytes.
const MAX_CA_FILE_SIZE: u64 = 8 << 20;

/// Sends requests on one connection.
pub(super) type UpstreamSender = SendRequest<Incoming>;

/// The reason why the upstream was not reached.
#[derive(Debug)]
pub(super) struct UpstreamError {
    /// The error text, with the upstream's name.
    pub(super) message: String,
    /// Whether a retry is useless.
    pub(super) is_permanent: bool,
}

/// The upstream and how to connect to it.
pub(super) struct UpstreamRoute {
    upstream: ApiUpstream,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl UpstreamRoute {
    /// Creates the route to `to`, over TLS if its URL says so.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a file without certificates, [`Code::Unsupported`] if this host trusts no certificates.
    pub(super) fn new(to: ApiUpstream, ca_file: Option<&Path>) -> Result<Self> {
        let tls = match to.scheme {
            UpstreamScheme::Http => None,
            UpstreamScheme::Https => Some((tls_connector(ca_file)?, server_name(&to)?)),
        };
        Ok(UpstreamRoute { upstream: to, tls })
    }

    /// The upstream of this route.
    pub(super) fn upstream(&self) -> &ApiUpstream {
        &self.upstream
    }

    pub(super) fn port(&self) -> u16 {
        self.upstream.port
    }

    /// Opens a new connection.
    ///
    /// # Errors
    /// [`UpstreamError`]
    pub(super) async fn connect(&self) -> Result<UpstreamSender, UpstreamError> {
        let stream = self.connect_tcp().await?;
        let Some((tls, name)) = &self.tls else { return self.handshake(stream).await };
        match timeout(TLS_TIMEOUT, tls.connect(name.clone(), stream)).await {
            Ok(Ok(stream)) => self.handshake(stream).await,
            Ok(Err(e)) => {
                let is_tls = e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
                Err(UpstreamError { is_permanent: is_tls, ..self.error(format_args!("TLS: {e}")) })
            }
            Err(_) => Err(self.error("TLS: no answer in time")),
        }
    }

    async fn handshake<S>(&self, stream: S) -> Result<UpstreamSender, UpstreamError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let made = Builder::new().max_buf_size(MAX_HEAD_SIZE).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(|e| self.error(e))?;
        // Errors of the connection also fail the request on it.
        tokio::spawn(async { drop(connection.await) });
        Ok(sender)
    }

    async fn connect_tcp(&self) -> Result<TcpStream, UpstreamError> {
        let addresses = match &self.upstream.host {
            // An address in the policy is explicit, so even the address of a metadata service is allowed.
            DestinationHost::Address(address) => vec![*address],
            DestinationHost::Name(name) => self.resolve(name.as_str()).await?,
        };
        let mut last = self.error("it has no address");
        for address in addresses {
            let to = SocketAddr::new(address, self.upstream.port);
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    let _ = setsockopt(&stream, sockopt::KeepAlive, &true);
                    return Ok(stream);
                }
                Ok(Err(e)) => last = self.error(format_args!("connect to {to}: {e}")),
                Err(_) => last = self.error(format_args!("connect to {to}: no answer in time")),
            }
        }
        Err(last)
    }

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, UpstreamError> {
        let found = lookup::lookup_addresses(name).await;
        let mut found = found.map_err(|why| self.error(format_args!("the name {why}")))?;
        found.retain(|address| !address::is_metadata(*address));
        match found.is_empty() {
            true => Err(self.error("the name leads to a metadata service of a cloud")),
            false => Ok(found),
        }
    }

    /// An error that names this upstream.
    pub(super) fn error(&self, why: impl std::fmt::Display) -> UpstreamError {
        UpstreamError {
            message: format!("reach the model API at {}: {why}", self.upstream),
            is_permanent: false,
        }
    }
}

fn server_name(to: &ApiUpstream) -> Result<ServerName<'static>> {
    match &to.host {
        DestinationHost::Address(address) => Ok(ServerName::IpAddress((*address).into())),
        DestinationHost::Name(name) => ServerName::try_from(name.as_str().to_owned())
            .map_err(|e| Error::new(Code::Invalid, format!("the upstream {to}: {e}"))),
    }
}

fn tls_connector(ca_file: Option<&Path>) -> Result<TlsConnector> {
    let roots = match ca_file {
        Some(path) => read_ca_file(path)?,
        None => read_host_roots()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::system("prepare TLS", e))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn read_ca_file(path: &Path) -> Result<RootCertStore> {
    let bad = |why: &dyn std::fmt::Display| {
        Error::new(Code::Invalid, format!("read the certificates of {}: {why}", path.display()))
            .hint("api.ca_file is a file of certificates as PEM has them")
    };
    let text = read::whole_file(path, MAX_CA_FILE_SIZE).map_err(|e| bad(&e))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
    }
    if roots.is_empty() { Err(bad(&"there are none")) } else { Ok(roots) }
}

fn read_host_roots() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Certificate stores contain old certificates that rustls cannot parse.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(|| "none are found".to_owned(), ToString::to_string);
        return Err(Error::new(
            Code::Unsupported,
            format!("read the certificates that this host trusts: {why}"),
        )
        .hint("install ca-certificates, or name a file with api.ca_file"));
    }
    Ok(roots)
}

/// Number of certificates that this host trusts.
///
/// # Errors
/// As those of [`UpstreamRoute::new`] for an upstream over TLS.
pub fn count_trusted_certificates() -> Result<usize> {
    read_host_roots().map(|roots| roots.len())
}
