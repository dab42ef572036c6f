//! Questions of the agent: the recipient, the valid responders, and questions without an answer (RB-28 to RB-35,
//! DECISIONS 19).
//!
//! ```text
//!   question ──rule of the policy──> answered
//!     │
//!     └──> open ──first valid answer, from any client────────────> answered; the other recipients get a cancellation
//!            ├── time limit, malformed answer, server's cancel ──> denied
//!            ├── agent's cancel ─────────────────────────────────> closed
//!            └── interrupt, agent's end, shutdown ───────────────> denied
//! ```
//! A question leaves the table in the step that decides it, so that it is decided once. Every decision is audited
//! before it is sent to the agent.

use super::action::{AgentStop, BridgeAction, HostQuestionResult};
use super::connection::CommandReply;
use super::{Bridge, ConnId};
use crate::proto::permission::{
    AgentControlLine, AgentQuestion, AuditRecord, DecidedBy, HostAccessQuestion, PendingQuestion,
    PermissionDecision, PermissionVerdict, parse_verdict,
};
use crate::proto::sdk_dialect::control;
use crate::proto::{BridgeEvent, CommandId, LogLevel, QuestionResponse, uuid_v4};
use saggar_policy::PermissionRuling;

/// The recipient of a question.
#[derive(Debug)]
pub struct QuestionRecipient {
    conn: ConnId,
    /// The id of the command whose turn asks.
    command_id: Option<CommandId>,
    /// Whether the question was sent under the bridge's own id, in the SDK dialect.
    is_sdk: bool,
}

/// The clients that need no notice that a question is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AlreadyInformed {
    NoConnection,
    /// The connection that closed it.
    Connection(ConnId),
    /// All connections of the command dialect: they get the agent's own line.
    CommandDialect,
}

impl From<Option<ConnId>> for AlreadyInformed {
    fn from(conn: Option<ConnId>) -> Self {
        conn.map_or(AlreadyInformed::NoConnection, AlreadyInformed::Connection)
    }
}

/// Why a response from outside the bridge socket was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PermissionResponseError {
    /// No such question is open: it was answered, cancelled, denied or never asked.
    #[error("no question of this id is open")]
    UnknownQuestion,
    /// The response is malformed; the reason.
    #[error("the answer is malformed: {0}")]
    Malformed(&'static str),
    /// The agent's input buffer is full.
    #[error("the agent does not take its input")]
    AgentInputFull,
}

impl Bridge {
    /// The open permission questions, in order of arrival.
    pub fn pending_permissions(&self) -> impl Iterator<Item = &PendingQuestion<QuestionRecipient>> {
        self.questions.iter().filter(|pending| pending.question.tool.is_some())
    }

    /// Answers the question with this id of the bridge; `body` is the JSON of `{"behavior":…}`. For the control
    /// socket.
    ///
    /// # Errors
    /// The reason of the rejection. The question stays open.
    pub fn respond_to_permission(&mut self, id: &str, body: &str) -> Result<(), PermissionResponseError> {
        let pending = self.questions.get(id).filter(|pending| pending.question.tool.is_some());
        let pending = pending.ok_or(PermissionResponseError::UnknownQuestion)?;
        let verdict = parse_verdict(body).map_err(PermissionResponseError::Malformed)?;
        let line = pending.question.encode_response(verdict, body);
        let taken = self.can_deliver_response(&pending.question)
            && self.decide_question(id, &line, verdict, DecidedBy::Control, None);
        self.process_pending();
        taken.then_some(()).ok_or(PermissionResponseError::AgentInputFull)
    }

    /// Whether a response can be delivered. A response to a question about a host does not need the agent.
    pub(super) fn can_deliver_response(&self, ask: &AgentQuestion) -> bool {
        ask.host_question.is_some() || self.is_agent_ready()
    }

