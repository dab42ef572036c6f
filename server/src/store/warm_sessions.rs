//! The table `warm_sessions`: sandboxes that are started ahead of their sessions.

use super::Store;
use crate::clock;
use crate::error::Result;
use sqlx::AnyConnection;
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

    /// Deletes a sandbox that has ended.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn delete_warm_session(&self, id: Uuid) -> Result<()> {
        delete_warm_session(&mut *self.writer.acquire().await?, id).await
    }

    /// Lists the sandboxes that no session has taken: its caller ends them, with their files.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn warm_sessions(&self) -> Result<Vec<Uuid>> {
        let statement = "SELECT id FROM warm_sessions WHERE id NOT IN (SELECT id FROM sessions)";
        let ids: Vec<String> = sqlx::query_scalar(statement).fetch_all(&self.pool).await?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }
}

pub(super) async fn delete_warm_session(connection: &mut AnyConnection, id: Uuid) -> Result<()> {
    let statement = "DELETE FROM warm_sessions WHERE id = $1";
    sqlx::query(statement).bind(id.to_string()).execute(connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::super::{NewEvent, NewSession, Page, Status};
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
            let created = NewEvent { kind: "lifecycle", data: "{}".into() };
            let session = store.insert_warm_session_as(&new, "box", &created).await.unwrap();
            assert_eq!((session.status, session.sandbox_id.as_str()), (Status::Active, "box"));
            assert_eq!(store.warm_sessions().await.unwrap(), [warm]);
            let page = Page { limit: 10, after: 0 };
            assert_eq!(store.events("t", taken, page, None).await.unwrap().len(), 1);
            // The id is that of a session.
            assert!(store.insert_warm_session_as(&new, "box", &created).await.is_err());
        }
    }
}
