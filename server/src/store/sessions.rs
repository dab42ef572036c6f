//! The table `sessions`.

use super::Store;
use super::records::{NewEvent, insert_event};
use super::warm_sessions::delete_warm_session;
use crate::clock;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use sqlx::{AnyConnection, AssertSqlSafe, FromRow};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;
use uuid::Uuid;

/// The status of a session, named as in Ash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionStatus)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The sandbox is being created.
    Starting,
    /// The session accepts messages.
    Active,
    /// A client has paused the session, or its sandbox has exited and can be restarted.
    Paused,
    /// A client has stopped the session; it can be resumed.
    Stopped,
    /// The session has ended permanently.
    Ended,
    /// The sandbox has failed; the session can be resumed.
    Error,
}

const STATUS_NAMES: [(Status, &str); 6] = [
    (Status::Starting, "starting"),
    (Status::Active, "active"),
    (Status::Paused, "paused"),
    (Status::Stopped, "stopped"),
    (Status::Ended, "ended"),
    (Status::Error, "error"),
];

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = STATUS_NAMES.iter().find(|(status, _)| status == self).map_or("", |(_, name)| name);
        formatter.write_str(name)
    }
}

impl FromStr for Status {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = STATUS_NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(status, _)| *status).ok_or_else(|| Error::new(format!("unknown session status {name:?}")))
    }
}

/// A row of `sessions`.
#[derive(Debug, Clone)]
pub struct Session {
    /// Also the name of the session in saggar.
    pub id: Uuid,
    /// The tenant that owns the session.
    pub tenant_id: String,
    /// The name of its agent.
    pub agent_name: String,
    /// The name of its sandbox; empty before the first start.
    pub sandbox_id: String,
    /// The status when the row was read.
    pub status: Status,
    /// The id of the session that this one was forked from.
    pub parent_session_id: Option<String>,
    /// The model of its queries, unless a message names another.
    pub model: Option<String>,
    /// Options of its queries: a JSON object.
    pub config: String,
    /// Whether it is paused because the server has ended its sandbox, and not because a client has paused it.
    pub is_evicted: bool,
    /// The number of the last bridge event in the database.
    pub recorded: u64,
    /// A random text, new for each restore from its copy in the snapshot store; empty before the first one.
    pub generation: String,
    /// The number of its changes.
    pub changes: i64,
    /// Its copy in the snapshot store: a JSON object ([`SessionCopy`](crate::persisted::SessionCopy)).
    pub copy: Option<String>,
    /// Creation time, as a timestamp of [`clock`].
    pub created_at: String,
    /// Time of the last message, event or status change.
    pub last_active_at: String,
}

#[derive(FromRow)]
struct SessionRow {
    id: String,
    tenant_id: String,
    agent_name: String,
    sandbox_id: String,
    status: String,
    parent_session_id: Option<String>,
    model: Option<String>,
    config: String,
    evicted: i64,
    recorded: i64,
    generation: String,
    changes: i64,
    copy: Option<String>,
    created_at: String,
    last_active_at: String,
}

impl TryFrom<SessionRow> for Session {
    type Error = Error;

    fn try_from(row: SessionRow) -> Result<Self> {
        Ok(Session {
            id: row.id.parse().map_err(|_| Error::new(format!("invalid session id {:?}", row.id)))?,
            tenant_id: row.tenant_id,
            agent_name: row.agent_name,
            sandbox_id: row.sandbox_id,
            status: row.status.parse()?,
            parent_session_id: row.parent_session_id,
            model: row.model,
            config: row.config,
            is_evicted: row.evicted != 0,
            recorded: u64::try_from(row.recorded).unwrap_or_default(),
            generation: row.generation,
            changes: row.changes,
            copy: row.copy,
            created_at: row.created_at,
            last_active_at: row.last_active_at,
        })
    }
}

/// A session to insert.
#[derive(Debug)]
pub struct NewSession<'a> {
    /// The id of the session.
    pub id: Uuid,
    /// The tenant that owns the session.
    pub tenant: &'a str,
    /// The name of its agent.
    pub agent: &'a str,
    /// The model of its queries.
    pub model: Option<&'a str>,
    /// Options of its queries: a JSON object.
    pub config: &'a str,
    /// The session that this one is forked from.
    pub parent: Option<Uuid>,
}

