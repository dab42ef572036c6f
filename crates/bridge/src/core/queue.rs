//! The command queue: when a command may run (DECISIONS 15, 16).
//!
//! - One turn at a time over all connections, in order of arrival.
//! - A command without an id waits for the earlier ones of its connection; a command with an id does not.
//! - An `exec` waits for nothing else, and with [`ExecOrder::Immediate`] for nothing at all. `interrupt` and `shutdown` are never queued.

use super::connection::CommandReply;
use super::{Bridge, ConnId, ExecOrder};
use crate::proto::{
    BridgeCommand, BridgeEvent, CommandBody, CommandId, ExecCommand, QueryCommand, QueryField, ResumeCommand,
    SetCommand, json,
};
use std::collections::BTreeSet;

/// Maximum number of queued turns.
pub(super) const MAX_QUEUED_TURNS: usize = 64;
/// Maximum number of other queued commands, per connection and in total.
const MAX_QUEUED_PER_CONNECTION: usize = 64;
const MAX_QUEUED_COMMANDS: usize = 1024;
/// Maximum number of `exec` commands that run at the same time.
const MAX_RUNNING_EXECS: usize = 64;

/// The error for a command on an outbound-only connection.
const OUTBOUND_ONLY_ERROR: &str = "this connection is outbound-only";

/// A command that has not started.
#[derive(Debug)]
pub(super) struct QueuedCommand {
    pub(super) reply: CommandReply,
    /// Bytes reserved in the budget for the command.
    pub(super) reserved_bytes: usize,
    job: QueuedJob,
}

#[derive(Debug)]
enum QueuedJob {
    Query(Box<QueryCommand>, Vec<String>),
    Resume(ResumeCommand),
    Exec(ExecCommand),
    Set(SetCommand),
    Replay(u64),
    /// Answered with this error, in order of arrival, so that the error does not end an earlier command.
    Rejected(String),
}

impl QueuedCommand {
    pub(super) fn is_turn(&self) -> bool {
        matches!(self.job, QueuedJob::Query(..) | QueuedJob::Resume(_))
    }
}

impl Bridge {
    pub(super) fn handle_command(&mut self, conn: ConnId, command: BridgeCommand) {
        let BridgeCommand { id, body: request } = command;
        let outbound_only = self.connections.get(&conn).is_some_and(|conn| conn.outbound_only);
        match request {
            CommandBody::Interrupt | CommandBody::Shutdown | CommandBody::Response(_) if outbound_only => {
                self.send_error(conn, id, OUTBOUND_ONLY_ERROR);
            }
            CommandBody::Query(_) | CommandBody::Resume(_) | CommandBody::Exec(_) if outbound_only => {
                self.enqueue(CommandReply::new(conn, id), 0, Err(OUTBOUND_ONLY_ERROR.into()));
            }
            CommandBody::Interrupt => {
                self.interrupt(conn);
                self.acknowledge(conn, id);
            }
            CommandBody::Shutdown => self.begin_shutdown(id.map(|id| CommandReply::new(conn, Some(id)))),
            CommandBody::Response(answer) => self.handle_command_response(conn, id, &answer),
            CommandBody::Query(query) => {
                if query.delivery().is_some_and(|uuid| self.has_received(uuid)) {
                    return self.log_ignored("a query that was accepted before");
                }
                let (charge, delivery) = (query.line().len(), query.delivery().map(str::to_owned));
                let job = self.check_paused().and_then(|()| self.check_query(&query));
                let job = job.map(|flags| QueuedJob::Query(query, flags));
                if self.enqueue(CommandReply::new(conn, id), charge, job)
                    && let Some(uuid) = delivery
                {
                    self.remember_received(&uuid);
                }
            }
            CommandBody::Resume(resume) => {
                let charge = resume.line.len();
                let job = self.check_paused().and_then(|()| self.check_session(&resume.session));
                let job = job.map(|()| QueuedJob::Resume(resume));
                self.enqueue(CommandReply::new(conn, id), charge, job);
            }
            CommandBody::Exec(exec) => {
                let charge = exec.command.len();
                let job = self.check_paused().map(|()| QueuedJob::Exec(exec));
                let reply = CommandReply::new(conn, id);
                let reply = match self.config.exec_order {
                    ExecOrder::Queued => reply,
                    ExecOrder::Immediate => reply.unordered(),
                };
                self.enqueue(reply, charge, job);
            }
            CommandBody::Replay(after) => {
                self.enqueue(CommandReply::new(conn, id), 0, Ok(QueuedJob::Replay(after)));
            }
            CommandBody::Set(set) => {
                self.enqueue(CommandReply::new(conn, id), 0, Ok(QueuedJob::Set(set)));
            }
        }
    }

