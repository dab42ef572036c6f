//! The agent's process as the core sees it: its life, its lines, what it is owed.
//!
//! ```text
//!   Down ──launch──> Starting ──started (and greeted)──> Up ──stop──> Stopping ──> Down
//!    ▲                   │                               │               (CloseInput, Terminate, Kill)
//!    └────── exited ─────┴───────────── exited ──────────┘
//! ```

use super::Bridge;
use super::action::{Action, Exit, Start, Stop};
use super::turn::Turn;
use crate::bridge::adapter::{Heard, Message};
use crate::bridge::proto::permission::By;
use crate::bridge::proto::{Event, LineSplitter, LogLevel, Split};
use std::time::Duration;

/// How long the agent may take from its start until it can be spoken to.
const START: Duration = Duration::from_secs(30);
/// How long each kind of stop may take before the next harder one.
const STOP_STEP: Duration = Duration::from_secs(2);
/// The same, once the bridge shuts down.
const STOP_STEP_ENDING: Duration = Duration::from_millis(500);
/// The longest line of the agent's stderr, and the longest log entry, in bytes.
const LOG_LIMIT: usize = 8 << 10;

/// What is known of the agent.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) life: Life,
    /// What the process was started with beyond the usual.
    pub(super) flags: Vec<String>,
    /// Its own name for the conversation.
    pub(super) session: Option<String>,
    /// This process has the conversation.
    pub(super) conversing: bool,
    /// An earlier process had it.
    pub(super) history: bool,
    /// Bytes on their way to the agent.
    input: usize,
    /// It is gone, or will be at once, and has not read all that was written to it.
    left_input: bool,
    pub(super) paused: bool,
    lines: LineSplitter,
    log: LineSplitter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Down,
    Starting { until: Duration },
    Up,
    Stopping { step: Stop, until: Duration },
}

impl Agent {
    pub(super) fn new(line_limit: usize, session: Option<String>) -> Self {
        Agent {
            life: Life::Down,
            flags: Vec::new(),
            history: session.is_some(),
            session,
            conversing: false,
            input: 0,
            left_input: false,
            paused: false,
            lines: LineSplitter::new(line_limit),
            log: LineSplitter::new(LOG_LIMIT),
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.life {
            Life::Down | Life::Up => None,
            Life::Starting { until } | Life::Stopping { until, .. } => Some(until),
        }
    }
}

impl Bridge {
    /// Starts the agent ahead of the first query, when it does not run yet.
    pub fn start_agent(&mut self) {
        if self.agent.life == Life::Down && self.ending.is_none() {
            self.launch(self.agent.flags.clone());
        }
    }

    /// A start that was asked for waits for something else, for as long as that takes; or it goes on now.
    pub fn put_off_start(&mut self, waits: bool) {
        if let Life::Starting { until } = &mut self.agent.life {
            *until = if waits { Duration::MAX } else { self.now + START };
        }
    }

    /// The agent's program runs, and its input and output are open.
    pub fn agent_started(&mut self) {
        if matches!(self.agent.life, Life::Starting { .. }) && !self.adapter.greets() {
            self.agent.life = Life::Up;
            self.drive();
        }
        self.settle();
    }

    /// Bytes the agent wrote. Any cutting is fine.
    pub fn agent_output(&mut self, mut input: &[u8]) {
        loop {
            let before = self.agent.lines.held();
            let split = self.agent.lines.next(&mut input);
            let held = self.agent.lines.held();
            self.budget.give(before);
            if !self.budget.take(held) {
                self.agent.lines.abandon();
                self.lost_line("a line of the agent found no room in the bridge");
                continue;
            }
            match split {
                None => break,
                Some(Split::Line(line)) => self.agent_line(&line),
                Some(Split::TooLong) => {
                    let limit = self.config.line_limit;
                    self.lost_line(&format!("a line of the agent is longer than {limit} bytes"));
                }
            }
        }
        self.settle();
    }

    /// Bytes the agent wrote to its stderr: log entries.
    pub fn agent_log(&mut self, mut input: &[u8]) {
        while let Some(split) = self.agent.log.next(&mut input) {
            match split {
                Split::Line(line) => self.log(LogLevel::Info, &String::from_utf8_lossy(&line)),
                Split::TooLong => self.log(LogLevel::Info, "(a line too long for the log)"),
            }
        }
        self.settle();
    }

    /// So many bytes of the agent's input have been written.
    pub fn agent_input_written(&mut self, bytes: usize) {
        let bytes = bytes.min(self.agent.input);
        self.agent.input -= bytes;
        self.budget.give(bytes);
        self.settle();
    }

