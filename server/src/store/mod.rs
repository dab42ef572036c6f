//! The database: SQLite or PostgreSQL, by the same statements. Both take `$1` for a parameter.

mod agents;
mod keys;
mod records;
mod sessions;

pub use agents::{Agent, Deployment};
pub use records::{EventRow, MessageRow, NewEvent, Page, Recorded, Role};
pub use sessions::{NewSession, Session, Status};

use crate::error::{Context, Result};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, Executor};
use std::str::FromStr;
use uuid::Uuid;

/// Connections at once; SQLite has one writer at a time anyway.
const CONNECTIONS: u32 = 8;

/// The database.
#[derive(Debug, Clone)]
pub struct Store {
    pool: AnyPool,
}

impl Store {
    /// Connects, and brings the tables to the form of this version.
    ///
    /// # Errors
    /// There is no such database, or its tables are of a later version.
    pub async fn open(url: &str) -> Result<Self> {
        sqlx::any::install_default_drivers();
        // Not the whole URL: it may have a password.
        let scheme = url.split(':').next().unwrap_or_default().to_owned();
        let options = AnyConnectOptions::from_str(url).context(|| format!("the {scheme} database"))?;
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
            .context(|| format!("open the {scheme} database"))?;
        sqlx::migrate!().run(&pool).await.context(|| format!("the tables of the {scheme} database"))?;
        Ok(Store { pool })
    }
}

/// With a write-ahead log readers do not wait for the writer. Its commits survive a crash of the server in any case, and
/// with `FULL` one of the machine.
async fn prepare_sqlite(connection: &mut AnyConnection) -> sqlx::Result<()> {
    connection
        .execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 10000;")
        .await?;
    Ok(())
}

/// A new id of a row.
fn new_id() -> String {
    Uuid::new_v4().to_string()
}

#[cfg(test)]
pub(crate) mod testing {
    use super::Store;

    /// An empty database, and what it is kept in.
    pub(crate) async fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", directory.path().join("db").display());
        let store = Store::open(&url).await.unwrap();
        (directory, store)
    }
}
