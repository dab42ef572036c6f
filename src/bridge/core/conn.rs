//! Connections: their lines in, their backlog out, and who is too slow.

use super::action::{Action, ConnId};
use super::dialect::Dialect;
use super::spool::Follow;
use super::{Bridge, Disconnect};
use crate::bridge::proto::second::Seen;
use crate::bridge::proto::{Event, Id, LineSplitter, Split};
use std::time::Duration;

/// From this backlog on the turn that feeds it is held up (BP-29).
pub(super) const HIGH: usize = 1 << 20;
/// Down to this backlog it stays held up.
const LOW: usize = 256 << 10;
/// From this backlog on no more commands are read from a connection: each could add an answer to it.
const READ_STOP: usize = 64 << 10;
/// A reader this slow, for [`STALL`], counts as stalled.
const PROGRESS: usize = 64 << 10;
/// How long a turn waits for a reader that does not read.
const STALL: Duration = Duration::from_secs(60);
/// The same, once somebody asked for the turn to end.
const STALL_ABORTING: Duration = Duration::from_secs(2);

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    lines: LineSplitter,
    /// Bytes taken from the budget for its unfinished line.
    held: usize,
    /// Bytes sent and not yet written.
    backlog: usize,
    /// Since the backlog passed the mark: when it last made progress, and how much since.
    full: Option<(Duration, usize)>,
    /// Commands without a terminal event yet.
    open: usize,
    /// A command without an id runs.
    pub(super) busy: bool,
    /// `log` events are wanted.
    pub(super) log: bool,
    /// What it speaks, once that is decided.
    pub(super) dialect: Option<Dialect>,
    /// Whether only the conversation is told, when a `set` said so.
    pub(super) filter: Option<bool>,
    /// It hears, and asks for nothing (RB-25).
    pub(super) outbound_only: bool,
    /// Control requests of this connection that were answered (RB-26).
    pub(super) answered: Seen,
    /// It is told of everything that is kept.
    pub(super) follow: Option<Follow>,
}

/// Where the events of one command go. Taken by value to send the terminal one, so that there is only one.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) conn: ConnId,
    pub(super) id: Option<Id>,
    /// Its name in the store; 0 for what is not kept.
    pub(super) command: u64,
}

impl Reply {
    pub(super) fn new(conn: ConnId, id: Option<Id>) -> Self {
        Reply { conn, id, command: 0 }
    }

    /// Commands without an id run one after the other on their connection (DECISIONS 16).
    pub(super) fn ordered(&self) -> bool {
        self.id.is_none()
    }
}

impl Bridge {
    /// A server has connected: it hears `ready` first (BP-04).
    pub fn conn_open(&mut self, conn: ConnId) {
        let lines = LineSplitter::new(self.config.line_limit);
        let new = Conn {
            lines,
            held: 0,
            backlog: 0,
            full: None,
            open: 0,
            busy: false,
            log: false,
            dialect: None,
            filter: None,
            outbound_only: false,
            answered: Seen::new(self.config.remembered),
            follow: None,
        };
        self.conns.insert(conn, new);
        self.send(conn, Event::Ready.encode(None));
        self.settle();
    }

    /// Bytes from a server. Any cutting is fine.
    pub fn conn_input(&mut self, conn: ConnId, mut input: &[u8]) {
        while let Some(from) = self.conns.get_mut(&conn) {
            self.budget.give_inbound(std::mem::take(&mut from.held));
            let split = from.lines.next(&mut input);
            let held = from.lines.held();
            if !self.hold_inbound(conn, held) {
                self.refuse_line(conn, "the bridge holds too many unfinished lines");
                break;
            }
            let Some(from) = self.conns.get_mut(&conn) else { break };
            from.held = held;
            match split {
                None => break,
                Some(Split::Line(line)) => self.line(conn, line),
                Some(Split::TooLong) => {
                    let limit = self.config.line_limit;
                    self.refuse_line(conn, &format!("the line is longer than {limit} bytes"));
                    break;
                }
            }
            self.pump();
        }
        self.settle();
    }

