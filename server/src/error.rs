//! What can go wrong outside a request.

use std::fmt;

/// An error: what failed, and why.
#[derive(Debug)]
pub struct Error(String);

/// The result of what may fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this text.
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

/// Says what was tried when something fails.
pub trait Context<T> {
    /// The result, with `what` before the text of its error.
    ///
    /// # Errors
    /// That of `self`.
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| Error(format!("{}: {error}", what().into())))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Error(format!("database: {error}"))
    }
}
