//! The lock of a PostgreSQL database: one server uses it at a time. A second server would set the status of the first
//! one's running sessions to `error`, since it finds no sandbox of them in its own data directory. SQLite has no such
//! lock: its default file is in the data directory, which has one.

use super::{DatabaseKind, connect_options};
use crate::error::{Context, Error, Result};
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};
use std::fmt;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tracing::{error, info};

/// The key of the advisory lock: `saggar` in ASCII. PostgreSQL has separate locks for each database.
const LOCK_KEY: i64 = 0x7361_6767_6172;
/// Interval between checks of the connection that holds the lock.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How long a server waits for the lock: PostgreSQL releases that of a killed server when it notices that the
/// connection was closed, which takes a moment.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// If the machine of a server has lost power, only keepalive packets show that its connection is closed.
const SET_KEEPALIVE: &str = "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; \
     SET tcp_keepalives_count = 3";

/// The lock of a database, held by a connection that is used for nothing else.
pub struct DatabaseLock {
    connection: AnyConnection,
    url: String,
}

impl fmt::Debug for DatabaseLock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the URL, which can contain a password.
        formatter.debug_struct("DatabaseLock").finish_non_exhaustive()
    }
}

impl DatabaseLock {
    /// Locks the database with this URL. Returns `None` if it is not a PostgreSQL database.
    ///
    /// # Errors
    /// Fails if the database cannot be opened, or if another server holds its lock.
    pub async fn acquire(url: &str) -> Result<Option<Self>> {
        DatabaseLock::acquire_within(url, LOCK_TIMEOUT).await
    }

    async fn acquire_within(url: &str, timeout: Duration) -> Result<Option<Self>> {
        let (kind, options) = connect_options(url)?;
        if kind == DatabaseKind::Sqlite {
            return Ok(None);
        }
        let context = || format!("cannot use the {kind} database");
        let mut connection = AnyConnection::connect_with(&options).await.context(context)?;
        let set_timeout = format!("SET lock_timeout = {}; {SET_KEEPALIVE}", timeout.as_millis());
        connection.execute(AssertSqlSafe(set_timeout)).await.context(context)?;
        let locked = sqlx::query("SELECT CAST(pg_advisory_lock($1) AS TEXT)").bind(LOCK_KEY);
        match locked.execute(&mut connection).await {
            Ok(_) => Ok(Some(DatabaseLock { connection, url: url.to_owned() })),
            Err(error) if is_lock_timeout(&error) => Err(Error::new(format!(
                "{}: another saggar-server uses it; stop that server, or use another database with --database-url",
                context()
            ))),
            Err(error) => Err(error).context(context),
        }
    }

    /// Locks the database again whenever the connection has been lost, for example since PostgreSQL was restarted.
    /// Never returns.
    pub async fn maintain(mut self) {
        loop {
            sleep(CHECK_INTERVAL).await;
            self.check().await;
        }
    }

    /// Locks the database again if the connection has been lost. Until that succeeds, another server can lock it.
    async fn check(&mut self) {
        if let Ok(Ok(())) = timeout(CHECK_INTERVAL, self.connection.ping()).await {
            return;
        }
        match DatabaseLock::acquire(&self.url).await {
            Ok(Some(lock)) => {
                *self = lock;
                info!("locked the database again after its connection was lost");
            }
            Ok(None) => {}
            Err(error) => error!("the connection that locks the database is lost: {error}; retrying"),
        }
    }
}

/// Whether the error is `lock_not_available`.
fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Cluster, TestDatabase, report_skip, shared_url};
    use super::*;

    async fn assert_locked(url: &str) {
        let refused = DatabaseLock::acquire_within(url, Duration::from_millis(1)).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("another saggar-server uses it"), "{error}");
    }

    #[tokio::test]
    async fn database_is_locked_until_its_lock_is_dropped() {
        let server = match shared_url() {
            Ok(server) => server,
            Err(reason) => return report_skip(&reason),
        };
        let (database, other) = (TestDatabase::create(&server), TestDatabase::create(&server));
        let lock = DatabaseLock::acquire(&database.url()).await.unwrap().unwrap();
        assert_locked(&database.url()).await;
        assert!(DatabaseLock::acquire(&other.url()).await.unwrap().is_some());
        drop(lock);
        assert!(DatabaseLock::acquire(&database.url()).await.unwrap().is_some());
        assert!(DatabaseLock::acquire("sqlite::memory:").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn database_is_locked_again_after_a_restart_of_postgres() {
        let mut cluster = match Cluster::start() {
            Ok(cluster) => cluster,
            Err(reason) => return report_skip(&reason),
        };
        let mut lock = DatabaseLock::acquire(&cluster.url()).await.unwrap().unwrap();
        cluster.stop();
        lock.check().await;
        cluster.restart();
        lock.check().await;
        assert_locked(&cluster.url()).await;
    }
}
