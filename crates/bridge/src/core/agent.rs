//! The agent's process in the core: its lifecycle, its output lines and its pending input.
//!
//! ```text
//!   Stopped ──launch──> Starting ──started (and ready)──> Ready ──stop──> Stopping ──> Stopped
//!      ▲                   │                                │            (CloseInput, Terminate, Kill)
//!      └────── exited ─────┴───────────── exited ───────────┘
//! ```

use super::Bridge;
use super::action::{AgentExitStatus, AgentStart, AgentStop, BridgeAction};
use super::last_lines::LastLines;
use super::turn::Turn;
use crate::adapter::{AdapterEvent, AgentMessage};
use crate::proto::permission::DecidedBy;
use crate::proto::{BridgeEvent, LineSplitter, LogLevel, SplitLine};
use std::time::Duration;

/// Time limit from the start of the agent until it accepts input.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of each stop method before the next one.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of each stop method during shutdown.
const SHUTDOWN_STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum length of a line of the agent's stderr and of a log line, in bytes.
const MAX_LOG_LINE: usize = 8 << 10;

/// The state of the agent.
#[derive(Debug)]
pub(super) struct AgentState {
    pub(super) lifecycle: AgentLifecycle,
    /// The start options that this process was started with.
    pub(super) start_flags: Vec<String>,
    /// The agent's own id of the session.
    pub(super) session: Option<String>,
    /// This process has loaded the conversation.
    pub(super) has_conversation: bool,
    /// An earlier process had the conversation.
    pub(super) had_conversation: bool,
    /// Number of bytes queued for the agent and not yet written.
    pending_input: usize,
    /// The process has exited, or is about to, without reading all of its input.
    left_unread_input: bool,
    pub(super) is_paused: bool,
    stdout_lines: LineSplitter,
    stderr_lines: LineSplitter,
    /// What this process wrote beside its messages.
    last_lines: LastLines,
    /// How the last process ended, with its last lines.
    exit_text: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentLifecycle {
    Stopped,
    Starting { deadline: Duration },
    Ready,
    Stopping { method: AgentStop, deadline: Duration },
}

impl AgentState {
    pub(super) fn new(line_limit: usize, session: Option<String>) -> Self {
        AgentState {
            lifecycle: AgentLifecycle::Stopped,
            start_flags: Vec::new(),
            had_conversation: session.is_some(),
            session,
            has_conversation: false,
            pending_input: 0,
            left_unread_input: false,
            is_paused: false,
            stdout_lines: LineSplitter::new(line_limit),
            stderr_lines: LineSplitter::new(MAX_LOG_LINE),
            last_lines: LastLines::default(),
            exit_text: None,
        }
    }

    /// Whether the process has not read all of its input yet.
    pub(super) fn has_pending_input(&self) -> bool {
        self.pending_input > 0
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.lifecycle {
            AgentLifecycle::Stopped | AgentLifecycle::Ready => None,
            AgentLifecycle::Starting { deadline: until }
            | AgentLifecycle::Stopping { deadline: until, .. } => Some(until),
        }
    }
}

impl Bridge {
    /// Starts the agent before the first query, if it does not run yet.
    pub fn start_agent(&mut self) {
        if self.agent.lifecycle == AgentLifecycle::Stopped && self.shutdown.is_none() {
            self.launch_agent(self.agent.start_flags.clone());
        }
    }

    /// Suspends the start timeout while the start waits for an external condition (`waits`), or restarts it.
    pub fn extend_start_timeout(&mut self, waits: bool) {
        if let AgentLifecycle::Starting { deadline: until } = &mut self.agent.lifecycle {
            *until = if waits { Duration::MAX } else { self.now + START_TIMEOUT };
        }
    }

    /// Reports that the agent's program runs, and that its input and output are open.
    pub fn agent_started(&mut self) {
        if matches!(self.agent.lifecycle, AgentLifecycle::Starting { .. }) && !self.adapter.sends_ready() {
            self.agent.lifecycle = AgentLifecycle::Ready;
            self.advance_turn();
        }
        self.process_pending();
    }