    /// Queues the turn of an SDK message; returns whether it was accepted.
    pub(super) fn enqueue_query(&mut self, reply: CommandReply, query: Box<QueryCommand>) -> bool {
        let charge = query.line().len();
        let job = self.adapter.start_flags(&query).map(|flags| QueuedJob::Query(query, flags));
        self.enqueue(reply, charge, job)
    }

    /// Starts every command that may run now.
    pub(super) fn start_runnable(&mut self) {
        while let Some(waiting) = self.next_runnable().and_then(|at| self.queue.remove(at)) {
            let QueuedCommand { reply, reserved_bytes: charged, job } = waiting;
            if let Some(conn) = self.connections.get_mut(&reply.conn) {
                conn.is_busy |= reply.is_ordered();
            }
            match job {
                QueuedJob::Query(query, flags) => self.start_query(reply, query, flags, charged),
                QueuedJob::Resume(resume) => {
                    self.budget.release_inbound(charged);
                    self.start_resume(reply, resume);
                }
                QueuedJob::Exec(exec) => {
                    self.budget.release_inbound(charged);
                    self.start_exec(reply, exec);
                }
                QueuedJob::Set(set) => self.apply_set(reply, &set),
                QueuedJob::Replay(after) => self.start_replay(reply, after),
                // Of every kind of command: one that is not an exec fails as usual.
                QueuedJob::Rejected(text) => self.fail_exec(reply, &text),
            }
        }
    }

    /// Ends all queued commands with this error.
    pub(super) fn reject_queued(&mut self, text: &str) {
        for waiting in std::mem::take(&mut self.queue) {
            self.budget.release_inbound(waiting.reserved_bytes);
            self.fail_command(waiting.reply, text);
        }
    }

    /// Ends the first queued turn of a connection as interrupted; returns whether there was one.
    pub(super) fn cancel_queued_turn(&mut self, conn: ConnId) -> bool {
        let at = self.queue.iter().position(|w| w.reply.conn == conn && w.is_turn());
        let Some(waiting) = at.and_then(|at| self.queue.remove(at)) else { return false };
        self.budget.release_inbound(waiting.reserved_bytes);
        let session = self.session.clone().unwrap_or_default();
        self.complete_command(waiting.reply, &session);
        true
    }

    /// Queues a command, or an error in its place; returns whether the command was accepted.
    fn enqueue(&mut self, mut reply: CommandReply, charge: usize, job: Result<QueuedJob, String>) -> bool {
        let refusal = if self.shutdown.is_some() {
            Some("the bridge is shutting down")
        } else {
            job.as_ref().ok().and_then(|job| self.queue_refusal(reply.conn, job, charge))
        };
        let (job, charged) = match (refusal, job) {
            (Some(text), _) => (QueuedJob::Rejected(text.into()), 0),
            (None, Err(text)) => (QueuedJob::Rejected(text), 0),
            (None, Ok(job)) => (job, charge),
        };
        self.count_open_command(&reply);
        if matches!(job, QueuedJob::Rejected(_)) && self.is_queue_full(reply.conn) {
            // The queue has no space for the error either. It is sent at once, out of order.
            if let QueuedJob::Rejected(text) = job {
                self.fail_unqueued(reply, &text);
            }
            return false;
        }
        let is_taken = !matches!(job, QueuedJob::Rejected(_));
        if matches!(job, QueuedJob::Query(..) | QueuedJob::Resume(_) | QueuedJob::Exec(_)) {
            reply.command = self.record_command_start(reply.id.as_ref());
        }
        self.queue.push_back(QueuedCommand { reply, reserved_bytes: charged, job });
        is_taken
    }

