//! The export of spans: a queue of limited size, and a thread that sends them in batches. Requests never wait for it;
//! if the queue is full, spans are dropped.

use super::TraceEndpoint;
use super::collector::CollectorClient;
use crate::error::{Context, Result};
use opentelemetry::{Key, KeyValue, global};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;
use tracing::{info, warn};

/// How long the exit of the server waits until the last spans are sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The running export.
#[derive(Debug)]
pub struct TraceExport(SdkTracerProvider);

impl TraceExport {
    /// Starts the export of the spans of this process. The variables of OpenTelemetry select headers, resource
    /// attributes, sampler and batches.
    ///
    /// # Errors
    /// Fails if the exporter refuses a variable, or an encrypted connection cannot be verified on this host.
    pub fn start(endpoint: &TraceEndpoint) -> Result<Self> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.url())
            .with_http_client(CollectorClient::new(endpoint)?)
            .build()
            .context(|| "cannot export traces")?;
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
        global::set_tracer_provider(provider.clone());
        info!("traces are sent to {}", endpoint.authority());
        Ok(TraceExport(provider))
    }

    /// Sends the spans that have ended, or gives up after five seconds.
    pub async fn finish(self) {
        // It blocks until the thread of the export has ended.
        let finished = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(FLUSH_TIMEOUT)).await;
        if !matches!(finished, Ok(Ok(()))) {
            warn!("the last traces were not sent within {FLUSH_TIMEOUT:?}");
        }
    }
}

/// The attributes of this process: those of the environment, and its name unless that has another.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let named = Resource::builder().with_attribute(version);
    let name = Resource::builder().build().get(&Key::from_static_str("service.name"));
    // What the library sets without a name in the environment.
    match name.is_none_or(|name| name.as_str().starts_with("unknown_service")) {
        true => named.with_service_name("saggar-server").build(),
        false => named.build(),
    }
}