    /// Takes output of the agent, in chunks of any size.
    pub fn agent_output(&mut self, mut input: &[u8]) {
        self.idleness.reset();
        loop {
            let before = self.agent.stdout_lines.held_bytes();
            let split = self.agent.stdout_lines.next(&mut input);
            let held = self.agent.stdout_lines.held_bytes();
            self.budget.release(before);
            if !self.budget.reserve(held) {
                self.agent.stdout_lines.skip_line();
                self.fail_turn_for_lost_line("a line of the agent found no room in the bridge");
                continue;
            }
            match split {
                None => break,
                Some(SplitLine::Line(line)) => self.handle_agent_line(&line),
                Some(SplitLine::TooLong) => {
                    let limit = self.config.line_limit;
                    self.fail_turn_for_lost_line(&format!(
                        "a line of the agent is longer than {limit} bytes"
                    ));
                }
            }
        }
        self.process_pending();
    }

    /// Takes bytes that the agent wrote to its stderr; its lines go to the log.
    pub fn agent_stderr(&mut self, mut input: &[u8]) {
        while let Some(split) = self.agent.stderr_lines.next(&mut input) {
            match split {
                SplitLine::Line(line) => self.log_output(&line),
                SplitLine::TooLong => self.log(LogLevel::Info, "(a line too long for the log)"),
            }
        }
        self.process_pending();
    }

    /// Logs a line that the agent wrote beside its messages.
    fn log_output(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        self.agent.last_lines.push(&text);
        self.log(LogLevel::Info, &text);
    }

    /// Reports that this many bytes of the agent's input were written.
    pub fn agent_input_written(&mut self, bytes: usize) {
        let bytes = bytes.min(self.agent.pending_input);
        self.agent.pending_input -= bytes;
        self.budget.release(bytes);
        self.process_pending();
    }

    /// Reports that the agent closed its input before it read all of it. [`Bridge::agent_exited`] follows.
    pub fn agent_left_unread_input(&mut self) {
        self.agent.left_unread_input = true;
    }

    /// Reports that the agent's process has exited and that all readable output was passed on.
    pub fn agent_exited(&mut self, exit: &AgentExitStatus) {
        self.budget.release(self.agent.stdout_lines.held_bytes());
        if let Some(rest) = self.agent.stdout_lines.finish() {
            self.handle_agent_line(&rest);
        }
        if let Some(rest) = self.agent.stderr_lines.finish() {
            self.log_output(&rest);
        }
        // Before the turn ends, so that the denials belong to it.
        self.deny_all_questions(DecidedBy::Exit, "the agent has ended");
        self.send_cancellations();
        let was = std::mem::replace(&mut self.agent.lifecycle, AgentLifecycle::Stopped);
        let left = std::mem::take(&mut self.agent.left_unread_input) || self.agent.pending_input > 0;
        let unheard = left && was == AgentLifecycle::Ready && self.shutdown.is_none();
        let again = unheard && self.turn.as_ref().is_some_and(Turn::can_be_resent);
        self.agent.had_conversation |=
            if again { self.had_conversation_before() } else { self.agent.has_conversation };
        self.agent.has_conversation = false;
        self.budget.release(std::mem::take(&mut self.agent.pending_input));
        self.log_agent_exit(exit);
        let last = std::mem::take(&mut self.agent.last_lines);
        let text = if last.is_empty() { exit.to_string() } else { format!("{exit}; {last}") };
        self.agent.exit_text = Some(text.clone());
        match &self.turn {
            None => {}
            // The agent was stopped on purpose, so that it can be restarted with other options for this turn.
            Some(turn) if turn.is_starting() && matches!(was, AgentLifecycle::Stopping { .. }) => {
                self.advance_turn()
            }
            // The agent was exiting when the turn arrived. The turn is sent again.
            Some(_) if again => self.resend_turn(),
            Some(turn) if turn.is_aborting() || turn.is_draining() => self.end_turn(Ok(())),
            Some(_) => {
                self.actions.push_back(BridgeAction::RecordAgentFailure);
                self.end_turn(Err(text));
            }
        }
        self.process_pending();
    }

    /// How the last process of the agent ended, with what it wrote last beside its messages.
    pub fn agent_exit_text(&self) -> Option<&str> {
        self.agent.exit_text.as_deref()
    }

