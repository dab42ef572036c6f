//! Why a session or an agent was not restored.

use crate::error::Error;
use crate::saggar::CommandError;
use std::fmt;
use tracing::warn;

/// Why a session or an agent was not restored.
#[derive(Debug)]
pub enum RestoreError {
    /// The store cannot be reached, or an object is missing or was changed. The cause was logged: it names the store.
    Store,
    /// Another cause.
    Failed(Error),
}

impl RestoreError {
    /// Logs the failure of a download of `what`.
    pub(super) fn of_store(what: impl fmt::Display, cause: &Error) -> Self {
        warn!("{what}: cannot restore it: {cause}");
        RestoreError::Store
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Store => formatter.write_str("the snapshot store cannot be used"),
            RestoreError::Failed(error) => error.fmt(formatter),
        }
    }
}

impl From<Error> for RestoreError {
    fn from(error: Error) -> Self {
        RestoreError::Failed(error)
    }
}

impl From<CommandError> for RestoreError {
    fn from(error: CommandError) -> Self {
        RestoreError::Failed(error.into())
    }
}
