//! The spans of queue items: one for each attempt, and each a trace of its own, since an item outlives the request that
//! added it.

use super::queue_worker::ItemAttempt;
use crate::store::QueueItem;
use crate::stream::TurnConclusion;
use crate::traces::{OpenSpan, text};
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;

/// Starts the span of an attempt to run an item.
pub(super) fn item_span(item: &QueueItem) -> OpenSpan {
    let mut attributes = vec![
        text("saggar.queue.item", &item.id),
        KeyValue::new("saggar.queue.retry", item.retry_count),
        text("gen_ai.agent.name", &item.agent_name),
        text("saggar.tenant", &item.tenant_id),
    ];
    attributes.extend(item.session_id.as_deref().map(|id| text("gen_ai.conversation.id", id)));
    OpenSpan::start(SpanKind::Consumer, "run queue item".to_owned(), attributes)
}

/// Sets how the attempt ended.
pub(super) fn set_result(span: &OpenSpan, attempt: &ItemAttempt) {
    let result = match attempt {
        ItemAttempt::Ended(TurnConclusion::Completed) => "completed",
        ItemAttempt::Ended(TurnConclusion::Failed(_)) => "failed",
        ItemAttempt::NotBegun(_) => "not_begun",
        ItemAttempt::Postponed(_) => "postponed",
        ItemAttempt::ShuttingDown => "unfinished",
    };
    span.set("saggar.queue.result", result);
    if result == "failed" {
        span.fail("failed");
    }
}
