//! Connections: input lines, output backlog, and eviction of slow readers.

use super::action::{BridgeAction, ConnId};
use super::dialect::Dialect;
use super::spool::ReplayCursor;
use super::{Bridge, DisconnectPolicy};
use crate::proto::sdk_dialect::SeenUuids;
use crate::proto::{BridgeEvent, CommandId, LineSplitter, SplitLine};
use std::time::Duration;

/// Backlog, in bytes, from which the turn of the connection is paused (BP-29).
pub(super) const HIGH_WATER_MARK: usize = 1 << 20;
/// Backlog, in bytes, below which the turn is resumed.
const LOW_WATER_MARK: usize = 256 << 10;
/// Backlog, in bytes, from which no commands are read from a connection, because each could add a response to it.
const MAX_READ_BACKLOG: usize = 64 << 10;
/// A backlogged client that reads fewer bytes than this within [`STALL_TIMEOUT`] is stalled.
const MIN_PROGRESS: usize = 64 << 10;
/// How long a turn waits for a stalled client.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a turn that is being aborted waits for a stalled client.
const ABORTING_STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// One connection.
#[derive(Debug)]
pub(super) struct BridgeConnection {
    lines: LineSplitter,
    /// Bytes reserved in the budget for the unfinished line.
    held_bytes: usize,
    /// Bytes sent and not yet written.
    backlog: usize,
    /// While the backlog is above the mark: the time of the last progress, and the bytes read since then.
    stall: Option<(Duration, usize)>,
    /// Number of commands without a terminal event.
    open_commands: usize,
    /// A command without an id runs.
    pub(super) is_busy: bool,
    /// The connection receives `log` events.
    pub(super) wants_log: bool,
    /// The dialect, once it is decided.
    pub(super) dialect: Option<Dialect>,
    /// Whether only the conversation is sent; `None` selects the default of the dialect.
    pub(super) filter_setting: Option<bool>,
    /// The connection only receives (RB-25).
    pub(super) outbound_only: bool,
    /// Ids of this connection's control requests that were answered (RB-26).
    pub(super) answered_requests: SeenUuids,
    /// The replay position, for a connection that receives every stored event.
    pub(super) replay_cursor: Option<ReplayCursor>,
}

/// The recipient of the events of one command. Sending the terminal event consumes it, so that there is only one.
#[derive(Debug)]
pub(super) struct CommandReply {
    pub(super) conn: ConnId,
    pub(super) id: Option<CommandId>,
    /// The store's number of the command; 0 if it is not stored.
    pub(super) command: u64,
    /// Whether later commands without an id wait for this one.
    is_ordered: bool,
}

impl CommandReply {
    pub(super) fn new(conn: ConnId, id: Option<CommandId>) -> Self {
        CommandReply { conn, command: 0, is_ordered: id.is_none(), id }
    }

    /// For a command that neither waits for others nor has others wait for it, whether it has an id or not.
    pub(super) fn unordered(mut self) -> Self {
        self.is_ordered = false;
        self
    }

    /// Whether the command waits its turn: commands without an id run one after the other on their connection
    /// (DECISIONS 16).
    pub(super) fn is_ordered(&self) -> bool {
        self.is_ordered
    }
}

impl Bridge {
    /// Adds a connection. `ready` is its first event (BP-04).
    pub(crate) fn conn_opened(&mut self, conn: ConnId) {
        let lines = LineSplitter::new(self.config.line_limit);
        let new = BridgeConnection {
            lines,
            held_bytes: 0,
            backlog: 0,
            stall: None,
            open_commands: 0,
            is_busy: false,
            wants_log: false,
            dialect: None,
            filter_setting: None,
            outbound_only: false,
            answered_requests: SeenUuids::new(self.config.max_remembered),
            replay_cursor: None,
        };
        self.connections.insert(conn, new);
        self.send(conn, BridgeEvent::Ready.encode(None));
        self.process_pending();
    }

    /// Takes input of a server, in chunks of any size.
    pub(crate) fn conn_input(&mut self, conn: ConnId, mut input: &[u8]) {
        while let Some(from) = self.connections.get_mut(&conn) {
            self.budget.release_inbound(std::mem::take(&mut from.held_bytes));
            let split = from.lines.next(&mut input);
            let held = from.lines.held_bytes();
            if !self.reserve_inbound(conn, held) {
                self.reject_line(conn, "the bridge holds too many unfinished lines");
                break;
            }
            let Some(from) = self.connections.get_mut(&conn) else { break };
            from.held_bytes = held;
            match split {
                None => break,
                Some(SplitLine::Line(line)) => self.handle_line(conn, line),
                Some(SplitLine::TooLong) => {
                    let limit = self.config.line_limit;
                    self.reject_line(conn, &format!("the line is longer than {limit} bytes"));
                    break;
                }
            }
            self.start_runnable();
        }
        self.process_pending();
    }

