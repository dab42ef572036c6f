//! What a hub needs of the core that it carries bytes for.

use crate::bridge::core::{Action, Bridge, ConnId};
use std::time::Duration;

/// Something that speaks with connections, and neither reads nor writes.
pub trait Core {
    /// What it asks of others than the hub.
    type Action;

    /// A server has connected.
    fn conn_open(&mut self, conn: ConnId);

    /// Bytes from a server. Any cutting is fine.
    fn conn_input(&mut self, conn: ConnId, input: &[u8]);

    /// The server has closed its sending side.
    fn conn_finished(&mut self, conn: ConnId);

    /// The connection is gone.
    fn conn_closed(&mut self, conn: ConnId);

    /// So many bytes sent to the connection have been written.
    fn conn_written(&mut self, conn: ConnId, bytes: usize);

    /// Whether to read from the connection.
    fn conn_wants_input(&self, conn: ConnId) -> bool;

    /// The time is `now`.
    fn tick(&mut self, now: Duration);

    /// When to tell the time again, if nothing happens before.
    fn next_deadline(&self) -> Option<Duration>;

    /// The next thing to be done, in the order given.
    fn next_step(&mut self) -> Option<Step<Self::Action>>;
}

/// Something to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<A> {
    /// Write this to the connection.
    Send {
        /// To whom.
        conn: ConnId,
        /// One or more whole lines that must leave together, one write when it fits.
        bytes: Vec<u8>,
    },
    /// Close the connection; the core has forgotten it already.
    Close {
        /// Which.
        conn: ConnId,
        /// Write what was sent before, as far as it goes.
        flush: bool,
    },
    /// Anything else.
    Other(A),
    /// Anything else that must be done before what comes after it is told: whoever hears that a turn is over may kill
    /// everything.
    First(A),
}

impl Core for Bridge {
    type Action = Action;

    fn conn_open(&mut self, conn: ConnId) {
        self.conn_open(conn);
    }

    fn conn_input(&mut self, conn: ConnId, input: &[u8]) {
        self.conn_input(conn, input);
    }

    fn conn_finished(&mut self, conn: ConnId) {
        self.conn_finished(conn);
    }

    fn conn_closed(&mut self, conn: ConnId) {
        self.conn_closed(conn);
    }

    fn conn_written(&mut self, conn: ConnId, bytes: usize) {
        self.conn_written(conn, bytes);
    }

    fn conn_wants_input(&self, conn: ConnId) -> bool {
        self.conn_wants_input(conn)
    }

    fn tick(&mut self, now: Duration) {
        self.tick(now);
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.next_deadline()
    }

    fn next_step(&mut self) -> Option<Step<Action>> {
        Some(match self.next_action()? {
            Action::Send { conn, bytes } => Step::Send { conn, bytes },
            Action::Close { conn, flush } => Step::Close { conn, flush },
            first @ (Action::Learned { .. } | Action::AgentFailed) => Step::First(first),
            other => Step::Other(other),
        })
    }
}
