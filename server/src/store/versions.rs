//! The table `agent_versions`: prompts of an agent, of which at most one is active.

use super::{Store, new_id};
use crate::clock;
use crate::error::Result;
use sqlx::FromRow;

/// A row of `agent_versions`.
#[derive(Debug, Clone, FromRow)]
pub struct PromptVersion {
    /// A UUID.
    pub id: String,
    /// The tenant that owns the agent.
    pub tenant_id: String,
    /// The name of the agent.
    pub agent_name: String,
    /// Unique for each agent, from 1.
    pub version_number: i64,
    /// For the operator.
    pub name: String,
    /// Replaces the `CLAUDE.md` of new sessions while the version is active.
    pub system_prompt: Option<String>,
    /// For the operator.
    pub release_notes: Option<String>,
    /// 1 for the active version, else 0.
    pub is_active: i64,
    /// A JSON list of strings.
    pub knowledge_files: Option<String>,
    /// The creator, if it is known.
    pub created_by: Option<String>,
    /// Creation time, as a timestamp of [`clock`].
    pub created_at: String,
    /// Time of the last update.
    pub updated_at: String,
}

/// The columns of a version that a client sets.
#[derive(Debug, Clone, Default)]
pub struct VersionContent {
    /// The name; `None` selects `v` and the number.
    pub name: Option<String>,
    /// The system prompt.
    pub system_prompt: Option<String>,
    /// The release notes.
    pub release_notes: Option<String>,
    /// A JSON list of strings.
    pub knowledge_files: Option<String>,
}

/// How a client names a version.
#[derive(Debug, Clone, Copy)]
pub enum VersionKey<'a> {
    /// By its number.
    Number(i64),
    /// By its id.
    Id(&'a str),
}

