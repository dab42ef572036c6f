//! Connections to the upstream.

use super::lookup;
use crate::egress::address;
use crate::error::{Code, Error, Result};
use crate::spec::Upstream;
use crate::spec::policy::Scheme;
use crate::spec::policy::hosts::Known;
use crate::sys::read;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The longest head of an answer.
const HEAD: usize = 64 << 10;
/// How long one address may take.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
/// How long TLS may take.
const GREETS_WITHIN: Duration = Duration::from_secs(10);
/// The largest file of certificates.
const CERTIFICATES: u64 = 8 << 20;

/// Sends requests on one connection.
pub(super) type Sender = SendRequest<Incoming>;

/// Why the upstream was not reached.
#[derive(Debug)]
pub(super) struct Trouble {
    /// In words, with the upstream's name.
    pub(super) text: String,
    /// Whether to try again is no use.
    pub(super) lasts: bool,
}

/// The way to an upstream.
pub(super) struct Way {
    to: Upstream,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Way {
    /// The way to `to`, over TLS where it says so.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a file without certificates, [`Code::Unsupported`] where this host trusts none.
    pub(super) fn new(to: Upstream, ca_file: Option<&Path>) -> Result<Self> {
        let tls = match to.scheme {
            Scheme::Http => None,
            Scheme::Https => Some((connector(ca_file)?, server_name(&to)?)),
        };
        Ok(Way { to, tls })
    }

    /// Where it leads.
    pub(super) fn upstream(&self) -> &Upstream {
        &self.to
    }

    pub(super) fn port(&self) -> u16 {
        self.to.port
    }

    /// A new connection.
    ///
    /// # Errors
    /// [`Trouble`]
    pub(super) async fn connect(&self) -> Result<Sender, Trouble> {
        let stream = self.dial().await?;
        let Some((tls, name)) = &self.tls else { return self.speak(stream).await };
        match timeout(GREETS_WITHIN, tls.connect(name.clone(), stream)).await {
            Ok(Ok(stream)) => self.speak(stream).await,
            Ok(Err(e)) => {
                let is_tls = e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
                Err(Trouble { lasts: is_tls, ..self.trouble(format_args!("TLS: {e}")) })
            }
            Err(_) => Err(self.trouble("TLS: no answer in time")),
        }
    }

    async fn speak<S>(&self, stream: S) -> Result<Sender, Trouble>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let made = Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(|e| self.trouble(e))?;
        // Its failures are those of the request that is on it.
        tokio::spawn(async { drop(connection.await) });
        Ok(sender)
    }

    async fn dial(&self) -> Result<TcpStream, Trouble> {
        let addresses = match &self.to.host {
            // Who writes the address of a metadata service down means it.
            Known::Address(address) => vec![*address],
            Known::Name(name) => self.resolve(name.as_str()).await?,
        };
        let mut last = self.trouble("it has no address");
        for address in addresses {
            let to = SocketAddr::new(address, self.to.port);
            match timeout(CONNECTS_WITHIN, TcpStream::connect(to)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    let _ = setsockopt(&stream, sockopt::KeepAlive, &true);
                    return Ok(stream);
                }
                Ok(Err(e)) => last = self.trouble(format_args!("connect to {to}: {e}")),
                Err(_) => last = self.trouble(format_args!("connect to {to}: no answer in time")),
            }
        }
        Err(last)
    }

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Trouble> {
        let found = lookup::addresses(name).await;
        let mut found = found.map_err(|why| self.trouble(format_args!("the name {why}")))?;
        found.retain(|address| !address::is_metadata(*address));
        match found.is_empty() {
            true => Err(self.trouble("the name leads to a metadata service of a cloud")),
            false => Ok(found),
        }
    }

    /// Why this upstream was not reached.
    pub(super) fn trouble(&self, why: impl std::fmt::Display) -> Trouble {
        Trouble { text: format!("reach the model API at {}: {why}", self.to), lasts: false }
    }
}

fn server_name(to: &Upstream) -> Result<ServerName<'static>> {
    match &to.host {
        Known::Address(address) => Ok(ServerName::IpAddress((*address).into())),
        Known::Name(name) => ServerName::try_from(name.as_str().to_owned())
            .map_err(|e| Error::new(Code::Invalid, format!("the upstream {to}: {e}"))),
    }
}

fn connector(ca_file: Option<&Path>) -> Result<TlsConnector> {
    let roots = match ca_file {
        Some(path) => named_roots(path)?,
        None => roots_of_this_host()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::system("prepare TLS", e))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn named_roots(path: &Path) -> Result<RootCertStore> {
    let bad = |why: &dyn std::fmt::Display| {
        Error::new(Code::Invalid, format!("read the certificates of {}: {why}", path.display()))
            .hint("api.ca_file is a file of certificates as PEM has them")
    };
    let text = read::whole_file(path, CERTIFICATES).map_err(|e| bad(&e))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
    }
    if roots.is_empty() { Err(bad(&"there are none")) } else { Ok(roots) }
}

fn roots_of_this_host() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Old ones that rustls does not understand are in every store.
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

/// How many certificates this host trusts.
///
/// # Errors
/// As a start with an upstream over TLS has them.
pub fn trusted() -> Result<usize> {
    roots_of_this_host().map(|roots| roots.len())
}
