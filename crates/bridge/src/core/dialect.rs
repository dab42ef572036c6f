//! The dialect of a connection: its first valid object decides (DECISIONS 18).
//!
//! ```text
//!   undecided ──query, resume, exec, interrupt, shutdown──> Command
//!       │
//!       └──── user, control_request (no cmd, no ev) ──────> Sdk
//! ```
//! Until then invalid lines are answered as in the command dialect. A response to a question of the agent is valid in
//! both dialects. It selects the SDK dialect only if it uses the bridge's id of the question. A `set` changes the
//! connection and selects no dialect, so that a connection can be configured for either.

use super::connection::BridgeConnection;
use super::{Bridge, ConnId};
use crate::proto::permission::{ParsedResponse, parse_response};
use crate::proto::sdk_dialect::{SdkMessage, parse_sdk_message, selects_sdk_dialect};
use crate::proto::{BridgeCommand, CommandBody};
use std::borrow::Cow;

/// The dialect of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Commands and events.
    Command,
    /// Bare lines in the agent's own format.
    Sdk,
}

impl BridgeConnection {
    pub(super) fn speaks_sdk(&self) -> bool {
        self.dialect == Some(Dialect::Sdk)
    }

    /// Whether only the conversation is sent (RB-01): the default of the SDK dialect.
    pub(super) fn is_filtered(&self) -> bool {
        self.filter_setting.unwrap_or(self.speaks_sdk())
    }
}

impl Bridge {
    pub(super) fn handle_line(&mut self, conn: ConnId, line: Cow<'_, [u8]>) {
        let Some(dialect) = self.connections.get(&conn).map(|conn| conn.dialect) else { return };
        if dialect.is_none() && (selects_sdk_dialect(&line) || self.answers_open_question(&line)) {
            self.set_dialect(conn, Dialect::Sdk);
            return self.handle_sdk_line(conn, &line);
        }
        if dialect == Some(Dialect::Sdk) {
            return self.handle_sdk_line(conn, &line);
        }
        match BridgeCommand::parse(line) {
            Ok(None) => {}
            Ok(Some(command)) => {
                if dialect.is_none()
                    && !matches!(command.body, CommandBody::Response(_) | CommandBody::Set(_))
                {
                    self.set_dialect(conn, Dialect::Command);
                }
                self.handle_command(conn, command);
            }
            Err(bad) => self.send(conn, bad.error_event()),
        }
    }

    pub(super) fn is_sdk(&self, conn: ConnId) -> bool {
        self.connections.get(&conn).is_some_and(BridgeConnection::speaks_sdk)
    }

    fn set_dialect(&mut self, conn: ConnId, dialect: Dialect) {
        if let Some(conn) = self.connections.get_mut(&conn) {
            conn.dialect = Some(dialect);
        }
    }

    /// Whether the line answers an open question by the bridge's id. Such a line comes from a server of the SDK
    /// dialect that has reconnected.
    fn answers_open_question(&self, line: &[u8]) -> bool {
        if self.questions.iter().next().is_none() {
            return false;
        }
        let id = match parse_sdk_message(line) {
            Ok(SdkMessage::Cancel(id)) => id,
            Ok(SdkMessage::Response(response)) => match parse_response(response, true) {
                ParsedResponse::Complete(answer) => answer.request_id,
                ParsedResponse::Malformed { request_id, .. } => request_id,
                ParsedResponse::NoRequestId(_) => return false,
            },
            _ => return false,
        };
        self.questions.get(&id).is_some()
    }
}