    /// Handles a question or a cancellation from the agent.
    pub(super) fn handle_agent_control(&mut self, line: &str) {
        match AgentControlLine::parse(line) {
            AgentControlLine::Question(ask) => self.handle_question(ask),
            AgentControlLine::Cancel(agent_id) => self.handle_agent_cancel(&agent_id, line),
            AgentControlLine::Unanswerable => {
                self.log(LogLevel::Warn, "the agent asks in a way that cannot be answered");
                self.forward_agent_line(line);
            }
        }
    }

    /// Handles a response of the command dialect, under the agent's own id of the question.
    pub(super) fn handle_command_response(
        &mut self,
        conn: ConnId,
        id: Option<CommandId>,
        answer: &QuestionResponse,
    ) {
        let pending = self.questions.get_by_agent_id(&answer.request_id);
        // A server does not notice that an idle agent was ended.
        let has_agent = self.is_agent_ready() || self.has_ended_idle_agent();
        if !pending.map_or(has_agent, |pending| self.can_deliver_response(&pending.question)) {
            return self.send_error(conn, id, "no agent runs that could take the answer");
        }
        let Some(name) = pending.map(|pending| pending.id.clone()) else {
            // Late or repeated: the question is already closed.
            self.log(LogLevel::Debug, "ignored: an answer to no open question");
            return self.acknowledge(conn, id);
        };
        let taken = match answer.verdict {
            Some(verdict) => {
                self.decide_question(&name, &answer.line, verdict, DecidedBy::Server, Some(conn))
            }
            None => {
                self.deny_question(&name, DecidedBy::Server, Some(conn), "the server took the question back")
            }
        };
        match taken {
            true => self.acknowledge(conn, id),
            false => self.send_error(conn, id, "the agent does not take its input"),
        }
    }

    /// Answers an open question; returns whether the response was delivered.
    pub(super) fn decide_question(
        &mut self,
        id: &str,
        line: &str,
        verdict: PermissionVerdict,
        by: DecidedBy,
        conn: Option<ConnId>,
    ) -> bool {
        let is_agents =
            self.questions.get(id).is_some_and(|pending| pending.question.host_question.is_none());
        if is_agents && !self.budget.has_room(line.len() + 1) {
            return false;
        }
        let Some(pending) = self.questions.take(id) else { return false };
        let decision = if verdict == PermissionVerdict::Allow {
            PermissionDecision::Allow
        } else {
            PermissionDecision::Deny
        };
        let mut audit = self.new_audit_record(&pending, decision, by);
        audit.connection = conn.map(|conn| conn.0);
        audit.changed = verdict == PermissionVerdict::Allow && pending.question.is_input_changed_by(line);
        self.close_question(pending, audit, Some(line), conn.into());
        true
    }

    /// Denies an open question; returns whether there was one.
    pub(super) fn deny_question(&mut self, id: &str, by: DecidedBy, conn: Option<ConnId>, why: &str) -> bool {
        let Some(pending) = self.questions.take(id) else { return false };
        let line = pending.question.encode_denial(why);
        let mut audit = self.new_audit_record(&pending, PermissionDecision::Deny, by);
        audit.connection = conn.map(|conn| conn.0);
        audit.reason = Some(why.to_owned());
        self.close_question(pending, audit, Some(&line), conn.into());
        true
    }

    /// Denies all open questions, because their turn or their agent ends.
    ///
    /// A running agent cancels its questions itself, and servers of the command dialect receive its own lines. For the
    /// others, [`Bridge::send_cancellations`] sends the notice.
    pub(super) fn deny_all_questions(&mut self, by: DecidedBy, why: &str) {
        let heard = by != DecidedBy::Exit && self.is_agent_ready();
        for mut pending in self.questions.take_all() {
            let line = heard.then(|| pending.question.encode_denial(why));
            let mut audit = self.new_audit_record(&pending, PermissionDecision::Deny, by.clone());
            audit.reason = Some(why.to_owned());
            let mut knows = AlreadyInformed::NoConnection;
            if let Some(told) = pending.recipient.take_if(|told| heard && !told.is_sdk) {
                self.pending_cancellations.push((
                    pending.question.agent_request_id.clone(),
                    told,
                    pending.question.encode_cancel(),
                ));
                knows = AlreadyInformed::CommandDialect;
            }
            self.close_question(pending, audit, line.as_deref(), knows);
        }
    }

