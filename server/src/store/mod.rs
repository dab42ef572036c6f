//! The database. SQLite and PostgreSQL run the same statements, with `$1` for parameters.

mod agents;
mod attachments;
mod copies;
mod credentials;
mod keys;
mod lock;
mod message_keys;
mod queue;
mod recording;
mod records;
mod sessions;
mod usage;
mod versions;
mod warm_sessions;

pub use agents::{Agent, Deployment};
pub use attachments::{AttachmentRow, NewAttachment};
pub use copies::NewCopy;
pub use credentials::{NewCredential, StoredCredential};
pub use keys::{DeletedKey, StoredKey};
pub use lock::DatabaseLock;
pub use message_keys::KeyedMessage;
pub use queue::{NewQueueItem, QUEUE_STATUSES, QueueItem};
pub use recording::RecordedRow;
pub use records::{EventRow, MessageRow, NewEvent, Page, Role};
pub use sessions::{NewSession, Session, SessionFilter, Status};
pub use usage::{NewUsage, UsageEventRow, UsageFilter, UsageKind};
pub use versions::{PromptVersion, VersionContent, VersionKey};

use crate::error::{Context, Error, Result};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, Executor};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Maximum number of connections, besides the one that writes to SQLite.
const CONNECTIONS: u32 = 8;

/// How long a request waits for a connection to PostgreSQL, which may be starting, before it fails.
const POSTGRES_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request waits for a connection to SQLite while others use all of them.
const SQLITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections to the database.
#[derive(Debug, Clone)]
pub struct Store {
    /// For statements that only read.
    pool: AnyPool,
    /// For the others. SQLite has one writer at a time: a second connection would ask again and again whether it may write,
    /// with pauses of up to 100 ms. Here it waits for its turn.
    writer: AnyPool,
    kind: DatabaseKind,
    machine: Arc<str>,
}

/// A supported kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DatabaseKind {
    Sqlite,
    Postgres,
}

impl fmt::Display for DatabaseKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            DatabaseKind::Sqlite => "SQLite",
            DatabaseKind::Postgres => "PostgreSQL",
        })
    }
}

impl Store {
    /// Connects to the database and migrates it to the current schema.
    ///
    /// # Errors
    /// Fails if the database cannot be opened, or if its schema is newer than this version.
    pub async fn open(url: &str) -> Result<Self> {
        let (kind, options) = connect_options(url)?;
        let connect = async |connections| {
            let timeout = match kind {
                DatabaseKind::Sqlite => SQLITE_TIMEOUT,
                DatabaseKind::Postgres => POSTGRES_TIMEOUT,
            };
            AnyPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(timeout)
                // A connection to a file does not break while it is idle.
                .test_before_acquire(kind == DatabaseKind::Postgres)
                .after_connect(move |connection, _| Box::pin(prepare_connection(connection, kind)))
                .connect_with(options.clone())
                .await
                .context(|| format!("cannot open the {kind} database"))
        };
        let pool = connect(CONNECTIONS).await?;
        let writer = match kind {
            DatabaseKind::Sqlite => connect(1).await?,
            DatabaseKind::Postgres => pool.clone(),
        };
        sqlx::migrate!().run(&writer).await.context(|| format!("cannot migrate the {kind} database"))?;
        Ok(Store { pool, writer, kind, machine: Arc::from("") })
    }

    /// Whether all statements that write have one connection.
    fn has_one_writer(&self) -> bool {
        self.kind == DatabaseKind::Sqlite
    }

    /// The same database, for a server whose data directory has this id. It is stored with the changes of deployed files.
    #[must_use]
    pub fn for_machine(self, machine: &str) -> Self {
        Store { machine: machine.into(), ..self }
    }

    /// The id of the data directory of this server.
    pub fn machine(&self) -> &str {
        &self.machine
    }
}

/// Parses the URL of a database. Errors do not contain the URL: it can contain a password.
fn connect_options(url: &str) -> Result<(DatabaseKind, AnyConnectOptions)> {
    sqlx::any::install_default_drivers();
    let kind = match url.split(':').next() {
        Some("sqlite") => DatabaseKind::Sqlite,
        Some("postgres" | "postgresql") => DatabaseKind::Postgres,
        _ => {
            return Err(Error::new(
                "invalid URL of the database: it must begin with sqlite:// or postgres://",
            ));
        }
    };
    let options =
        AnyConnectOptions::from_str(url).context(|| format!("invalid URL of the {kind} database"))?;
    Ok((kind, options))
}

/// Sets the options of a new connection.
///
/// In WAL mode of SQLite, readers do not wait for the writer. With `synchronous = NORMAL`, commits survive a crash of
/// the server; a crash of the machine can lose the last ones (`FULL` would retain them).
///
/// In PostgreSQL, each transaction locks the row of its session before it reads, so that `READ COMMITTED` suffices. If
/// the database had a stricter default, transactions that wait for each other would fail.
async fn prepare_connection(connection: &mut AnyConnection, kind: DatabaseKind) -> sqlx::Result<()> {
    connection
        .execute(match kind {
            DatabaseKind::Sqlite => {
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; \
                 PRAGMA busy_timeout = 10000;"
            }
            DatabaseKind::Postgres => {
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED"
            }
        })
        .await?;
    Ok(())
}

/// Generates the id of a row.
fn new_id() -> String {
    Uuid::new_v4().to_string()
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
