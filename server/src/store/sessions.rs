//! Sessions.

use super::Store;
use crate::clock;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Its sandbox is being made.
    Starting,
    /// It takes messages.
    Active,
    /// A client has paused it, or its sandbox is gone and can be started again.
    Paused,
    /// A client has stopped it.
    Stopped,
    /// It is over.
    Ended,
    /// Its sandbox failed.
    Error,
}

const NAMES: [(Status, &str); 6] = [
    (Status::Starting, "starting"),
    (Status::Active, "active"),
    (Status::Paused, "paused"),
    (Status::Stopped, "stopped"),
    (Status::Ended, "ended"),
    (Status::Error, "error"),
];

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(status, _)| status == self).map_or("", |(_, name)| name);
        formatter.write_str(name)
    }
}

impl FromStr for Status {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(status, _)| *status).ok_or_else(|| Error::new(format!("there is no status {name}")))
    }
}

/// A row of `sessions`.
#[derive(Debug, Clone)]
pub struct Session {
    /// Also the name of the session of saggar.
    pub id: Uuid,
    /// The tenant.
    pub tenant_id: String,
    /// The agent.
    pub agent_name: String,
    /// The name of its sandbox; empty before the first start.
    pub sandbox_id: String,
    /// The state.
    pub status: Status,
    /// The session that it was forked from.
    pub parent_session_id: Option<String>,
    /// The model of its queries.
    pub model: Option<String>,
    /// What else each of its queries has: a JSON object.
    pub config: String,
    /// The number of the last event of its bridge that the database has.
    pub recorded: u64,
    /// A time.
    pub created_at: String,
    /// The time of the last message or change.
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
    recorded: i64,
    created_at: String,
    last_active_at: String,
}

impl TryFrom<SessionRow> for Session {
    type Error = Error;

    fn try_from(row: SessionRow) -> Result<Self> {
        Ok(Session {
            id: row.id.parse().map_err(|_| Error::new(format!("{} is no id of a session", row.id)))?,
            tenant_id: row.tenant_id,
            agent_name: row.agent_name,
            sandbox_id: row.sandbox_id,
            status: row.status.parse()?,
            parent_session_id: row.parent_session_id,
            model: row.model,
            config: row.config,
            recorded: u64::try_from(row.recorded).unwrap_or_default(),
            created_at: row.created_at,
            last_active_at: row.last_active_at,
        })
    }
}

/// What a new session has.
#[derive(Debug)]
pub struct NewSession<'a> {
    /// Its id.
    pub id: Uuid,
    /// The tenant.
    pub tenant: &'a str,
    /// The agent.
    pub agent: &'a str,
    /// The model of its queries.
    pub model: Option<&'a str>,
    /// What else each of its queries has: a JSON object.
    pub config: &'a str,
}

impl Store {
    /// Adds a session with the status `starting`.
    ///
    /// # Errors
    /// The database fails.
    pub async fn insert_session(&self, new: &NewSession<'_>) -> Result<Session> {
        let statement = "INSERT INTO sessions (id, tenant_id, agent_name, sandbox_id, status, model, config, recorded, \
             created_at, last_active_at) VALUES ($1, $2, $3, '', 'starting', $4, $5, 0, $6, $6) RETURNING *";
        let row: SessionRow = sqlx::query_as(statement)
            .bind(new.id.to_string())
            .bind(new.tenant)
            .bind(new.agent)
            .bind(new.model)
            .bind(new.config)
            .bind(clock::now())
            .fetch_one(&self.pool)
            .await?;
        row.try_into()
    }

    /// A session of a tenant.
    ///
    /// # Errors
    /// The database fails.
    pub async fn session(&self, tenant: &str, id: Uuid) -> Result<Option<Session>> {
        let statement = "SELECT * FROM sessions WHERE id = $1 AND tenant_id = $2";
        let row: Option<SessionRow> =
            sqlx::query_as(statement).bind(id.to_string()).bind(tenant).fetch_optional(&self.pool).await?;
        row.map(Session::try_from).transpose()
    }

    /// The sessions of a tenant, the newest first; those of one agent, if it is named.
    ///
    /// # Errors
    /// The database fails.
    pub async fn sessions(&self, tenant: &str, agent: Option<&str>) -> Result<Vec<Session>> {
        let statement = "SELECT * FROM sessions WHERE tenant_id = $1 AND ($2 = '' OR agent_name = $2) \
             ORDER BY created_at DESC, id DESC";
        let rows = sqlx::query_as(statement).bind(tenant).bind(agent.unwrap_or_default());
        rows.fetch_all(&self.pool).await?.into_iter().map(SessionRow::try_into).collect()
    }

    /// The sessions of all tenants that a sandbox may be running for.
    ///
    /// # Errors
    /// The database fails.
    pub async fn sessions_with_sandboxes(&self) -> Result<Vec<Session>> {
        let statement = "SELECT * FROM sessions WHERE status IN ('starting', 'active', 'paused')";
        let rows: Vec<SessionRow> = sqlx::query_as(statement).fetch_all(&self.pool).await?;
        rows.into_iter().map(SessionRow::try_into).collect()
    }

    /// How many sessions are active.
    ///
    /// # Errors
    /// The database fails.
    pub async fn active_sessions(&self) -> Result<i64> {
        let statement = "SELECT COUNT(*) FROM sessions WHERE status = 'active'";
        Ok(sqlx::query_scalar(statement).fetch_one(&self.pool).await?)
    }

    /// Notes that a session has the sandbox of this name, and its status with it.
    ///
    /// # Errors
    /// The database fails.
    pub async fn set_running(&self, id: Uuid, sandbox: &str, status: Status) -> Result<()> {
        let statement = "UPDATE sessions SET status = $3, sandbox_id = $2, last_active_at = $4 WHERE id = $1";
        let query = sqlx::query(statement).bind(id.to_string()).bind(sandbox).bind(status.to_string());
        query.bind(clock::now()).execute(&self.pool).await?;
        Ok(())
    }

    /// Sets the status of a session if it is one of `from`; whether it was.
    ///
    /// # Errors
    /// The database fails.
    pub async fn change_status(&self, id: Uuid, from: &[Status], to: Status) -> Result<bool> {
        // Few enough to go one by one; a list of any length is no parameter that both databases take.
        for from in from {
            let statement =
                "UPDATE sessions SET status = $3, last_active_at = $4 WHERE id = $1 AND status = $2";
            let query = sqlx::query(statement)
                .bind(id.to_string())
                .bind(from.to_string())
                .bind(to.to_string())
                .bind(clock::now());
            if query.execute(&self.pool).await?.rows_affected() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes a session with its messages and events.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_session(&self, id: Uuid) -> Result<()> {
        sqlx::query("DELETE FROM sessions WHERE id = $1").bind(id.to_string()).execute(&self.pool).await?;
        Ok(())
    }
}
