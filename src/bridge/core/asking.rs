//! Questions of the agent: who is asked, who may answer, and what becomes of those that nobody answers (RB-28 to
//! RB-35, DECISIONS 19).
//!
//! ```text
//!   asked ──rule of the policy──> answered
//!     │
//!     └──> open ──first valid answer, from anywhere──────────────> answered; the others hear that it is closed
//!            ├── time limit, malformed answer, server's cancel ──> denied
//!            ├── agent's cancel ─────────────────────────────────> closed
//!            └── interrupt, agent's end, shutdown ───────────────> denied
//! ```
//! A question leaves the table in the step in which it is decided: nothing decides it twice. Whatever is decided
//! is audited before the agent hears of it.

use super::action::{Action, HostAnswer, Stop};
use super::conn::Reply;
use super::{Bridge, ConnId};
use crate::bridge::proto::permission::{
    Ask, Asked, Audit, By, Decision, HostAsk, Pending, Verdict, read_body,
};
use crate::bridge::proto::second::control;
use crate::bridge::proto::{Answer, Event, Id, LogLevel, uuid_v4};
use crate::spec::policy::Ruling;

/// Who was told of a question.
#[derive(Debug)]
pub struct Told {
    conn: ConnId,
    /// The command whose turn asks.
    id: Option<Id>,
    /// Under the bridge's own name of it.
    second: bool,
}

/// Who knows already that a question is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knows {
    Nobody,
    /// It closed it.
    Conn(ConnId),
    /// Everybody of the first dialect: it was told so in other words, or will be.
    First,
}

impl From<Option<ConnId>> for Knows {
    fn from(conn: Option<ConnId>) -> Self {
        conn.map_or(Knows::Nobody, Knows::Conn)
    }
}

/// Why an answer that did not come over the bridge socket was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// It is answered, taken back or given up, or was never asked.
    #[error("no question of this id is open")]
    Unknown,
    /// It is no answer.
    #[error("the answer is malformed: {0}")]
    Malformed(&'static str),
    /// The agent takes nothing.
    #[error("the agent does not take its input")]
    NoRoom,
}

impl Bridge {
    /// The open questions about tools, in the order in which they were asked.
    pub fn permissions(&self) -> impl Iterator<Item = &Pending<Told>> {
        self.questions.iter().filter(|pending| pending.ask.tool.is_some())
    }

    /// Answers a question by the bridge's own name of it, with the JSON of `{"behavior":…}`: the control
    /// socket.
    ///
    /// # Errors
    /// Why it was not taken; the question stays as it is.
    pub fn answer_permission(&mut self, id: &str, body: &str) -> Result<(), NotTaken> {
        let pending = self.questions.get(id).filter(|pending| pending.ask.tool.is_some());
        let pending = pending.ok_or(NotTaken::Unknown)?;
        let verdict = read_body(body).map_err(NotTaken::Malformed)?;
        let line = pending.ask.answer(verdict, body);
        let taken = self.hears(&pending.ask) && self.decided(id, &line, verdict, By::Control, None);
        self.settle();
        taken.then_some(()).ok_or(NotTaken::NoRoom)
    }

    /// Whether there is who could take an answer: of a question about a host, that is not the agent.
    pub(super) fn hears(&self, ask: &Ask) -> bool {
        ask.host.is_some() || self.agent_is_up()
    }

    /// The agent asks something, or takes a question back.
    pub(super) fn asked(&mut self, line: &str) {
        match Asked::read(line) {
            Asked::Question(ask) => self.question(ask),
            Asked::Back(agent_id) => self.taken_back(&agent_id, line),
            Asked::Unanswerable => {
                self.log(LogLevel::Warn, "the agent asks in a way that cannot be answered");
                self.pass_on(line);
            }
        }
    }

    /// An answer of the first dialect, under the agent's own name of the question.
    pub(super) fn first_answer(&mut self, conn: ConnId, id: Option<Id>, answer: &Answer) {
        let pending = self.questions.get_agents(&answer.request_id);
        if !pending.map_or_else(|| self.agent_is_up(), |pending| self.hears(&pending.ask)) {
            return self.complain(conn, id, "no agent runs that could take the answer");
        }
        let Some(name) = pending.map(|pending| pending.id.clone()) else {
            // Late, or said twice: the answer that counted has been given.
            self.log(LogLevel::Debug, "ignored: an answer to no open question");
            return self.acknowledge(conn, id);
        };
        let taken = match answer.verdict {
            Some(verdict) => self.decided(&name, &answer.line, verdict, By::Server, Some(conn)),
            None => self.denied(&name, By::Server, Some(conn), "the server took the question back"),
        };
        match taken {
            true => self.acknowledge(conn, id),
            false => self.complain(conn, id, "the agent does not take its input"),
        }
    }

