//! Traces: requests that are refused, and turns that the bridge refuses.

use crate::support::collector::{Collector, attribute, hex};
use crate::support::{Client, Server, settings_file, wait_until};
use opentelemetry_proto::tonic::trace::v1::Span;
use rustix::process::Signal;
use serde_json::json;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SAMPLED_WITHOUT_KEY: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// Spans are sent soon.
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "20");

/// Number of turns that can wait in a sandbox.
const MAX_WAITING: usize = 64;

#[test]
fn clients_without_a_key_neither_choose_traces_nor_write_to_them() {
    let collector = Collector::start("200 OK");
    let settings =
        settings_file(&format!("otlp_endpoint = \"{}\"\nrate_limit.requests = 2\n", collector.url()));
    let variables =
        [SOON, ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")];
    let mut server = Server::start_with(&["--config", settings.path().to_str().unwrap()], &variables);
    let request = |client: &Client, path: &str, traceparent: &str, host: &str| {
        let headers = [("traceparent", traceparent), ("tracestate", "vendor=client-text"), ("host", host)];
        client.request("GET", path, &headers, b"").status
    };
    let (client, stranger) = (server.client(), server.client_with(None));
    let impostor = server.client_with(Some("ash_unknown"));
    assert_eq!(request(&client, "/api/agents", SAMPLED, "localhost"), 200);
    assert_eq!(request(&stranger, "/health", SAMPLED_WITHOUT_KEY, "localhost"), 200);
    assert_eq!(request(&client, "/api/agents", SAMPLED_WITHOUT_KEY, "other.example"), 400);
    for (client, status) in [(&stranger, 401), (&impostor, 401), (&client, 429)] {
        assert_eq!(request(client, "/api/agents", SAMPLED_WITHOUT_KEY, "localhost"), status);
    }
    assert!(server.stop(Signal::TERM).success());
    let spans: Vec<_> =
        collector.spans().iter().map(|span| (span.name.clone(), hex(&span.trace_id))).collect();
    assert_eq!(spans, [("GET /api/agents".to_owned(), TRACE.to_owned())]);
    for export in collector.exports() {
        assert!(!String::from_utf8_lossy(&export.body).contains("client-text"));
    }
}

#[test]
fn refused_turn_ends_its_span_without_its_client() {
    let collector = Collector::start("200 OK");
    let server = Server::start_with(&["--otlp-endpoint", &collector.url()], &[SOON]);
    let session = server.create_session();
    let client = server.client();
    let mut running = client.send(&session, &json!({ "content": "run: sleep 600" }));
    while running.next().unwrap().event != "tool_use" {}
    for _ in 0..MAX_WAITING + 2 {
        let mut frames = client.send(&session, &json!({ "content": "hi" }));
        assert_eq!(frames.next().unwrap().event, "session_start");
    }
    let is_refused = |span: &&Span| attribute(&span.attributes, "error.type") == "bridge_error";
    wait_until("the spans of two refused turns have ended", || {
        collector.spans().iter().filter(is_refused).count() >= 2
    });
}
