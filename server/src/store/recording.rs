//! Stores bridge events: the rows that the recorder of a session derives from them.
//!
//! Each statement is a round trip to the database, or to the thread of SQLite. While agents stream, this is most of what
//! the server does, so that the rows of one table are one statement.

use super::usage::{NewUsage, UsageKind, new_cost};
use super::{NewEvent, Role, Store, new_id};
use crate::clock;
use crate::error::Result;
use sqlx::{AnyConnection, AssertSqlSafe, FromRow};
use std::fmt::Write;
use uuid::Uuid;

/// Maximum number of rows in one statement. Each has [`VALUES_PER_ROW`] parameters of at most 32766, the limit of SQLite.
const MAX_ROWS: usize = 1000;
const VALUES_PER_ROW: usize = 4;

/// A row that stores a bridge event or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedRow {
    /// A row of `messages`: the agent's message, as JSON.
    Message(String),
    /// A row of `session_events`.
    Event(NewEvent),
    /// A row of `usage_events`.
    Usage(NewUsage),
}

/// A session whose row this transaction has locked.
#[derive(FromRow)]
struct LockedSession {
    agent_name: String,
    reported_cost: i64,
}

/// The last sequence numbers of a session.
#[derive(FromRow)]
struct LastNumbers {
    message: i64,
    event: i64,
}

/// A table with six columns of text and one of numbers. All three begin with the id, the tenant, the session and the time.
struct Table {
    name: &'static str,
    columns: &'static str,
}

const MESSAGES: Table = Table { name: "messages", columns: "role, content, sequence" };
const EVENTS: Table = Table { name: "session_events", columns: "type, data, sequence" };
const USAGE: Table = Table { name: "usage_events", columns: "agent_name, event_type, value" };

/// The values of the last three columns of a row.
type Row<'a> = (&'a str, &'a str, i64);

impl Store {
    /// Inserts the rows of the bridge events from `after + 1` to `number`, and stores `number` as the last recorded
    /// event. Returns false and changes nothing if the last recorded event is not `after`, or if the session has been
    /// deleted.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written; the transaction is rolled back.
    pub async fn record(
        &self,
        tenant: &str,
        session: Uuid,
        (after, number): (u64, u64),
        rows: &[RecordedRow],
    ) -> Result<bool> {
        let stored = |number| i64::try_from(number).unwrap_or(i64::MAX);
        let mut transaction = self.writer.begin().await?;
        // It locks the row of the session, so that concurrent transactions do not compute the same sequence number.
        let statement = "UPDATE sessions SET recorded = $3, last_active_at = $4, changes = changes + 1 \
             WHERE id = $1 AND recorded = $2 RETURNING agent_name, reported_cost";
        let updated: Option<LockedSession> = sqlx::query_as(statement)
            .bind(session.to_string())
            .bind(stored(after))
            .bind(stored(number))
            .bind(clock::now())
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(LockedSession { agent_name, reported_cost }) = updated else { return Ok(false) };
        // A statement of its own: the one that locks does not see the rows that it has waited for.
        let statement = "SELECT \
             (SELECT COALESCE(MAX(sequence), 0) FROM messages WHERE session_id = $1) AS message, \
             (SELECT COALESCE(MAX(sequence), 0) FROM session_events WHERE session_id = $1) AS event";
        let mut last: LastNumbers =
            sqlx::query_as(statement).bind(session.to_string()).fetch_one(&mut *transaction).await?;
        let (mut messages, mut events, mut usage) = (Vec::new(), Vec::new(), Vec::new());
        let mut cost = reported_cost;
        for row in rows {
            match row {
                RecordedRow::Message(content) => {
                    last.message += 1;
                    messages.push((Role::Assistant.name(), content.as_str(), last.message));
                }
                RecordedRow::Event(event) => {
                    last.event += 1;
                    events.push((event.kind, event.data.as_str(), last.event));
                }
                RecordedRow::Usage(NewUsage { kind, value }) => {
                    let value = match kind {
                        UsageKind::CostUsd => new_cost(&mut cost, *value),
                        _ => *value,
                    };
                    if value > 0 {
                        usage.push((agent_name.as_str(), kind.name(), value));
                    }
                }
            }
        }
        for (table, rows) in [(MESSAGES, messages), (EVENTS, events), (USAGE, usage)] {
            insert_rows(&mut transaction, &table, (tenant, session), &rows).await?;
        }
        if cost != reported_cost {
            sqlx::query("UPDATE sessions SET reported_cost = $2 WHERE id = $1")
                .bind(session.to_string())
                .bind(cost)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(true)
    }
}

async fn insert_rows(
    connection: &mut AnyConnection,
    Table { name, columns }: &Table,
    (tenant, session): (&str, Uuid),
    rows: &[Row<'_>],
) -> Result<()> {
    for rows in rows.chunks(MAX_ROWS) {
        let mut statement =
            format!("INSERT INTO {name} (tenant_id, session_id, created_at, id, {columns}) VALUES ");
        for index in 0..rows.len() {
            let [id, first, second, number] = [1, 2, 3, 4].map(|offset| 3 + index * VALUES_PER_ROW + offset);
            let separator = if index == 0 { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(statement, "{separator}($1, $2, $3, ${id}, ${first}, ${second}, ${number})");
        }
        let query = sqlx::query(AssertSqlSafe(statement));
        // Statements for other numbers of rows are not kept: they would displace those that are always the same.
        let mut query =
            query.persistent(rows.len() == 1).bind(tenant).bind(session.to_string()).bind(clock::now());
        for (first, second, number) in rows {
            query = query.bind(new_id()).bind(first).bind(second).bind(number);
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::stores;
    use super::super::{NewSession, Page, UsageFilter};
    use super::*;

    #[tokio::test]
    async fn rows_of_a_large_batch_keep_their_order_and_numbers() {
        for store in stores().await {
            let id = Uuid::new_v4();
            let new = NewSession { id, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
            store.insert_session(&new).await.unwrap();
            store.insert_user_message("t", id, "user").await.unwrap();
            let rows: Vec<RecordedRow> = (0..MAX_ROWS + 1)
                .flat_map(|index| {
                    let event = NewEvent { kind: "text", data: format!("{{\"n\":{index}}}") };
                    [RecordedRow::Message(index.to_string()), RecordedRow::Event(event)]
                })
                .chain(
                    [100, 150].map(|value| RecordedRow::Usage(NewUsage { kind: UsageKind::CostUsd, value })),
                )
                .collect();
            assert!(store.record("t", id, (0, 9), &rows).await.unwrap());
            let all = Page { limit: 10_000, after: 0 };
            let messages = store.messages("t", id, all).await.unwrap();
            let numbered = |index: usize| i64::try_from(index).unwrap() + 1;
            assert_eq!(messages.len(), MAX_ROWS + 2, "{}", store.scheme);
            for (index, message) in messages.iter().enumerate() {
                let content = if index == 0 { "user".to_owned() } else { (index - 1).to_string() };
                assert_eq!((message.sequence, &message.content), (numbered(index), &content));
            }
            for (index, event) in store.events("t", id, all, None).await.unwrap().iter().enumerate() {
                let data = format!("{{\"n\":{index}}}");
                assert_eq!((event.sequence, event.data.as_deref()), (numbered(index), Some(data.as_str())));
            }
            let totals = store.usage_totals("t", &UsageFilter::default()).await.unwrap();
            assert_eq!(totals, [("cost_usd".to_owned(), 150)]);
        }
    }
}