    /// Sends the notice for denied questions that the agent did not cancel itself.
    pub(super) fn send_cancellations(&mut self) {
        for (_, told, back) in std::mem::take(&mut self.pending_cancellations) {
            self.send_agent_line(&told, &back);
        }
    }

    /// Sends the open questions of a closed connection to other connections.
    pub(super) fn reassign_questions(&mut self, gone: ConnId) {
        let mut ids = Vec::new();
        for pending in self.questions.iter_mut() {
            if pending.recipient.take_if(|told| told.conn == gone).is_some() {
                ids.push(pending.id.clone());
            }
        }
        ids.iter().for_each(|id| self.send_question(id));
    }

    /// Opens a question about a connection to a host. [`BridgeAction::HostQuestionAnswered`] reports the result.
    pub fn ask_about_host(&mut self, host: HostAccessQuestion<'_>) {
        let ask = AgentQuestion::for_host(uuid_v4(), host);
        let pending = self.new_question(ask);
        match self.question_refusal() {
            Some(by) => self.refuse_question(pending, by, "the turn is being interrupted"),
            None => self.open_question(pending),
        }
        self.process_pending();
    }

    /// Closes a question about a host, because no program waits for the answer any more.
    pub fn withdraw_host_question(&mut self, number: u64) {
        let id = self
            .questions
            .iter()
            .find(|pending| pending.question.host_question == Some(number))
            .map(|one| one.id.clone());
        if let Some(pending) = id.and_then(|id| self.questions.take(&id)) {
            let audit = self.new_audit_record(&pending, PermissionDecision::Cancel, DecidedBy::Agent);
            self.close_question(pending, audit, None, AlreadyInformed::NoConnection);
        }
        self.process_pending();
    }

    /// Handles timeouts of open questions.
    pub(super) fn tick_questions(&mut self) {
        for id in self.questions.expired(self.now) {
            let why = format!("no answer within {}", self.config.permissions.timeout.value);
            self.deny_question(&id, DecidedBy::Timeout, None, &why);
        }
    }

    fn handle_question(&mut self, ask: AgentQuestion) {
        let pending = self.new_question(ask);
        if let Some(by) = self.question_refusal() {
            return self.refuse_question(pending, by, "the turn is being interrupted");
        }
        let ruling = match &pending.question.tool {
            Some(tool) => self.config.permissions.rule_on(&tool.name, &tool.input),
            None => PermissionRuling::Ask,
        };
        let (decision, line, rule) = match ruling {
            PermissionRuling::Ask => return self.open_question(pending),
            PermissionRuling::Allow(rule) => {
                (PermissionDecision::Allow, pending.question.encode_allowance(), rule)
            }
            PermissionRuling::Deny(rule) => (
                PermissionDecision::Deny,
                pending.question.encode_denial("the policy of this sandbox denies it"),
                rule,
            ),
        };
        let mut audit = self.new_audit_record(&pending, decision, DecidedBy::Rule);
        audit.rule = Some(rule);
        self.deliver_decision(&pending.question, audit, Some(&line));
    }

    fn new_question(&self, question: AgentQuestion) -> PendingQuestion<QuestionRecipient> {
        PendingQuestion { id: uuid_v4(), question, recipient: None, asked: self.now, deadline: None }
    }

    /// Why no question can be opened now, or `None`.
    fn question_refusal(&self) -> Option<DecidedBy> {
        let by = if self.shutdown.is_some() { DecidedBy::Shutdown } else { DecidedBy::Interrupt };
        self.is_aborting().then_some(by)
    }

