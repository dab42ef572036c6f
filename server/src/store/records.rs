//! The tables `messages` and `session_events`. In each session, both number their rows from 1.
//!
//! The recorder of a session inserts the rows of bridge events and the number of the last event in one transaction
//! (`recording`). Even if the server is killed, each event is therefore stored exactly once.

use super::{Store, new_id};
use crate::clock;
use crate::error::Result;
use serde_json::Value;
use sqlx::{AnyConnection, FromRow};
use uuid::Uuid;

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A client of the server.
    User,
    /// The agent in the sandbox.
    Assistant,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// An event to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The type of the event, such as `text` or `lifecycle`.
    pub kind: &'static str,
    /// The data of the event: a JSON object.
    pub data: String,
}

impl NewEvent {
    /// An event with this JSON object.
    pub fn new(kind: &'static str, data: &Value) -> Self {
        NewEvent { kind, data: data.to_string() }
    }
}

/// A row of `messages`.
#[derive(Debug, FromRow)]
pub struct MessageRow {
    /// A UUID.
    pub id: String,
    /// The session of the message.
    pub session_id: String,
    /// The tenant that owns the session.
    pub tenant_id: String,
    /// `user` or `assistant`.
    pub role: String,
    /// The message as JSON: from the agent byte for byte, from a user `{"type":"user","content":…}`.
    pub content: String,
    /// The position in the session, from 1.
    pub sequence: i64,
    /// Insertion time, as a timestamp of [`clock`].
    pub created_at: String,
}

/// A row of `session_events`.
#[derive(Debug, FromRow)]
pub struct EventRow {
    /// A UUID.
    pub id: String,
    /// The session of the event.
    pub session_id: String,
    /// The tenant that owns the session.
    pub tenant_id: String,
    /// The type of the event, such as `text` or `lifecycle`.
    #[sqlx(rename = "type")]
    pub kind: String,
    /// The data of the event: a JSON object.
    pub data: Option<String>,
    /// The position in the session, from 1.
    pub sequence: i64,
    /// Insertion time, as a timestamp of [`clock`].
    pub created_at: String,
}

/// The range of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Maximum number of rows.
    pub limit: i64,
    /// Only rows with a greater sequence number.
    pub after: i64,
}

impl Store {
    /// Inserts a message of a client, and returns its id. The first event of its turn updates the session.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn insert_user_message(&self, tenant: &str, session: Uuid, content: &str) -> Result<String> {
        if self.has_one_writer() {
            // No other connection can compute the same number, and the first event of the turn updates the session. The
            // client waits for one statement, and not for four.
            let mut writer = self.writer.acquire().await?;
            return insert_message(&mut writer, tenant, session, Role::User, content).await;
        }
        let mut transaction = self.writer.begin().await?;
        update_last_active(&mut transaction, session).await?;
        let id = insert_message(&mut transaction, tenant, session, Role::User, content).await?;
        transaction.commit().await?;
        Ok(id)
    }

    /// Deletes a message that the agent has not received.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn delete_message(&self, id: &str) -> Result<()> {
        sqlx::query("DELETE FROM messages WHERE id = $1").bind(id).execute(&self.writer).await?;
        Ok(())
    }

    /// Inserts an event that the server creates.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn insert_event(&self, tenant: &str, session: Uuid, event: &NewEvent) -> Result<()> {
        let mut transaction = self.writer.begin().await?;
        update_last_active(&mut transaction, session).await?;
        insert_event(&mut transaction, tenant, session, event).await?;
        Ok(transaction.commit().await?)
    }

    /// Copies the messages of one session to another that has none, with the same numbers.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn copy_messages(&self, tenant: &str, from: Uuid, to: Uuid) -> Result<()> {
        let mut transaction = self.writer.begin().await?;
        update_last_active(&mut transaction, to).await?;
        let statement = "SELECT * FROM messages WHERE tenant_id = $1 AND session_id = $2 ORDER BY sequence";
        let rows: Vec<MessageRow> = sqlx::query_as(statement)
            .bind(tenant)
            .bind(from.to_string())
            .fetch_all(&mut *transaction)
            .await?;
        let statement = "INSERT INTO messages (id, tenant_id, session_id, role, content, created_at, sequence) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)";
        for row in rows {
            sqlx::query(statement)
                .bind(new_id())
                .bind(tenant)
                .bind(to.to_string())
                .bind(row.role)
                .bind(row.content)
                .bind(row.created_at)
                .bind(row.sequence)
                .execute(&mut *transaction)
                .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// Lists messages by sequence number.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn messages(&self, tenant: &str, session: Uuid, page: Page) -> Result<Vec<MessageRow>> {
        let statement = "SELECT * FROM messages WHERE tenant_id = $1 AND session_id = $2 AND sequence > $3 \
             ORDER BY sequence LIMIT $4";
        let query = sqlx::query_as(statement).bind(tenant).bind(session.to_string());
        Ok(query.bind(page.after).bind(page.limit).fetch_all(&self.pool).await?)
    }

    /// Lists events by sequence number, of one type or of all. Those of the type `mcp_status` are listed only when
    /// asked for: the published Python client of Ash fails on a type that it does not know.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn events(
        &self,
        tenant: &str,
        session: Uuid,
        page: Page,
        kind: Option<&str>,
    ) -> Result<Vec<EventRow>> {
        let statement = "SELECT * FROM session_events WHERE tenant_id = $1 AND session_id = $2 AND sequence > $3 \
             AND (type = $5 OR $5 = '' AND type <> 'mcp_status') ORDER BY sequence LIMIT $4";
        let query = sqlx::query_as(statement).bind(tenant).bind(session.to_string()).bind(page.after);
        Ok(query.bind(page.limit).bind(kind.unwrap_or_default()).fetch_all(&self.pool).await?)
    }
}

