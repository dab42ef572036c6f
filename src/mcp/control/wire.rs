//! What the server and its broker send each other: the request is one packet, with the socket for the reply; the reply
//! is lines of JSON.

use crate::error::Error;
use crate::session::logs::LogEntry;
use serde::{Deserialize, Serialize};

/// Largest request, in bytes.
pub(crate) const MAX_REQUEST_SIZE: usize = 64 << 10;
/// The methods of the control socket that the server can call.
pub(crate) const SANDBOX_METHODS: [&str; 4] = ["exec", "files.list", "files.read", "files.write"];
/// The line that consents to what a [`BrokerReply::Question`] asks.
pub(crate) const CONSENT: &[u8] = b"yes\n";

/// A request. Without a session it concerns the only one that the policy names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BrokerRequest {
    /// Lists the sessions that the policy names.
    List,
    /// Connects to the control socket of a session.
    Connect {
        /// The session.
        session: Option<String>,
    },
    /// Reads the log of a session.
    Logs {
        /// The session.
        session: Option<String>,
        /// Returns only entries with a number above this one.
        after: u64,
        /// Most entries to return.
        limit: usize,
    },
    /// Compares the workspace of a session with its folder.
    Diff {
        /// The session.
        session: Option<String>,
        /// Only changes at and below these paths.
        paths: Vec<String>,
        /// With the lines that have changed.
        has_patches: bool,
    },
    /// Applies changes to the folder, after a question.
    Apply {
        /// The session.
        session: Option<String>,
        /// Only changes at and below these paths.
        paths: Vec<String>,
    },
}

/// A line of a reply. The last one is any but a question.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum BrokerReply {
    /// The sessions.
    Sessions(Vec<SessionSummary>),
    /// The control socket is attached; `hello` was called on it.
    Connected,
    /// Log entries, in their order.
    Logs {
        /// The entries.
        entries: Vec<LogEntry>,
        /// There may be more entries after these.
        is_truncated: bool,
    },
    /// The changes as text.
    Diff {
        /// A line for each change, and its patch.
        text: String,
        /// There is more than this text.
        is_truncated: bool,
    },
    /// Asks whether to apply these changes. The broker waits for [`CONSENT`], or for the end of the connection.
    Question(Changes),
    /// These changes were applied.
    Applied(Changes),
    /// The request failed.
    Failed(Error),
}

/// Changes of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changes {
    /// The session.
    pub(crate) session: String,
    /// The folder that they go to.
    pub(crate) folder: String,
    /// A line for each.
    pub(crate) lines: Vec<String>,
}

/// A session that the policy names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionSummary {
    /// Its name.
    pub(crate) session: String,
    /// Its state (saggar-session(1), STATES).
    pub(crate) state: String,
    /// Whether a supervisor serves it.
    pub(crate) served: bool,
    /// The folder of its agent.
    pub(crate) folder: String,
}
