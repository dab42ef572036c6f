//! Copies in the snapshot store: the columns `generation`, `copy`, `changes` and `copied` of `sessions` and `agents`.

use super::{Agent, Session, Store};
use crate::error::Result;
use sqlx::AnyConnection;
use uuid::Uuid;

/// A copy whose objects have been uploaded.
#[derive(Debug)]
pub struct NewCopy<'a> {
    /// The copy, a JSON object.
    pub copy: &'a str,
    /// The number of changes of the session or the agent when the copy was begun.
    pub changes: i64,
    /// The upload, as [`Store::begin_upload`] has it.
    pub upload: Uuid,
    /// Keys of the former copy that the new one does not have: a JSON list.
    pub replaced: &'a str,
}

impl Store {
    /// Counts a change of the files of a session.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn mark_changed(&self, id: Uuid) -> Result<()> {
        let statement = "UPDATE sessions SET changes = changes + 1 WHERE id = $1";
        sqlx::query(statement).bind(id.to_string()).execute(&self.writer).await?;
        Ok(())
    }

    /// Counts a change of the folder of an agent by this server.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn mark_agent_changed(&self, tenant: &str, name: &str) -> Result<()> {
        let statement = "UPDATE agents SET changes = changes + 1, \
             machine = CASE WHEN machine = '' THEN machine ELSE $3 END WHERE tenant_id = $1 AND name = $2";
        sqlx::query(statement).bind(tenant).bind(name).bind(self.machine()).execute(&self.writer).await?;
        Ok(())
    }

    /// Lists the tenants and the ids of the sessions that have changed since their copies.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn sessions_to_copy(&self) -> Result<Vec<(String, String)>> {
        let statement = "SELECT tenant_id, id FROM sessions WHERE changes <> copied";
        Ok(sqlx::query_as(statement).fetch_all(&self.pool).await?)
    }

    /// Lists the tenants and the names of the agents that have changed since their copies.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn agents_to_copy(&self) -> Result<Vec<(String, String)>> {
        let statement = "SELECT tenant_id, name FROM agents WHERE changes <> copied";
        Ok(sqlx::query_as(statement).fetch_all(&self.pool).await?)
    }

    /// Stores the copy of a session. Returns false if the session has been deleted, if its generation is another one, or if
    /// a server that has started since deletes the objects.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_copy(&self, id: Uuid, generation: &str, new: &NewCopy<'_>) -> Result<bool> {
        let mut transaction = self.writer.begin().await?;
        let statement = "UPDATE sessions SET copy = $3, copied = $4 WHERE id = $1 AND generation = $2";
        let query = sqlx::query(statement).bind(id.to_string()).bind(generation).bind(new.copy);
        let updated = query.bind(new.changes).execute(&mut *transaction).await?.rows_affected();
        if updated == 0 || !complete_upload(&mut transaction, new).await? {
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Stores that the copy of a session has its content after this number of changes.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_copied(&self, id: Uuid, generation: &str, changes: i64) -> Result<()> {
        let statement = "UPDATE sessions SET copied = $3 WHERE id = $1 AND generation = $2";
        let query = sqlx::query(statement).bind(id.to_string()).bind(generation).bind(changes);
        query.execute(&self.writer).await?;
        Ok(())
    }

    /// Replaces the generation of a session, after its sandbox was started from its copy, which gets this text. Returns false
    /// if the session has been deleted or has ended, or has another generation or copy.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_restored(&self, session: &Session, generation: &str, copy: &str) -> Result<bool> {
        let statement = "UPDATE sessions SET generation = $4, copy = $5 \
             WHERE id = $1 AND generation = $2 AND COALESCE(copy, '') = $3 AND status <> 'ended'";
        let query = sqlx::query(statement).bind(session.id.to_string()).bind(&session.generation);
        let query = query.bind(session.copy.as_deref().unwrap_or_default()).bind(generation).bind(copy);
        Ok(query.execute(&self.writer).await?.rows_affected() > 0)
    }

    /// Replaces the text of the copy of a session. Returns false if it has another generation or copy.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn replace_copy_text(&self, session: &Session, copy: &str) -> Result<bool> {
        let statement = "UPDATE sessions SET copy = $4 \
             WHERE id = $1 AND generation = $2 AND COALESCE(copy, '') = $3";
        let query = sqlx::query(statement).bind(session.id.to_string()).bind(&session.generation);
        let query = query.bind(session.copy.as_deref().unwrap_or_default()).bind(copy);
        Ok(query.execute(&self.writer).await?.rows_affected() > 0)
    }

    /// Returns the sequence number of the last message of a session; 0 without one.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn last_message(&self, id: Uuid) -> Result<i64> {
        let statement = "SELECT COALESCE(MAX(sequence), 0) FROM messages WHERE session_id = $1";
        Ok(sqlx::query_scalar(statement).bind(id.to_string()).fetch_one(&self.pool).await?)
    }

    /// Stores the copy of the folder of an agent, which was `former` when the copy was begun. Returns false if the agent has
    /// been deleted, if its copy or its machine is another one, or if a server that has started since deletes the objects.
    /// `machine` becomes its machine.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_agent_copy(&self, former: &Agent, machine: &str, new: &NewCopy<'_>) -> Result<bool> {
        let mut transaction = self.writer.begin().await?;
        let statement = "UPDATE agents SET copy = $3, copied = $5, \
             machine = $6 WHERE tenant_id = $1 AND name = $2 AND COALESCE(copy, '') = $4 AND machine = $7";
        let query = sqlx::query(statement).bind(&former.tenant_id).bind(&former.name).bind(new.copy);
        let query = query.bind(former.copy.as_deref().unwrap_or_default()).bind(new.changes);
        let query = query.bind(machine).bind(&former.machine);
        let updated = query.execute(&mut *transaction).await?.rows_affected();
        if updated == 0 || !complete_upload(&mut transaction, new).await? {
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Stores that the copy of an agent has its content after this number of changes.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_agent_copied(&self, tenant: &str, name: &str, changes: i64) -> Result<()> {
        let statement = "UPDATE agents SET copied = $3 WHERE tenant_id = $1 AND name = $2";
        sqlx::query(statement).bind(tenant).bind(name).bind(changes).execute(&self.writer).await?;
        Ok(())
    }

    /// Stores the path of the folder of an agent, which has been restored there.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn set_agent_path(&self, tenant: &str, name: &str, path: &str) -> Result<()> {
        let statement = "UPDATE agents SET path = $3 WHERE tenant_id = $1 AND name = $2";
        sqlx::query(statement).bind(tenant).bind(name).bind(path).execute(&self.writer).await?;
        Ok(())
    }

    /// Stores the keys that an upload will write, a JSON list, so that they are deleted if it does not complete.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn begin_upload(&self, upload: Uuid, keys: &str) -> Result<()> {
        Ok(insert_removal(&mut *self.writer.acquire().await?, upload, keys, 0).await?)
    }

    /// Stores that an upload did not complete.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn abandon_upload(&self, upload: Uuid) -> Result<()> {
        let statement = "UPDATE snapshot_removals SET due = 1 WHERE id = $1";
        sqlx::query(statement).bind(upload.to_string()).execute(&self.writer).await?;
        Ok(())
    }

    /// The same of all uploads of an earlier server.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn abandon_all_uploads(&self) -> Result<()> {
        sqlx::query("UPDATE snapshot_removals SET due = 1").execute(&self.writer).await?;
        Ok(())
    }

    /// Lists the ids and the objects of removals that are due.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn due_removals(&self) -> Result<Vec<(String, String)>> {
        let statement = "SELECT id, objects FROM snapshot_removals WHERE due = 1";
        Ok(sqlx::query_as(statement).fetch_all(&self.pool).await?)
    }

    /// Deletes a removal whose objects have been deleted.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn finish_removal(&self, id: &str) -> Result<()> {
        sqlx::query("DELETE FROM snapshot_removals WHERE id = $1").bind(id).execute(&self.writer).await?;
        Ok(())
    }
}

