//! Which dialect a connection speaks: its first valid object says (DECISIONS 18).
//!
//! ```text
//!   undecided ──query, resume, exec, interrupt, shutdown──> First
//!       │
//!       └──── user, control_request (no cmd, no ev) ──────> Second
//! ```
//! Until then bad lines are answered as in the first. An answer to a question of the agent is a line of both:
//! it decides only when it names a question as the second dialect does. A `set` is about the connection, and
//! decides nothing: so a connection can be prepared for either.

use super::conn::Conn;
use super::{Bridge, ConnId};
use crate::bridge::proto::permission::{Reading, read_response};
use crate::bridge::proto::second::{Inbound, fixes, read};
use crate::bridge::proto::{Command, Request};
use std::borrow::Cow;

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Commands and events (seed 000).
    First,
    /// Bare lines of the agent's own kind (seed 003).
    Second,
}

impl Conn {
    pub(super) fn is_second(&self) -> bool {
        self.dialect == Some(Dialect::Second)
    }

    /// Whether only the conversation itself is told (RB-01): the default of the second dialect.
    pub(super) fn filters(&self) -> bool {
        self.filter.unwrap_or(self.is_second())
    }
}

impl Bridge {
    pub(super) fn line(&mut self, conn: ConnId, line: Cow<'_, [u8]>) {
        let Some(dialect) = self.conns.get(&conn).map(|conn| conn.dialect) else { return };
        if dialect.is_none() && (fixes(&line) || self.names_question(&line)) {
            self.speaks(conn, Dialect::Second);
            return self.second_line(conn, &line);
        }
        if dialect == Some(Dialect::Second) {
            return self.second_line(conn, &line);
        }
        match Command::parse(line) {
            Ok(None) => {}
            Ok(Some(command)) => {
                if dialect.is_none() && !matches!(command.request, Request::Answer(_) | Request::Set(_)) {
                    self.speaks(conn, Dialect::First);
                }
                self.command(conn, command);
            }
            Err(bad) => self.send(conn, bad.event()),
        }
    }

    pub(super) fn is_second(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_some_and(Conn::is_second)
    }

    fn speaks(&mut self, conn: ConnId, dialect: Dialect) {
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.dialect = Some(dialect);
        }
    }

    /// Whether the line answers an open question by the name that the bridge gave it: a server of the second
    /// dialect that has come back.
    fn names_question(&self, line: &[u8]) -> bool {
        if self.questions.iter().next().is_none() {
            return false;
        }
        let id = match read(line) {
            Ok(Inbound::Cancel(id)) => id,
            Ok(Inbound::Answer(response)) => match read_response(response, true) {
                Reading::Whole(answer) => answer.request_id,
                Reading::Malformed { request_id, .. } => request_id,
                Reading::Nameless(_) => return false,
            },
            _ => return false,
        };
        self.questions.get(&id).is_some()
    }
}
