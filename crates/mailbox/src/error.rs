//! The one error type of the crate: what failed on which subject and why, and what to do about it.

use std::fmt::Display;
use std::io;

/// The kinds of errors that callers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// An argument or a message is not valid (AM-05, AM-06).
    Invalid,
    /// The member's role does not permit the message.
    Refused,
    /// No retained message has the id of a cursor (AM-16).
    UnknownCursor,
    /// The run does not exist.
    NotFound,
    /// A file is not what it must be: of another type, owner or format.
    Unsafe,
    /// Another program changed lines that it may only add to; a repetition of the operation reads them anew.
    Changed,
    /// A system call failed.
    System,
}

/// An error of the mailbox. Its text is lower case and has the operation, the subject and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
}

/// The result type of fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), hint: None }
    }

    /// The error of a failed system call: `what` names the operation and its subject.
    pub(crate) fn system(what: impl Display, cause: impl Into<io::Error>) -> Self {
        let cause = cause.into();
        let error = Error::new(ErrorKind::System, format!("{what}: {cause}"));
        match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                error.with_hint("free space on the file system, then repeat the operation")
            }
            io::ErrorKind::FileTooLarge => error.with_hint("raise the file size limit (ulimit -f)"),
            io::ErrorKind::PermissionDenied => {
                error.with_hint("make the file and its directory writable for the user that runs saggar")
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                error.with_hint("remount the file system writable, or choose another mailbox directory")
            }
            _ => error,
        }
    }

    /// Adds a hint: what to do about the error.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What callers branch on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to do about the error, if there is a known remedy.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

#[cfg(feature = "sys")]
impl From<Error> for saggar_sys::error::Error {
    fn from(error: Error) -> Self {
        use saggar_sys::error::Code;
        let code = match error.kind() {
            ErrorKind::Invalid | ErrorKind::UnknownCursor | ErrorKind::NotFound => Code::Invalid,
            ErrorKind::Refused => Code::Refused,
            ErrorKind::Unsafe | ErrorKind::Changed | ErrorKind::System => Code::System,
        };
        let converted = Self::new(code, error.to_string());
        match error.hint() {
            Some(hint) => converted.hint(hint),
            None => converted,
        }
    }
}
