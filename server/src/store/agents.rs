//! The table `agents`.

use super::{Store, new_id};
use crate::clock;
use crate::error::Result;
use sqlx::{AssertSqlSafe, FromRow};

/// A row of `agents`.
#[derive(Debug, Clone, FromRow)]
pub struct Agent {
    /// A UUID.
    pub id: String,
    /// The tenant that owns the agent.
    pub tenant_id: String,
    /// Unique for each tenant.
    pub name: String,
    /// Starts at 1; each deployment increments it.
    pub version: i64,
    /// The agent folder, an absolute path.
    pub path: String,
    /// Environment variables: a JSON object, which the API reads and writes.
    pub env: String,
    /// Configuration, such as `model`: a JSON object.
    pub config: String,
    /// The copy of its folder in the snapshot store: a JSON object ([`StoredObject`](crate::persisted::StoredObject)).
    pub copy: Option<String>,
    /// The number of changes of its folder.
    pub changes: i64,
    /// The id of the data directory in which its deployed files were changed last; empty for a folder of the operator.
    pub machine: String,
    /// Time of the first deployment, as a timestamp of [`clock`].
    pub created_at: String,
    /// Time of the last deployment or update.
    pub updated_at: String,
}

/// The columns that a deployment sets.
#[derive(Debug)]
pub struct Deployment<'a> {
    /// The tenant that owns the agent.
    pub tenant: &'a str,
    /// The name of the agent.
    pub name: &'a str,
    /// The agent folder.
    pub path: &'a str,
    /// Whether the folder has files of the deployment; else it is the operator's.
    pub has_files: bool,
    /// Environment variables, a JSON object; `None` retains the current ones.
    pub env: Option<&'a str>,
}