    /// Gives the agent this answer to an open question; whether it was taken.
    pub(super) fn decided(
        &mut self,
        id: &str,
        line: &str,
        verdict: Verdict,
        by: By,
        conn: Option<ConnId>,
    ) -> bool {
        let is_agents = self.questions.get(id).is_some_and(|pending| pending.ask.host.is_none());
        if is_agents && !self.budget.has_room(line.len() + 1) {
            return false;
        }
        let Some(pending) = self.questions.take(id) else { return false };
        let decision = if verdict == Verdict::Allow { Decision::Allow } else { Decision::Deny };
        let mut audit = self.audit(&pending, decision, by);
        audit.connection = conn.map(|conn| conn.0);
        audit.changed = verdict == Verdict::Allow && pending.ask.is_changed_by(line);
        self.close(pending, audit, Some(line), conn.into());
        true
    }

    /// Denies an open question; whether there was one.
    pub(super) fn denied(&mut self, id: &str, by: By, conn: Option<ConnId>, why: &str) -> bool {
        let Some(pending) = self.questions.take(id) else { return false };
        let line = pending.ask.denial(why);
        let mut audit = self.audit(&pending, Decision::Deny, by);
        audit.connection = conn.map(|conn| conn.0);
        audit.reason = Some(why.to_owned());
        self.close(pending, audit, Some(&line), conn.into());
        true
    }

    /// Denies everything that is open, because its turn or its agent ends.
    ///
    /// An agent that lives takes its questions back itself, and a server of the first dialect hears that in the
    /// agent's own words; what it does not take back is told by [`Bridge::say_taken_back`].
    pub(super) fn withdraw_all(&mut self, by: By, why: &str) {
        let heard = by != By::Exit && self.agent_is_up();
        for mut pending in self.questions.take_all() {
            let line = heard.then(|| pending.ask.denial(why));
            let mut audit = self.audit(&pending, Decision::Deny, by.clone());
            audit.reason = Some(why.to_owned());
            let mut knows = Knows::Nobody;
            if let Some(told) = pending.told.take_if(|told| heard && !told.second) {
                self.leaving.push((pending.ask.agent_id.clone(), told, pending.ask.back()));
                knows = Knows::First;
            }
            self.close(pending, audit, line.as_deref(), knows);
        }
    }

    /// Tells of the denied questions that the agent did not take back in its own words.
    pub(super) fn say_taken_back(&mut self) {
        for (_, told, back) in std::mem::take(&mut self.leaving) {
            self.tell_first(&told, &back);
        }
    }

    /// A connection has gone that was told of questions: others are.
    pub(super) fn ask_others(&mut self, gone: ConnId) {
        let mut ids = Vec::new();
        for pending in self.questions.iter_mut() {
            if pending.told.take_if(|told| told.conn == gone).is_some() {
                ids.push(pending.id.clone());
            }
        }
        ids.iter().for_each(|id| self.ask_somebody(id));
    }

    /// A program calls a host that somebody is to be asked about. The end of it is [`Action::HostAnswered`].
    pub fn ask_about_host(&mut self, host: HostAsk<'_>) {
        let ask = Ask::about_host(uuid_v4(), host);
        let pending = Pending { id: uuid_v4(), ask, told: None, until: None };
        match self.refuses_questions() {
            Some(by) => self.refuse(pending, by, "the turn is being interrupted"),
            None => self.open(pending),
        }
        self.settle();
    }

    /// No program waits any more for the answer to a question about a host.
    pub fn forget_host(&mut self, number: u64) {
        let id =
            self.questions.iter().find(|pending| pending.ask.host == Some(number)).map(|one| one.id.clone());
        if let Some(pending) = id.and_then(|id| self.questions.take(&id)) {
            let audit = self.audit(&pending, Decision::Cancel, By::Agent);
            self.close(pending, audit, None, Knows::Nobody);
        }
        self.settle();
    }

    /// What the time does to open questions.
    pub(super) fn tick_questions(&mut self) {
        for id in self.questions.late(self.now) {
            let why = format!("nobody answered within {}", self.config.permissions.timeout.value);
            self.denied(&id, By::Timeout, None, &why);
        }
    }

