//! The spans of the turns of a session, with the attributes of the semantic conventions of OpenTelemetry for generative
//! AI. A turn can outlive the request that began it; the recorder of the session finds its end.

use super::{OpenSpan, text};
use crate::mutex::lock;
use crate::store::{NewUsage, RecordedRow, Session, UsageKind};
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;
use saggar_bridge::client::EventBody;
use std::collections::HashMap;
use std::sync::Mutex;

/// Maximum number of spans of a session that are kept. The bridge lets fewer turns wait.
const MAX_OPEN: usize = 256;

/// How the turn ended.
const RESULT: &str = "saggar.turn.result";
/// The server has stopped following a turn before its end.
const UNFINISHED: &str = "unfinished";

/// The spans of the turns that are running, by command id.
#[derive(Debug, Default)]
pub(crate) struct TurnSpans(Mutex<HashMap<String, TurnSpan>>);

#[derive(Debug)]
struct TurnSpan {
    span: OpenSpan,
    /// The result of the agent is an error.
    has_failed: bool,
}

impl TurnSpans {
    /// Starts the span of a turn whose query is about to be sent. Returns its trace context, for the agent.
    pub(crate) fn begin(&self, turn: &str, session: &Session, model: Option<&str>) -> Option<String> {
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            text("gen_ai.agent.name", &session.agent_name),
            KeyValue::new("gen_ai.conversation.id", session.id.to_string()),
            text("saggar.tenant", &session.tenant_id),
        ];
        attributes.extend(model.map(|model| text("gen_ai.request.model", model)));
        let name = format!("invoke_agent {}", session.agent_name);
        let span = OpenSpan::start(SpanKind::Client, name, attributes);
        let context = span.trace_context();
        let mut turns = lock(&self.0);
        if turns.len() >= MAX_OPEN {
            span.set(RESULT, UNFINISHED);
        } else if span.is_recording() {
            turns.insert(turn.to_owned(), TurnSpan { span, has_failed: false });
        }
        context
    }

    /// Whether the span of a turn has not ended.
    pub(crate) fn is_open(&self, turn: &str) -> bool {
        lock(&self.0).contains_key(turn)
    }

    /// Adds the result of the agent: its usage, and whether it is an error.
    pub(crate) fn add_result(&self, turn: &str, usage: &[RecordedRow], is_error: bool) {
        let mut turns = lock(&self.0);
        let Some(TurnSpan { span, has_failed }) = turns.get_mut(turn) else { return };
        *has_failed = is_error;
        let value = |wanted: UsageKind| {
            let of_kind = |row: &RecordedRow| match row {
                RecordedRow::Usage(NewUsage { kind, value }) if *kind == wanted => Some(*value),
                _ => None,
            };
            usage.iter().find_map(of_kind)
        };
        let [input, written, read] =
            [UsageKind::InputTokens, UsageKind::CacheCreationTokens, UsageKind::CacheReadTokens].map(value);
        // The conventions count all input tokens, those of the cache included.
        let total = [input, written, read].into_iter().flatten().reduce(i64::saturating_add);
        for (key, count) in [
            ("gen_ai.usage.input_tokens", total),
            ("gen_ai.usage.output_tokens", value(UsageKind::OutputTokens)),
            ("gen_ai.usage.cache_creation.input_tokens", written),
            ("gen_ai.usage.cache_read.input_tokens", read),
        ] {
            if let Some(count) = count {
                span.set(key, count);
            }
        }
    }

    /// Ends the span of a turn if this is its last event.
    pub(crate) fn end(&self, turn: &str, event: &EventBody) {
        let failure = match event {
            EventBody::Done(_) => None,
            EventBody::Error(_) => Some("bridge_error"),
            _ => return,
        };
        let Some(TurnSpan { span, has_failed }) = lock(&self.0).remove(turn) else { return };
        match failure.or(has_failed.then_some("agent_error")) {
            Some(failure) => {
                span.set(RESULT, "failed");
                span.fail(failure);
            }
            None => span.set(RESULT, "completed"),
        }
    }

    /// Ends the span of a turn that the server does not follow any more, unless it has ended.
    pub(crate) fn leave(&self, turn: &str) {
        if let Some(TurnSpan { span, .. }) = lock(&self.0).remove(turn) {
            span.set(RESULT, UNFINISHED);
        }
    }

    /// Ends the spans of all turns, since their sandbox has exited.
    pub(crate) fn fail_all(&self) {
        for (_, TurnSpan { span, .. }) in lock(&self.0).drain() {
            span.set(RESULT, "failed");
            span.fail("sandbox_exited");
        }
    }

    /// Ends the spans of all turns, since the server exits. The turns continue without it.
    pub(crate) fn leave_all(&self) {
        for (_, TurnSpan { span, .. }) in lock(&self.0).drain() {
            span.set(RESULT, UNFINISHED);
        }
    }
}
