//! The bridge without I/O: bytes and time in, [`BridgeAction`]s out.
//!
//! [`Bridge`] owns the connections, the command queue, the running turn and the state of the agent. Its invariants
//! hold for any input from servers and agents:
//! - every `query`, `resume` and `exec` ends in exactly one terminal event (DECISIONS 15);
//! - every question of the agent about a tool is decided once, and never allowed without a valid response;
//! - one turn runs at a time, and none of its output reaches a later command (DECISIONS 16, BP-26);
//! - its buffers never exceed 256 MiB (DECISIONS 20).
//!
//! It does no file I/O either: persistent data goes to a [`SpoolStore`](super::proto::spool::SpoolStore).
//!
//! The caller reports each event, then takes actions from [`Bridge::next_action`] until there are none. It calls
//! [`Bridge::tick`] with the current time before each report, and again at [`Bridge::next_deadline`].

mod action;
mod agent;
mod budget;
mod connection;
mod dialect;
mod exec;
mod idle_agent;
mod last_lines;
mod questions;
mod queue;
mod redact;
mod sdk_dialect;
mod shutdown;
mod spool;
mod turn;

pub use action::{
    AgentExitStatus, AgentStart, AgentStop, BridgeAction, ConnId, ExecId, ExecOutcome, HostQuestionResult,
};
pub use last_lines::LastLines;
pub use questions::{PermissionResponseError, QuestionRecipient};
pub use redact::redact_paths;

use super::adapter::Adapter;
use super::proto::LINE_LIMIT;
use super::proto::permission::QuestionTable;
use super::proto::sdk_dialect::DEFAULT_REMEMBERED;
use agent::AgentState;
use budget::{BUFFER_LIMIT, BufferBudget};
use connection::BridgeConnection;
use exec::RunningExec;
use idle_agent::AgentIdleness;
use queue::QueuedCommand;
use saggar_policy::PermissionPolicy;
use sdk_dialect::SdkState;
use shutdown::ShutdownState;
use spool::BridgeSpool;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use turn::Turn;

/// The effect of a closed connection on its turn (DECISIONS 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisconnectPolicy {
    /// The turn is aborted: `saggar agent` in the foreground.
    Abort,
    /// The turn continues, and its output has no recipient. With [`Bridge::enable_spool`]
    /// the output is stored, and queued commands and every `exec` continue as well.
    Detach,
}

/// When an `exec` without an id runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExecOrder {
    /// After the earlier commands of its connection (DECISIONS 16).
    #[default]
    Queued,
    /// At once. If a turn without an id runs on its connection when it ends, its `done` follows that of the turn: a server
    /// that knows no ids takes any `done` for that of its turn (DECISIONS 36).
    Immediate,
}

/// The configuration of a bridge.
#[derive(Debug, Clone)]
pub struct BridgeConfig {
    /// When an `exec` without an id runs.
    pub exec_order: ExecOrder,
    /// The effect of a closed connection on its turn.
    pub disconnect: DisconnectPolicy,
    /// The server's id of the session, if it is known before the first command.
    pub session: Option<String>,
    /// The agent's own id of the session, from an earlier run ([`BridgeAction::SaveAgentSession`]).
    pub agent_session: Option<String>,
    /// The session id in lines of the SDK dialect.
    pub session_name: String,
    /// The pid in the response to `initialize`.
    pub pid: u32,
    /// Number of uuids remembered in each direction, to drop echoes and repetitions (RB-10).
    pub max_remembered: usize,
    /// Time without a turn after which the agent's process is ended until the next turn; `None` is never.
    pub agent_idle: Option<Duration>,
    /// The policy for permission questions, and their timeout.
    pub permissions: PermissionPolicy,
    /// The wall clock at time zero of [`Bridge::tick`], in milliseconds since 1970, for `log` events.
    pub epoch_ms: u64,
    /// Maximum length of a line, in bytes.
    pub line_limit: usize,
    /// Maximum of all buffers together, in bytes.
    pub buffer_limit: usize,
    /// Whether lines of the agent that are not JSON become [`BridgeAction::PlainOutput`] instead of log lines.
    pub plain_lines: bool,
}

impl Default for BridgeConfig {
    fn default() -> Self {
        BridgeConfig {
            exec_order: ExecOrder::default(),
            disconnect: DisconnectPolicy::Abort,
            session: None,
            agent_session: None,
            session_name: String::new(),
            pid: 0,
            max_remembered: DEFAULT_REMEMBERED,
            agent_idle: None,
            permissions: PermissionPolicy::built_in(),
            epoch_ms: 0,
            line_limit: LINE_LIMIT,
            buffer_limit: BUFFER_LIMIT,
            plain_lines: false,
        }
    }
}

