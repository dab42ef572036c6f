//! The one error type that leaves a module: a message, a stable code, the exit status, and a hint.
//!
//! Messages are lower case without a full stop: operation, subject, cause. The hint says what to do.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of failure this is. The name is stable: servers match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The command line cannot be understood.
    Usage,
    /// A policy or another input is not valid.
    Invalid,
    /// The host cannot give a required protection.
    Unsupported,
    /// The policy refuses what was asked for.
    Refused,
    /// A system call failed while saggar did its own work.
    System,
    /// The program to run was not found.
    NotFound,
    /// The program to run was found and cannot be executed.
    NotExecutable,
    /// The name or the path is taken.
    Exists,
    /// A session is in a state in which this cannot be done.
    State,
    /// A session has ended, and can never be resumed.
    Ended,
}

impl Code {
    /// All of them.
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
            Code::Usage => 2,
            Code::NotFound => 127,
            Code::NotExecutable => 126,
            _ => 125,
        }
    }

    /// The stable name of this code, as it stands in JSON.
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

/// An error on its way to the user; as JSON between the processes of saggar.
#[derive(Debug, Serialize, Deserialize)]
pub struct Error {
    code: Code,
    message: String,
    hint: Option<String>,
}

/// The result type of fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with this code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), hint: None }
    }

    /// A failed system call: `what` names the operation and its subject.
    pub fn system(what: impl fmt::Display, errno: impl fmt::Display) -> Self {
        Error::new(Code::System, format!("{what}: {errno}"))
    }

    /// The same error with a sentence that says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same error, said to have happened while doing `what`.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The same error, and what went wrong besides.
    #[must_use]
    pub fn and(mut self, besides: impl fmt::Display) -> Self {
        self.message = format!("{}; and {besides}", self.message);
        self
    }

    /// The same error, which is a failure of another kind for whoever hears of it.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What to do about it, if that is known.
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