    /// The server has closed its sending side: what it asked for is still answered, then it is closed.
    pub fn conn_finished(&mut self, conn: ConnId) {
        if self.conns.contains_key(&conn) {
            self.finished.insert(conn);
        }
        self.settle();
    }

    /// The connection is gone (BP-30).
    pub fn conn_closed(&mut self, conn: ConnId) {
        self.forget(conn);
        self.settle();
    }

    /// So many bytes sent to the connection have been written.
    pub fn conn_written(&mut self, conn: ConnId, bytes: usize) {
        let now = self.now;
        let Some(to) = self.conns.get_mut(&conn) else { return };
        let bytes = bytes.min(to.backlog);
        to.backlog -= bytes;
        self.budget.give(bytes);
        if let Some((since, drained)) = &mut to.full {
            *drained += bytes;
            if to.backlog <= LOW {
                to.full = None;
                self.full.remove(&conn);
            } else if *drained >= PROGRESS {
                (*since, *drained) = (now, 0);
            }
        }
        self.settle();
    }

    /// Whether to read from the connection: not while its own answers pile up.
    pub fn conn_wants_input(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_some_and(|conn| conn.backlog < READ_STOP)
    }

    /// Queues whole lines for a connection.
    pub(super) fn send(&mut self, conn: ConnId, bytes: Vec<u8>) {
        if !self.conns.contains_key(&conn) {
            return;
        }
        while !self.budget.take(bytes.len()) {
            // Memory is short: the reader that holds most of it is the one that does not read.
            let Some(slowest) = self.conns.iter().max_by_key(|(_, conn)| conn.backlog).map(|(id, _)| *id)
            else {
                return;
            };
            self.doom(slowest);
            if slowest == conn {
                return;
            }
        }
        let Some(to) = self.conns.get_mut(&conn) else { return self.budget.give(bytes.len()) };
        to.backlog += bytes.len();
        if to.backlog >= HIGH && to.full.is_none() {
            to.full = Some((self.now, 0));
            self.full.insert(conn);
        }
        self.actions.push_back(Action::Send { conn, bytes });
    }

    /// Takes room for what a server sent; whether there was some.
    #[must_use]
    pub(super) fn hold_inbound(&mut self, conn: ConnId, bytes: usize) -> bool {
        while self.budget.allows_inbound(bytes) {
            if self.budget.take_inbound(bytes) {
                return true;
            }
            if self.doom_slowest().is_none_or(|slowest| slowest == conn) {
                return false;
            }
        }
        false
    }

    /// Memory is short: the reader that holds most of it, because it does not read, goes.
    fn doom_slowest(&mut self) -> Option<ConnId> {
        let slowest = self.conns.iter().max_by_key(|(_, conn)| conn.backlog).map(|(id, _)| *id)?;
        self.doom(slowest);
        Some(slowest)
    }

    /// Counts a command that was taken.
    pub(super) fn opened(&mut self, reply: &Reply) {
        if let Some(conn) = self.conns.get_mut(&reply.conn) {
            conn.open += 1;
        }
    }

    /// Sends the terminal event of a command, and whatever leaves with it: `lines`, or what a connection of the
    /// second dialect hears instead.
    pub(super) fn close_command(&mut self, reply: Reply, lines: Vec<u8>, second: Option<Vec<u8>>) {
        self.ended += 1;
        let is_kept = reply.command != 0;
        if is_kept {
            self.keep(reply.command, &lines, None);
        }
        let follows = self.follows(reply.conn);
        let Some(conn) = self.conns.get_mut(&reply.conn) else {
            // Only what is detached outlives its connection.
            if !is_kept {
                self.actions.push_back(Action::Unclaimed(lines));
            }
            return;
        };
        conn.open = conn.open.saturating_sub(1);
        conn.busy &= !reply.ordered();
        let bytes = second.unwrap_or(lines);
        // In the second dialect a turn ends without a word.
        let has_heard = is_kept && follows;
        if !has_heard && !bytes.is_empty() {
            self.send(reply.conn, bytes);
        }
    }