    /// The agent left without having read all that was written to it; [`Bridge::agent_exited`] follows.
    pub fn agent_left_input(&mut self) {
        self.agent.left_input = true;
    }

    /// The agent's process is gone, and what it wrote has been handed in (as far as it could be read).
    pub fn agent_exited(&mut self, exit: &Exit) {
        self.budget.give(self.agent.lines.held());
        if let Some(rest) = self.agent.lines.finish() {
            self.agent_line(&rest);
        }
        if let Some(rest) = self.agent.log.finish() {
            self.log(LogLevel::Info, &String::from_utf8_lossy(&rest));
        }
        // Before its turn ends, and in the name of that.
        self.withdraw_all(By::Exit, "the agent has ended");
        self.say_taken_back();
        let was = std::mem::replace(&mut self.agent.life, Life::Down);
        let left = std::mem::take(&mut self.agent.left_input) || self.agent.input > 0;
        let unheard = left && was == Life::Up && self.ending.is_none();
        let again = unheard && self.turn.as_ref().is_some_and(Turn::can_be_told_again);
        self.agent.history |= if again { self.conversed_before() } else { self.agent.conversing };
        self.agent.conversing = false;
        self.budget.give(std::mem::take(&mut self.agent.input));
        self.log(LogLevel::Info, &exit.to_string());
        match &self.turn {
            None => {}
            // Stopped on purpose, so that this turn can have it started another way.
            Some(turn) if turn.is_starting() && matches!(was, Life::Stopping { .. }) => self.drive(),
            // It was leaving when the turn came: that is no failure of the turn.
            Some(_) if again => self.tell_again(),
            Some(turn) if turn.is_aborting() || turn.is_settling() => self.end_turn(Ok(())),
            Some(_) => {
                self.actions.push_back(Action::AgentFailed);
                self.end_turn(Err(exit.to_string()));
            }
        }
        self.settle();
    }

    pub(super) fn agent_is_up(&self) -> bool {
        self.agent.life == Life::Up
    }

    /// Whether a live agent has this conversation already.
    pub(super) fn serves(&self, session: &str) -> bool {
        let told = self.agent.conversing || !self.adapter.hears_resume();
        self.agent_is_up() && told && self.session.as_deref() == Some(session)
    }

    pub(super) fn launch(&mut self, flags: Vec<String>) {
        self.adapter.started();
        let resume = self.agent.session.clone();
        let arguments = self.adapter.arguments(resume.as_deref(), &flags);
        self.agent.flags = flags;
        self.agent.life = Life::Starting { until: self.now + START };
        self.actions.push_back(Action::StartAgent(Start { arguments, resume }));
    }

    pub(super) fn stop_agent(&mut self, step: Stop) {
        if self.agent.life == Life::Down {
            return;
        }
        let patience = if self.ending.is_some() { STOP_STEP_ENDING } else { STOP_STEP };
        let until = if step == Stop::Kill { Duration::MAX } else { self.now + patience };
        self.agent.life = Life::Stopping { step, until };
        self.actions.push_back(Action::StopAgent(step));
    }

    /// Hands bytes to the agent; whether there was room for them.
    #[must_use]
    pub(super) fn agent_input(&mut self, bytes: Vec<u8>) -> bool {
        let fits = self.budget.take(bytes.len());
        if fits {
            self.agent.input += bytes.len();
            self.actions.push_back(Action::AgentInput(bytes));
        }
        fits
    }

    /// What the time does to the agent's life.
    pub(super) fn tick_agent(&mut self) {
        if self.agent.deadline().is_none_or(|until| until > self.now) {
            return;
        }
        match self.agent.life {
            Life::Down | Life::Up => {}
            Life::Starting { .. } => {
                self.end_turn(Err(format!("the agent did not come up within {} s", START.as_secs())));
                self.stop_agent(Stop::Kill);
            }
            Life::Stopping { step: Stop::CloseInput, .. } => self.stop_agent(Stop::Terminate),
            Life::Stopping { .. } => self.stop_agent(Stop::Kill),
        }
    }

    /// Pauses or resumes the reading of the agent, as the reader of its turn keeps up or not.
    pub(super) fn balance(&mut self) {
        let reader = self.turn.as_ref().and_then(|turn| turn.reply());
        let full = reader.is_some_and(|reply| self.is_full(reply.conn));
        if full != self.agent.paused {
            self.agent.paused = full;
            self.actions.push_back(if full { Action::PauseAgent } else { Action::ResumeAgent });
        }
    }

