//! Traces: spans of requests, turns, queue items and runs of `saggar`, exported to an OpenTelemetry collector if one is
//! configured (saggar-server(8)).
//!
//! A span contains names, ids, numbers and paths. The text of messages, results, errors and log lines, and the values of
//! variables and keys never become an attribute, since a collector has other readers than the API.
//!
//! ```text
//! endpoint    the address of the collector, from the settings
//! collector   the HTTP client that sends spans, and logs the first failure
//! export      the start and the end of the export
//! span        one span, and the trace context of a client
//! variables   checks of the variables of OpenTelemetry
//! turn        the spans of the turns of a session
//! process     a span for each run of `saggar`
//! ```
//!
//! Without an export, the API of OpenTelemetry creates spans that record nothing and have the ids of their parent. The
//! `traceparent` of a client with a key therefore reaches the agent in both cases.

mod collector;
mod endpoint;
mod export;
mod process;
mod span;
mod turn;
mod variables;

pub use endpoint::TraceEndpoint;
pub use export::TraceExport;
pub(crate) use process::ProcessSpan;
pub(crate) use span::{OpenSpan, current_trace_context, text};
pub(crate) use turn::TurnSpans;