    pub(super) fn fail(&mut self, reply: Reply, text: &str) {
        let second = self.is_second(reply.conn).then(|| self.notice(text));
        let line = Event::Error { text }.encode(reply.id.as_ref());
        self.close_command(reply, line, second);
    }

    pub(super) fn done(&mut self, reply: Reply, session: &str) {
        let second = self.is_second(reply.conn).then(Vec::new);
        let line = Event::Done { session }.encode(reply.id.as_ref());
        self.close_command(reply, line, second);
    }

    /// Whether the connection is too far behind for more of a turn.
    pub(super) fn is_full(&self, conn: ConnId) -> bool {
        self.full.contains(&conn)
    }

    /// When the next stalled connection is dropped, and which that is.
    pub(super) fn next_stall(&self) -> Option<(Duration, ConnId)> {
        let patience = if self.aborting() { STALL_ABORTING } else { STALL };
        let since = |conn: &ConnId| Some((self.conns.get(conn)?.full?.0, *conn));
        self.full.iter().filter_map(since).min().map(|(since, conn)| (since + patience, conn))
    }

    /// Drops a connection that does not read: closes it now, and settles its commands soon.
    pub(super) fn doom(&mut self, conn: ConnId) {
        self.actions.push_back(Action::Close { conn, flush: false });
        self.forget(conn);
    }

    /// Closes connections that said all and heard all.
    pub(super) fn close_finished(&mut self) {
        let heard_all =
            |conn: &&ConnId| self.conns.get(conn).is_none_or(|to| to.open == 0) && !self.is_behind(**conn);
        let over: Vec<ConnId> = self.finished.iter().filter(heard_all).copied().collect();
        for conn in over {
            self.actions.push_back(Action::Close { conn, flush: true });
            self.forget(conn);
        }
    }

    /// The newest connection that can be asked something in the first dialect.
    pub(super) fn newest_of_first(&self) -> Option<ConnId> {
        let asked = |(_, conn): &(&ConnId, &Conn)| !conn.is_second() && !conn.outbound_only;
        self.conns.iter().rfind(asked).map(|(id, _)| *id)
    }

    /// Connections that want `log` events and have room for them.
    pub(super) fn log_readers(&self) -> Vec<ConnId> {
        let wants = |conn: &Conn| conn.log && !conn.is_second() && conn.backlog < HIGH;
        let wanting = self.conns.iter().filter(|(_, conn)| wants(conn));
        wanting.map(|(id, _)| *id).collect()
    }

    /// A line that cannot be taken in costs its connection, and nothing else (BP-19).
    fn refuse_line(&mut self, conn: ConnId, text: &str) {
        let bytes = match self.is_second(conn) {
            true => self.notice(text),
            false => Event::Error { text }.encode(None),
        };
        self.send(conn, bytes);
        self.actions.push_back(Action::Close { conn, flush: true });
        self.forget(conn);
    }

    /// Forgets a connection; its commands are aborted or detached by `settle`.
    fn forget(&mut self, conn: ConnId) {
        let Some(gone) = self.conns.remove(&conn) else { return };
        self.finished.remove(&conn);
        self.full.remove(&conn);
        self.forget_follower(conn);
        self.budget.give(gone.backlog);
        self.budget.give_inbound(gone.held);
        self.gone.push(conn);
    }

    /// Ends what a connection that is gone had asked for.
    pub(super) fn abandon_commands(&mut self) {
        for conn in std::mem::take(&mut self.gone) {
            if self.keeps() {
                // Whoever asked can come back for all of it.
                self.ask_others(conn);
                continue;
            }
            let budget = &mut self.budget;
            self.waiting.retain(|waiting| {
                let stays = waiting.reply.conn != conn;
                if !stays {
                    budget.give_inbound(waiting.charged);
                }
                stays
            });
            self.kill_execs_of(conn);
            if self.turn.as_ref().is_some_and(|turn| turn.is_of(conn)) {
                match self.config.disconnect {
                    Disconnect::Detach => {}
                    Disconnect::Abort => self.abort_unheard_turn(),
                }
            }
            self.ask_others(conn);
        }
    }
}
