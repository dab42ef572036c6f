//! The bridge itself, without any I/O: bytes and time in, [`Action`]s out.
//!
//! [`Bridge`] owns the connections, the queue of commands, the one turn and what is known of the agent. It
//! keeps these promises, whatever servers and agents do:
//! - every `query`, `resume` and `exec` ends in exactly one terminal event (DECISIONS 15);
//! - every question of the agent about a tool is decided once, and never in its favour without a valid answer;
//! - one turn at a time; nothing of a turn reaches a later command (DECISIONS 16, BP-26);
//! - what it holds never passes 256 MiB (DECISIONS 20).
//!
//! It reads and writes no file either: what is to outlive it goes to a [`Store`](super::proto::spool::Store).
//!
//! The caller tells it what happened, then takes [`Bridge::next_action`] until there is none; it calls
//! [`Bridge::tick`] with the time first, and again at [`Bridge::next_deadline`].

mod action;
mod agent;
mod asking;
mod budget;
mod conn;
mod dialect;
mod ending;
mod exec;
mod queue;
mod scrub;
mod second;
mod spool;
mod turn;

pub use action::{Action, ConnId, ExecId, Exit, HostAnswer, Outcome, Start, Stop};
pub use asking::{NotTaken, Told};
pub use scrub::scrub;

use super::adapter::Adapter;
use super::proto::LINE_LIMIT;
use super::proto::permission::Table;
use super::proto::second::SEEN;
use crate::spec::policy::Permissions;
use agent::Agent;
use budget::Budget;
use conn::Conn;
use ending::Ending;
use exec::Running;
use queue::Waiting;
use second::Shared;
use spool::Spool;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use turn::Turn;

/// What becomes of a turn whose connection goes (DECISIONS 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnect {
    /// It is aborted: `saggar agent` in the foreground.
    Abort,
    /// It goes on, and what it says is [`Action::Unclaimed`]. With [`Bridge::keep_events`] it is kept, and commands
    /// that wait and every `exec` go on as well.
    Detach,
}

/// How a bridge is to work.
#[derive(Debug, Clone)]
pub struct Config {
    /// What becomes of a turn whose connection goes.
    pub disconnect: Disconnect,
    /// The server's name for the conversation, when it is known before the first command.
    pub session: Option<String>,
    /// The agent's own name for the conversation, from an earlier run ([`Action::Learned`]).
    pub agent_session: Option<String>,
    /// The session as the second dialect and its servers call it.
    pub name: String,
    /// The process that answers `initialize`.
    pub pid: u32,
    /// How many uuids are remembered, each way, to drop echoes and repetitions (RB-10).
    pub remembered: usize,
    /// What is said to questions of the agent, and how long an answer is waited for.
    pub permissions: Permissions,
    /// The wall clock at time zero of [`Bridge::tick`], in milliseconds since 1970: for `log` events.
    pub epoch_ms: u64,
    /// The longest line, in bytes.
    pub line_limit: usize,
    /// Lines of the agent that are not JSON become [`Action::Plain`], and no entries of the log.
    pub plain_lines: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            disconnect: Disconnect::Abort,
            session: None,
            agent_session: None,
            name: String::new(),
            pid: 0,
            remembered: SEEN,
            permissions: Permissions::built_in(),
            epoch_ms: 0,
            line_limit: LINE_LIMIT,
            plain_lines: false,
        }
    }
}

/// The bridge of one agent.
#[derive(Debug)]
pub struct Bridge {
    config: Config,
    adapter: Box<dyn Adapter>,
    now: Duration,
    budget: Budget,
    conns: BTreeMap<ConnId, Conn>,
    /// Connections whose server will say no more; it may still listen.
    finished: BTreeSet<ConnId>,
    /// Connections whose reader does not keep up.
    full: BTreeSet<ConnId>,
    /// Connections that went, whose commands are still to be seen to.
    gone: Vec<ConnId>,
    waiting: VecDeque<Waiting>,
    turn: Option<Turn>,
    /// Questions of the agent that nobody has answered.
    questions: Table<Told>,
    /// Questions that were denied with their turn, until the agent takes them back: its name for each, who was
    /// told, and what that one hears if the agent does not.
    leaving: Vec<(String, Told, String)>,
    /// What the second dialect remembers over connections.
    shared: Shared,
    /// What is kept, where that is wanted.
    spool: Option<Spool>,
    execs: BTreeMap<ExecId, Running>,
    next_exec: u64,
    ended: u64,
    agent: Agent,
    session: Option<String>,
    ending: Option<Ending>,
    paused: bool,
    actions: VecDeque<Action>,
}