    /// Reserves space for the job, or returns the reason why it is rejected.
    fn queue_refusal(&mut self, conn: ConnId, job: &QueuedJob, charge: usize) -> Option<&'static str> {
        let full = match job {
            QueuedJob::Query(..) | QueuedJob::Resume(_) => {
                (self.queue.iter().filter(|w| w.is_turn()).count() >= MAX_QUEUED_TURNS)
                    .then_some("too many turns wait for the agent")
            }
            _ => self.is_queue_full(conn).then_some("too many commands wait"),
        };
        full.or_else(|| {
            (!self.reserve_inbound(conn, charge)).then_some("the bridge holds too many waiting commands")
        })
    }

    fn is_queue_full(&self, conn: ConnId) -> bool {
        let others = || self.queue.iter().filter(|w| !w.is_turn());
        others().filter(|w| w.reply.conn == conn).count() >= MAX_QUEUED_PER_CONNECTION
            || others().count() >= MAX_QUEUED_COMMANDS
    }

    /// Sends an error for a command that was never queued; earlier commands are not affected.
    fn fail_unqueued(&mut self, reply: CommandReply, text: &str) {
        let busy = self.connections.get(&reply.conn).is_some_and(|conn| conn.is_busy);
        let conn = reply.conn;
        self.fail_command(reply, text);
        if let Some(conn) = self.connections.get_mut(&conn) {
            conn.is_busy = busy;
        }
    }

    /// The first queued command that may run.
    fn next_runnable(&self) -> Option<usize> {
        // Connections with an earlier queued command without an id.
        let mut behind = BTreeSet::new();
        self.queue.iter().position(|waiting| {
            let conn = waiting.reply.conn;
            if waiting.reply.is_ordered() {
                let busy = self
                    .connections
                    .get(&conn)
                    .map_or_else(|| self.runs_ordered_command(conn), |conn| conn.is_busy);
                if busy || behind.contains(&conn) {
                    return false;
                }
                behind.insert(conn);
            }
            match &waiting.job {
                QueuedJob::Query(..) => self.turn.is_none(),
                QueuedJob::Resume(resume) => self.turn.is_none() || self.has_loaded_session(&resume.session),
                QueuedJob::Exec(_) => self.execs.len() < MAX_RUNNING_EXECS,
                QueuedJob::Set(_) | QueuedJob::Replay(_) | QueuedJob::Rejected(_) => true,
            }
        })
    }

    /// Whether a turn without an id runs or waits on a connection.
    pub(super) fn has_ordered_turn(&self, conn: ConnId) -> bool {
        let waits = |waiting: &QueuedCommand| {
            waiting.reply.conn == conn && waiting.reply.is_ordered() && waiting.is_turn()
        };
        self.turn.as_ref().is_some_and(|turn| turn.is_ordered_for(conn)) || self.queue.iter().any(waits)
    }

    /// Whether a command of a closed connection runs for which its later commands wait.
    fn runs_ordered_command(&self, conn: ConnId) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.is_ordered_for(conn)) || self.runs_ordered_exec(conn)
    }

    fn check_paused(&self) -> Result<(), String> {
        if self.is_paused { Err("the session is paused: resume it first".to_owned()) } else { Ok(()) }
    }

    fn check_query(&mut self, query: &QueryCommand) -> Result<Vec<String>, String> {
        let flags = self.adapter.start_flags(query)?;
        if self.config.permissions.modes.is_some()
            && let Some(mode) = query.field(QueryField::PermissionMode)
        {
            let mode = json::parse_string(mode).unwrap_or_default();
            self.config.permissions.may_set_mode(&mode).map_err(|why| format!("query: {why}"))?;
        }
        self.check_session(query.session())?;
        Ok(flags)
    }

    /// A bridge serves one session. The first command sets its id.
    fn check_session(&mut self, session: &str) -> Result<(), String> {
        match &self.session {
            Some(served) if served != session => {
                let served = json::shorten(served);
                Err(format!("this bridge serves the session {served:?}"))
            }
            Some(_) => Ok(()),
            None => {
                self.session = Some(session.to_owned());
                Ok(())
            }
        }
    }

    fn apply_set(&mut self, reply: CommandReply, set: &SetCommand) {
        if let Some(conn) = self.connections.get_mut(&reply.conn) {
            conn.wants_log = set.log.unwrap_or(conn.wants_log);
            conn.filter_setting = set.filter.or(conn.filter_setting);
            conn.outbound_only = set.outbound_only.unwrap_or(conn.outbound_only);
        }
        let session = self.session.clone().unwrap_or_default();
        self.complete_command(reply, &session);
    }

    /// Sends `done` for `interrupt`, `shutdown` and responses, which have no other event, if they have an id
    /// (DECISIONS 15).
    pub(super) fn acknowledge(&mut self, conn: ConnId, id: Option<CommandId>) {
        if let Some(id) = id {
            let session = self.session.as_deref().unwrap_or_default();
            let done = BridgeEvent::Done { session }.encode(Some(&id));
            self.send(conn, done);
        }
    }

    pub(super) fn send_error(&mut self, conn: ConnId, id: Option<CommandId>, text: &str) {
        self.send(conn, BridgeEvent::Error { text }.encode(id.as_ref()));
    }
}
