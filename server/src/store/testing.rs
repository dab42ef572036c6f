//! Databases for unit tests.

#[path = "../../tests/server/support/postgres.rs"]
mod postgres;
#[path = "../../tests/server/support/skip.rs"]
mod skip;

pub(crate) use postgres::{Cluster, TestDatabase, shared_url};
pub(crate) use skip::report_skip;

use super::Store;
use std::ops::Deref;
use tempfile::TempDir;

/// An empty, migrated database.
pub(crate) struct TestStore {
    store: Store,
    /// For messages of assertions.
    pub(crate) scheme: &'static str,
    _sqlite: Option<TempDir>,
    _postgres: Option<TestDatabase>,
}

impl Deref for TestStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

/// Creates a database of each kind. Without PostgreSQL, that part of the test is skipped.
pub(crate) async fn stores() -> Vec<TestStore> {
    let mut stores = vec![sqlite_store().await];
    match shared_url() {
        Ok(server) => stores.push(postgres_store(&server).await),
        Err(reason) => report_skip(&reason),
    }
    stores
}

/// Creates a SQLite database in a temporary directory.
async fn sqlite_store() -> TestStore {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}?mode=rwc", directory.path().join("db").display());
    let store = Store::open(&url).await.unwrap();
    TestStore { store, scheme: "sqlite", _sqlite: Some(directory), _postgres: None }
}

/// Creates a database on the PostgreSQL server with this URL.
pub(crate) async fn postgres_store(server: &str) -> TestStore {
    let database = TestDatabase::create(server);
    let store = Store::open(&database.url()).await.unwrap();
    TestStore { store, scheme: "postgres", _sqlite: None, _postgres: Some(database) }
}