impl Bridge {
    /// A bridge to an agent that does not run yet; the first query starts it.
    pub fn new(config: Config, adapter: Box<dyn Adapter>) -> Self {
        Bridge {
            agent: Agent::new(config.line_limit, config.agent_session.clone()),
            session: config.session.clone(),
            adapter,
            now: Duration::ZERO,
            budget: Budget::default(),
            conns: BTreeMap::new(),
            finished: BTreeSet::new(),
            full: BTreeSet::new(),
            gone: Vec::new(),
            waiting: VecDeque::new(),
            turn: None,
            questions: Table::default(),
            leaving: Vec::new(),
            shared: Shared::new(config.remembered),
            spool: None,
            execs: BTreeMap::new(),
            next_exec: 0,
            ended: 0,
            ending: None,
            paused: false,
            actions: VecDeque::new(),
            config,
        }
    }

    /// The time is `now`, from a clock that never goes back. Everything that is told next happens then.
    pub fn tick(&mut self, now: Duration) {
        self.now = self.now.max(now);
        if self.next_deadline().is_none_or(|deadline| deadline > self.now) {
            return;
        }
        while let Some((_, conn)) = self.next_stall().filter(|(until, _)| *until <= self.now) {
            self.doom(conn);
        }
        self.feed_all();
        self.tick_questions();
        self.tick_turn();
        self.tick_agent();
        self.tick_execs();
        self.settle();
    }

    /// When to call [`Bridge::tick`] next, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Duration> {
        let turn = self.turn.as_ref().and_then(Turn::deadline);
        let stall = self.next_stall().map(|(until, _)| until);
        let question = self.questions.deadline();
        let feed = self.feed_deadline();
        [turn, stall, question, feed, self.agent.deadline(), self.exec_deadline(), self.ending_deadline()]
            .into_iter()
            .flatten()
            .min()
            .filter(|deadline| *deadline != Duration::MAX)
    }

    /// The next thing to be done.
    pub fn next_action(&mut self) -> Option<Action> {
        // What leaves has been kept.
        self.flush_spool();
        self.actions.pop_front()
    }

    /// While the sandbox stands still, commands are refused that it would have to answer (KC-19).
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether it is about to shut down.
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether it was told so last.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// The server's name for the conversation, once it is known.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Whether a turn runs or an `exec` does: what a caller calls busy.
    pub fn is_busy(&self) -> bool {
        self.turn.is_some() || !self.execs.is_empty()
    }

    /// How many commands have ended, in `done`, `error` or with nobody to hear it.
    pub fn commands_ended(&self) -> u64 {
        self.ended
    }

    /// How many bytes all buffers hold together.
    pub fn held_bytes(&self) -> usize {
        self.budget.used()
    }

    /// Whether more of the agent's output may be read now.
    pub fn wants_agent_output(&self) -> bool {
        !self.agent.paused
    }

    /// The wall clock now, in milliseconds since 1970.
    fn epoch_ms(&self) -> u64 {
        self.config.epoch_ms.saturating_add(u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX))
    }

    /// Brings everything to rest after something happened.
    fn settle(&mut self) {
        loop {
            self.abandon_commands();
            self.pump();
            self.advance_ending();
            self.close_finished();
            // Each of these can drop a connection that does not read, which is seen to in another round.
            if self.gone.is_empty() {
                break;
            }
        }
        self.balance();
    }
}

#[cfg(test)]
mod tests;
