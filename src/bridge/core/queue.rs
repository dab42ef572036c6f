//! Commands that wait: which may run when (DECISIONS 15, 16).
//!
//! - One turn at a time, over all connections, in the order they came.
//! - A command without an id waits for the earlier ones of its connection; one with an id never does.
//! - An `exec` waits for nothing else. `interrupt` and `shutdown` do not come here: they never wait.

use super::conn::Reply;
use super::{Bridge, ConnId};
use crate::bridge::proto::{Command, Event, Exec, Field, Id, Query, Request, Resume, Set, json};
use std::collections::BTreeSet;

/// How many turns may wait.
pub(super) const WAITING_TURNS: usize = 64;
/// How many other commands may wait, of one connection and together.
const WAITING_OTHERS: usize = 64;
const WAITING_OTHERS_TOTAL: usize = 1024;
/// How many `exec` may run at once.
const RUNNING_EXECS: usize = 64;

/// What a connection hears that said it would only listen.
const OUTBOUND_ONLY: &str = "this connection is outbound-only";

/// A command that has not begun.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) reply: Reply,
    /// Bytes taken from the budget for it.
    pub(super) charged: usize,
    job: Job,
}

#[derive(Debug)]
enum Job {
    Query(Box<Query>, Vec<String>),
    Resume(Resume),
    Exec(Exec),
    Set(Set),
    Replay(u64),
    /// Answered with an error; in its order, so that the error ends no earlier command.
    Refused(String),
}

impl Waiting {
    pub(super) fn is_turn(&self) -> bool {
        matches!(self.job, Job::Query(..) | Job::Resume(_))
    }
}

impl Bridge {
    pub(super) fn command(&mut self, conn: ConnId, command: Command) {
        let Command { id, request } = command;
        let outbound_only = self.conns.get(&conn).is_some_and(|conn| conn.outbound_only);
        match request {
            Request::Interrupt | Request::Shutdown | Request::Answer(_) if outbound_only => {
                self.complain(conn, id, OUTBOUND_ONLY);
            }
            Request::Query(_) | Request::Resume(_) | Request::Exec(_) if outbound_only => {
                self.enqueue(Reply::new(conn, id), 0, Err(OUTBOUND_ONLY.into()));
            }
            Request::Interrupt => {
                self.interrupt(conn);
                self.acknowledge(conn, id);
            }
            Request::Shutdown => self.shut_down(id.map(|id| Reply::new(conn, Some(id)))),
            Request::Answer(answer) => self.first_answer(conn, id, &answer),
            Request::Query(query) => {
                let charge = query.line().len();
                let job = self.check_paused().and_then(|()| self.check_query(&query));
                let job = job.map(|flags| Job::Query(query, flags));
                self.enqueue(Reply::new(conn, id), charge, job);
            }
            Request::Resume(resume) => {
                let charge = resume.line.len();
                let job = self.check_paused().and_then(|()| self.check_session(&resume.session));
                let job = job.map(|()| Job::Resume(resume));
                self.enqueue(Reply::new(conn, id), charge, job);
            }
            Request::Exec(exec) => {
                let charge = exec.command.len();
                let job = self.check_paused().map(|()| Job::Exec(exec));
                self.enqueue(Reply::new(conn, id), charge, job);
            }
            Request::Replay(after) => {
                self.enqueue(Reply::new(conn, id), 0, Ok(Job::Replay(after)));
            }
            Request::Set(set) => {
                self.enqueue(Reply::new(conn, id), 0, Ok(Job::Set(set)));
            }
        }
    }

    /// A turn that a message of the second dialect asks for; whether it found its place.
    pub(super) fn enqueue_query(&mut self, reply: Reply, query: Box<Query>) -> bool {
        let charge = query.line().len();
        let job = self.adapter.flags(&query).map(|flags| Job::Query(query, flags));
        self.enqueue(reply, charge, job)
    }

    /// Starts every command that may run now.
    pub(super) fn pump(&mut self) {
        while let Some(waiting) = self.runnable().and_then(|at| self.waiting.remove(at)) {
            let Waiting { reply, charged, job } = waiting;
            if let Some(conn) = self.conns.get_mut(&reply.conn) {
                conn.busy |= reply.ordered();
            }
            match job {
                Job::Query(query, flags) => self.begin_query(reply, query, flags, charged),
                Job::Resume(resume) => {
                    self.budget.give_inbound(charged);
                    self.begin_resume(reply, resume);
                }
                Job::Exec(exec) => {
                    self.budget.give_inbound(charged);
                    self.begin_exec(reply, exec);
                }
                Job::Set(set) => self.apply(reply, &set),
                Job::Replay(after) => self.begin_replay(reply, after),
                Job::Refused(text) => self.fail(reply, &text),
            }
        }
    }