    fn open_question(&mut self, mut pending: PendingQuestion<QuestionRecipient>) {
        let is_permission = pending.question.tool.is_some();
        if is_permission {
            pending.deadline =
                Some(self.now.saturating_add(self.config.permissions.timeout.value.duration()));
        }
        let (id, size) = (pending.id.clone(), pending.question.size());
        if !self.budget.reserve(size) {
            return self.refuse_question(
                pending,
                DecidedBy::Bridge,
                "the bridge has no room for the question",
            );
        }
        if let Err((pending, why)) = self.questions.add(pending) {
            self.budget.release(size);
            return self.refuse_question(*pending, DecidedBy::Bridge, why);
        }
        if is_permission {
            self.actions.push_back(BridgeAction::PermissionRequested(id.clone()));
        }
        if self.is_spooling() {
            let line =
                self.questions.get(&id).map(|pending| pending.question.line.clone()).unwrap_or_default();
            self.store_agent_line(&line);
        }
        self.send_question(&id);
    }

    /// Denies a question that was not opened.
    fn refuse_question(&mut self, pending: PendingQuestion<QuestionRecipient>, by: DecidedBy, why: &str) {
        let line = pending.question.encode_denial(why);
        let mut audit = self.new_audit_record(&pending, PermissionDecision::Deny, by);
        audit.reason = Some(why.to_owned());
        self.deliver_decision(&pending.question, audit, Some(&line));
    }

    /// Sends an open question to the connection of the running turn, else to the newest connection of the command
    /// dialect. Without one, the question is only in the table of open questions.
    fn send_question(&mut self, id: &str) {
        let Some(pending) = self.questions.get(id) else { return };
        let (reply, conn) = self.question_recipient();
        let second = conn.is_some_and(|conn| self.is_sdk(conn));
        if second && pending.question.tool.is_none() {
            let why = format!("control requests of subtype {} are not supported", pending.question.subtype);
            self.deny_question(id, DecidedBy::Bridge, None, &why);
            return;
        }
        let Some(conn) = conn else { return };
        let bytes = match second {
            true => pending.question.encode_sdk(&self.config.session_name, id),
            false => BridgeEvent::Message { data: &pending.question.line }.encode(reply.as_ref()),
        };
        for pending in self.questions.iter_mut().filter(|pending| pending.id == id) {
            pending.recipient = Some(QuestionRecipient { conn, command_id: reply.clone(), is_sdk: second });
        }
        // A follower already received it as a stored event.
        if second || !self.is_follower(conn) {
            self.send(conn, bytes);
        }
    }

    /// Stores a line of the agent about a question as an event of the running turn.
    fn store_agent_line(&mut self, line: &str) {
        if self.is_spooling() {
            let (id, _) = self.question_recipient();
            let kept = BridgeEvent::Message { data: line }.encode(id.as_ref());
            self.store_events(0, &kept, Some(line));
        }
    }

    /// The recipient of a question of the agent now, and the id of the command that it belongs to.
    fn question_recipient(&self) -> (Option<CommandId>, Option<ConnId>) {
        let turn = self.turn.as_ref().filter(|turn| !turn.is_starting() && !turn.is_draining());
        match turn.and_then(|turn| turn.reply()) {
            Some(CommandReply { conn, id, .. }) => {
                let there = Some(*conn).filter(|conn| self.connections.contains_key(conn));
                // The turn outlived its connection; a newer connection takes over.
                let instead = || self.newest_command_connection().filter(|_| self.is_spooling());
                (id.clone(), there.or_else(instead))
            }
            None => (None, self.newest_command_connection()),
        }
    }

    fn handle_agent_cancel(&mut self, agent_id: &str, line: &str) {
        if let Some(mut pending) = self.questions.take_by_agent_id(agent_id) {
            let audit = self.new_audit_record(&pending, PermissionDecision::Cancel, DecidedBy::Agent);
            match pending.recipient.take_if(|told| !told.is_sdk) {
                Some(told) => self.send_agent_line(&told, line),
                None if pending.recipient.is_none() => self.forward_agent_line(line),
                None => self.store_agent_line(line),
            }
            self.close_question(pending, audit, None, AlreadyInformed::CommandDialect);
        } else if let Some(at) = self.pending_cancellations.iter().position(|(id, _, _)| id == agent_id) {
            let (_, told, _) = self.pending_cancellations.swap_remove(at);
            self.send_agent_line(&told, line);
        } else {
            self.forward_agent_line(line);
        }
    }

