//! Errors outside of a request.

use crate::saggar::CommandError;
use std::fmt;

/// An error text: the failed operation, then its cause.
#[derive(Debug)]
pub struct Error {
    text: String,
    database_failure: Option<DatabaseFailure>,
}

/// A failure of the database that a client is informed about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseFailure {
    /// The database cannot be reached, or is busy. The request can be repeated.
    Unavailable,
    /// A text contains the character NUL, which PostgreSQL cannot store.
    NulCharacter,
}

/// A result with this module's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates an error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Error { text: text.into(), database_failure: None }
    }

    /// Returns the kind of a database failure, if a client is informed about it.
    pub fn database_failure(&self) -> Option<DatabaseFailure> {
        self.database_failure
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// Adds the failed operation to an error.
pub trait Context<T> {
    /// Prefixes the error with `what`, the operation that failed.
    ///
    /// # Errors
    /// The error of `self`, prefixed.
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| Error::new(format!("{}: {error}", what().into())))
    }
}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        Error::new(error.to_string())
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Error { text: format!("database: {error}"), database_failure: classify(&error) }
    }
}

/// Codes are those of PostgreSQL (appendix A of its manual), and the number of `SQLITE_BUSY`.
fn classify(error: &sqlx::Error) -> Option<DatabaseFailure> {
    use sqlx::Error::{Database, Io, PoolClosed, PoolTimedOut, Tls};
    match error {
        Io(_) | PoolTimedOut | PoolClosed | Tls(_) => Some(DatabaseFailure::Unavailable),
        Database(error) => match error.code()?.as_ref() {
            // The server shuts down, was killed, is starting, or has too many connections.
            "57P01" | "57P02" | "57P03" | "53300" | "5" => Some(DatabaseFailure::Unavailable),
            "22021" => Some(DatabaseFailure::NulCharacter),
            _ => None,
        },
        _ => None,
    }
}
