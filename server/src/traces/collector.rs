//! The HTTP client that sends spans to the collector. It blocks, and runs on the thread of the export alone.

use super::TraceEndpoint;
use crate::error::{Error, Result as ServerResult};
use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use rustls::crypto::ring;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{info, warn};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Proxy};

/// Maximum time for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response, in bytes.
const MAX_RESPONSE: u64 = 64 << 10;

/// Sends spans to a collector. The first failure in a row is logged.
#[derive(Debug)]
pub(super) struct CollectorClient {
    agent: Agent,
    /// For log lines.
    collector: String,
    is_failing: AtomicBool,
}

impl CollectorClient {
    /// Creates a client for this collector.
    ///
    /// # Errors
    /// Fails if connections are to be encrypted, and the host trusts no certificate.
    pub(super) fn new(endpoint: &TraceEndpoint) -> ServerResult<Self> {
        let proxy = if endpoint.is_loopback() { None } else { Proxy::try_from_env() };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // The headers can contain a key for this collector.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy)
            .timeout_global(Some(TIMEOUT));
        if endpoint.is_encrypted() {
            let tls = TlsConfig::builder()
                .root_certs(RootCerts::Specific(Arc::new(trusted_roots()?)))
                .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
                .build();
            config = config.tls_config(tls);
        }
        Ok(CollectorClient {
            agent: config.build().into(),
            collector: endpoint.authority().to_owned(),
            is_failing: AtomicBool::new(false),
        })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (head, body) = request.into_parts();
        let response = self.agent.run(Request::from_parts(head, &body[..]))?;
        let (head, body) = response.into_parts();
        let body = body.into_with_config().limit(MAX_RESPONSE).read_to_vec()?;
        Ok(Response::from_parts(head, body.into()))
    }

    fn report(&self, failure: Option<String>) {
        let was_failing = self.is_failing.swap(failure.is_some(), Ordering::Relaxed);
        let collector = &self.collector;
        match failure {
            Some(failure) if !was_failing => {
                warn!("cannot send traces to {collector}: {failure}; spans are dropped until it is possible");
            }
            None if was_failing => info!("traces are sent to {collector} again"),
            _ => {}
        }
    }
}

/// The certificates of the authorities that the host trusts. Some that cannot be read are left out.
fn trusted_roots() -> ServerResult<Vec<Certificate<'static>>> {
    let loaded = rustls_native_certs::load_native_certs();
    if loaded.certs.is_empty() {
        let causes: Vec<_> = loaded.errors.iter().map(|error| format!(": {error}")).collect();
        return Err(Error::new(format!(
            "cannot export traces over https: the host trusts no certificate authority{}; install the package \
             ca-certificates, or set SSL_CERT_FILE",
            causes.concat()
        )));
    }
    Ok(loaded.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect())
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let result = self.send(request);
        self.report(match &result {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered with status {}", response.status())),
            Err(error) => Some(error.to_string()),
        });
        Ok(result?)
    }
}
