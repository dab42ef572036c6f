//! Spans, and the trace context of W3C: the ids that connect the spans of several programs.

use axum::http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{FutureExt, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, Value, global};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use std::collections::HashMap;
use std::future::Future;
use tracing::Instrument;

/// The instrumentation scope of all spans.
const SCOPE: &str = "saggar-server";

/// The header of a trace context, as W3C names it.
const TRACEPARENT: &str = "traceparent";

/// Maximum length of an attribute, in bytes: it bounds the memory of spans that wait for their export.
const MAX_TEXT: usize = 1024;

/// Returns an attribute with at most [`MAX_TEXT`] bytes of the text.
pub(crate) fn text(key: &'static str, value: &str) -> KeyValue {
    KeyValue::new(key, value[..value.floor_char_boundary(MAX_TEXT)].to_owned())
}

/// A span, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct OpenSpan(Context);

impl OpenSpan {
    /// Starts a child of the current span, or a new trace if there is none.
    pub(crate) fn start(kind: SpanKind, name: String, attributes: Vec<KeyValue>) -> Self {
        OpenSpan::start_below(&Context::current(), kind, name, attributes)
    }

    /// Starts a span whose parent is in the headers of a request; without one, it is a new trace.
    pub(crate) fn start_in_trace_of(
        headers: &HeaderMap,
        kind: SpanKind,
        name: String,
        attributes: Vec<KeyValue>,
    ) -> Self {
        // Without `tracestate`: it is text of the client, and would be part of each span.
        let traceparent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let fields: HashMap<String, String> =
            traceparent.map(|value| (TRACEPARENT.to_owned(), value.to_owned())).into_iter().collect();
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &fields);
        OpenSpan::start_below(&parent, kind, name, attributes)
    }

    fn start_below(parent: &Context, kind: SpanKind, name: String, attributes: Vec<KeyValue>) -> Self {
        let tracer = global::tracer(SCOPE);
        let span = tracer.span_builder(name).with_kind(kind).with_attributes(attributes);
        OpenSpan(parent.with_span(span.start_with_context(&tracer, parent)))
    }

    /// Whether the span will be exported.
    pub(crate) fn is_recording(&self) -> bool {
        self.0.span().is_recording()
    }

    /// Sets an attribute.
    pub(crate) fn set(&self, key: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(key, value));
    }

    /// Marks the operation as failed. `kind` is one of few words, and never the text of the error.
    pub(crate) fn fail(&self, kind: impl Into<Value>) {
        self.set("error.type", kind);
        self.0.span().set_status(Status::error(""));
    }

    /// The trace context of the span, as a `traceparent` of W3C.
    pub(crate) fn trace_context(&self) -> Option<String> {
        trace_context(&self.0)
    }

    /// Runs work below the span: its spans are children, and its log lines have the id of the trace.
    pub(crate) fn run<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        work.with_context(self.0.clone()).instrument(self.log_span())
    }

    fn log_span(&self) -> tracing::Span {
        if !self.is_recording() {
            return tracing::Span::none();
        }
        // The level of errors, so that no filter of log lines disables it.
        tracing::error_span!("trace", trace_id = %self.0.span().span_context().trace_id())
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        // Work that outlives the request still has the context, as the parent of its spans.
        self.0.span().end();
    }
}

/// The trace context of the current span, or of the client if nothing is exported.
pub(crate) fn current_trace_context() -> Option<String> {
    trace_context(&Context::current())
}

fn trace_context(context: &Context) -> Option<String> {
    let mut fields = HashMap::new();
    TraceContextPropagator::new().inject_context(context, &mut fields);
    fields.remove(TRACEPARENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn trace_context_of_a_client_is_passed_on_without_an_export() {
        let of_client = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut headers = HeaderMap::new();
        let start = |headers: &HeaderMap| {
            OpenSpan::start_in_trace_of(headers, SpanKind::Server, "a".to_owned(), Vec::new())
        };
        assert_eq!(start(&headers).trace_context(), None);
        headers.insert("traceparent", of_client.parse().unwrap());
        let span = start(&headers);
        assert!(!span.is_recording());
        assert_eq!(span.run(async { current_trace_context() }).await.as_deref(), Some(of_client));
        assert_eq!(current_trace_context(), None);
        headers.insert("traceparent", "00-0-0-01".parse().unwrap());
        assert_eq!(start(&headers).trace_context(), None);
    }

    #[test]
    fn attribute_is_cut_between_characters() {
        let value = |value: &str| text("a", value).value.as_str().into_owned();
        assert_eq!(value("ä"), "ä");
        assert_eq!(value(&format!("a{}", "ä".repeat(600))).len(), 1023);
    }
}