    fn question(&mut self, ask: Ask) {
        let pending = Pending { id: uuid_v4(), ask, told: None, until: None };
        if let Some(by) = self.refuses_questions() {
            return self.refuse(pending, by, "the turn is being interrupted");
        }
        let ruling = match &pending.ask.tool {
            Some(tool) => self.config.permissions.ruling(&tool.name, &tool.input),
            None => Ruling::Ask,
        };
        let (decision, line, rule) = match ruling {
            Ruling::Ask => return self.open(pending),
            Ruling::Allow(rule) => (Decision::Allow, pending.ask.allowance(), rule),
            Ruling::Deny(rule) => {
                (Decision::Deny, pending.ask.denial("the policy of this sandbox denies it"), rule)
            }
        };
        let mut audit = self.audit(&pending, decision, By::Rule);
        audit.rule = Some(rule);
        self.tell_asker(&pending.ask, audit, Some(&line));
    }

    /// Why nothing can be asked now, where it cannot.
    fn refuses_questions(&self) -> Option<By> {
        let by = if self.ending.is_some() { By::Shutdown } else { By::Interrupt };
        self.aborting().then_some(by)
    }

    fn open(&mut self, mut pending: Pending<Told>) {
        let is_permission = pending.ask.tool.is_some();
        if is_permission {
            pending.until = Some(self.now.saturating_add(self.config.permissions.timeout.value.duration()));
        }
        let (id, size) = (pending.id.clone(), pending.ask.size());
        if !self.budget.take(size) {
            return self.refuse(pending, By::Bridge, "the bridge has no room for the question");
        }
        if let Err((pending, why)) = self.questions.add(pending) {
            self.budget.give(size);
            return self.refuse(*pending, By::Bridge, why);
        }
        if is_permission {
            self.actions.push_back(Action::PermissionAsked(id.clone()));
        }
        if self.keeps() {
            let line = self.questions.get(&id).map(|pending| pending.ask.line.clone()).unwrap_or_default();
            self.keep_said(&line);
        }
        self.ask_somebody(&id);
    }

    /// Denies what was never open.
    fn refuse(&mut self, pending: Pending<Told>, by: By, why: &str) {
        let line = pending.ask.denial(why);
        let mut audit = self.audit(&pending, Decision::Deny, by);
        audit.reason = Some(why.to_owned());
        self.tell_asker(&pending.ask, audit, Some(&line));
    }

    /// Tells whom it concerns of an open question: the connection whose turn runs, else the newest of the first
    /// dialect, else nobody but whoever looks at the table.
    fn ask_somebody(&mut self, id: &str) {
        let Some(pending) = self.questions.get(id) else { return };
        let (reply, conn) = self.asked_conn();
        let second = conn.is_some_and(|conn| self.is_second(conn));
        if second && pending.ask.tool.is_none() {
            let why = format!("nobody here answers control requests of subtype {}", pending.ask.subtype);
            self.denied(id, By::Bridge, None, &why);
            return;
        }
        let bytes = match second {
            true => pending.ask.outward(&self.config.name, id),
            false => Event::Message { data: &pending.ask.line }.encode(reply.as_ref()),
        };
        let Some(conn) = conn else {
            if !self.keeps() {
                self.actions.push_back(Action::Unclaimed(bytes));
            }
            return;
        };
        for pending in self.questions.iter_mut().filter(|pending| pending.id == id) {
            pending.told = Some(Told { conn, id: reply.clone(), second });
        }
        // Whoever follows has heard it when it was asked.
        if second || !self.follows(conn) {
            self.send(conn, bytes);
        }
    }

    /// Keeps a line of the agent about a question, as one of the turn that runs.
    fn keep_said(&mut self, line: &str) {
        if self.keeps() {
            let (id, _) = self.asked_conn();
            let kept = Event::Message { data: line }.encode(id.as_ref());
            self.keep(0, &kept, Some(line));
        }
    }

    /// Whom a question of the agent concerns now, and the id of the command that it belongs to.
    fn asked_conn(&self) -> (Option<Id>, Option<ConnId>) {
        let turn = self.turn.as_ref().filter(|turn| !turn.is_starting() && !turn.is_settling());
        match turn.and_then(|turn| turn.reply()) {
            Some(Reply { conn, id, .. }) => {
                let there = Some(*conn).filter(|conn| self.conns.contains_key(conn));
                // The turn outlived it: whoever has come instead.
                let instead = || self.newest_of_first().filter(|_| self.keeps());
                (id.clone(), there.or_else(instead))
            }
            None => (None, self.newest_of_first()),
        }
    }