impl Store {
    /// Lists the versions of an agent, the newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn versions(&self, tenant: &str, agent: &str) -> Result<Vec<PromptVersion>> {
        let statement = "SELECT * FROM agent_versions WHERE tenant_id = $1 AND agent_name = $2 \
             ORDER BY version_number DESC";
        Ok(sqlx::query_as(statement).bind(tenant).bind(agent).fetch_all(&self.pool).await?)
    }

    /// Returns a version of an agent.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn version(
        &self,
        tenant: &str,
        agent: &str,
        key: VersionKey<'_>,
    ) -> Result<Option<PromptVersion>> {
        let (number, id) = match key {
            VersionKey::Number(number) => (number, ""),
            VersionKey::Id(id) => (0, id),
        };
        let statement = "SELECT * FROM agent_versions WHERE tenant_id = $1 AND agent_name = $2 \
             AND (version_number = $3 OR id = $4)";
        let query = sqlx::query_as(statement).bind(tenant).bind(agent);
        Ok(query.bind(number).bind(id).fetch_optional(&self.pool).await?)
    }

    /// Inserts a version with the next number. The caller holds the lock of the agent.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn insert_version(
        &self,
        tenant: &str,
        agent: &str,
        content: &VersionContent,
    ) -> Result<PromptVersion> {
        let last = "SELECT COALESCE(MAX(version_number), 0) FROM agent_versions \
             WHERE tenant_id = $1 AND agent_name = $2";
        let last: i64 = sqlx::query_scalar(last).bind(tenant).bind(agent).fetch_one(&self.pool).await?;
        let number = last + 1;
        let name = content.name.clone().unwrap_or_else(|| format!("v{number}"));
        let statement = "INSERT INTO agent_versions (id, tenant_id, agent_name, version_number, name, system_prompt, \
             release_notes, is_active, knowledge_files, created_at, updated_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, $9, $9) RETURNING *";
        Ok(sqlx::query_as(statement)
            .bind(new_id())
            .bind(tenant)
            .bind(agent)
            .bind(number)
            .bind(name)
            .bind(content.system_prompt.as_deref())
            .bind(content.release_notes.as_deref())
            .bind(content.knowledge_files.as_deref())
            .bind(clock::now())
            .fetch_one(&self.writer)
            .await?)
    }

    /// Replaces the content of a version; without a name, its name is retained.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn update_version(&self, id: &str, content: &VersionContent) -> Result<Option<PromptVersion>> {
        let statement = "UPDATE agent_versions SET name = COALESCE($2, name), system_prompt = $3, release_notes = $4, \
             knowledge_files = $5, updated_at = $6 WHERE id = $1 RETURNING *";
        Ok(sqlx::query_as(statement)
            .bind(id)
            .bind(content.name.as_deref())
            .bind(content.system_prompt.as_deref())
            .bind(content.release_notes.as_deref())
            .bind(content.knowledge_files.as_deref())
            .bind(clock::now())
            .fetch_optional(&self.writer)
            .await?)
    }

    /// Makes a version the only active one of its agent.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn activate_version(&self, version: &PromptVersion) -> Result<()> {
        let statement = "UPDATE agent_versions SET is_active = CASE WHEN id = $3 THEN 1 ELSE 0 END \
             WHERE tenant_id = $1 AND agent_name = $2";
        let query = sqlx::query(statement).bind(&version.tenant_id).bind(&version.agent_name);
        query.bind(&version.id).execute(&self.writer).await?;
        Ok(())
    }

    /// Deletes a version. If it was active, no version is.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn delete_version(&self, id: &str) -> Result<()> {
        sqlx::query("DELETE FROM agent_versions WHERE id = $1").bind(id).execute(&self.writer).await?;
        Ok(())
    }

    /// Returns the system prompt of the active version of an agent.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn active_prompt(&self, tenant: &str, agent: &str) -> Result<Option<String>> {
        let statement = "SELECT system_prompt FROM agent_versions \
             WHERE tenant_id = $1 AND agent_name = $2 AND is_active = 1";
        let found: Option<Option<String>> =
            sqlx::query_scalar(statement).bind(tenant).bind(agent).fetch_optional(&self.pool).await?;
        Ok(found.flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Deployment;
    use super::super::testing::stores;
    use super::*;

    fn content(prompt: &str) -> VersionContent {
        VersionContent { system_prompt: Some(prompt.into()), ..VersionContent::default() }
    }

    #[tokio::test]
    async fn versions_are_numbered_and_one_is_active() {
        for store in stores().await {
            let first = store.insert_version("t", "a", &content("1")).await.unwrap();
            let second = store.insert_version("t", "a", &content("2")).await.unwrap();
            assert_eq!((first.version_number, first.name.as_str(), first.is_active), (1, "v1", 0));
            assert_eq!((second.version_number, second.name.as_str()), (2, "v2"));
            assert_eq!(store.active_prompt("t", "a").await.unwrap(), None);
            for version in [&first, &second] {
                store.activate_version(version).await.unwrap();
                assert_eq!(store.active_prompt("t", "a").await.unwrap(), version.system_prompt);
            }
            let active: Vec<i64> =
                store.versions("t", "a").await.unwrap().iter().map(|version| version.is_active).collect();
            assert_eq!(active, [1, 0]);
            let named = VersionContent { name: Some("n".into()), ..content("3") };
            let updated = store.update_version(&second.id, &named).await.unwrap().unwrap();
            assert_eq!((updated.name.as_str(), updated.is_active), ("n", 1));
            let updated =
                store.update_version(&second.id, &VersionContent::default()).await.unwrap().unwrap();
            assert_eq!((updated.name.as_str(), updated.system_prompt), ("n", None));
            store.delete_version(&second.id).await.unwrap();
            assert_eq!(store.active_prompt("t", "a").await.unwrap(), None);
            assert!(store.update_version(&second.id, &named).await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn versions_belong_to_their_agent_and_are_deleted_with_it() {
        for store in stores().await {
            for tenant in ["one", "two"] {
                let deployment = Deployment { tenant, name: "a", path: "/a", has_files: true, env: None };
                store.deploy(&deployment).await.unwrap();
                store.insert_version(tenant, "a", &content(tenant)).await.unwrap();
            }
            let version = store.version("one", "a", VersionKey::Number(1)).await.unwrap().unwrap();
            let by_id = store.version("one", "a", VersionKey::Id(&version.id)).await.unwrap().unwrap();
            assert_eq!(by_id.system_prompt.as_deref(), Some("one"));
            assert!(store.version("two", "a", VersionKey::Id(&version.id)).await.unwrap().is_none());
            assert!(store.version("one", "b", VersionKey::Number(1)).await.unwrap().is_none());
            assert!(store.version("one", "a", VersionKey::Id("")).await.unwrap().is_none());
            store.delete_agent("one", "a").await.unwrap();
            assert!(store.versions("one", "a").await.unwrap().is_empty());
            assert_eq!(store.versions("two", "a").await.unwrap().len(), 1);
        }
    }
}
