//! What was said in a session, and what happened in it: two lists, each with numbers of its own from 1.
//!
//! What the agent said comes from the recorder of the session, in one transaction with the number of the event of the bridge
//! up to which it is: whoever kills the server, each event has its rows once.

use super::{Store, new_id};
use crate::clock;
use crate::error::Result;
use sqlx::{AnyConnection, FromRow};
use uuid::Uuid;

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A client.
    User,
    /// The agent.
    Assistant,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Such as `text` or `lifecycle`.
    pub kind: &'static str,
    /// A JSON object.
    pub data: String,
}

/// What an event of the bridge leaves in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// A message of the agent, as JSON.
    Message(String),
    /// An event.
    Event(NewEvent),
}

/// A row of `messages`.
#[derive(Debug, FromRow)]
pub struct MessageRow {
    /// A UUID.
    pub id: String,
    /// The session.
    pub session_id: String,
    /// The tenant.
    pub tenant_id: String,
    /// `user` or `assistant`.
    pub role: String,
    /// JSON.
    pub content: String,
    /// From 1.
    pub sequence: i64,
    /// A time.
    pub created_at: String,
}

/// A row of `session_events`.
#[derive(Debug, FromRow)]
pub struct EventRow {
    /// A UUID.
    pub id: String,
    /// The session.
    pub session_id: String,
    /// The tenant.
    pub tenant_id: String,
    /// The kind.
    #[sqlx(rename = "type")]
    pub kind: String,
    /// JSON.
    pub data: Option<String>,
    /// From 1.
    pub sequence: i64,
    /// A time.
    pub created_at: String,
}

/// A part of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// At most so many rows,
    pub limit: i64,
    /// whose numbers are greater.
    pub after: i64,
}

