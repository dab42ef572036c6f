//! The interface between a hub and the core of its connections.

use crate::core::{Bridge, BridgeAction, ConnId};
use std::time::Duration;

/// The logic of connections, without I/O.
pub trait HubCore {
    /// Actions that the hub does not carry out itself.
    type Action;

    /// Reports a new connection.
    fn conn_opened(&mut self, conn: ConnId);

    /// Passes input of a connection, in chunks of any size.
    fn conn_input(&mut self, conn: ConnId, input: &[u8]);

    /// Reports that the client closed its sending side.
    fn conn_half_closed(&mut self, conn: ConnId);

    /// Reports that the connection is closed.
    fn conn_closed(&mut self, conn: ConnId);

    /// Reports that this many bytes were written to the connection.
    fn conn_written(&mut self, conn: ConnId, bytes: usize);

    /// Whether to read from the connection.
    fn conn_wants_input(&self, conn: ConnId) -> bool;

    /// Sets the current time.
    fn tick(&mut self, now: Duration);

    /// When to call `tick` next, unless an event comes before.
    fn next_deadline(&self) -> Option<Duration>;

    /// The next step. Steps must be carried out in order.
    fn next_step(&mut self) -> Option<HubStep<Self::Action>>;
}

/// A step of the core.
#[derive(Debug, PartialEq, Eq)]
pub enum HubStep<A> {
    /// Write these bytes to the connection.
    Send {
        /// The recipient.
        conn: ConnId,
        /// One or more whole lines that must be sent together, in one write if possible.
        bytes: Vec<u8>,
    },
    /// Close the connection. The core has already removed it.
    Close {
        /// The connection to close.
        conn: ConnId,
        /// Whether to write pending output first, as far as the client reads it.
        flush: bool,
    },
    /// An action for the supervisor.
    Other(A),
    /// An action that the supervisor must carry out before any later step: a client that sees the end of a turn may
    /// kill everything.
    OtherFirst(A),
}

impl HubCore for Bridge {
    type Action = BridgeAction;

    fn conn_opened(&mut self, conn: ConnId) {
        self.conn_opened(conn);
    }

    fn conn_input(&mut self, conn: ConnId, input: &[u8]) {
        self.conn_input(conn, input);
    }

    fn conn_half_closed(&mut self, conn: ConnId) {
        self.conn_half_closed(conn);
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

    fn next_step(&mut self) -> Option<HubStep<BridgeAction>> {
        Some(match self.next_action()? {
            BridgeAction::Send { conn, bytes } => HubStep::Send { conn, bytes },
            BridgeAction::Close { conn, flush } => HubStep::Close { conn, flush },
            first @ (BridgeAction::SaveAgentSession { .. } | BridgeAction::RecordAgentFailure) => {
                HubStep::OtherFirst(first)
            }
            other => HubStep::Other(other),
        })
    }
}