    pub(super) fn is_agent_ready(&self) -> bool {
        self.agent.lifecycle == AgentLifecycle::Ready
    }

    /// Whether a running agent has loaded this session.
    pub(super) fn has_loaded_session(&self, session: &str) -> bool {
        let told = self.agent.has_conversation || !self.adapter.takes_resume();
        self.is_agent_ready() && told && self.session.as_deref() == Some(session)
    }

    pub(super) fn launch_agent(&mut self, flags: Vec<String>) {
        self.adapter.on_start();
        self.agent.last_lines = LastLines::default();
        let arguments = self.adapter.start_arguments(self.agent.session.as_deref(), &flags);
        self.idleness.on_start();
        self.agent.start_flags = flags;
        self.agent.lifecycle = AgentLifecycle::Starting { deadline: self.now + START_TIMEOUT };
        self.actions.push_back(BridgeAction::StartAgent(AgentStart { arguments }));
    }

    pub(super) fn stop_agent(&mut self, step: AgentStop) {
        if self.agent.lifecycle == AgentLifecycle::Stopped {
            return;
        }
        let patience = if self.shutdown.is_some() { SHUTDOWN_STOP_TIMEOUT } else { STOP_TIMEOUT };
        let until = if step == AgentStop::Kill { Duration::MAX } else { self.now + patience };
        self.agent.lifecycle = AgentLifecycle::Stopping { method: step, deadline: until };
        self.actions.push_back(BridgeAction::StopAgent(step));
    }

    /// Queues bytes for the agent; returns false if the buffers are full.
    #[must_use]
    pub(super) fn send_to_agent(&mut self, bytes: Vec<u8>) -> bool {
        let fits = self.budget.reserve(bytes.len());
        if fits {
            self.agent.pending_input += bytes.len();
            self.actions.push_back(BridgeAction::AgentInput(bytes));
        }
        fits
    }

    /// Handles timeouts of the agent's lifecycle.
    pub(super) fn tick_agent(&mut self) {
        if self.agent.deadline().is_none_or(|until| until > self.now) {
            return;
        }
        match self.agent.lifecycle {
            AgentLifecycle::Stopped | AgentLifecycle::Ready => {}
            AgentLifecycle::Starting { .. } => {
                self.end_turn(Err(format!("the agent did not come up within {} s", START_TIMEOUT.as_secs())));
                self.stop_agent(AgentStop::Kill);
            }
            AgentLifecycle::Stopping { method: AgentStop::CloseInput, .. } => {
                self.stop_agent(AgentStop::Terminate)
            }
            AgentLifecycle::Stopping { .. } => self.stop_agent(AgentStop::Kill),
        }
    }

    /// Pauses reading from the agent while the client of the turn is backlogged, and resumes it afterwards.
    pub(super) fn update_backpressure(&mut self) {
        let reader = self.turn.as_ref().and_then(|turn| turn.reply());
        let full = reader.is_some_and(|reply| self.is_backlogged(reply.conn));
        if full != self.agent.is_paused {
            self.agent.is_paused = full;
            if !full {
                self.actions.push_back(BridgeAction::ResumeAgent);
            }
        }
    }

    /// Sends a line to the log, and to the connections with `log` enabled.
    pub(super) fn log(&mut self, level: LogLevel, text: &str) {
        let text = saggar_sys::text::prefix(text, MAX_LOG_LINE);
        for conn in self.log_subscribers() {
            let ts = self.epoch_ms();
            self.send(conn, BridgeEvent::Log { level, text, ts }.encode(None));
        }
        self.actions.push_back(BridgeAction::Log { level, text: text.to_owned() });
    }

    pub(super) fn log_unknown_field(&mut self, field: &str) {
        if !self.adapter.takes_resume() {
            self.log(LogLevel::Warn, &format!("query: the field {field} is not known and was left out"));
        }
    }

    /// Fails the turn, because part of its output is lost. Its remaining output is discarded.
    fn fail_turn_for_lost_line(&mut self, text: &str) {
        self.log(LogLevel::Warn, text);
        self.fail_turn_early(text);
    }

