//! The table `queue_items`.
//!
//! ```text
//!  pending ──claim──> processing ──> completed | failed
//!     │ ^                  │
//!     │ └──retry, requeue──┘
//!     └──cancel──> cancelled
//! ```
//!
//! Each change names the status that it starts from, so that of two concurrent changes one has no effect.

use super::{Store, new_id};
use crate::clock;
use crate::error::Result;
use sqlx::{AssertSqlSafe, FromRow};
use uuid::Uuid;

/// The statuses of items.
pub const QUEUE_STATUSES: [&str; 5] = ["pending", "processing", "completed", "failed", "cancelled"];
/// How often a claim is repeated if another worker is faster.
const CLAIM_ATTEMPTS: usize = 16;

/// A row of `queue_items`.
#[derive(Debug, Clone, FromRow)]
pub struct QueueItem {
    /// A UUID.
    pub id: String,
    /// The tenant that owns the item.
    pub tenant_id: String,
    /// The session that runs the turn. A session that the queue creates is stored before it exists.
    pub session_id: Option<String>,
    /// 1 if the queue creates the session.
    pub makes_session: i64,
    /// The agent of a new session.
    pub agent_name: String,
    /// The text of the message.
    pub prompt: String,
    /// One of [`QUEUE_STATUSES`].
    pub status: String,
    /// Items with a higher priority run first.
    pub priority: i64,
    /// The number of retries so far.
    pub retry_count: i64,
    /// The number of retries after which a failure is permanent.
    pub max_retries: i64,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// The command id of the turn, while the item is processing.
    pub turn_id: Option<String>,
    /// A bridge event of the session that precedes all events of the turn.
    pub events_before: Option<i64>,
    /// Insertion time, as a timestamp of [`clock`].
    pub created_at: String,
    /// Time of the last claim.
    pub started_at: Option<String>,
    /// Time of the end of the item.
    pub completed_at: Option<String>,
}

/// An item to insert.
#[derive(Debug)]
pub struct NewQueueItem<'a> {
    /// The tenant that owns the item.
    pub tenant: &'a str,
    /// The session that runs the turn; `None` creates one.
    pub session: Option<Uuid>,
    /// The agent of a new session.
    pub agent: &'a str,
    /// The text of the message.
    pub prompt: &'a str,
    /// Items with a higher priority run first.
    pub priority: i64,
    /// Maximum number of retries.
    pub max_retries: i64,
}

