//! The columns `generation` and `copy` of `sessions`: copies in the snapshot store.

use super::Store;
use crate::error::Result;
use uuid::Uuid;

impl Store {
    /// Stores the copy of a session, a JSON object. Returns false if the session has been deleted, or if its generation is
    /// another one.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_copy(&self, id: Uuid, generation: &str, copy: &str) -> Result<bool> {
        let statement = "UPDATE sessions SET copy = $3 WHERE id = $1 AND generation = $2";
        let query = sqlx::query(statement).bind(id.to_string()).bind(generation).bind(copy);
        Ok(query.execute(&self.pool).await?.rows_affected() > 0)
    }

    /// Replaces the generation of a session, after its sandbox was started from its copy. Returns false if the session has
    /// been deleted or has ended, or if its generation is not `current`.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn replace_generation(&self, id: Uuid, current: &str, new: &str) -> Result<bool> {
        let statement = "UPDATE sessions SET generation = $3 \
             WHERE id = $1 AND generation = $2 AND status <> 'ended'";
        let query = sqlx::query(statement).bind(id.to_string()).bind(current).bind(new);
        Ok(query.execute(&self.pool).await?.rows_affected() > 0)
    }

    /// Returns the sequence number of the last message of a session; 0 without one.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn last_message(&self, id: Uuid) -> Result<i64> {
        let statement = "SELECT COALESCE(MAX(sequence), 0) FROM messages WHERE session_id = $1";
        Ok(sqlx::query_scalar(statement).bind(id.to_string()).fetch_one(&self.pool).await?)
    }

    /// Stores the copy of the folder of an agent, a JSON object.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_agent_copy(&self, tenant: &str, name: &str, copy: &str) -> Result<bool> {
        let statement = "UPDATE agents SET copy = $3 WHERE tenant_id = $1 AND name = $2";
        let query = sqlx::query(statement).bind(tenant).bind(name).bind(copy);
        Ok(query.execute(&self.pool).await?.rows_affected() > 0)
    }

    /// Stores the path of the folder of an agent, which has been restored there.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_agent_path(&self, tenant: &str, name: &str, path: &str) -> Result<()> {
        let statement = "UPDATE agents SET path = $3 WHERE tenant_id = $1 AND name = $2";
        sqlx::query(statement).bind(tenant).bind(name).bind(path).execute(&self.pool).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::NewSession;
    use super::super::testing::stores;
    use super::*;

    #[tokio::test]
    async fn copy_of_an_earlier_generation_is_not_stored() {
        for store in stores().await {
            let id = Uuid::new_v4();
            let new = NewSession { id, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
            let session = store.insert_session(&new).await.unwrap();
            assert_eq!((session.generation.as_str(), session.copy), ("", None));
            assert!(store.set_copy(id, "", "{}").await.unwrap());
            assert!(store.replace_generation(id, "", "one").await.unwrap());
            assert!(!store.replace_generation(id, "", "two").await.unwrap());
            assert!(!store.set_copy(id, "", "{\"old\":1}").await.unwrap());
            let session = store.session("t", id).await.unwrap().unwrap();
            assert_eq!((session.generation.as_str(), session.copy.as_deref()), ("one", Some("{}")));
            assert_eq!(store.last_message(id).await.unwrap(), 0);
            store.insert_user_message("t", id, "{}").await.unwrap();
            assert_eq!(store.last_message(id).await.unwrap(), 1);
        }
    }
}