    /// Forwards the agent's lines about questions that are not in the table, to connections of the command dialect.
    fn forward_agent_line(&mut self, line: &str) {
        let (reply, conn) = self.question_recipient();
        self.store_agent_line(line);
        if let Some(conn) = conn.filter(|conn| !self.is_sdk(*conn) && !self.is_follower(*conn)) {
            self.send(conn, BridgeEvent::Message { data: line }.encode(reply.as_ref()));
        }
    }

    /// Sends a line to a connection of the command dialect, with the id of the command that asked while that command
    /// runs.
    fn send_agent_line(&mut self, told: &QuestionRecipient, line: &str) {
        self.store_agent_line(line);
        if self.is_follower(told.conn) {
            return;
        }
        let reply = self.turn.as_ref().and_then(|turn| turn.reply());
        let id = reply
            .filter(|reply| reply.conn == told.conn && reply.id == told.command_id)
            .and(told.command_id.as_ref());
        self.send(told.conn, BridgeEvent::Message { data: line }.encode(id));
    }

    /// Closes a question: audits it, sends the response to the agent, and sends a notice to every recipient except
    /// those in `knows`.
    fn close_question(
        &mut self,
        pending: PendingQuestion<QuestionRecipient>,
        audit: AuditRecord,
        line: Option<&str>,
        knows: AlreadyInformed,
    ) {
        self.budget.release(pending.question.size());
        self.deliver_decision(&pending.question, audit, line);
        match &pending.recipient {
            Some(told)
                if !told.is_sdk
                    && ![AlreadyInformed::CommandDialect, AlreadyInformed::Connection(told.conn)]
                        .contains(&knows) =>
            {
                self.send_agent_line(told, &pending.question.encode_cancel());
            }
            told => {
                // Other followers received the question, and this may be the only notice of its end.
                if knows != AlreadyInformed::CommandDialect {
                    self.store_agent_line(&pending.question.encode_cancel());
                }
                if let Some(told) = told
                    .as_ref()
                    .filter(|told| told.is_sdk && knows != AlreadyInformed::Connection(told.conn))
                {
                    self.send(told.conn, control::cancel_request(&self.config.session_name, &pending.id));
                }
            }
        }
        if pending.question.tool.is_some() {
            self.actions.push_back(BridgeAction::PermissionClosed(pending.id));
        }
    }

    /// The audit record comes first; the response follows.
    fn deliver_decision(&mut self, ask: &AgentQuestion, audit: AuditRecord, line: Option<&str>) {
        let (decision, reason) = (audit.decision, audit.reason.clone());
        self.record_audit(audit);
        match (ask.host_question, line) {
            (Some(number), _) => {
                let why =
                    || reason.or_else(|| line.and_then(AgentQuestion::denial_message)).unwrap_or_default();
                let verdict = if decision == PermissionDecision::Allow { Ok(()) } else { Err(why()) };
                let keep = verdict.is_ok() && line.is_some_and(AgentQuestion::adds_rules);
                self.actions.push_back(BridgeAction::HostQuestionAnswered(HostQuestionResult {
                    number,
                    verdict,
                    keep,
                }));
            }
            (None, Some(line)) => self.send_response_to_agent(line),
            (None, None) => {}
        }
    }

    fn send_response_to_agent(&mut self, line: &str) {
        let bytes = self.adapter.encode_response(line);
        self.drop_retained_query();
        if !self.send_to_agent(bytes) {
            // An agent without its response would wait forever.
            self.stop_agent(AgentStop::Kill);
        }
    }

    fn record_audit(&mut self, audit: AuditRecord) {
        // Only questions about tools are decisions.
        if audit.is_permission() {
            self.actions.push_back(BridgeAction::Audit(Box::new(audit)));
        }
    }

    fn new_audit_record(
        &self,
        pending: &PendingQuestion<QuestionRecipient>,
        decision: PermissionDecision,
        by: DecidedBy,
    ) -> AuditRecord {
        AuditRecord::new(self.epoch_ms(), &pending.id, &pending.question, decision, by)
    }
}