impl Store {
    /// Adds what a client said.
    ///
    /// # Errors
    /// The database fails.
    pub async fn insert_user_message(&self, tenant: &str, session: Uuid, content: &str) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        touch(&mut transaction, session).await?;
        insert_message(&mut transaction, tenant, session, Role::User, content).await?;
        Ok(transaction.commit().await?)
    }

    /// Adds an event that is not of the agent.
    ///
    /// # Errors
    /// The database fails.
    pub async fn insert_event(&self, tenant: &str, session: Uuid, event: &NewEvent) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        touch(&mut transaction, session).await?;
        insert_event(&mut transaction, tenant, session, event).await?;
        Ok(transaction.commit().await?)
    }

    /// Adds what the events of the bridge after `after` up to `number` said, and notes the number. Nothing happens, and it is
    /// false, if the database has other events than those up to `after`, or the session is gone.
    ///
    /// # Errors
    /// The database fails; then nothing of it is kept.
    pub async fn record(
        &self,
        tenant: &str,
        session: Uuid,
        (after, number): (u64, u64),
        rows: &[Recorded],
    ) -> Result<bool> {
        let stored = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let mut transaction = self.pool.begin().await?;
        let statement =
            "UPDATE sessions SET recorded = $3, last_active_at = $4 WHERE id = $1 AND recorded = $2";
        let noted = sqlx::query(statement)
            .bind(session.to_string())
            .bind(stored(after))
            .bind(stored(number))
            .bind(clock::now())
            .execute(&mut *transaction)
            .await?;
        if noted.rows_affected() == 0 {
            return Ok(false);
        }
        for row in rows {
            match row {
                Recorded::Message(content) => {
                    insert_message(&mut transaction, tenant, session, Role::Assistant, content).await?;
                }
                Recorded::Event(event) => insert_event(&mut transaction, tenant, session, event).await?,
            }
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Messages in their order.
    ///
    /// # Errors
    /// The database fails.
    pub async fn messages(&self, tenant: &str, session: Uuid, page: Page) -> Result<Vec<MessageRow>> {
        let statement = "SELECT * FROM messages WHERE tenant_id = $1 AND session_id = $2 AND sequence > $3 \
             ORDER BY sequence LIMIT $4";
        let query = sqlx::query_as(statement).bind(tenant).bind(session.to_string());
        Ok(query.bind(page.after).bind(page.limit).fetch_all(&self.pool).await?)
    }

    /// Events in their order; those of one kind, if it is named.
    ///
    /// # Errors
    /// The database fails.
    pub async fn events(
        &self,
        tenant: &str,
        session: Uuid,
        page: Page,
        kind: Option<&str>,
    ) -> Result<Vec<EventRow>> {
        let statement = "SELECT * FROM session_events WHERE tenant_id = $1 AND session_id = $2 AND sequence > $3 \
             AND ($5 = '' OR type = $5) ORDER BY sequence LIMIT $4";
        let query = sqlx::query_as(statement).bind(tenant).bind(session.to_string()).bind(page.after);
        Ok(query.bind(page.limit).bind(kind.unwrap_or_default()).fetch_all(&self.pool).await?)
    }
}

/// Notes that a session was used. It comes first in a transaction that adds rows, since it locks the row of the session: two
/// at once would both take the same next number.
async fn touch(connection: &mut AnyConnection, session: Uuid) -> Result<()> {
    let statement = "UPDATE sessions SET last_active_at = $2 WHERE id = $1";
    sqlx::query(statement).bind(session.to_string()).bind(clock::now()).execute(connection).await?;
    Ok(())
}

async fn insert_message(
    connection: &mut AnyConnection,
    tenant: &str,
    session: Uuid,
    role: Role,
    content: &str,
) -> Result<()> {
    let statement = "INSERT INTO messages (id, tenant_id, session_id, role, content, created_at, sequence) \
         SELECT $1, $2, $3, $4, $5, $6, COALESCE(MAX(sequence), 0) + 1 FROM messages WHERE session_id = $3";
    sqlx::query(statement)
        .bind(new_id())
        .bind(tenant)
        .bind(session.to_string())
        .bind(role.name())
        .bind(content)
        .bind(clock::now())
        .execute(connection)
        .await?;
    Ok(())
}

async fn insert_event(
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
    use super::super::testing::store;
    use super::super::{NewSession, Status};
    use super::*;

    const ALL: Page = Page { limit: 1000, after: 0 };

    async fn session(store: &Store) -> Uuid {
        let id = Uuid::new_v4();
        let new = NewSession { id, tenant: "t", agent: "a", model: None, config: "{}" };
        assert_eq!(store.insert_session(&new).await.unwrap().status, Status::Starting);
        id
    }

    fn event(kind: &'static str) -> NewEvent {
        NewEvent { kind, data: "{}".into() }
    }

    #[tokio::test]
    async fn events_that_were_recorded_are_not_recorded_again() {
        let (_directory, store) = store().await;
        let id = session(&store).await;
        let rows = [Recorded::Message("1".into()), Recorded::Event(event("text"))];
        store.insert_user_message("t", id, "u").await.unwrap();
        assert!(store.record("t", id, (0, 5), &rows).await.unwrap());
        for again in [(0, 5), (0, 6), (3, 6), (6, 7)] {
            assert!(!store.record("t", id, again, &rows).await.unwrap(), "{again:?}");
        }
        assert!(store.record("t", id, (5, 6), &[]).await.unwrap());
        let messages = store.messages("t", id, ALL).await.unwrap();
        let seen: Vec<_> = messages.iter().map(|row| (row.sequence, row.role.as_str())).collect();
        assert_eq!(seen, [(1, "user"), (2, "assistant")]);
        assert_eq!(store.events("t", id, ALL, None).await.unwrap().len(), 1);
        assert_eq!(store.session("t", id).await.unwrap().unwrap().recorded, 6);
        // Of a session that was deleted meanwhile there is nothing to keep.
        assert!(!store.record("t", Uuid::new_v4(), (0, 1), &rows).await.unwrap());
    }

    #[tokio::test]
    async fn lists_come_in_parts_and_by_kind_and_tenant() {
        let (_directory, store) = store().await;
        let id = session(&store).await;
        for kind in ["text", "lifecycle", "text"] {
            store.insert_event("t", id, &event(kind)).await.unwrap();
        }
        let part = Page { limit: 1, after: 1 };
        assert_eq!(store.events("t", id, part, None).await.unwrap()[0].kind, "lifecycle");
        let texts = store.events("t", id, ALL, Some("text")).await.unwrap();
        assert_eq!(texts.iter().map(|row| row.sequence).collect::<Vec<_>>(), [1, 3]);
        assert!(store.events("other", id, ALL, None).await.unwrap().is_empty());
        assert!(store.session("other", id).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn writers_at_once_get_numbers_of_their_own() {
        let (_directory, store) = store().await;
        let id = session(&store).await;
        let writers: Vec<_> = (0..20)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.insert_user_message("t", id, "x").await })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap().unwrap();
        }
        let numbers: Vec<_> =
            store.messages("t", id, ALL).await.unwrap().iter().map(|row| row.sequence).collect();
        assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    }
}