    /// Reports that the server closed its sending side. Pending commands are answered, then the connection is closed.
    pub(crate) fn conn_half_closed(&mut self, conn: ConnId) {
        if self.connections.contains_key(&conn) {
            self.half_closed.insert(conn);
        }
        self.process_pending();
    }

    /// Reports that the connection is closed (BP-30).
    pub(crate) fn conn_closed(&mut self, conn: ConnId) {
        self.remove_connection(conn);
        self.process_pending();
    }

    /// Reports that this many bytes were written to the connection.
    pub(crate) fn conn_written(&mut self, conn: ConnId, bytes: usize) {
        let now = self.now;
        let Some(to) = self.connections.get_mut(&conn) else { return };
        let bytes = bytes.min(to.backlog);
        to.backlog -= bytes;
        self.budget.release(bytes);
        if let Some((since, drained)) = &mut to.stall {
            *drained += bytes;
            if to.backlog <= LOW_WATER_MARK {
                to.stall = None;
                self.backlogged.remove(&conn);
            } else if *drained >= MIN_PROGRESS {
                (*since, *drained) = (now, 0);
            }
        }
        self.process_pending();
    }

    /// Whether to read from the connection: false while responses are backlogged.
    pub(crate) fn conn_wants_input(&self, conn: ConnId) -> bool {
        self.connections.get(&conn).is_some_and(|conn| conn.backlog < MAX_READ_BACKLOG)
    }

    /// Queues whole lines for a connection.
    pub(super) fn send(&mut self, conn: ConnId, bytes: Vec<u8>) {
        if !self.connections.contains_key(&conn) {
            return;
        }
        while !self.budget.reserve(bytes.len()) {
            // The budget is exhausted. The connection with the largest backlog is the slowest reader.
            let Some(slowest) =
                self.connections.iter().max_by_key(|(_, conn)| conn.backlog).map(|(id, _)| *id)
            else {
                return;
            };
            self.evict(slowest);
            if slowest == conn {
                return;
            }
        }
        let Some(to) = self.connections.get_mut(&conn) else { return self.budget.release(bytes.len()) };
        to.backlog += bytes.len();
        if to.backlog >= HIGH_WATER_MARK && to.stall.is_none() {
            to.stall = Some((self.now, 0));
            self.backlogged.insert(conn);
        }
        self.actions.push_back(BridgeAction::Send { conn, bytes });
    }

    /// Reserves budget for input of a connection; returns false if there is none.
    #[must_use]
    pub(super) fn reserve_inbound(&mut self, conn: ConnId, bytes: usize) -> bool {
        while self.budget.has_inbound_room(bytes) {
            if self.budget.reserve_inbound(bytes) {
                return true;
            }
            if self.evict_slowest().is_none_or(|slowest| slowest == conn) {
                return false;
            }
        }
        false
    }

    /// Evicts the connection with the largest backlog, because the budget is exhausted.
    fn evict_slowest(&mut self) -> Option<ConnId> {
        let slowest = self.connections.iter().max_by_key(|(_, conn)| conn.backlog).map(|(id, _)| *id)?;
        self.evict(slowest);
        Some(slowest)
    }

    /// Counts a command as open.
    pub(super) fn count_open_command(&mut self, reply: &CommandReply) {
        if let Some(conn) = self.connections.get_mut(&reply.conn) {
            conn.open_commands += 1;
        }
    }

    /// Sends the terminal event of a command together with `lines`. A connection of the SDK dialect gets `sdk_lines`
    /// instead.
    pub(super) fn finish_command(&mut self, reply: CommandReply, lines: Vec<u8>, sdk_lines: Option<Vec<u8>>) {
        self.commands_ended += 1;
        let is_kept = reply.command != 0;
        if is_kept {
            self.store_events(reply.command, &lines, None);
        }
        let follows = self.is_follower(reply.conn);
        let Some(conn) = self.connections.get_mut(&reply.conn) else { return };
        conn.open_commands = conn.open_commands.saturating_sub(1);
        conn.is_busy &= !reply.is_ordered();
        let bytes = sdk_lines.unwrap_or(lines);
        // In the SDK dialect a turn has no terminal event.
        let has_heard = is_kept && follows;
        if !has_heard && !bytes.is_empty() {
            self.send(reply.conn, bytes);
        }
        if reply.is_ordered()
            && !self.has_ordered_turn(reply.conn)
            && let Some(ends) = self.held_exec_ends.remove(&reply.conn)
        {
            self.send(reply.conn, ends);
        }
    }

