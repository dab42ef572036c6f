//! A span for each request, with the attributes of the semantic conventions of OpenTelemetry for HTTP servers.

use super::auth::Caller;
use crate::traces::{OpenSpan, text};
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Bytes, Frame, SizeHint};
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Traces a request that was not refused, to the end of its response; it is a stream that can be long. `scheme` is that
/// of the server.
pub(super) async fn trace_request(
    State(scheme): State<&'static str>,
    request: Request,
    next: Next,
) -> Response {
    let method = method_name(request.method());
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let mut attributes = vec![
        KeyValue::new("http.request.method", method),
        KeyValue::new("url.scheme", scheme),
        text("url.path", request.uri().path()),
    ];
    let name_of_method = if method == OTHER_METHOD { "HTTP" } else { method };
    let name = match route {
        Some(route) => {
            attributes.push(text("http.route", route));
            format!("{name_of_method} {route}")
        }
        None => name_of_method.to_owned(),
    };
    // A parent decides what is exported, which is up to clients with a key alone.
    let span = match request.extensions().get::<Caller>() {
        Some(_) => OpenSpan::start_in_trace_of(request.headers(), SpanKind::Server, name, attributes),
        None => OpenSpan::start(SpanKind::Server, name, attributes),
    };
    let response = span.run(next.run(request)).await;
    if !span.is_recording() {
        return response;
    }
    let status = response.status();
    span.set("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.fail(status.as_str().to_owned());
    }
    response.map(|body| Body::new(TracedBody { body, _span: span }))
}

/// The name of methods that the conventions do not list.
const OTHER_METHOD: &str = "_OTHER";

/// The name of a method, which can be any word of a client.
fn method_name(method: &Method) -> &'static str {
    match method.as_str() {
        "CONNECT" => "CONNECT",
        "DELETE" => "DELETE",
        "GET" => "GET",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        "POST" => "POST",
        "PUT" => "PUT",
        "TRACE" => "TRACE",
        _ => OTHER_METHOD,
    }
}

/// The body of a response. It is dropped when it has been sent, or when the client has disconnected.
struct TracedBody {
    body: Body,
    _span: OpenSpan,
}

impl hyper::body::Body for TracedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