/// The bridge of one agent.
#[derive(Debug)]
pub struct Bridge {
    config: BridgeConfig,
    adapter: Box<dyn Adapter>,
    now: Duration,
    budget: BufferBudget,
    connections: BTreeMap<ConnId, BridgeConnection>,
    /// Half-closed connections: the client sends no more and may still receive.
    half_closed: BTreeSet<ConnId>,
    /// Connections whose client does not read fast enough.
    backlogged: BTreeSet<ConnId>,
    /// Closed connections whose commands are not ended yet.
    closed: Vec<ConnId>,
    queue: VecDeque<QueuedCommand>,
    turn: Option<Turn>,
    /// Open questions of the agent.
    questions: QuestionTable<QuestionRecipient>,
    /// Questions that were denied with their turn and that the agent has not cancelled yet: the agent's id, the
    /// recipient, and the line for the recipient if the agent does not cancel.
    pending_cancellations: Vec<(String, QuestionRecipient, String)>,
    /// State of the SDK dialect that all connections share.
    sdk_state: SdkState,
    /// The event store, if enabled.
    spool: Option<BridgeSpool>,
    execs: BTreeMap<ExecId, RunningExec>,
    /// Terminal events of `exec` commands that follow the terminal event of the turn ([`ExecOrder::Immediate`]).
    held_exec_ends: BTreeMap<ConnId, Vec<u8>>,
    next_exec_id: u64,
    commands_ended: u64,
    agent: AgentState,
    idleness: AgentIdleness,
    session: Option<String>,
    shutdown: Option<ShutdownState>,
    is_paused: bool,
    actions: VecDeque<BridgeAction>,
}

impl Bridge {
    /// Creates a bridge to an agent that does not run yet. The first query starts it.
    pub fn new(config: BridgeConfig, adapter: Box<dyn Adapter>) -> Self {
        Bridge {
            agent: AgentState::new(config.line_limit, config.agent_session.clone()),
            idleness: AgentIdleness::new(config.agent_idle),
            budget: BufferBudget::new(config.buffer_limit),
            session: config.session.clone(),
            adapter,
            now: Duration::ZERO,
            connections: BTreeMap::new(),
            half_closed: BTreeSet::new(),
            backlogged: BTreeSet::new(),
            closed: Vec::new(),
            queue: VecDeque::new(),
            turn: None,
            questions: QuestionTable::default(),
            pending_cancellations: Vec::new(),
            sdk_state: SdkState::new(config.max_remembered),
            spool: None,
            execs: BTreeMap::new(),
            held_exec_ends: BTreeMap::new(),
            next_exec_id: 0,
            commands_ended: 0,
            shutdown: None,
            is_paused: false,
            actions: VecDeque::new(),
            config,
        }
    }

    /// Sets the current time, from a monotonic clock, and handles timeouts. Later reports happen at this time.
    pub fn tick(&mut self, now: Duration) {
        self.now = self.now.max(now);
        if self.next_deadline().is_none_or(|deadline| deadline > self.now) {
            return;
        }
        while let Some((_, conn)) = self.next_stall().filter(|(until, _)| *until <= self.now) {
            self.evict(conn);
        }
        self.feed_followers();
        self.tick_questions();
        self.tick_turn();
        self.tick_agent();
        self.tick_execs();
        self.tick_idleness();
        self.process_pending();
    }

    /// When to call [`Bridge::tick`] next, unless something is reported before.
    pub fn next_deadline(&self) -> Option<Duration> {
        let turn = self.turn.as_ref().and_then(Turn::deadline);
        let stall = self.next_stall().map(|(until, _)| until);
        let question = self.questions.deadline();
        let feed = self.feed_deadline();
        let (agent, idle) = (self.agent.deadline(), self.idleness.deadline());
        [turn, stall, question, feed, agent, idle, self.exec_deadline(), self.shutdown_deadline()]
            .into_iter()
            .flatten()
            .min()
            .filter(|deadline| *deadline != Duration::MAX)
    }

    /// The next action for the caller.
    pub fn next_action(&mut self) -> Option<BridgeAction> {
        // Events are stored before they are sent.
        self.flush_spool();
        self.actions.pop_front()
    }

    /// Sets the paused state. While the sandbox is frozen, commands that it would have to answer are rejected (KC-19).
    pub fn set_paused(&mut self, paused: bool) {
        self.is_paused = paused;
        self.update_idleness();
    }

    /// Whether the bridge is shutting down.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown.is_some()
    }

    /// Whether the bridge is paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The server's id of the session, once it is known.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Whether a turn or an `exec` runs.
    pub fn is_busy(&self) -> bool {
        self.turn.is_some() || !self.execs.is_empty()
    }

    /// Number of commands that have ended, with `done`, with `error` or without a recipient.
    pub fn commands_ended(&self) -> u64 {
        self.commands_ended
    }

    /// Number of bytes in all buffers together.
    pub fn held_bytes(&self) -> usize {
        self.budget.used()
    }

    /// Whether the caller may read more output of the agent.
    pub fn wants_agent_output(&self) -> bool {
        !self.agent.is_paused
    }

    /// The wall clock now, in milliseconds since 1970.
    /// Converts a time of the bridge, such as [`Bridge::tick`] takes, to milliseconds since the Unix epoch.
    pub fn to_epoch_ms(&self, time: Duration) -> u64 {
        self.config.epoch_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    fn epoch_ms(&self) -> u64 {
        self.to_epoch_ms(self.now)
    }

    /// Handles the consequences of a report until the state is stable.
    fn process_pending(&mut self) {
        loop {
            self.abandon_commands();
            self.start_runnable();
            self.advance_shutdown();
            self.close_drained();
            // Each of these can evict a connection that does not read, which needs another iteration.
            if self.closed.is_empty() {
                break;
            }
        }
        self.update_backpressure();
        self.update_idleness();
    }
}

#[cfg(test)]
mod tests;