/// Which sessions a list contains.
#[derive(Debug)]
pub struct SessionFilter<'a> {
    /// Those of this agent.
    pub agent: Option<&'a str>,
    /// Those with this status.
    pub status: Option<&'a str>,
    /// Maximum number of sessions.
    pub limit: i64,
    /// Number of sessions to skip.
    pub offset: i64,
}

impl Store {
    /// Inserts a session with the status `starting`.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn insert_session(&self, new: &NewSession<'_>) -> Result<Session> {
        insert_session(&mut *self.writer.acquire().await?, new, "", Status::Starting).await
    }

    /// Inserts an active session, whose sandbox was warm until now, and the event of its creation.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written; the sandbox then remains in the warm ones.
    pub async fn insert_warm_session_as(
        &self,
        new: &NewSession<'_>,
        sandbox: &str,
        created: &NewEvent,
    ) -> Result<Session> {
        let mut transaction = self.writer.begin().await?;
        let session = insert_session(&mut transaction, new, sandbox, Status::Active).await?;
        insert_event(&mut transaction, new.tenant, new.id, created).await?;
        delete_warm_session(&mut transaction, new.id).await?;
        transaction.commit().await?;
        Ok(session)
    }

    /// Returns a session of a tenant.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn session(&self, tenant: &str, id: Uuid) -> Result<Option<Session>> {
        let statement = "SELECT * FROM sessions WHERE id = $1 AND tenant_id = $2";
        let row: Option<SessionRow> =
            sqlx::query_as(statement).bind(id.to_string()).bind(tenant).fetch_optional(&self.pool).await?;
        row.map(Session::try_from).transpose()
    }

    /// Lists the sessions of a tenant, newest first, and returns the number of all that match.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn sessions(&self, tenant: &str, filter: &SessionFilter<'_>) -> Result<(Vec<Session>, i64)> {
        const MATCHES: &str = "tenant_id = $1 AND ($2 = '' OR agent_name = $2) AND ($3 = '' OR status = $3)";
        let (agent, status) = (filter.agent.unwrap_or_default(), filter.status.unwrap_or_default());
        let list = format!(
            "SELECT * FROM sessions WHERE {MATCHES} ORDER BY created_at DESC, id DESC LIMIT $4 OFFSET $5"
        );
        let rows: Vec<SessionRow> = sqlx::query_as(AssertSqlSafe(list))
            .bind(tenant)
            .bind(agent)
            .bind(status)
            .bind(filter.limit)
            .bind(filter.offset)
            .fetch_all(&self.pool)
            .await?;
        let count = format!("SELECT COUNT(*) FROM sessions WHERE {MATCHES}");
        let total = sqlx::query_scalar(AssertSqlSafe(count)).bind(tenant).bind(agent).bind(status);
        let sessions = rows.into_iter().map(SessionRow::try_into).collect::<Result<_>>()?;
        Ok((sessions, total.fetch_one(&self.pool).await?))
    }

    /// Lists all sessions of an agent.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn all_sessions_of_agent(&self, tenant: &str, agent: &str) -> Result<Vec<Session>> {
        let statement = "SELECT * FROM sessions WHERE tenant_id = $1 AND agent_name = $2";
        let rows: Vec<SessionRow> =
            sqlx::query_as(statement).bind(tenant).bind(agent).fetch_all(&self.pool).await?;
        rows.into_iter().map(SessionRow::try_into).collect()
    }

    /// Lists the sessions of all tenants that have not ended: a server that was killed may have started a sandbox for any
    /// of them.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn sessions_to_reattach(&self) -> Result<Vec<Session>> {
        let statement = "SELECT * FROM sessions WHERE status <> 'ended'";
        let rows: Vec<SessionRow> = sqlx::query_as(statement).fetch_all(&self.pool).await?;
        rows.into_iter().map(SessionRow::try_into).collect()
    }

    /// Whether a session exists and has ended.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn has_ended(&self, id: Uuid) -> Result<bool> {
        let statement = "SELECT COUNT(*) FROM sessions WHERE id = $1 AND status = 'ended'";
        let count: i64 = sqlx::query_scalar(statement).bind(id.to_string()).fetch_one(&self.pool).await?;
        Ok(count > 0)
    }

    /// Whether this is the id of a session, or of a warm sandbox.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn has_sandbox(&self, id: Uuid) -> Result<bool> {
        let statement = "SELECT (SELECT COUNT(*) FROM sessions WHERE id = $1) + (SELECT COUNT(*) FROM warm_sessions WHERE id = $1)";
        let count: i64 = sqlx::query_scalar(statement).bind(id.to_string()).fetch_one(&self.pool).await?;
        Ok(count > 0)
    }

    /// Counts the active sessions of all tenants.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn count_active_sessions(&self) -> Result<i64> {
        let statement = "SELECT COUNT(*) FROM sessions WHERE status = 'active'";
        Ok(sqlx::query_scalar(statement).fetch_one(&self.pool).await?)
    }

    /// Replaces the model and the options of the queries of a session; the options are a JSON object.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn update_session_config(&self, id: Uuid, model: Option<&str>, config: &str) -> Result<()> {
        let statement = "UPDATE sessions SET model = $2, config = $3 WHERE id = $1";
        sqlx::query(statement).bind(id.to_string()).bind(model).bind(config).execute(&self.writer).await?;
        Ok(())
    }

    /// Counts the sessions of all tenants by status.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn count_sessions_by_status(&self) -> Result<Vec<(Status, u64)>> {
        let statement = "SELECT status, COUNT(*) FROM sessions GROUP BY status";
        let rows: Vec<(String, i64)> = sqlx::query_as(statement).fetch_all(&self.pool).await?;
        let count = |status: Status| {
            let row = rows.iter().find(|(name, _)| *name == status.to_string());
            row.map_or(0, |(_, count)| u64::try_from(*count).unwrap_or_default())
        };
        Ok(STATUS_NAMES.iter().map(|(status, _)| (*status, count(*status))).collect())
    }

    /// Stores the sandbox and the status of a running session.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_running(&self, id: Uuid, sandbox: &str, status: Status) -> Result<()> {
        // A new sandbox has a new agent process, which reports its cost from 0.
        let statement = "UPDATE sessions SET status = $3, sandbox_id = $2, last_active_at = $4, evicted = 0, changes = changes + 1, \
             reported_cost = CASE WHEN sandbox_id = $2 THEN reported_cost ELSE 0 END WHERE id = $1";
        let query = sqlx::query(statement).bind(id.to_string()).bind(sandbox).bind(status.to_string());
        query.bind(clock::now()).execute(&self.writer).await?;
        Ok(())
    }

    /// Sets the status of a session if its current status is in `from`. Returns whether it was.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn change_status(&self, id: Uuid, from: &[Status], to: Status) -> Result<bool> {
        // One statement for each status: SQLite and PostgreSQL have no common list parameter.
        for from in from {
            let statement = "UPDATE sessions SET status = $3, last_active_at = $4, changes = changes + 1 WHERE id = $1 AND status = $2";
            let query = sqlx::query(statement)
                .bind(id.to_string())
                .bind(from.to_string())
                .bind(to.to_string())
                .bind(clock::now());
            if query.execute(&self.writer).await?.rows_affected() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets the status of an active session whose sandbox has exited. Returns false if the session has another sandbox or
    /// is not active.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_exited(&self, id: Uuid, sandbox: &str, status: Status) -> Result<bool> {
        let statement = "UPDATE sessions SET status = $3, last_active_at = $4, changes = changes + 1 \
             WHERE id = $1 AND sandbox_id = $2 AND status = 'active'";
        let query = sqlx::query(statement).bind(id.to_string()).bind(sandbox).bind(status.to_string());
        Ok(query.bind(clock::now()).execute(&self.writer).await?.rows_affected() > 0)
    }

    /// Stores that a session is paused because the server has ended its sandbox. Returns false if it is not active or
    /// paused.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_evicted(&self, id: Uuid) -> Result<bool> {
        let statement = "UPDATE sessions SET status = 'paused', evicted = 1, last_active_at = $2, changes = changes + 1 \
             WHERE id = $1 AND status IN ('active', 'paused')";
        let query = sqlx::query(statement).bind(id.to_string()).bind(clock::now());
        Ok(query.execute(&self.writer).await?.rows_affected() > 0)
    }

    /// Deletes a session with its messages and events. The objects of its copy are to be deleted.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn delete_session(&self, id: Uuid) -> Result<()> {
        let mut transaction = self.writer.begin().await?;
        let removal = "INSERT INTO snapshot_removals (id, objects, due) \
             SELECT id, copy, 1 FROM sessions WHERE id = $1 AND copy IS NOT NULL";
        for statement in [removal, "DELETE FROM sessions WHERE id = $1"] {
            sqlx::query(statement).bind(id.to_string()).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

async fn insert_session(
    connection: &mut AnyConnection,
    new: &NewSession<'_>,
    sandbox: &str,
    status: Status,
) -> Result<Session> {
    let statement = "INSERT INTO sessions (id, tenant_id, agent_name, sandbox_id, status, model, config, recorded, \
         created_at, last_active_at, parent_session_id) \
         VALUES ($1, $2, $3, $8, $9, $4, $5, 0, $6, $6, $7) RETURNING *";
    let row: SessionRow = sqlx::query_as(statement)
        .bind(new.id.to_string())
        .bind(new.tenant)
        .bind(new.agent)
        .bind(new.model)
        .bind(new.config)
        .bind(clock::now())
        .bind(new.parent.map(|parent| parent.to_string()))
        .bind(sandbox)
        .bind(status.to_string())
        .fetch_one(connection)
        .await?;
    row.try_into()
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::*;

    #[tokio::test]
    async fn sessions_are_filtered_counted_and_paged() {
        for store in stores().await {
            for (agent, model) in [("a", None), ("b", Some("m")), ("a", Some("n"))] {
                let new =
                    NewSession { id: Uuid::new_v4(), tenant: "t", agent, model, config: "{}", parent: None };
                let inserted = store.insert_session(&new).await.unwrap();
                assert_eq!((inserted.model.as_deref(), inserted.parent_session_id), (model, None));
            }
            let filter = |agent, status, limit, offset| SessionFilter { agent, status, limit, offset };
            let count = async |filter| {
                let (sessions, total) = store.sessions("t", &filter).await.unwrap();
                (sessions.len(), total)
            };
            assert_eq!(count(filter(None, None, 10, 0)).await, (3, 3));
            assert_eq!(count(filter(None, None, 1, 2)).await, (1, 3));
            assert_eq!(count(filter(Some("a"), Some("starting"), 10, 0)).await, (2, 2));
            assert_eq!(count(filter(Some("a"), Some("ended"), 10, 0)).await, (0, 0));
            assert_eq!(store.all_sessions_of_agent("t", "a").await.unwrap().len(), 2);
            assert!(store.delete_agent("t", "none").await.is_ok_and(|deleted| !deleted));
        }
    }

    #[tokio::test]
    async fn status_changes_only_from_the_expected_one() {
        for store in stores().await {
            let id = Uuid::new_v4();
            let new = NewSession { id, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
            store.insert_session(&new).await.unwrap();
            store.set_running(id, "box", Status::Active).await.unwrap();
            assert_eq!(store.count_active_sessions().await.unwrap(), 1);
            assert!(!store.set_exited(id, "other", Status::Error).await.unwrap());
            assert!(store.set_evicted(id).await.unwrap());
            let evicted = store.session("t", id).await.unwrap().unwrap();
            assert_eq!((evicted.status, evicted.is_evicted), (Status::Paused, true));
            store.set_running(id, "box", Status::Active).await.unwrap();
            assert!(!store.session("t", id).await.unwrap().unwrap().is_evicted);
            let from = [Status::Starting, Status::Active];
            assert!(store.change_status(id, &from, Status::Stopped).await.unwrap());
            assert!(!store.change_status(id, &from, Status::Ended).await.unwrap());
            assert!(!store.set_exited(id, "box", Status::Error).await.unwrap());
            assert!(!store.set_evicted(id).await.unwrap());
            assert_eq!(store.sessions_to_reattach().await.unwrap()[0].status, Status::Stopped);
            store.delete_session(id).await.unwrap();
            assert!(store.session("t", id).await.unwrap().is_none());
        }
    }
}