/// Completes an upload in the transaction that stores its copy. Returns false if it was abandoned.
async fn complete_upload(connection: &mut AnyConnection, new: &NewCopy<'_>) -> Result<bool> {
    let statement = "DELETE FROM snapshot_removals WHERE id = $1 AND due = 0";
    let deleted = sqlx::query(statement).bind(new.upload.to_string()).execute(&mut *connection).await?;
    insert_removal(connection, Uuid::new_v4(), new.replaced, 1).await?;
    Ok(deleted.rows_affected() > 0)
}

async fn insert_removal(
    connection: &mut AnyConnection,
    id: Uuid,
    objects: &str,
    due: i64,
) -> std::result::Result<(), sqlx::Error> {
    let statement = "INSERT INTO snapshot_removals (id, objects, due) VALUES ($1, $2, $3)";
    sqlx::query(statement).bind(id.to_string()).bind(objects).bind(due).execute(connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::NewSession;
    use super::super::testing::stores;
    use super::*;

    #[tokio::test]
    async fn copy_of_another_generation_is_not_stored() {
        for store in stores().await {
            let id = Uuid::new_v4();
            let new = NewSession { id, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
            let session = store.insert_session(&new).await.unwrap();
            assert_eq!((session.generation.as_str(), session.copy), ("", None));
            assert_eq!(store.sessions_to_copy().await.unwrap(), [("t".into(), id.to_string())]);
            let set = async |generation, copy| {
                let upload = Uuid::new_v4();
                store.begin_upload(upload, "[]").await.unwrap();
                let new = NewCopy { copy, changes: 1, upload, replaced: "[]" };
                store.set_copy(id, generation, &new).await.unwrap()
            };
            assert!(set("", "{}").await);
            assert!(store.sessions_to_copy().await.unwrap().is_empty());
            let former = store.session("t", id).await.unwrap().unwrap();
            assert!(store.set_restored(&former, "one", "{}").await.unwrap());
            assert!(!store.set_restored(&former, "two", "{}").await.unwrap());
            let current = store.session("t", id).await.unwrap().unwrap();
            assert!(store.replace_copy_text(&current, "{}").await.unwrap());
            assert!(!set("", "{\"old\":1}").await);
            let session = store.session("t", id).await.unwrap().unwrap();
            assert_eq!((session.generation.as_str(), session.copy.as_deref()), ("one", Some("{}")));
            assert_eq!(store.last_message(id).await.unwrap(), 0);
            store.insert_user_message("t", id, "{}").await.unwrap();
            assert_eq!(store.last_message(id).await.unwrap(), 1);
            store.mark_changed(id).await.unwrap();
            assert_eq!(store.sessions_to_copy().await.unwrap().len(), 1);
        }
    }

    #[tokio::test]
    async fn objects_of_abandoned_uploads_and_of_deleted_sessions_are_to_be_deleted() {
        for store in stores().await {
            let (id, upload) = (Uuid::new_v4(), Uuid::new_v4());
            let new = NewSession { id, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
            store.insert_session(&new).await.unwrap();
            let objects = async || {
                let mut due = store.due_removals().await.unwrap();
                due.sort_by(|one, other| one.1.cmp(&other.1));
                due.into_iter().map(|(_, objects)| objects).collect::<Vec<_>>()
            };
            store.begin_upload(upload, "[\"a\"]").await.unwrap();
            let copy = NewCopy { copy: "{\"key\":\"a\"}", changes: 1, upload, replaced: "[\"z\"]" };
            assert!(store.set_copy(id, "", &copy).await.unwrap());
            assert_eq!(objects().await, ["[\"z\"]"]);
            // A server that has started since deletes the objects.
            assert!(!store.set_copy(id, "", &copy).await.unwrap());
            let upload = Uuid::new_v4();
            store.begin_upload(upload, "[\"b\"]").await.unwrap();
            assert_eq!(objects().await.len(), 1);
            store.abandon_all_uploads().await.unwrap();
            assert!(!store.set_copy(id, "", &NewCopy { upload, ..copy }).await.unwrap());
            store.delete_session(id).await.unwrap();
            assert_eq!(objects().await, ["[\"b\"]", "[\"z\"]", "{\"key\":\"a\"}"]);
            for (id, _) in store.due_removals().await.unwrap() {
                store.finish_removal(&id).await.unwrap();
            }
            assert!(objects().await.is_empty());
        }
    }
}
