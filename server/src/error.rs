//! Errors outside of a request.

use crate::saggar::CommandError;
use std::fmt;

/// An error text: the failed operation, then its cause.
#[derive(Debug)]
pub struct Error(String);

/// A result with this module's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates an error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Error(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
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
        self.map_err(|error| Error(format!("{}: {error}", what().into())))
    }
}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        Error(error.to_string())
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Error(format!("database: {error}"))
    }
}
