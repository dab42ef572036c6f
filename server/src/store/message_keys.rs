//! The table `message_keys`: messages that a client repeats because it does not know whether they arrived.

use super::Store;
use super::records::{Role, insert_message, update_last_active};
use crate::clock;
use crate::error::Result;
use sqlx::FromRow;
use uuid::Uuid;

/// A message with a key.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct KeyedMessage {
    /// The hash of its body.
    pub body_hash: String,
    /// The command id of its turn.
    pub turn_id: String,
    /// The number of a bridge event before those of the turn.
    pub after_event: i64,
}

impl Store {
    /// Inserts a message of a client, unless the session has one with this key. Returns the message of the key.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn insert_message_once(
        &self,
        tenant: &str,
        session: Uuid,
        content: &str,
        key: &str,
        new: KeyedMessage,
    ) -> Result<KeyedMessage> {
        let mut transaction = self.writer.begin().await?;
        // Locks the session: of two repetitions at once, the second one waits and finds the first.
        update_last_active(&mut transaction, session).await?;
        let statement = "SELECT body_hash, turn_id, after_event FROM message_keys \
             WHERE session_id = $1 AND idempotency_key = $2";
        let found: Option<KeyedMessage> = sqlx::query_as(statement)
            .bind(session.to_string())
            .bind(key)
            .fetch_optional(&mut *transaction)
            .await?;
        if let Some(found) = found {
            return Ok(found);
        }
        let statement = "INSERT INTO message_keys \
             (session_id, idempotency_key, body_hash, turn_id, after_event, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6)";
        sqlx::query(statement)
            .bind(session.to_string())
            .bind(key)
            .bind(&new.body_hash)
            .bind(&new.turn_id)
            .bind(new.after_event)
            .bind(clock::now())
            .execute(&mut *transaction)
            .await?;
        insert_message(&mut transaction, tenant, session, Role::User, content).await?;
        transaction.commit().await?;
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::super::{NewSession, Page};
    use super::*;

    fn message(number: i64) -> KeyedMessage {
        KeyedMessage { body_hash: "h".into(), turn_id: format!("turn-{number}"), after_event: number }
    }

    #[tokio::test]
    async fn repetitions_find_the_first_message() {
        for store in stores().await {
            let id = Uuid::new_v4();
            let new = NewSession { id, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
            store.insert_session(&new).await.unwrap();
            let writers: Vec<_> = (0..20)
                .map(|number| {
                    let store = (*store).clone();
                    tokio::spawn(async move {
                        store.insert_message_once("t", id, "x", "k", message(number)).await
                    })
                })
                .collect();
            let mut found = Vec::new();
            for writer in writers {
                found.push(writer.await.unwrap().unwrap());
            }
            assert!(found.iter().all(|message| *message == found[0]), "{found:?}");
            let other = store.insert_message_once("t", id, "x", "other", message(77)).await.unwrap();
            assert_eq!(other, message(77));
            let page = Page { limit: 100, after: 0 };
            assert_eq!(store.messages("t", id, page).await.unwrap().len(), 2);
        }
    }
}
