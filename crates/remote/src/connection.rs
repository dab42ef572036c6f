//! Requests to a server and their responses. Each carries the key; redirects are errors, so that the key never goes to
//! another host.

use crate::address::ServerAddress;
use crate::login::ApiKey;
use crate::response_error::{ErrorResponse, RequestFailure};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::crypto::ring;
use saggar_sys::error::{Code, Error, Result};
use serde_json::Value;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::config::AutoHeaderValue;
use ureq::http::{Method, Request, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, AsSendBody, Body, Proxy};

/// Time limit for a connection, with the handshakes of a proxy and of TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the head of a response, and for each part of its body: a command in a sandbox may take 300 s, and the
/// server waits 30 s longer for its result.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(360);
/// Time without any byte after which a stream counts as lost. The server sends a comment each 15 s.
const STREAM_SILENCE: Duration = Duration::from_secs(45);
/// Maximum size of a JSON response, in bytes.
const MAX_JSON: u64 = 256 << 20;
/// Maximum size of the body of an error, in bytes.
const MAX_ERROR: u64 = 1 << 20;
/// Maximum size of a file of certificates, in bytes.
const MAX_CA_FILE: u64 = 8 << 20;
/// What is not encoded in a segment of a path, and in a value of a query.
const UNENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The result of a request before it is an error for the user.
type Outcome<T> = std::result::Result<T, RequestFailure>;

/// The query of a request: names with values, which are encoded.
pub type Query<'a> = [(&'a str, &'a str)];

/// A server, and the key for its API.
pub struct Connection {
    agent: Agent,
    address: ServerAddress,
    authorization: String,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connection {
    /// Prepares connections; none is made yet. `ca_file` has the certificates of authorities, in PEM, instead of those
    /// that this host trusts.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a file without certificates, [`Code::Unsupported`] if this host trusts none.
    pub fn new(address: ServerAddress, key: &ApiKey, ca_file: Option<&Path>) -> Result<Self> {
        let proxy = if address.is_loopback() { None } else { Proxy::try_from_env() };
        let needs_tls = address.as_str().starts_with("https:") || proxy.is_some();
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(AutoHeaderValue::from(concat!("saggar/", env!("CARGO_PKG_VERSION"))))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(RESPONSE_TIMEOUT));
        config = config.proxy(proxy);
        if needs_tls {
            let roots = match ca_file {
                Some(file) => certificates_of(file)?,
                None => certificates_of_host()?,
            };
            let tls = TlsConfig::builder()
                .root_certs(RootCerts::Specific(Arc::new(roots)))
                .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
                .build();
            config = config.tls_config(tls);
        }
        let authorization = format!("Bearer {}", key.secret());
        Ok(Connection { agent: config.build().into(), address, authorization })
    }

    /// The address of the server.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Reads a JSON object. `path` consists of segments, which are encoded.
    ///
    /// # Errors
    /// [`Code::System`] without a response; the code and the text of a response that is an error.
    pub fn get(&self, path: &[&str], query: &Query<'_>) -> Result<Value> {
        self.json(Method::GET, path, query, None)
    }

    /// Sends a JSON object, and reads one.
    ///
    /// # Errors
    /// As [`Connection::get`].
    pub fn post(&self, path: &[&str], body: &Value) -> Result<Value> {
        self.json(Method::POST, path, &[], Some(body))
    }

    /// Deletes something, and reads a JSON object.
    ///
    /// # Errors
    /// As [`Connection::get`].
    pub fn delete(&self, path: &[&str]) -> Result<Value> {
        self.json(Method::DELETE, path, &[], None)
    }

    fn json(&self, method: Method, path: &[&str], query: &Query<'_>, body: Option<&Value>) -> Result<Value> {
        let request = self.request(method, path, query, None);
        let answer = request.and_then(|request| self.read_json(request, body, RESPONSE_TIMEOUT));
        answer.map_err(|failure| failure.into_error(&self.address))
    }

    /// As [`Connection::get`], with the time limit of a stream.
    pub(crate) fn get_soon(&self, path: &[&str]) -> Outcome<Value> {
        self.read_json(self.request(Method::GET, path, &[], None)?, None, STREAM_SILENCE)
    }

    fn read_json(&self, request: Request<()>, body: Option<&Value>, silence: Duration) -> Outcome<Value> {
        let mut response = self.run(request, body, silence)?;
        let body = response.body_mut().with_config().limit(MAX_JSON).read_to_vec();
        serde_json::from_slice(&body.map_err(RequestFailure::Connection)?)
            .map_err(|_| RequestFailure::NotJson)
    }