impl Store {
    /// Inserts a pending item.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn insert_queue_item(&self, new: &NewQueueItem<'_>) -> Result<QueueItem> {
        let statement = "INSERT INTO queue_items (id, tenant_id, session_id, makes_session, agent_name, prompt, \
             status, priority, retry_count, max_retries, created_at, sequence) \
             SELECT $1, $2, $3, $4, $5, $6, 'pending', $7, 0, $8, $9, COALESCE(MAX(sequence), 0) + 1 \
             FROM queue_items RETURNING *";
        let query = sqlx::query_as(statement)
            .bind(new_id())
            .bind(new.tenant)
            .bind(new.session.map(|session| session.to_string()))
            .bind(i64::from(new.session.is_none()))
            .bind(new.agent)
            .bind(new.prompt)
            .bind(new.priority)
            .bind(new.max_retries)
            .bind(clock::now());
        Ok(query.fetch_one(&self.writer).await?)
    }

    /// Returns an item of a tenant.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn queue_item(&self, tenant: &str, id: Uuid) -> Result<Option<QueueItem>> {
        let statement = "SELECT * FROM queue_items WHERE id = $1 AND tenant_id = $2";
        let query = sqlx::query_as(statement).bind(id.to_string()).bind(tenant);
        Ok(query.fetch_optional(&self.pool).await?)
    }

    /// Lists at most `limit` items of a tenant, newest first, optionally with one status only.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn queue_items(
        &self,
        tenant: &str,
        status: Option<&str>,
        limit: i64,
    ) -> Result<Vec<QueueItem>> {
        let statement = "SELECT * FROM queue_items WHERE tenant_id = $1 AND ($2 = '' OR status = $2) \
             ORDER BY sequence DESC, id DESC LIMIT $3";
        let query = sqlx::query_as(statement).bind(tenant).bind(status.unwrap_or_default()).bind(limit);
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// Counts the items of a tenant by status. A status without items is absent.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn queue_counts(&self, tenant: &str) -> Result<Vec<(String, i64)>> {
        let statement = "SELECT status, COUNT(*) FROM queue_items WHERE tenant_id = $1 GROUP BY status";
        Ok(sqlx::query_as(statement).bind(tenant).fetch_all(&self.pool).await?)
    }

    /// Cancels a pending item. Returns false if it is not pending.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn cancel_queue_item(&self, tenant: &str, id: Uuid) -> Result<bool> {
        let statement = "UPDATE queue_items SET status = 'cancelled', retry_after = NULL, completed_at = $3 \
             WHERE id = $1 AND tenant_id = $2 AND status = 'pending'";
        let query = sqlx::query(statement).bind(id.to_string()).bind(tenant).bind(clock::now());
        Ok(query.execute(&self.writer).await?.rows_affected() > 0)
    }

    /// Claims the pending item of all tenants with the highest priority, of these the oldest. Items whose retry time
    /// has not come, and items of sessions that run another item, are left.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn claim_queue_item(&self) -> Result<Option<QueueItem>> {
        const IS_FREE: &str = "NOT EXISTS (SELECT 1 FROM queue_items AS other \
             WHERE other.session_id = queue_items.session_id AND other.status = 'processing')";
        let select = format!(
            "SELECT id FROM queue_items WHERE status = 'pending' AND (retry_after IS NULL OR retry_after <= $1) \
             AND {IS_FREE} ORDER BY priority DESC, sequence, id LIMIT 1"
        );
        let update = "UPDATE queue_items SET status = 'processing', started_at = $2, retry_after = NULL, \
             turn_id = NULL, events_before = NULL WHERE id = $1 AND status = 'pending' RETURNING *";
        for _ in 0..CLAIM_ATTEMPTS {
            let now = clock::now();
            let found = sqlx::query_scalar(AssertSqlSafe(select.as_str())).bind(&now);
            let found: Option<String> = found.fetch_optional(&self.pool).await?;
            let Some(id) = found else { return Ok(None) };
            let claimed = sqlx::query_as(update).bind(id).bind(&now).fetch_optional(&self.writer).await;
            match claimed {
                Ok(Some(item)) => return Ok(Some(item)),
                // Another worker was faster: with this item, or with one of its session.
                Ok(None) => {}
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Returns the earliest time at which a pending item is retried, as a timestamp of [`clock`].
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn next_queue_retry(&self) -> Result<Option<String>> {
        let statement = "SELECT MIN(retry_after) FROM queue_items WHERE status = 'pending'";
        Ok(sqlx::query_scalar(statement).fetch_one(&self.pool).await?)
    }

    /// Lists the items of all tenants that are processing: at the start of the server, those of the previous one.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn processing_queue_items(&self) -> Result<Vec<QueueItem>> {
        let statement = "SELECT * FROM queue_items WHERE status = 'processing' ORDER BY started_at, id";
        Ok(sqlx::query_as(statement).fetch_all(&self.pool).await?)
    }

    /// Stores the session that the queue creates for an item, or that it has none yet.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_queue_session(&self, id: &str, session: Option<Uuid>) -> Result<()> {
        let statement = "UPDATE queue_items SET session_id = $2 WHERE id = $1 AND status = 'processing'";
        let session = session.map(|session| session.to_string());
        sqlx::query(statement).bind(id).bind(session).execute(&self.writer).await?;
        Ok(())
    }

    /// Stores the command id of the turn of an item, and the number of a bridge event that precedes the turn.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_queue_turn(&self, id: &str, turn: &str, events_before: u64) -> Result<()> {
        let statement =
            "UPDATE queue_items SET turn_id = $2, events_before = $3 WHERE id = $1 AND status = 'processing'";
        let number = i64::try_from(events_before).unwrap_or(i64::MAX);
        sqlx::query(statement).bind(id).bind(turn).bind(number).execute(&self.writer).await?;
        Ok(())
    }

    /// Stores that the turn of an item has ended, with an error if the failure is permanent.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn finish_queue_item(&self, id: &str, error: Option<&str>) -> Result<()> {
        let statement = "UPDATE queue_items SET status = $2, error = $3, completed_at = $4 \
             WHERE id = $1 AND status = 'processing'";
        let status = if error.is_some() { "failed" } else { "completed" };
        let query = sqlx::query(statement).bind(id).bind(status).bind(error).bind(clock::now());
        query.execute(&self.writer).await?;
        Ok(())
    }

    /// Makes an item pending again after a failure, and counts the retry. It is not claimed before `retry_after`, a
    /// timestamp of [`clock`].
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn retry_queue_item(&self, id: &str, error: &str, retry_after: &str) -> Result<()> {
        let statement = "UPDATE queue_items SET status = 'pending', error = $2, retry_after = $3, \
             retry_count = retry_count + 1 WHERE id = $1 AND status = 'processing'";
        sqlx::query(statement).bind(id).bind(error).bind(retry_after).execute(&self.writer).await?;
        Ok(())
    }

    /// Makes an item pending again whose turn did not begin. `error` is the reason, if a client can have noticed it. It is
    /// not claimed before `retry_after`, a timestamp of [`clock`].
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn requeue_item(&self, id: &str, error: Option<&str>, retry_after: Option<&str>) -> Result<()> {
        let statement = "UPDATE queue_items SET status = 'pending', error = COALESCE($2, error), started_at = NULL, \
             retry_after = COALESCE($3, retry_after) WHERE id = $1 AND status = 'processing'";
        sqlx::query(statement).bind(id).bind(error).bind(retry_after).execute(&self.writer).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::*;
    use std::collections::BTreeSet;

    const PAST: &str = "2000-01-01T00:00:00.000Z";
    const FUTURE: &str = "2999-01-01T00:00:00.000Z";

    async fn insert(store: &Store, prompt: &str, priority: i64, session: Option<Uuid>) -> QueueItem {
        let new = NewQueueItem { tenant: "t", session, agent: "a", prompt, priority, max_retries: 3 };
        store.insert_queue_item(&new).await.unwrap()
    }

    async fn claim(store: &Store) -> Option<String> {
        store.claim_queue_item().await.unwrap().map(|item| item.prompt)
    }

    #[tokio::test]
    async fn highest_priority_then_oldest_is_claimed() {
        for store in stores().await {
            for (prompt, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)] {
                insert(&store, prompt, priority, None).await;
            }
            for expected in ["b", "d", "a", "c", "e"] {
                assert_eq!(claim(&store).await.as_deref(), Some(expected), "{}", store.scheme);
            }
            assert_eq!(claim(&store).await, None);
            assert_eq!(store.processing_queue_items().await.unwrap().len(), 5);
            assert_eq!(store.queue_counts("t").await.unwrap(), [("processing".to_owned(), 5)]);
            let newest = store.queue_items("t", None, 2).await.unwrap();
            assert_eq!(newest.iter().map(|item| item.prompt.as_str()).collect::<Vec<_>>(), ["e", "d"]);
            assert!(store.queue_items("t", Some("pending"), 9).await.unwrap().is_empty());
            assert!(store.queue_items("other", None, 9).await.unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn item_is_retried_at_its_time_and_counts_retries() {
        for store in stores().await {
            let item = insert(&store, "a", 0, None).await;
            store.retry_queue_item(&item.id, "not processing", PAST).await.unwrap();
            assert_eq!(claim(&store).await.as_deref(), Some("a"));
            store.set_queue_turn(&item.id, "turn-1", 7).await.unwrap();
            store.retry_queue_item(&item.id, "late", FUTURE).await.unwrap();
            assert_eq!(claim(&store).await, None);
            assert_eq!(store.next_queue_retry().await.unwrap().as_deref(), Some(FUTURE));
            let id = item.id.parse().unwrap();
            let found = store.queue_item("t", id).await.unwrap().unwrap();
            assert_eq!((found.retry_count, found.error.as_deref()), (1, Some("late")), "{}", store.scheme);
            assert!(!store.cancel_queue_item("other", id).await.unwrap());
            assert!(store.cancel_queue_item("t", id).await.unwrap());
            assert!(!store.cancel_queue_item("t", id).await.unwrap());
            assert_eq!(store.next_queue_retry().await.unwrap(), None);

            let item = insert(&store, "b", 0, None).await;
            assert_eq!(claim(&store).await.as_deref(), Some("b"));
            assert!(!store.cancel_queue_item("t", item.id.parse().unwrap()).await.unwrap());
            store.retry_queue_item(&item.id, "now", PAST).await.unwrap();
            let again = store.claim_queue_item().await.unwrap().unwrap();
            assert_eq!((again.retry_count, again.turn_id), (1, None));
            store.requeue_item(&item.id, None, None).await.unwrap();
            let again = store.claim_queue_item().await.unwrap().unwrap();
            assert_eq!((again.retry_count, again.error.as_deref()), (1, Some("now")));
            store.finish_queue_item(&item.id, None).await.unwrap();
            store.finish_queue_item(&item.id, Some("too late")).await.unwrap();
            let found = store.queue_item("t", item.id.parse().unwrap()).await.unwrap().unwrap();
            assert_eq!((found.status.as_str(), found.error), ("completed", None));
        }
    }

    #[tokio::test]
    async fn session_runs_one_item_at_a_time() {
        for store in stores().await {
            let session = Uuid::new_v4();
            let first = insert(&store, "a", 0, Some(session)).await;
            insert(&store, "b", 0, Some(session)).await;
            insert(&store, "c", 0, None).await;
            assert_eq!(claim(&store).await.as_deref(), Some("a"));
            assert_eq!(claim(&store).await.as_deref(), Some("c"), "{}", store.scheme);
            assert_eq!(claim(&store).await, None);
            store.finish_queue_item(&first.id, None).await.unwrap();
            assert_eq!(claim(&store).await.as_deref(), Some("b"));
        }
    }

    #[tokio::test]
    async fn concurrent_workers_claim_each_item_once() {
        for store in stores().await {
            let session = Uuid::new_v4();
            for number in 0..20 {
                insert(&store, &number.to_string(), 0, None).await;
                insert(&store, &format!("of session {number}"), 0, Some(session)).await;
            }
            let mut workers = Vec::new();
            for _ in 0..6 {
                let store = (*store).clone();
                workers.push(tokio::spawn(async move {
                    let mut claimed = Vec::new();
                    while let Some(item) = store.claim_queue_item().await.unwrap() {
                        claimed.push(item.id);
                    }
                    claimed
                }));
            }
            let mut claimed = Vec::new();
            for worker in workers {
                claimed.append(&mut worker.await.unwrap());
            }
            let distinct: BTreeSet<_> = claimed.iter().collect();
            // All without a session, and one of the session.
            assert_eq!((claimed.len(), distinct.len()), (21, 21), "{}", store.scheme);
        }
    }
}
