//! The table `attachments`. The files are in the data directory.

use super::Store;
use crate::clock;
use crate::error::Result;
use sqlx::FromRow;
use uuid::Uuid;

/// A row of `attachments`.
#[derive(Debug, FromRow)]
pub struct AttachmentRow {
    /// A UUID, and the name of the file.
    pub id: String,
    /// The tenant that owns the session.
    pub tenant_id: String,
    /// The session of the attachment.
    pub session_id: String,
    /// The message that it belongs to, as the client named it.
    pub message_id: Option<String>,
    /// The name that the client chose: one path component.
    pub filename: String,
    /// The media type that the client named, unchecked.
    pub mime_type: String,
    /// The size in bytes.
    pub size: i64,
    /// Insertion time, as a timestamp of [`clock`].
    pub created_at: String,
}

/// An attachment to insert.
#[derive(Debug)]
pub struct NewAttachment<'a> {
    /// The id of the attachment.
    pub id: Uuid,
    /// The tenant that owns the session.
    pub tenant: &'a str,
    /// The session of the attachment.
    pub session: Uuid,
    /// The message that it belongs to.
    pub message: Option<Uuid>,
    /// The name that the client chose.
    pub filename: &'a str,
    /// The media type.
    pub mime_type: &'a str,
    /// The size in bytes.
    pub size: usize,
}

impl Store {
    /// Inserts an attachment.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written, or if the session does not exist.
    pub async fn insert_attachment(&self, new: &NewAttachment<'_>) -> Result<AttachmentRow> {
        let statement = "INSERT INTO attachments (id, tenant_id, session_id, message_id, filename, mime_type, size, \
             created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING *";
        let query = sqlx::query_as(statement)
            .bind(new.id.to_string())
            .bind(new.tenant)
            .bind(new.session.to_string())
            .bind(new.message.map(|message| message.to_string()))
            .bind(new.filename)
            .bind(new.mime_type)
            .bind(i64::try_from(new.size).unwrap_or(i64::MAX))
            .bind(clock::now());
        Ok(query.fetch_one(&self.writer).await?)
    }

    /// Returns an attachment of a tenant.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn attachment(&self, tenant: &str, id: Uuid) -> Result<Option<AttachmentRow>> {
        let statement = "SELECT * FROM attachments WHERE id = $1 AND tenant_id = $2";
        let query = sqlx::query_as(statement).bind(id.to_string()).bind(tenant);
        Ok(query.fetch_optional(&self.pool).await?)
    }

    /// Lists the attachments of a session, the oldest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn attachments(&self, tenant: &str, session: Uuid) -> Result<Vec<AttachmentRow>> {
        let statement =
            "SELECT * FROM attachments WHERE session_id = $1 AND tenant_id = $2 ORDER BY created_at, id";
        let query = sqlx::query_as(statement).bind(session.to_string()).bind(tenant);
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// Deletes an attachment of a tenant. Returns whether it existed.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn delete_attachment(&self, tenant: &str, id: Uuid) -> Result<bool> {
        let statement = "DELETE FROM attachments WHERE id = $1 AND tenant_id = $2";
        let query = sqlx::query(statement).bind(id.to_string()).bind(tenant);
        Ok(query.execute(&self.writer).await?.rows_affected() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::NewSession;
    use super::super::testing::stores;
    use super::*;

    #[tokio::test]
    async fn attachments_belong_to_their_session_and_tenant() {
        for store in stores().await {
            let session = Uuid::new_v4();
            let new = |id, session| NewAttachment {
                id,
                tenant: "t",
                session,
                message: None,
                filename: "ä b.txt",
                mime_type: "text/plain",
                size: 5,
            };
            let id = Uuid::new_v4();
            assert!(store.insert_attachment(&new(id, session)).await.is_err(), "{}", store.scheme);
            let owner =
                NewSession { id: session, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
            store.insert_session(&owner).await.unwrap();
            let inserted = store.insert_attachment(&new(id, session)).await.unwrap();
            assert_eq!(
                (inserted.filename.as_str(), inserted.size, inserted.message_id),
                ("ä b.txt", 5, None)
            );
            let other = Uuid::new_v4();
            store.insert_attachment(&new(other, session)).await.unwrap();
            assert_eq!(store.attachments("t", session).await.unwrap().len(), 2);
            assert!(store.attachments("other", session).await.unwrap().is_empty());
            assert!(store.attachment("other", id).await.unwrap().is_none());
            assert!(!store.delete_attachment("other", id).await.unwrap());
            assert!(store.delete_attachment("t", id).await.unwrap());
            assert!(!store.delete_attachment("t", id).await.unwrap());
            store.delete_session(session).await.unwrap();
            assert!(store.attachment("t", other).await.unwrap().is_none(), "{}", store.scheme);
        }
    }
}
