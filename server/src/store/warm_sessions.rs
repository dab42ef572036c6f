//! The table `warm_sessions`: sandboxes that are started ahead of their sessions.

use super::Store;
use crate::clock;
use crate::error::Result;
use uuid::Uuid;

impl Store {
    /// Inserts a sandbox before it is started.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn insert_warm_session(&self, id: Uuid) -> Result<()> {
        let statement = "INSERT INTO warm_sessions (id, created_at) VALUES ($1, $2)";
        sqlx::query(statement).bind(id.to_string()).bind(clock::now()).execute(&self.writer).await?;
        Ok(())
    }

    /// Deletes a sandbox that has ended, or that a session has taken.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn delete_warm_session(&self, id: Uuid) -> Result<()> {
        sqlx::query("DELETE FROM warm_sessions WHERE id = $1")
            .bind(id.to_string())
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Lists the sandboxes that no session has taken. Those of sessions are deleted: a server that was killed may have
    /// inserted the session and nothing else.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn warm_sessions(&self) -> Result<Vec<Uuid>> {
        let taken = "DELETE FROM warm_sessions WHERE id IN (SELECT id FROM sessions)";
        sqlx::query(taken).execute(&self.writer).await?;
        let ids: Vec<String> =
            sqlx::query_scalar("SELECT id FROM warm_sessions").fetch_all(&self.pool).await?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::NewSession;
    use super::super::testing::stores;
    use super::*;

    #[tokio::test]
    async fn taken_sandboxes_are_not_listed() {
        for store in stores().await {
            let [ended, taken, warm] = [(); 3].map(|()| Uuid::new_v4());
            for id in [ended, taken, warm] {
                store.insert_warm_session(id).await.unwrap();
            }
            store.delete_warm_session(ended).await.unwrap();
            let new =
                NewSession { id: taken, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
            store.insert_session(&new).await.unwrap();
            for _ in 0..2 {
                assert_eq!(store.warm_sessions().await.unwrap(), [warm]);
            }
        }
    }
}