    pub(super) fn fail_command(&mut self, reply: CommandReply, text: &str) {
        let sdk_lines = self.is_sdk(reply.conn).then(|| self.error_notice(text));
        let line = BridgeEvent::Error { text }.encode(reply.id.as_ref());
        self.finish_command(reply, line, sdk_lines);
    }

    pub(super) fn complete_command(&mut self, reply: CommandReply, session: &str) {
        let sdk_lines = self.is_sdk(reply.conn).then(Vec::new);
        let line = BridgeEvent::Done { session }.encode(reply.id.as_ref());
        self.finish_command(reply, line, sdk_lines);
    }

    /// Whether the connection's backlog is too large to send more of a turn.
    pub(super) fn is_backlogged(&self, conn: ConnId) -> bool {
        self.backlogged.contains(&conn)
    }

    /// The time at which the next stalled connection is evicted, and the connection.
    pub(super) fn next_stall(&self) -> Option<(Duration, ConnId)> {
        let patience = if self.is_aborting() { ABORTING_STALL_TIMEOUT } else { STALL_TIMEOUT };
        let since = |conn: &ConnId| Some((self.connections.get(conn)?.stall?.0, *conn));
        self.backlogged.iter().filter_map(since).min().map(|(since, conn)| (since + patience, conn))
    }

    /// Evicts a connection that does not read: closes it now; its commands end in [`Bridge::process_pending`].
    pub(super) fn evict(&mut self, conn: ConnId) {
        self.actions.push_back(BridgeAction::Close { conn, flush: false });
        self.remove_connection(conn);
    }

    /// Closes half-closed connections without open commands or backlog.
    pub(super) fn close_drained(&mut self) {
        let heard_all = |conn: &&ConnId| {
            self.connections.get(conn).is_none_or(|to| to.open_commands == 0) && !self.is_lagging(**conn)
        };
        let over: Vec<ConnId> = self.half_closed.iter().filter(heard_all).copied().collect();
        for conn in over {
            self.actions.push_back(BridgeAction::Close { conn, flush: true });
            self.remove_connection(conn);
        }
    }

    /// The newest connection of the command dialect that can answer a question.
    pub(super) fn newest_command_connection(&self) -> Option<ConnId> {
        let asked = |(_, conn): &(&ConnId, &BridgeConnection)| !conn.speaks_sdk() && !conn.outbound_only;
        self.connections.iter().rfind(asked).map(|(id, _)| *id)
    }

    /// Connections with `log` enabled whose backlog allows another line.
    pub(super) fn log_subscribers(&self) -> Vec<ConnId> {
        let wants =
            |conn: &BridgeConnection| conn.wants_log && !conn.speaks_sdk() && conn.backlog < HIGH_WATER_MARK;
        let wanting = self.connections.iter().filter(|(_, conn)| wants(conn));
        wanting.map(|(id, _)| *id).collect()
    }

    /// Rejects a line that cannot be buffered: closes its connection and affects nothing else (BP-19).
    fn reject_line(&mut self, conn: ConnId, text: &str) {
        let bytes = match self.is_sdk(conn) {
            true => self.error_notice(text),
            false => BridgeEvent::Error { text }.encode(None),
        };
        self.send(conn, bytes);
        self.actions.push_back(BridgeAction::Close { conn, flush: true });
        self.remove_connection(conn);
    }

    /// Removes a connection. `process_pending` aborts or detaches its commands.
    fn remove_connection(&mut self, conn: ConnId) {
        let Some(gone) = self.connections.remove(&conn) else { return };
        self.half_closed.remove(&conn);
        self.backlogged.remove(&conn);
        self.held_exec_ends.remove(&conn);
        self.forget_follower(conn);
        self.budget.release(gone.backlog);
        self.budget.release_inbound(gone.held_bytes);
        self.closed.push(conn);
    }

    /// Aborts or detaches the commands of closed connections.
    pub(super) fn abandon_commands(&mut self) {
        for conn in std::mem::take(&mut self.closed) {
            if self.is_spooling() {
                // The client can reconnect and request all events.
                self.reassign_questions(conn);
                continue;
            }
            let budget = &mut self.budget;
            self.queue.retain(|waiting| {
                let stays = waiting.reply.conn != conn;
                if !stays {
                    budget.release_inbound(waiting.reserved_bytes);
                }
                stays
            });
            self.kill_execs_of(conn);
            if self.turn.as_ref().is_some_and(|turn| turn.belongs_to(conn)) {
                match self.config.disconnect {
                    DisconnectPolicy::Detach => {}
                    DisconnectPolicy::Abort => self.abort_detached_turn(),
                }
            }
            self.reassign_questions(conn);
        }
    }
}
