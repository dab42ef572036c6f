//! The HTTP client of the S3 API and of the Kubernetes API: hyper, with rustls. Each request has a connection of its own:
//! they are few, or large.

use crate::error::{Context, Result};
use crate::tls::{read_authorities, read_chain};
use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::Uri;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long the connection and the TLS handshake may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the transfer of a request and the wait for the head of its response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);

/// Sends requests, also for object_store.
#[derive(Debug, Clone)]
pub(crate) struct HyperClient {
    tls: Arc<ClientConfig>,
}

impl HyperClient {
    /// Trusts the certificates of the system, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    ///
    /// # Errors
    /// Fails if rustls refuses its own defaults.
    pub(crate) fn new() -> Result<Self> {
        let mut roots = RootCertStore::empty();
        // Without any, each TLS connection fails with the reason.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Ok(HyperClient { tls: Arc::new(config()?.with_root_certificates(roots).with_no_client_auth()) })
    }

    /// Trusts only the certificate authorities in this file, in PEM.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has no valid certificate.
    pub(crate) fn trusting(file: &Path) -> Result<Self> {
        Ok(HyperClient { tls: trusting(file, None)? })
    }

    /// Sends a request to the host of its URL.
    ///
    /// # Errors
    /// Fails if the connection or the transfer fails.
    pub(crate) async fn send(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let target = RequestTarget::of(request.uri())?;
        let connect = async {
            let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>(stream)
        };
        let stream = within(CONNECT_TIMEOUT, connect).await?;
        if !target.is_tls {
            return send(stream, request).await;
        }
        let name = ServerName::try_from(target.host.clone());
        let name = name.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let stream =
            within(CONNECT_TIMEOUT, TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream)).await?;
        send(stream, request).await
    }
}

/// The configuration of a client that trusts only the certificate authorities in this file, in PEM. `identity` has the
/// files of its own certificate and key, if it has one.
///
/// # Errors
/// Fails if a file cannot be read, or has no valid certificate or key.
pub(crate) fn trusting(authorities: &Path, identity: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>> {
    let builder = config()?.with_root_certificates(read_authorities(authorities)?);
    let Some((certificate, key)) = identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let context = |file: &Path| format!("cannot use {}", file.display());
    let chain = read_chain(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).context(|| context(key))?;
    let config = builder.with_client_auth_cert(chain, private);
    Ok(Arc::new(config.context(|| format!("{} with the key {}", context(certificate), key.display()))?))
}

fn config() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context(|| "cannot use TLS")
}

impl HttpConnector for HyperClient {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for HyperClient {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        self.send(request).await
    }
}

/// The peer of a request.
struct RequestTarget {
    host: String,
    port: u16,
    is_tls: bool,
}

impl RequestTarget {
    fn of(uri: &Uri) -> std::result::Result<Self, HttpError> {
        let invalid = || HttpError::new(HttpErrorKind::Unknown, io::Error::other("the URL names no host"));
        let is_tls = uri.scheme_str() != Some("http");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        // Addresses of IPv6 are in brackets.
        let host = uri.host().map(|host| host.trim_matches(['[', ']']).to_owned()).ok_or_else(invalid)?;
        Ok(RequestTarget { host, port, is_tls })
    }
}

/// Sends a request on a new connection.
async fn send<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    mut request: HttpRequest,
) -> std::result::Result<HttpResponse, HttpError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(of_hyper)?;
    // It ends when the response has been read or dropped. Its error is also that of the request.
    tokio::spawn(connection);
    if let Some(authority) = request.uri().authority()
        && !request.headers().contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
    // A server expects the path alone.
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
    let response = within_hyper(RESPONSE_TIMEOUT, sender.send_request(request)).await?;
    let (head, body) = response.into_parts();
    Ok(HttpResponse::from_parts(head, response_body(body)))
}

fn response_body(body: Incoming) -> HttpResponseBody {
    HttpResponseBody::new(body.map_err(of_hyper))
}

/// Runs I/O of a connection for at most this time. A request that has not been sent can be repeated.
async fn within<T>(
    time: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> std::result::Result<T, HttpError> {
    match timeout(time, work).await {
        Ok(done) => done.map_err(|error| HttpError::new(HttpErrorKind::Connect, error)),
        Err(elapsed) => Err(HttpError::new(HttpErrorKind::Connect, elapsed)),
    }
}

async fn within_hyper<T>(
    time: Duration,
    work: impl Future<Output = hyper::Result<T>>,
) -> std::result::Result<T, HttpError> {
    match timeout(time, work).await {
        Ok(done) => done.map_err(of_hyper),
        Err(elapsed) => Err(HttpError::new(HttpErrorKind::Timeout, elapsed)),
    }
}

fn of_hyper(error: hyper::Error) -> HttpError {
    let kind = match &error {
        error if error.is_timeout() => HttpErrorKind::Timeout,
        error if error.is_closed() || error.is_incomplete_message() || error.is_body_write_aborted() => {
            HttpErrorKind::Interrupted
        }
        _ => HttpErrorKind::Request,
    };
    HttpError::new(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_that_of_the_url() {
        let target = |url: &'static str| {
            let target = RequestTarget::of(&Uri::from_static(url)).unwrap();
            (target.host, target.port, target.is_tls)
        };
        assert_eq!(target("https://s3.example/b"), ("s3.example".into(), 443, true));
        assert_eq!(target("http://[::1]:9000/b"), ("::1".into(), 9000, false));
        assert!(RequestTarget::of(&Uri::from_static("/b")).is_err());
    }
}
