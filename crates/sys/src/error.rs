//! The error type of all public interfaces: a message, a stable code, an exit status, and a hint.
//!
//! Messages are lower case without a full stop: operation, subject, cause. The hint describes how to fix it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The exit statuses of saggar's own; every other one is a program's (saggar(1) and saggar-oci(8), EXIT STATUS).
pub mod status {
    /// A command of the OCI runtime, or a turn, failed.
    pub const FAILED: u8 = 1;
    /// The command line is invalid.
    pub(crate) const USAGE: u8 = 2;
    /// A time limit was reached, as timeout(1) reports it.
    pub const TIME_LIMIT: u8 = 124;
    /// saggar failed, and the program did not run.
    pub(crate) const NOT_STARTED: u8 = 125;
    /// The program was found and cannot be executed, as a shell reports it.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    /// The program was not found.
    pub(crate) const NOT_FOUND: u8 = 127;
    /// Added to the number of the signal that killed the program.
    pub const SIGNAL_BASE: u8 = 128;

    /// What `wrap` and `agent` exit with besides the status of the program and [`SIGNAL_BASE`].
    pub const OF_RUNS: [u8; 5] = [USAGE, TIME_LIMIT, NOT_STARTED, NOT_EXECUTABLE, NOT_FOUND];
    /// What OCI commands exit with besides 0, the status of the program and [`SIGNAL_BASE`].
    pub const OF_OCI: [u8; 5] = [FAILED, USAGE, NOT_STARTED, NOT_EXECUTABLE, NOT_FOUND];

    /// The status for a program that signal `number` killed, as a shell reports it.
    pub fn of_signal(number: i32) -> u8 {
        SIGNAL_BASE.saturating_add(u8::try_from(number).unwrap_or(u8::MAX - SIGNAL_BASE))
    }
}

/// The kind of a failure. The name is stable: servers match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The command line is invalid.
    Usage,
    /// A policy or another input is invalid.
    Invalid,
    /// The host does not support a required protection.
    Unsupported,
    /// The policy denies the request.
    Refused,
    /// A system call of saggar itself failed.
    System,
    /// The program to run was not found.
    NotFound,
    /// The program to run was found but cannot be executed.
    NotExecutable,
    /// The name or the path already exists.
    Exists,
    /// The session's state does not allow the operation.
    State,
    /// The session has ended, and can never be resumed.
    Ended,
}

impl Code {
    /// All codes.
    pub const ALL: [Code; 10] = [
        Code::Usage,
        Code::Invalid,
        Code::Unsupported,
        Code::Refused,
        Code::System,
        Code::NotFound,
        Code::NotExecutable,
        Code::Exists,
        Code::State,
        Code::Ended,
    ];

    /// The exit status of `agent`, `wrap` and `exec` for this failure (saggar(1), EXIT STATUS).
    pub fn exit_status(self) -> u8 {
        match self {
            Code::Usage => status::USAGE,
            Code::NotFound => status::NOT_FOUND,
            Code::NotExecutable => status::NOT_EXECUTABLE,
            _ => status::NOT_STARTED,
        }
    }

    /// The stable name of this code, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Code::Usage => "usage",
            Code::Invalid => "invalid",
            Code::Unsupported => "unsupported",
            Code::Refused => "refused",
            Code::System => "system",
            Code::NotFound => "not-found",
            Code::NotExecutable => "not-executable",
            Code::Exists => "exists",
            Code::State => "state",
            Code::Ended => "ended",
        }
    }
}

/// An error for the user. Between the processes of saggar it is sent as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Error {
    code: Code,
    message: String,
    hint: Option<String>,
    /// Further faults of the same input.
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    others: Box<[String]>,
}

/// The result type of fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with this code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), hint: None, others: Box::default() }
    }

    /// The error of a failed system call: `what` names the operation and its subject.
    pub fn system(what: impl fmt::Display, errno: impl fmt::Display) -> Self {
        Error::new(Code::System, format!("{what}: {errno}"))
    }

    /// Adds a hint: a sentence on how to fix the error.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds further faults of the same input, which are not part of the message.
    #[must_use]
    pub fn with_others(mut self, others: Vec<String>) -> Self {
        self.others = others.into();
        self
    }

    /// Prefixes the message with the operation `what` during which the error occurred.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Appends an additional error to the message.
    #[must_use]
    pub fn and(mut self, besides: impl fmt::Display) -> Self {
        self.message = format!("{}; and {besides}", self.message);
        self
    }

    /// Replaces the code, for a caller to which the failure is of another kind.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Further faults of the same input.
    pub fn others(&self) -> &[String] {
        &self.others
    }

    /// The hint, if there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_goes_from_process_to_process_as_it_is() {
        for code in Code::ALL {
            let text = serde_json::to_string(&Error::new(code, "a").hint("b")).unwrap();
            assert!(text.contains(&format!("\"{}\"", code.name())), "{text}");
            let error: Error = serde_json::from_str(&text).unwrap();
            assert_eq!((error.code(), error.to_string(), error.hint_text()), (code, "a".into(), Some("b")));
        }
    }
}