    fn taken_back(&mut self, agent_id: &str, line: &str) {
        if let Some(mut pending) = self.questions.take_agents(agent_id) {
            let audit = self.audit(&pending, Decision::Cancel, By::Agent);
            match pending.told.take_if(|told| !told.second) {
                Some(told) => self.tell_first(&told, line),
                None if pending.told.is_none() => self.pass_on(line),
                None => self.keep_said(line),
            }
            self.close(pending, audit, None, Knows::First);
        } else if let Some(at) = self.leaving.iter().position(|(id, _, _)| id == agent_id) {
            let (_, told, _) = self.leaving.swap_remove(at);
            self.tell_first(&told, line);
        } else {
            self.pass_on(line);
        }
    }

    /// Hands on what the agent says of questions that are not in the table, where its own lines are heard.
    fn pass_on(&mut self, line: &str) {
        let (reply, conn) = self.asked_conn();
        let bytes = Event::Message { data: line }.encode(reply.as_ref());
        self.keep_said(line);
        match conn {
            Some(conn) if self.is_second(conn) || self.follows(conn) => {}
            Some(conn) => self.send(conn, bytes),
            None if self.keeps() => {}
            None => self.actions.push_back(Action::Unclaimed(bytes)),
        }
    }

    /// Says a line to a connection of the first dialect, as part of the command that it was asked in while that
    /// lasts.
    fn tell_first(&mut self, told: &Told, line: &str) {
        self.keep_said(line);
        if self.follows(told.conn) {
            return;
        }
        let reply = self.turn.as_ref().and_then(|turn| turn.reply());
        let id = reply.filter(|reply| reply.conn == told.conn && reply.id == told.id).and(told.id.as_ref());
        self.send(told.conn, Event::Message { data: line }.encode(id));
    }

    /// The end of a question that was open: written down, told to the agent, and to everybody else who was asked
    /// than who knows.
    fn close(&mut self, pending: Pending<Told>, audit: Audit, line: Option<&str>, knows: Knows) {
        self.budget.give(pending.ask.size());
        self.tell_asker(&pending.ask, audit, line);
        match &pending.told {
            Some(told) if !told.second && ![Knows::First, Knows::Conn(told.conn)].contains(&knows) => {
                self.tell_first(told, &pending.ask.back());
            }
            told => {
                // Others who follow have heard the question, and this may be all they hear of its end.
                if knows != Knows::First {
                    self.keep_said(&pending.ask.back());
                }
                if let Some(told) =
                    told.as_ref().filter(|told| told.second && knows != Knows::Conn(told.conn))
                {
                    self.send(told.conn, control::cancel(&self.config.name, &pending.id));
                }
            }
        }
        if pending.ask.tool.is_some() {
            self.actions.push_back(Action::PermissionClosed(pending.id));
        }
    }

    /// The record first: what is done with the answer comes after it.
    fn tell_asker(&mut self, ask: &Ask, audit: Audit, line: Option<&str>) {
        let (decision, reason) = (audit.decision, audit.reason.clone());
        self.write_down(audit);
        match (ask.host, line) {
            (Some(number), _) => {
                let why = || reason.or_else(|| line.and_then(Ask::reason_of)).unwrap_or_default();
                let verdict = if decision == Decision::Allow { Ok(()) } else { Err(why()) };
                let keep = verdict.is_ok() && line.is_some_and(Ask::is_kept_by);
                self.actions.push_back(Action::HostAnswered(HostAnswer { number, verdict, keep }));
            }
            (None, Some(line)) => self.tell_agent(line),
            (None, None) => {}
        }
    }

    fn tell_agent(&mut self, line: &str) {
        let bytes = self.adapter.answer(line);
        self.keep_no_query();
        if !self.agent_input(bytes) {
            // An agent without its answer would wait for ever.
            self.stop_agent(Stop::Kill);
        }
    }

    fn write_down(&mut self, audit: Audit) {
        // Other questions than those about tools decide nothing.
        if audit.is_permission() {
            self.actions.push_back(Action::Audit(Box::new(audit)));
        }
    }

    fn audit(&self, pending: &Pending<Told>, decision: Decision, by: By) -> Audit {
        Audit::new(self.epoch_ms(), &pending.id, &pending.ask, decision, by)
    }
}