/// Updates the time of the last activity. It must be the first statement of a transaction that inserts rows: it locks
/// the row of the session, so that concurrent transactions do not compute the same sequence number.
pub(super) async fn update_last_active(connection: &mut AnyConnection, session: Uuid) -> Result<()> {
    let statement = "UPDATE sessions SET last_active_at = $2, changes = changes + 1 WHERE id = $1";
    sqlx::query(statement).bind(session.to_string()).bind(clock::now()).execute(connection).await?;
    Ok(())
}

pub(super) async fn insert_message(
    connection: &mut AnyConnection,
    tenant: &str,
    session: Uuid,
    role: Role,
    content: &str,
) -> Result<String> {
    let id = new_id();
    let statement = "INSERT INTO messages (id, tenant_id, session_id, role, content, created_at, sequence) \
         SELECT $1, $2, $3, $4, $5, $6, COALESCE(MAX(sequence), 0) + 1 FROM messages WHERE session_id = $3";
    sqlx::query(statement)
        .bind(&id)
        .bind(tenant)
        .bind(session.to_string())
        .bind(role.name())
        .bind(content)
        .bind(clock::now())
        .execute(connection)
        .await?;
    Ok(id)
}

pub(super) async fn insert_event(
    connection: &mut AnyConnection,
    tenant: &str,
    session: Uuid,
    event: &NewEvent,
) -> Result<()> {
    let statement = "INSERT INTO session_events (id, tenant_id, session_id, type, data, created_at, sequence) \
         SELECT $1, $2, $3, $4, $5, $6, COALESCE(MAX(sequence), 0) + 1 FROM session_events WHERE session_id = $3";
    sqlx::query(statement)
        .bind(new_id())
        .bind(tenant)
        .bind(session.to_string())
        .bind(event.kind)
        .bind(&event.data)
        .bind(clock::now())
        .execute(connection)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::super::{NewSession, RecordedRow, Status};
    use super::*;

    const FIRST_PAGE: Page = Page { limit: 1000, after: 0 };

    async fn session(store: &Store) -> Uuid {
        let id = Uuid::new_v4();
        let new = NewSession { id, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
        assert_eq!(store.insert_session(&new).await.unwrap().status, Status::Starting);
        id
    }

    fn event(kind: &'static str) -> NewEvent {
        NewEvent { kind, data: "{}".into() }
    }

    #[tokio::test]
    async fn recorded_events_are_not_recorded_again() {
        for store in stores().await {
            let id = session(&store).await;
            let rows = [RecordedRow::Message("1".into()), RecordedRow::Event(event("text"))];
            store.insert_user_message("t", id, "u").await.unwrap();
            let unsent = store.insert_user_message("t", id, "unsent").await.unwrap();
            store.delete_message(&unsent).await.unwrap();
            assert!(store.record("t", id, (0, 5), &rows).await.unwrap());
            for again in [(0, 5), (0, 6), (3, 6), (6, 7)] {
                assert!(!store.record("t", id, again, &rows).await.unwrap(), "{again:?}");
            }
            assert!(store.record("t", id, (5, 6), &[]).await.unwrap());
            let messages = store.messages("t", id, FIRST_PAGE).await.unwrap();
            let seen: Vec<_> = messages.iter().map(|row| (row.sequence, row.role.as_str())).collect();
            assert_eq!(seen, [(1, "user"), (2, "assistant")]);
            assert_eq!(store.events("t", id, FIRST_PAGE, None).await.unwrap().len(), 1);
            assert_eq!(store.session("t", id).await.unwrap().unwrap().recorded, 6);
            // A deleted session has no rows to insert.
            assert!(!store.record("t", Uuid::new_v4(), (0, 1), &rows).await.unwrap());
        }
    }

    #[tokio::test]
    async fn lists_are_filtered_by_page_type_and_tenant() {
        for store in stores().await {
            let id = session(&store).await;
            for kind in ["text", "lifecycle", "text"] {
                store.insert_event("t", id, &event(kind)).await.unwrap();
            }
            let second_row = Page { limit: 1, after: 1 };
            assert_eq!(store.events("t", id, second_row, None).await.unwrap()[0].kind, "lifecycle");
            let texts = store.events("t", id, FIRST_PAGE, Some("text")).await.unwrap();
            assert_eq!(texts.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 3]);
            assert!(store.events("other", id, FIRST_PAGE, None).await.unwrap().is_empty());
            assert!(store.session("other", id).await.unwrap().is_none());
        }
    }

    /// Two connections write to one session: clients' messages, and events that compete for one number.
    #[tokio::test]
    async fn concurrent_writers_get_consecutive_sequence_numbers() {
        for store in stores().await {
            let id = session(&store).await;
            let row = [RecordedRow::Message("agent".into())];
            let mut writers = Vec::new();
            for _ in 0..20 {
                let store = (*store).clone();
                writers.push(tokio::spawn(async move {
                    store.insert_user_message("t", id, "user").await?;
                    Ok::<_, crate::error::Error>(false)
                }));
            }
            for _ in 0..20 {
                let (store, row) = ((*store).clone(), row.clone());
                writers.push(tokio::spawn(async move { store.record("t", id, (0, 1), &row).await }));
            }
            let mut recorded = 0;
            for writer in writers {
                recorded += usize::from(writer.await.unwrap().unwrap());
            }
            assert_eq!(recorded, 1, "{}", store.scheme);
            let messages = store.messages("t", id, FIRST_PAGE).await.unwrap();
            let numbers: Vec<_> = messages.iter().map(|row| row.sequence).collect();
            assert_eq!(numbers, (1..=21).collect::<Vec<_>>(), "{}", store.scheme);
        }
    }
}