    /// Copies the body of a response. A body that is cut off is an error; a reader of `out` that has gone is none.
    ///
    /// # Errors
    /// As [`Connection::get`], and [`Code::System`] if `out` fails.
    pub fn download(&self, path: &[&str], query: &Query<'_>, mut out: impl Write) -> Result<()> {
        let response = self
            .request(Method::GET, path, query, None)
            .and_then(|request| self.run(request, None, RESPONSE_TIMEOUT))
            .map_err(|failure| failure.into_error(&self.address))?;
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
        let mut chunk = vec![0; 64 << 10];
        loop {
            let count = body.read(&mut chunk).map_err(|error| Error::system("read the response", error))?;
            let written = if count == 0 { out.flush() } else { out.write_all(&chunk[..count]) };
            match written {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                written => written.map_err(|error| Error::system("write the content", error))?,
            }
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// Opens a stream of events: by a POST if there is a body. `header` is a further one.
    pub(crate) fn open_stream(
        &self,
        path: &[&str],
        body: Option<&Value>,
        header: Option<(&str, &str)>,
    ) -> Outcome<Box<dyn Read>> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let request = self.request(method, path, &[], header)?;
        let response = self.run(request, body, STREAM_SILENCE)?;
        Ok(Box::new(response.into_body().into_with_config().limit(u64::MAX).reader()))
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &Query<'_>,
        header: Option<(&str, &str)>,
    ) -> Outcome<Request<()>> {
        // What some proxies resolve, so that another operation would be called.
        if let Some(segment) = path.iter().find(|segment| ["", ".", ".."].contains(segment)) {
            return Err(RequestFailure::Name((*segment).to_owned()));
        }
        let mut url = self.address.as_str().to_owned();
        for segment in path {
            url.push('/');
            url.extend(utf8_percent_encode(segment, &UNENCODED));
        }
        for (at, (name, value)) in query.iter().enumerate() {
            url.push(if at == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            url.extend(utf8_percent_encode(value, &UNENCODED));
        }
        let mut builder =
            Request::builder().method(method).uri(url).header("authorization", &self.authorization);
        if let Some((name, value)) = header {
            builder = builder.header(name, value);
        }
        builder.body(()).map_err(|error| RequestFailure::Connection(error.into()))
    }

    /// Sends a request; a response with another status than 2xx is a failure. `silence` is the time without any byte
    /// after which the connection counts as lost.
    fn run(&self, request: Request<()>, body: Option<&Value>, silence: Duration) -> Outcome<Response<Body>> {
        let result = match body {
            Some(body) => self.run_limited(with_json(request, body), silence),
            None => self.run_limited(request, silence),
        };
        let mut response = result.map_err(RequestFailure::Connection)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = header.and_then(|value| value.parse().ok());
        let body = response.body_mut().with_config().limit(MAX_ERROR).read_to_vec().unwrap_or_default();
        Err(RequestFailure::Response(ErrorResponse::new(status, &body, retry_after)))
    }

    fn run_limited(
        &self,
        request: Request<impl AsSendBody>,
        silence: Duration,
    ) -> std::result::Result<Response<Body>, ureq::Error> {
        self.agent.run(self.agent.configure_request(request).timeout_per_read(Some(silence)).build())
    }
}

/// The request with a body of JSON.
fn with_json(request: Request<()>, body: &Value) -> Request<Vec<u8>> {
    let (mut head, ()) = request.into_parts();
    head.headers.insert("content-type", ureq::http::HeaderValue::from_static("application/json"));
    Request::from_parts(head, body.to_string().into_bytes())
}

fn certificates_of(file: &Path) -> Result<Vec<Certificate<'static>>> {
    let fail = |error| Error::system(format_args!("read {}", file.display()), error);
    let mut pem = Vec::new();
    let opened = std::fs::File::open(file).map_err(fail)?;
    opened.take(MAX_CA_FILE).read_to_end(&mut pem).map_err(fail)?;
    let items = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let found: Vec<_> = items.collect();
    match found.is_empty() {
        true => Err(Error::new(Code::Invalid, format!("{} has no certificate in PEM", file.display()))),
        false => Ok(found),
    }
}

fn certificates_of_host() -> Result<Vec<Certificate<'static>>> {
    let found = rustls_native_certs::load_native_certs().certs;
    let found: Vec<_> = found.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    match found.is_empty() {
        true => Err(Error::new(Code::Unsupported, "this host trusts no certificate authorities")
            .hint("install the package ca-certificates, or name a file by --ca-file")),
        false => Ok(found),
    }
}
