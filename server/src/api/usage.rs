//! `/api/usage`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{QueryParams, bounded};
use crate::clock;
use crate::store::{UsageEventRow, UsageFilter, UsageKind};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageQuery {
    /// Only events of this session.
    session_id: Option<String>,
    /// Only events of this agent.
    agent_name: Option<String>,
    /// Only events at or after this time or date in ISO 8601.
    after: Option<String>,
    /// Only events at or before this time or date in ISO 8601.
    before: Option<String>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct UsageLimit {
    /// Maximum number of events.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct UsageEvent {
    id: String,
    tenant_id: String,
    session_id: String,
    agent_name: String,
    event_type: String,
    /// US dollars of `cost_usd`, else an integer.
    #[schema(value_type = f64)]
    value: Value,
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<UsageEventRow> for UsageEvent {
    fn from(event: UsageEventRow) -> Self {
        let is_cost = event.event_type == UsageKind::CostUsd.name();
        UsageEvent {
            value: if is_cost { dollars(event.value).into() } else { event.value.into() },
            id: event.id,
            tenant_id: event.tenant_id,
            session_id: event.session_id,
            agent_name: event.agent_name,
            event_type: event.event_type,
            created_at: event.created_at,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsageEventList {
    events: Vec<UsageEvent>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageStats {
    total_input_tokens: i64,
    total_output_tokens: i64,
    total_cache_creation_tokens: i64,
    total_cache_read_tokens: i64,
    total_tool_calls: i64,
    total_messages: i64,
    total_cost_usd: f64,
    /// Always 0.
    total_compute_seconds: i64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsageStatsResponse {
    stats: UsageStats,
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

/// Lists usage events, the newest first.
#[utoipa::path(
    get,
    path = "/api/usage",
    operation_id = "listUsageEvents",
    tag = "Usage",
    params(UsageQuery, UsageLimit),
    responses((status = 200, description = "The events", body = UsageEventList)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryParams(query): QueryParams<UsageQuery>,
    QueryParams(UsageLimit { limit }): QueryParams<UsageLimit>,
) -> Result<Json<UsageEventList>, ApiError> {
    let limit = bounded("limit", limit, 100, 1..=1000)?;
    let period = UsagePeriod::parse(query.after.as_deref(), query.before.as_deref())?;
    let events = app.store.usage_events(&caller.tenant, &filter(&query, &period), limit).await?;
    let events = events.into_iter().map(UsageEvent::from).collect();
    Ok(Json(UsageEventList { events }))
}

/// Returns the sums of usage events.
#[utoipa::path(
    get,
    path = "/api/usage/stats",
    operation_id = "getUsageStats",
    tag = "Usage",
    params(UsageQuery),
    responses((status = 200, description = "The sums", body = UsageStatsResponse)),
)]
pub(super) async fn stats(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryParams(query): QueryParams<UsageQuery>,
) -> Result<Json<UsageStatsResponse>, ApiError> {
    let period = UsagePeriod::parse(query.after.as_deref(), query.before.as_deref())?;
    let stats = usage_stats(&app, &caller, &filter(&query, &period)).await?;
    Ok(Json(UsageStatsResponse { stats }))
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
) -> Result<UsageStats, ApiError> {
    let totals = app.store.usage_totals(&caller.tenant, filter).await?;
    let total =
        |kind: UsageKind| totals.iter().find(|(name, _)| name == kind.name()).map_or(0, |(_, total)| *total);
    Ok(UsageStats {
        total_input_tokens: total(UsageKind::InputTokens),
        total_output_tokens: total(UsageKind::OutputTokens),
        total_cache_creation_tokens: total(UsageKind::CacheCreationTokens),
        total_cache_read_tokens: total(UsageKind::CacheReadTokens),
        total_tool_calls: total(UsageKind::ToolCall),
        total_messages: total(UsageKind::Message),
        total_cost_usd: dollars(total(UsageKind::CostUsd)),
        total_compute_seconds: 0,
    })
}

/// Costs are stored in millionths and sent in US dollars.
fn dollars(millionths: i64) -> f64 {
    millionths as f64 / 1e6
}
