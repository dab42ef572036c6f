//! `/api/analytics`.

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::QueryParams;
use super::usage::{UsagePeriod, usage_stats};
use crate::store::UsageFilter;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

#[derive(Debug, Deserialize)]
pub(super) struct AnalyticsQuery {
    after: Option<String>,
    before: Option<String>,
}

/// `GET /api/analytics`: the number of agents, the sessions that were created in the period, and its usage.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryParams(query): QueryParams<AnalyticsQuery>,
) -> Result<Json<Value>, ApiError> {
    let period = UsagePeriod::parse(query.after.as_deref(), query.before.as_deref())?;
    let (after, before) = (period.after.as_deref(), period.before.as_deref());
    let agents = app.store.agents(&caller.tenant).await?.len();
    let counts = app.store.session_counts(&caller.tenant, after, before).await?;
    let total: i64 = counts.iter().map(|(_, count)| count).sum();
    let by_status: Map<String, Value> =
        counts.into_iter().map(|(status, count)| (status, count.into())).collect();
    let filter = UsageFilter { after, before, ..UsageFilter::default() };
    Ok(Json(json!({
        "agents": { "total": agents },
        "sessions": { "total": total, "byStatus": by_status },
        "usage": usage_stats(&app, &caller, &filter).await?,
        "evals": { "totalRuns": 0, "byStatus": {} },
    })))
}
