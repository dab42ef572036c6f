//! The database. SQLite and PostgreSQL run the same statements, with `$1` for parameters.

mod agents;
mod credentials;
mod keys;
mod records;
mod sessions;
mod usage;
mod versions;

pub use agents::{Agent, Deployment};
pub use credentials::{NewCredential, StoredCredential};
pub use keys::{DeletedKey, StoredKey};
pub use records::{EventRow, MessageRow, NewEvent, Page, RecordedRow, Role};
pub use sessions::{NewSession, Session, SessionFilter, Status};
pub use usage::{NewUsage, UsageEventRow, UsageFilter, UsageKind};
pub use versions::{PromptVersion, VersionContent, VersionKey};

use crate::error::{Context, Result};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, Executor};
use std::str::FromStr;
use uuid::Uuid;

/// Maximum number of connections. SQLite allows one writer at a time.
const CONNECTIONS: u32 = 8;

/// A pool of database connections.
#[derive(Debug, Clone)]
pub struct Store {
    pool: AnyPool,
}

impl Store {
    /// Connects to the database and migrates it to the current schema.
    ///
    /// # Errors
    /// Fails if the database cannot be opened, or if its schema is newer than this version.
    pub async fn open(url: &str) -> Result<Self> {
        sqlx::any::install_default_drivers();
        // The error names only the scheme: the URL can contain a password.
        let scheme = url.split(':').next().unwrap_or_default().to_owned();
        let options =
            AnyConnectOptions::from_str(url).context(|| format!("invalid URL of the {scheme} database"))?;
        let is_sqlite = options.database_url.scheme() == "sqlite";
        let pool = AnyPoolOptions::new()
            .max_connections(CONNECTIONS)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    match is_sqlite {
                        true => prepare_sqlite(connection).await,
                        false => Ok(()),
                    }
                })
            })
            .connect_with(options)
            .await
            .context(|| format!("cannot open the {scheme} database"))?;
        sqlx::migrate!().run(&pool).await.context(|| format!("cannot migrate the {scheme} database"))?;
        Ok(Store { pool })
    }
}

/// In WAL mode, readers do not wait for the writer. With `synchronous = NORMAL`, commits survive a crash of the server;
/// a crash of the machine can lose the last ones (`FULL` would retain them).
async fn prepare_sqlite(connection: &mut AnyConnection) -> sqlx::Result<()> {
    connection
        .execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 10000;")
        .await?;
    Ok(())
}

/// Generates the id of a row.
fn new_id() -> String {
    Uuid::new_v4().to_string()
}

#[cfg(test)]
pub(crate) mod testing {
    use super::Store;
    use std::ops::Deref;
    use tempfile::TempDir;

    /// An empty, migrated database.
    pub(crate) struct TestStore {
        store: Store,
        _directory: TempDir,
    }

    impl Deref for TestStore {
        type Target = Store;

        fn deref(&self) -> &Store {
            &self.store
        }
    }

    /// Creates a database of each kind.
    pub(crate) async fn stores() -> Vec<TestStore> {
        let (directory, store) = store().await;
        vec![TestStore { store, _directory: directory }]
    }

    /// Creates an empty database in a temporary directory.
    pub(crate) async fn store() -> (TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", directory.path().join("db").display());
        let store = Store::open(&url).await.unwrap();
        (directory, store)
    }
}