    /// Writes to the log, and to the connections that asked for it.
    pub(super) fn log(&mut self, level: LogLevel, text: &str) {
        let mut end = text.len().min(LOG_LIMIT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text[..end];
        for conn in self.log_readers() {
            let ts = self.epoch_ms();
            self.send(conn, Event::Log { level, text, ts }.encode(None));
        }
        self.actions.push_back(Action::Log { level, text: text.to_owned() });
    }

    pub(super) fn note_unknown(&mut self, field: &str) {
        if !self.adapter.hears_resume() {
            self.log(LogLevel::Warn, &format!("query: the field {field} is not known and was left out"));
        }
    }

    /// The turn can no longer be told whole: it fails, and what is left of it reaches nobody.
    fn lost_line(&mut self, text: &str) {
        self.log(LogLevel::Warn, text);
        self.fail_turn_early(text);
    }

    fn agent_line(&mut self, line: &[u8]) {
        let whole = line;
        let line = line.trim_ascii();
        let Ok(text) = std::str::from_utf8(line) else { return self.plain(whole) };
        if text.is_empty() {
            if self.config.plain_lines {
                self.plain(whole);
            }
            return;
        }
        let in_turn = self.turn.as_ref().is_some_and(|turn| turn.is_heard_query());
        self.keep_no_query();
        match self.adapter.hear(text, in_turn) {
            Heard::Message(message) => self.message(message),
            Heard::Ready => {
                if matches!(self.agent.life, Life::Starting { .. }) {
                    self.agent.life = Life::Up;
                    self.drive();
                }
            }
            Heard::Tell(bytes) => self.tell_rest(bytes),
            Heard::Resumed => {
                // It may come late, when the `resume` was taken for done and another turn runs.
                if self.turn.as_ref().is_some_and(|turn| turn.is_heard_resume()) {
                    self.end_turn(Ok(()));
                }
            }
            Heard::Done => {
                if self.turn.as_ref().is_some_and(|turn| !turn.is_starting()) {
                    self.end_turn(Ok(()));
                }
            }
            Heard::Failed(text) => {
                if self.turn.as_ref().is_some_and(|turn| !turn.is_starting()) {
                    self.settle_turn(text);
                }
            }
            Heard::Refused(text) => self.end_turn(Err(text)),
            Heard::Note(level, text) => self.log(level, &text),
            Heard::Plain => self.plain(whole),
            Heard::Nothing => {}
        }
    }

    /// A line that is not JSON.
    fn plain(&mut self, line: &[u8]) {
        if self.config.plain_lines {
            return self.actions.push_back(Action::Plain(line.to_vec()));
        }
        let line = line.trim_ascii();
        self.log(LogLevel::Info, &String::from_utf8_lossy(&line[..line.len().min(LOG_LIMIT)]));
    }

    fn message(&mut self, mut message: Message<'_>) {
        if let Some(id) = message.agent_session.take() {
            self.learn(id);
        }
        match message.asks {
            true => self.asked(message.data),
            false => self.pass_message(&message),
        }
        if message.ends_turn {
            self.end_turn(Ok(()));
        }
    }

    /// Tells whoever's turn it is of what the agent said.
    fn pass_message(&mut self, message: &Message<'_>) {
        let data = Event::Message { data: message.data };
        let turn = self.turn.as_ref().filter(|turn| !turn.is_starting() && !turn.is_settling());
        if message.partial && !turn.is_some_and(|turn| turn.wants_partials()) {
            return;
        }
        let Some(reply) = turn.and_then(|turn| turn.reply()) else {
            // What a turn that is over, or not begun, still says is of no use to anybody.
            return match self.keeps() {
                true if self.turn.is_none() => self.keep(0, &data.encode(None), Some(message.data)),
                true => {}
                false => self.actions.push_back(Action::Unclaimed(data.encode(None))),
            };
        };
        if self.keeps() {
            let (conn, id) = (reply.conn, reply.id.clone());
            return self.pass_kept(conn, id.as_ref(), message.data);
        }
        let (conn, line) = (reply.conn, || data.encode(reply.id.as_ref()));
        match self.conns.get(&conn) {
            None => self.actions.push_back(Action::Unclaimed(line())),
            Some(to) if to.is_second() || to.filters() => {
                let id = reply.id.clone();
                self.tell_looked_at(conn, id.as_ref(), message.data);
            }
            Some(_) => {
                let line = line();
                self.send(conn, line);
            }
        }
    }

    fn learn(&mut self, agent_session: String) {
        if self.agent.session.as_ref() == Some(&agent_session) {
            return;
        }
        self.agent.session = Some(agent_session.clone());
        let session = self.session.clone().unwrap_or_default();
        self.actions.push_back(Action::Learned { session, agent_session });
    }
}
