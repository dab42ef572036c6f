//! `/api/usage`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{QueryParams, bounded};
use crate::clock;
use crate::store::{UsageEventRow, UsageFilter, UsageKind};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageQuery {
    session_id: Option<String>,
    agent_name: Option<String>,
    after: Option<String>,
    before: Option<String>,
    limit: Option<i64>,
}

/// The period of a list or a sum, as timestamps.
#[derive(Debug)]
pub(super) struct UsagePeriod {
    pub(super) after: Option<String>,
    pub(super) before: Option<String>,
}

impl UsagePeriod {
    /// Parses the query parameters `after` and `before`.
    ///
    /// # Errors
    /// 400 names the invalid parameter.
    pub(super) fn parse(after: Option<&str>, before: Option<&str>) -> Result<Self, ApiError> {
        let parse = |name: &str, text: Option<&str>| match text {
            None => Ok(None),
            Some(text) => clock::parse(text).map(Some).ok_or_else(|| {
                ApiError::Parameter(format!(
                    "querystring/{name} must be a time in ISO 8601, such as 2026-11-27T16:14:22Z"
                ))
            }),
        };
        Ok(UsagePeriod { after: parse("after", after)?, before: parse("before", before)? })
    }
}

/// `GET /api/usage`.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryParams(query): QueryParams<UsageQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = bounded("limit", query.limit, 100, 1..=1000)?;
    let period = UsagePeriod::parse(query.after.as_deref(), query.before.as_deref())?;
    let events = app.store.usage_events(&caller.tenant, &filter(&query, &period), limit).await?;
    let events: Vec<Value> = events.into_iter().map(event_object).collect();
    Ok(Json(json!({ "events": events })))
}

/// `GET /api/usage/stats`.
pub(super) async fn stats(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryParams(query): QueryParams<UsageQuery>,
) -> Result<Json<Value>, ApiError> {
    let period = UsagePeriod::parse(query.after.as_deref(), query.before.as_deref())?;
    let stats = usage_stats(&app, &caller, &filter(&query, &period)).await?;
    Ok(Json(json!({ "stats": stats })))
}

fn filter<'a>(query: &'a UsageQuery, period: &'a UsagePeriod) -> UsageFilter<'a> {
    UsageFilter {
        session: query.session_id.as_deref(),
        agent: query.agent_name.as_deref(),
        after: period.after.as_deref(),
        before: period.before.as_deref(),
    }
}

/// Returns the totals of all event types.
pub(super) async fn usage_stats(
    app: &App,
    caller: &Caller,
    filter: &UsageFilter<'_>,
) -> Result<Value, ApiError> {
    let totals = app.store.usage_totals(&caller.tenant, filter).await?;
    let mut stats = json!({ "totalComputeSeconds": 0 });
    for kind in UsageKind::ALL {
        let total = totals.iter().find(|(name, _)| name == kind.name()).map_or(0, |(_, total)| *total);
        stats[total_name(kind)] = value_object(kind.name(), total);
    }
    Ok(stats)
}

fn total_name(kind: UsageKind) -> &'static str {
    match kind {
        UsageKind::InputTokens => "totalInputTokens",
        UsageKind::OutputTokens => "totalOutputTokens",
        UsageKind::CacheCreationTokens => "totalCacheCreationTokens",
        UsageKind::CacheReadTokens => "totalCacheReadTokens",
        UsageKind::ToolCall => "totalToolCalls",
        UsageKind::Message => "totalMessages",
        UsageKind::CostUsd => "totalCostUsd",
    }
}

fn event_object(event: UsageEventRow) -> Value {
    let value = value_object(&event.event_type, event.value);
    json!({
        "id": event.id,
        "tenantId": event.tenant_id,
        "sessionId": event.session_id,
        "agentName": event.agent_name,
        "eventType": event.event_type,
        "value": value,
        "createdAt": event.created_at,
    })
}

/// Costs are stored in millionths and sent in US dollars.
fn value_object(event_type: &str, value: i64) -> Value {
    if event_type == UsageKind::CostUsd.name() { json!(value as f64 / 1e6) } else { json!(value) }
}
