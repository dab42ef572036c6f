//! The table `usage_events`: tokens, tool calls, messages and cost of each turn.

use super::Store;
use crate::error::Result;
use sqlx::{AssertSqlSafe, FromRow};

/// What an event counts, named as in Ash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageKind {
    /// Input tokens that were not in the cache.
    InputTokens,
    /// Output tokens.
    OutputTokens,
    /// Input tokens that were written to the cache.
    CacheCreationTokens,
    /// Input tokens that were read from the cache.
    CacheReadTokens,
    /// Calls of tools.
    ToolCall,
    /// Turns.
    Message,
    /// The cost in millionths of a US dollar, as the agent estimates it.
    CostUsd,
}

impl UsageKind {
    /// All kinds.
    pub const ALL: [UsageKind; 7] = [
        UsageKind::InputTokens,
        UsageKind::OutputTokens,
        UsageKind::CacheCreationTokens,
        UsageKind::CacheReadTokens,
        UsageKind::ToolCall,
        UsageKind::Message,
        UsageKind::CostUsd,
    ];

    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            UsageKind::InputTokens => "input_tokens",
            UsageKind::OutputTokens => "output_tokens",
            UsageKind::CacheCreationTokens => "cache_creation_tokens",
            UsageKind::CacheReadTokens => "cache_read_tokens",
            UsageKind::ToolCall => "tool_call",
            UsageKind::Message => "message",
            UsageKind::CostUsd => "cost_usd",
        }
    }
}

/// Usage to insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewUsage {
    /// What it counts.
    pub kind: UsageKind,
    /// The number of them. For [`UsageKind::CostUsd`], the total of the agent process so far: the table gets the
    /// difference from the previous total.
    pub value: i64,
}

/// A row of `usage_events`.
#[derive(Debug, FromRow)]
pub struct UsageEventRow {
    /// A UUID.
    pub id: String,
    /// The tenant that owns the session.
    pub tenant_id: String,
    /// The session, which may have been deleted.
    pub session_id: String,
    /// The name of its agent.
    pub agent_name: String,
    /// The name of a [`UsageKind`].
    pub event_type: String,
    /// The number, or the cost in millionths of a US dollar.
    pub value: i64,
    /// Insertion time, as a timestamp of [`crate::clock`].
    pub created_at: String,
}

/// Which events a list or a sum contains.
#[derive(Debug, Default)]
pub struct UsageFilter<'a> {
    /// Those of this session.
    pub session: Option<&'a str>,
    /// Those of this agent.
    pub agent: Option<&'a str>,
    /// Those at or after this timestamp.
    pub after: Option<&'a str>,
    /// Those at or before this timestamp.
    pub before: Option<&'a str>,
}

const MATCHES: &str = "tenant_id = $1 AND ($2 = '' OR session_id = $2) AND ($3 = '' OR agent_name = $3) \
     AND ($4 = '' OR created_at >= $4) AND ($5 = '' OR created_at <= $5)";

impl Store {
    /// Lists usage events, the newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn usage_events(
        &self,
        tenant: &str,
        filter: &UsageFilter<'_>,
        limit: i64,
    ) -> Result<Vec<UsageEventRow>> {
        let statement = format!(
            "SELECT * FROM usage_events WHERE {MATCHES} ORDER BY created_at DESC, session_id, event_type LIMIT $6"
        );
        Ok(sqlx::query_as(AssertSqlSafe(statement))
            .bind(tenant)
            .bind(filter.session.unwrap_or_default())
            .bind(filter.agent.unwrap_or_default())
            .bind(filter.after.unwrap_or_default())
            .bind(filter.before.unwrap_or_default())
            .bind(limit)
            .fetch_all(&self.pool)
            .await?)
    }

    /// Returns the sum of the values by event type.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn usage_totals(&self, tenant: &str, filter: &UsageFilter<'_>) -> Result<Vec<(String, i64)>> {
        // The sum of BIGINT is NUMERIC in PostgreSQL.
        let statement = format!(
            "SELECT event_type, CAST(SUM(value) AS BIGINT) FROM usage_events WHERE {MATCHES} GROUP BY event_type"
        );
        Ok(sqlx::query_as(AssertSqlSafe(statement))
            .bind(tenant)
            .bind(filter.session.unwrap_or_default())
            .bind(filter.agent.unwrap_or_default())
            .bind(filter.after.unwrap_or_default())
            .bind(filter.before.unwrap_or_default())
            .fetch_all(&self.pool)
            .await?)
    }

    /// Returns the number of sessions by status, of those that were created in the period.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn session_counts(
        &self,
        tenant: &str,
        after: Option<&str>,
        before: Option<&str>,
    ) -> Result<Vec<(String, i64)>> {
        let statement = "SELECT status, COUNT(*) FROM sessions WHERE tenant_id = $1 AND ($2 = '' OR created_at >= $2) \
             AND ($3 = '' OR created_at <= $3) GROUP BY status";
        Ok(sqlx::query_as(statement)
            .bind(tenant)
            .bind(after.unwrap_or_default())
            .bind(before.unwrap_or_default())
            .fetch_all(&self.pool)
            .await?)
    }
}