    fn handle_agent_line(&mut self, line: &[u8]) {
        let whole = line;
        let line = line.trim_ascii();
        let Ok(text) = std::str::from_utf8(line) else { return self.handle_plain_line(whole) };
        if text.is_empty() {
            if self.config.plain_lines {
                self.handle_plain_line(whole);
            }
            return;
        }
        let in_turn = self.turn.as_ref().is_some_and(|turn| turn.is_query_sent());
        self.drop_retained_query();
        match self.adapter.parse_line(text, in_turn) {
            AdapterEvent::Message(message) => self.handle_agent_message(message),
            AdapterEvent::Ready => {
                if matches!(self.agent.lifecycle, AgentLifecycle::Starting { .. }) {
                    self.agent.lifecycle = AgentLifecycle::Ready;
                    self.advance_turn();
                }
            }
            AdapterEvent::Send(bytes) => self.send_prompt(bytes),
            AdapterEvent::Resumed => {
                // The response may be late: the `resume` was considered complete and another turn runs.
                if self.turn.as_ref().is_some_and(|turn| turn.is_resume_sent()) {
                    self.end_turn(Ok(()));
                }
            }
            AdapterEvent::Done => {
                if self.turn.as_ref().is_some_and(|turn| !turn.is_starting()) {
                    self.end_turn(Ok(()));
                }
            }
            AdapterEvent::Failed(text) => {
                if self.turn.as_ref().is_some_and(|turn| !turn.is_starting()) {
                    self.fail_turn_and_drain(text);
                }
            }
            AdapterEvent::TurnRejected(text) => self.end_turn(Err(text)),
            AdapterEvent::Log(level, text) => self.log(level, &text),
            AdapterEvent::NotJson => self.handle_plain_line(whole),
            AdapterEvent::Ignored => {}
        }
    }

    /// Handles a line that is not JSON.
    fn handle_plain_line(&mut self, line: &[u8]) {
        if self.config.plain_lines {
            return self.actions.push_back(BridgeAction::PlainOutput(line.to_vec()));
        }
        let line = line.trim_ascii();
        self.log_output(&line[..line.len().min(MAX_LOG_LINE)]);
    }

    fn handle_agent_message(&mut self, mut message: AgentMessage<'_>) {
        if let Some(id) = message.agent_session.take() {
            self.learn_agent_session(id);
        }
        match message.is_control {
            true => self.handle_agent_control(message.data),
            false => self.forward_message(&message),
        }
        if message.ends_turn {
            self.end_turn(Ok(()));
        }
    }

    /// Forwards a message of the agent to the connection of the running turn.
    fn forward_message(&mut self, message: &AgentMessage<'_>) {
        let data = BridgeEvent::Message { data: message.data };
        let turn = self.turn.as_ref().filter(|turn| !turn.is_starting() && !turn.is_draining());
        if message.is_partial && !turn.is_some_and(|turn| turn.wants_partials()) {
            return;
        }
        let Some(reply) = turn.and_then(|turn| turn.reply()) else {
            // The message belongs to no running turn. A session stores it only if no turn is active.
            if self.is_spooling() && self.turn.is_none() {
                self.store_events(0, &data.encode(None), Some(message.data));
            }
            return;
        };
        if self.is_spooling() {
            let (conn, id) = (reply.conn, reply.id.clone());
            return self.store_and_forward(conn, id.as_ref(), message.data);
        }
        let conn = reply.conn;
        match self.connections.get(&conn) {
            None => {}
            Some(to) if to.speaks_sdk() || to.is_filtered() => {
                let id = reply.id.clone();
                self.send_classified(conn, id.as_ref(), message.data);
            }
            Some(_) => {
                let line = data.encode(reply.id.as_ref());
                self.send(conn, line);
            }
        }
    }

    fn learn_agent_session(&mut self, agent_session: String) {
        if self.agent.session.as_ref() == Some(&agent_session) {
            return;
        }
        self.agent.session = Some(agent_session.clone());
        let session = self.session.clone().unwrap_or_default();
        self.actions.push_back(BridgeAction::SaveAgentSession { session, agent_session });
    }
}