impl Store {
    /// Inserts an agent, or increments the version of an existing one.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn deploy(&self, deployment: &Deployment<'_>) -> Result<Agent> {
        let statement = "INSERT INTO agents (id, tenant_id, name, version, path, env, config, created_at, updated_at, machine) \
             VALUES ($1, $2, $3, 1, $4, COALESCE($5, '{}'), '{}', $6, $6, $7) \
             ON CONFLICT (tenant_id, name) DO UPDATE SET version = agents.version + 1, path = excluded.path, \
             changes = agents.changes + 1, machine = excluded.machine, env = COALESCE($5, agents.env), updated_at = excluded.updated_at \
             RETURNING *";
        Ok(sqlx::query_as(statement)
            .bind(new_id())
            .bind(deployment.tenant)
            .bind(deployment.name)
            .bind(deployment.path)
            .bind(deployment.env)
            .bind(clock::now())
            .bind(if deployment.has_files { self.machine() } else { "" })
            .fetch_one(&self.writer)
            .await?)
    }

    /// Lists the agents of a tenant by name.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn agents(&self, tenant: &str) -> Result<Vec<Agent>> {
        let statement = "SELECT * FROM agents WHERE tenant_id = $1";
        let mut agents: Vec<Agent> = sqlx::query_as(statement).bind(tenant).fetch_all(&self.pool).await?;
        // Not in SQL: there the order depends on the locale of the database.
        agents.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(agents)
    }

    /// Lists the agents of all tenants.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn agents_of_all_tenants(&self) -> Result<Vec<Agent>> {
        Ok(sqlx::query_as("SELECT * FROM agents").fetch_all(&self.pool).await?)
    }

    /// Returns an agent of a tenant.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn agent(&self, tenant: &str, name: &str) -> Result<Option<Agent>> {
        let statement = "SELECT * FROM agents WHERE tenant_id = $1 AND name = $2";
        Ok(sqlx::query_as(statement).bind(tenant).bind(name).fetch_optional(&self.pool).await?)
    }

    /// Replaces the environment variables and the configuration of an agent; both are JSON objects.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn update_agent(
        &self,
        tenant: &str,
        name: &str,
        env: &str,
        config: &str,
    ) -> Result<Option<Agent>> {
        let statement = "UPDATE agents SET env = $3, config = $4, updated_at = $5 \
             WHERE tenant_id = $1 AND name = $2 RETURNING *";
        Ok(sqlx::query_as(statement)
            .bind(tenant)
            .bind(name)
            .bind(env)
            .bind(config)
            .bind(clock::now())
            .fetch_optional(&self.writer)
            .await?)
    }

    /// Replaces the environment variables of an agent if they are still those of `agent`. It is not an update of the agent.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn replace_variables(&self, agent: &Agent, env: &str) -> Result<()> {
        let statement = "UPDATE agents SET env = $3 WHERE id = $1 AND env = $2";
        let query = sqlx::query(statement).bind(&agent.id).bind(&agent.env).bind(env);
        query.execute(&self.writer).await?;
        Ok(())
    }

    /// Deletes an agent with its sessions and versions. The objects of their copies are to be deleted. Returns whether the
    /// agent existed.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn delete_agent(&self, tenant: &str, name: &str) -> Result<bool> {
        let mut transaction = self.writer.begin().await?;
        for (table, name_column) in [("sessions", "agent_name"), ("agents", "name")] {
            let removal = format!(
                "INSERT INTO snapshot_removals (id, objects, due) SELECT id, copy, 1 FROM {table} \
                 WHERE tenant_id = $1 AND {name_column} = $2 AND copy IS NOT NULL"
            );
            sqlx::query(AssertSqlSafe(removal)).bind(tenant).bind(name).execute(&mut *transaction).await?;
        }
        sqlx::query("DELETE FROM sessions WHERE tenant_id = $1 AND agent_name = $2")
            .bind(tenant)
            .bind(name)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("DELETE FROM agent_versions WHERE tenant_id = $1 AND agent_name = $2")
            .bind(tenant)
            .bind(name)
            .execute(&mut *transaction)
            .await?;
        let deleted = sqlx::query("DELETE FROM agents WHERE tenant_id = $1 AND name = $2")
            .bind(tenant)
            .bind(name)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::*;

    fn deployment<'a>(tenant: &'a str, path: &'a str, env: Option<&'a str>) -> Deployment<'a> {
        Deployment { tenant, name: "a", path, has_files: true, env }
    }

    #[tokio::test]
    async fn second_deployment_increments_version_of_same_agent() {
        for store in stores().await {
            let first = store.deploy(&deployment("t", "/1", Some(r#"{"A":"1"}"#))).await.unwrap();
            let second = store.deploy(&deployment("t", "/2", None)).await.unwrap();
            assert_eq!((first.id.clone(), first.version, first.path.as_str()), (second.id, 1, "/1"));
            assert_eq!(
                (second.version, second.path.as_str(), second.env.as_str()),
                (2, "/2", r#"{"A":"1"}"#)
            );
            assert_eq!(first.created_at, second.created_at);
            let third = store.deploy(&deployment("t", "/2", Some("{}"))).await.unwrap();
            assert_eq!((third.version, third.env.as_str()), (3, "{}"));
            let updated = store.update_agent("t", "a", r#"{"B":"2"}"#, "{}").await.unwrap().unwrap();
            assert_eq!((updated.version, updated.env.as_str()), (3, r#"{"B":"2"}"#));
            assert!(store.update_agent("t", "none", "{}", "{}").await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn agents_are_separated_by_tenant() {
        for store in stores().await {
            store.deploy(&deployment("one", "/1", None)).await.unwrap();
            let other = store.deploy(&deployment("two", "/2", None)).await.unwrap();
            assert_eq!((other.version, other.env.as_str()), (1, "{}"));
            assert!(store.agent("three", "a").await.unwrap().is_none());
            assert!(!store.delete_agent("three", "a").await.unwrap());
            assert!(store.delete_agent("one", "a").await.unwrap());
            assert_eq!(store.agents("two").await.unwrap().len(), 1);
            assert!(store.agents("one").await.unwrap().is_empty());
        }
    }

    #[tokio::test]
    async fn agents_are_listed_in_byte_order() {
        for store in stores().await {
            for name in ["a", "_b", "B", "a-c", "aa"] {
                store
                    .deploy(&Deployment { tenant: "t", name, path: "/1", has_files: true, env: None })
                    .await
                    .unwrap();
            }
            let agents = store.agents("t").await.unwrap();
            let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
            assert_eq!(names, ["B", "_b", "a", "a-c", "aa"], "{}", store.scheme);
        }
    }
}