/// Replaces the total cost that an agent has reported, and returns the part that is new. A smaller total is that of a new
/// agent process.
pub(super) fn new_cost(reported: &mut i64, total: i64) -> i64 {
    // The bridge reports 0 for a turn that it ends in place of the agent.
    if total <= 0 {
        return 0;
    }
    let previous = std::mem::replace(reported, total);
    if total < previous { total } else { total - previous }
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::super::{NewSession, RecordedRow, Status};
    use super::*;
    use uuid::Uuid;

    async fn session(store: &Store, tenant: &str, agent: &str) -> Uuid {
        let id = Uuid::new_v4();
        let new = NewSession { id, tenant, agent, model: None, config: "{}", parent: None };
        store.insert_session(&new).await.unwrap();
        id
    }

    fn row(kind: UsageKind, value: i64) -> RecordedRow {
        RecordedRow::Usage(NewUsage { kind, value })
    }

    async fn totals(store: &Store, tenant: &str, filter: &UsageFilter<'_>) -> Vec<(String, i64)> {
        let mut totals = store.usage_totals(tenant, filter).await.unwrap();
        totals.sort();
        totals
    }

    #[tokio::test]
    async fn usage_is_recorded_once_and_filtered() {
        for store in stores().await {
            let (one, two) = (session(&store, "t", "a").await, session(&store, "t", "b").await);
            let rows =
                [row(UsageKind::InputTokens, 7), row(UsageKind::Message, 1), row(UsageKind::OutputTokens, 0)];
            assert!(store.record("t", one, (0, 1), &rows).await.unwrap());
            assert!(!store.record("t", one, (0, 1), &rows).await.unwrap());
            assert!(store.record("t", two, (0, 1), &rows).await.unwrap());
            let own = |name: &str, value| (name.to_owned(), value);
            let all = UsageFilter::default();
            assert_eq!(totals(&store, "t", &all).await, [own("input_tokens", 14), own("message", 2)]);
            let id = one.to_string();
            let of_session = UsageFilter { session: Some(&id), ..UsageFilter::default() };
            assert_eq!(totals(&store, "t", &of_session).await[0], own("input_tokens", 7));
            let of_agent = UsageFilter { agent: Some("b"), ..UsageFilter::default() };
            let events = store.usage_events("t", &of_agent, 10).await.unwrap();
            assert!(events.iter().all(|event| event.session_id == two.to_string()) && events.len() == 2);
            assert_eq!(store.usage_events("t", &all, 3).await.unwrap().len(), 3);
            let later = UsageFilter { after: Some("2100"), ..UsageFilter::default() };
            let earlier = UsageFilter { before: Some("2000"), ..UsageFilter::default() };
            assert!(
                totals(&store, "t", &later).await.is_empty()
                    && totals(&store, "t", &earlier).await.is_empty()
            );
            assert!(totals(&store, "other", &all).await.is_empty());
            // Usage outlives its session.
            store.delete_session(one).await.unwrap();
            assert_eq!(totals(&store, "t", &all).await[0], own("input_tokens", 14));
            assert_eq!(store.session_counts("t", None, None).await.unwrap(), [own("starting", 1)]);
            assert!(store.session_counts("t", Some("2100"), None).await.unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn cost_is_difference_of_totals_of_one_sandbox() {
        for store in stores().await {
            let id = session(&store, "t", "a").await;
            store.set_running(id, "first", Status::Active).await.unwrap();
            for (number, total) in [(1, 100), (2, 150), (3, 0), (4, 150), (5, 170)] {
                let rows = [row(UsageKind::CostUsd, total)];
                assert!(store.record("t", id, (number - 1, number), &rows).await.unwrap());
            }
            let cost = async || {
                let totals = store.usage_totals("t", &UsageFilter::default()).await.unwrap();
                totals[0].1
            };
            assert_eq!(cost().await, 170);
            // Pause and resume of the same sandbox.
            store.set_running(id, "first", Status::Active).await.unwrap();
            store.record("t", id, (5, 6), &[row(UsageKind::CostUsd, 200)]).await.unwrap();
            assert_eq!(cost().await, 200);
            store.set_running(id, "second", Status::Active).await.unwrap();
            store.record("t", id, (6, 7), &[row(UsageKind::CostUsd, 300)]).await.unwrap();
            assert_eq!(cost().await, 500);
            // The agent was restarted in its sandbox.
            store.record("t", id, (7, 8), &[row(UsageKind::CostUsd, 10)]).await.unwrap();
            assert_eq!(cost().await, 510);
        }
    }
}
