//! The connection and the schema, on both kinds of databases.

use super::testing::{Cluster, TestStore, postgres_store, report_skip, stores};
use super::*;
use crate::error::DatabaseFailure;

/// Table, column, type and whether the column can be null.
type Column = (String, String, String, i64);

async fn columns(store: &TestStore) -> Vec<Column> {
    let statement = match store.scheme {
        "sqlite" => {
            "SELECT tables.name, columns.name, LOWER(columns.type), columns.\"notnull\" = 0 AND columns.pk = 0 \
             FROM sqlite_master AS tables JOIN pragma_table_info(tables.name) AS columns \
             WHERE tables.type = 'table'"
        }
        _ => {
            "SELECT CAST(table_name AS TEXT), CAST(column_name AS TEXT), CAST(data_type AS TEXT), \
             CAST(CASE is_nullable WHEN 'YES' THEN 1 ELSE 0 END AS BIGINT) \
             FROM information_schema.columns WHERE table_schema = current_schema()"
        }
    };
    let mut columns: Vec<Column> = sqlx::query_as(statement).fetch_all(&store.pool).await.unwrap();
    columns.retain(|(table, ..)| !table.starts_with("_sqlx"));
    columns.sort();
    columns
}

#[tokio::test]
async fn schemas_of_both_databases_are_equal() {
    let stores = stores().await;
    let expected = columns(&stores[0]).await;
    assert!(expected.len() > 30, "{expected:?}");
    for store in &stores {
        assert_eq!(columns(store).await, expected, "{}", store.scheme);
    }
}

#[tokio::test]
async fn errors_do_not_contain_the_password() {
    let urls = [
        "postgres://ann:secret@127.0.0.1:1/db",
        "postgresql://ann:secret@[::1/db",
        "postgres://ann:secret@127.0.0.1:1/db?sslmode=none",
        "mysql://ann:secret@127.0.0.1/db",
        "ann:secret@127.0.0.1/db",
    ];
    for url in &urls[1..] {
        let error = Store::open(url).await.unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
    let error = DatabaseLock::acquire(urls[0]).await.unwrap_err().to_string();
    assert!(error.contains("PostgreSQL") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn store_connects_again_after_a_restart_of_postgres() {
    let mut cluster = match Cluster::start() {
        Ok(cluster) => cluster,
        Err(reason) => return report_skip(&reason),
    };
    let store = postgres_store(&cluster.url()).await;
    store.insert_api_key("t", "hash", "label").await.unwrap();
    cluster.stop();
    let error = store.has_api_key().await.unwrap_err();
    assert_eq!(error.database_failure(), Some(DatabaseFailure::Unavailable), "{error}");
    cluster.restart();
    assert!(store.has_api_key().await.unwrap());
    // Connections that were open during the restart are replaced before they are used.
    cluster.stop();
    cluster.restart();
    assert!(store.has_api_key().await.unwrap());
}

#[tokio::test]
async fn nul_character_is_an_invalid_value_in_postgres() {
    for store in stores().await {
        let found = store.agent("t", "a\0").await.map_err(|error| error.database_failure());
        match store.scheme {
            "sqlite" => assert!(found.unwrap().is_none()),
            _ => assert_eq!(found.unwrap_err(), Some(DatabaseFailure::NulCharacter)),
        }
    }
}
