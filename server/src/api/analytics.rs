//! `/api/analytics`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::QueryParams;
use super::usage::{UsagePeriod, UsageStats, usage_stats};
use crate::store::UsageFilter;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AnalyticsQuery {
    /// The begin of the period, a time or date in ISO 8601.
    after: Option<String>,
    /// The end of the period, a time or date in ISO 8601.
    before: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Analytics {
    agents: AgentCount,
    sessions: SessionCounts,
    usage: UsageStats,
    evals: EvaluationCounts,
}

#[derive(Debug, Serialize, ToSchema)]
struct AgentCount {
    total: usize,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SessionCounts {
    total: i64,
    by_status: BTreeMap<String, i64>,
}

/// Evaluations of Ash are not implemented: the numbers are always 0.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct EvaluationCounts {
    total_runs: i64,
    by_status: BTreeMap<String, i64>,
}

/// Returns the number of agents, the sessions that were created in a period, and its usage.
#[utoipa::path(
    get,
    path = "/api/analytics",
    operation_id = "getAnalytics",
    tag = "Usage",
    params(AnalyticsQuery),
    responses((status = 200, description = "The numbers", body = Analytics)),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryParams(query): QueryParams<AnalyticsQuery>,
) -> Result<Json<Analytics>, ApiError> {
    let period = UsagePeriod::parse(query.after.as_deref(), query.before.as_deref())?;
    let (after, before) = (period.after.as_deref(), period.before.as_deref());
    let agents = app.store.agents(&caller.tenant).await?.len();
    let counts = app.store.session_counts(&caller.tenant, after, before).await?;
    let total: i64 = counts.iter().map(|(_, count)| count).sum();
    let filter = UsageFilter { after, before, ..UsageFilter::default() };
    Ok(Json(Analytics {
        agents: AgentCount { total: agents },
        sessions: SessionCounts { total, by_status: counts.into_iter().collect() },
        usage: usage_stats(&app, &caller, &filter).await?,
        evals: EvaluationCounts { total_runs: 0, by_status: BTreeMap::new() },
    }))
}