    /// Ends everything that waits with this error.
    pub(super) fn refuse_waiting(&mut self, text: &str) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.budget.give_inbound(waiting.charged);
            self.fail(waiting.reply, text);
        }
    }

    /// Ends the first waiting turn of a connection as if it had been interrupted; whether there was one.
    pub(super) fn cancel_waiting_turn(&mut self, conn: ConnId) -> bool {
        let at = self.waiting.iter().position(|w| w.reply.conn == conn && w.is_turn());
        let Some(waiting) = at.and_then(|at| self.waiting.remove(at)) else { return false };
        self.budget.give_inbound(waiting.charged);
        let session = self.session.clone().unwrap_or_default();
        self.done(waiting.reply, &session);
        true
    }

    /// Gives a command its place, or a refusal that place; whether it was no refusal.
    fn enqueue(&mut self, mut reply: Reply, charge: usize, job: Result<Job, String>) -> bool {
        let refusal = if self.ending.is_some() {
            Some("the bridge is shutting down")
        } else {
            job.as_ref().ok().and_then(|job| self.no_room(reply.conn, job, charge))
        };
        let (job, charged) = match (refusal, job) {
            (Some(text), _) => (Job::Refused(text.into()), 0),
            (None, Err(text)) => (Job::Refused(text), 0),
            (None, Ok(job)) => (job, charge),
        };
        self.opened(&reply);
        if matches!(job, Job::Refused(_)) && self.crowded(reply.conn) {
            // Not even a place for the refusal: it is said at once, out of its order.
            if let Job::Refused(text) = job {
                self.fail_out_of_order(reply, &text);
            }
            return false;
        }
        let is_taken = !matches!(job, Job::Refused(_));
        if matches!(job, Job::Query(..) | Job::Resume(_) | Job::Exec(_)) {
            reply.command = self.begin_command(reply.id.as_ref());
        }
        self.waiting.push_back(Waiting { reply, charged, job });
        is_taken
    }

    /// Why the job finds no place, if it does not; else its room is taken.
    fn no_room(&mut self, conn: ConnId, job: &Job, charge: usize) -> Option<&'static str> {
        let full = match job {
            Job::Query(..) | Job::Resume(_) => (self.waiting.iter().filter(|w| w.is_turn()).count()
                >= WAITING_TURNS)
                .then_some("too many turns wait for the agent"),
            _ => self.crowded(conn).then_some("too many commands wait"),
        };
        full.or_else(|| {
            (!self.hold_inbound(conn, charge)).then_some("the bridge holds too many waiting commands")
        })
    }

    fn crowded(&self, conn: ConnId) -> bool {
        let others = || self.waiting.iter().filter(|w| !w.is_turn());
        others().filter(|w| w.reply.conn == conn).count() >= WAITING_OTHERS
            || others().count() >= WAITING_OTHERS_TOTAL
    }

    /// An error for a command that never got its place: the ones before it stay as they are.
    fn fail_out_of_order(&mut self, reply: Reply, text: &str) {
        let busy = self.conns.get(&reply.conn).is_some_and(|conn| conn.busy);
        let conn = reply.conn;
        self.fail(reply, text);
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.busy = busy;
        }
    }

    /// The first waiting command that may run.
    fn runnable(&self) -> Option<usize> {
        // Connections with an earlier command without an id that still waits.
        let mut behind = BTreeSet::new();
        self.waiting.iter().position(|waiting| {
            let conn = waiting.reply.conn;
            if waiting.reply.ordered() {
                let busy = self.conns.get(&conn).map_or_else(|| self.runs_ordered(conn), |conn| conn.busy);
                if busy || behind.contains(&conn) {
                    return false;
                }
                behind.insert(conn);
            }
            match &waiting.job {
                Job::Query(..) => self.turn.is_none(),
                Job::Resume(resume) => self.turn.is_none() || self.serves(&resume.session),
                Job::Exec(_) => self.execs.len() < RUNNING_EXECS,
                Job::Set(_) | Job::Replay(_) | Job::Refused(_) => true,
            }
        })
    }

    /// Whether a command of a connection that is gone runs that those behind it wait for.
    fn runs_ordered(&self, conn: ConnId) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.is_ordered_of(conn)) || self.runs_ordered_exec(conn)
    }

    fn check_paused(&self) -> Result<(), String> {
        if self.paused { Err("the session is paused: resume it first".to_owned()) } else { Ok(()) }
    }

    fn check_query(&mut self, query: &Query) -> Result<Vec<String>, String> {
        let flags = self.adapter.flags(query)?;
        if self.config.permissions.modes.is_some()
            && let Some(mode) = query.field(Field::PermissionMode)
        {
            let mode = json::string(mode).unwrap_or_default();
            self.config.permissions.may_set_mode(&mode).map_err(|why| format!("query: {why}"))?;
        }
        self.check_session(query.session())?;
        Ok(flags)
    }

    /// A live bridge serves one conversation; the first command names it.
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

    fn apply(&mut self, reply: Reply, set: &Set) {
        if let Some(conn) = self.conns.get_mut(&reply.conn) {
            conn.log = set.log.unwrap_or(conn.log);
            conn.filter = set.filter.or(conn.filter);
            conn.outbound_only = set.outbound_only.unwrap_or(conn.outbound_only);
        }
        let session = self.session.clone().unwrap_or_default();
        self.done(reply, &session);
    }

    /// `interrupt`, `shutdown` and answers say nothing of their own, but for an id (DECISIONS 15).
    pub(super) fn acknowledge(&mut self, conn: ConnId, id: Option<Id>) {
        if let Some(id) = id {
            let session = self.session.as_deref().unwrap_or_default();
            let done = Event::Done { session }.encode(Some(&id));
            self.send(conn, done);
        }
    }

    pub(super) fn complain(&mut self, conn: ConnId, id: Option<Id>, text: &str) {
        self.send(conn, Event::Error { text }.encode(id.as_ref()));
    }
}
