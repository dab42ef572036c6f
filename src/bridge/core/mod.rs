//! The bridge itself, without any I/O: bytes and time in, [`Action`]s out.
//!
//! [`Bridge`] owns the connections, the queue of commands, the one turn and what is known of the agent. It
//! keeps these promises, whatever servers and agents do:
//! - every `query`, `resume` and `exec` ends in exactly one terminal event (DECISIONS 15);
//! - one turn at a time; nothing of a turn reaches a later command (DECISIONS 16, BP-26);
//! - what it holds never passes 256 MiB (DECISIONS 20).
//!
//! The caller tells it what happened, then takes [`Bridge::next_action`] until there is none; it calls
//! [`Bridge::tick`] with the time first, and again at [`Bridge::next_deadline`].

mod action;
mod agent;
mod budget;
mod conn;
mod ending;
mod exec;
mod queue;
mod scrub;
mod turn;

pub use action::{Action, ConnId, ExecId, Exit, Outcome, Start, Stop};
pub use scrub::scrub;

use super::adapter::Adapter;
use super::proto::LINE_LIMIT;
use agent::Agent;
use budget::Budget;
use conn::Conn;
use ending::Ending;
use exec::Running;
use queue::Waiting;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use turn::Turn;

/// What becomes of a turn whose connection goes (DECISIONS 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnect {
    /// It is aborted: `saggar agent` in the foreground.
    Abort,
    /// It goes on, and its events become [`Action::Unclaimed`]: sessions.
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
    execs: BTreeMap<ExecId, Running>,
    next_exec: u64,
    ended: u64,
    agent: Agent,
    session: Option<String>,
    ending: Option<Ending>,
    actions: VecDeque<Action>,
}

impl Bridge {
    /// A bridge to an agent that does not run yet; the first query starts it.
    pub fn new(config: Config, adapter: Box<dyn Adapter>) -> Self {
        Bridge {
            agent: Agent::new(config.line_limit, config.agent_session.clone()),
            session: config.session.clone(),
            config,
            adapter,
            now: Duration::ZERO,
            budget: Budget::default(),
            conns: BTreeMap::new(),
            finished: BTreeSet::new(),
            full: BTreeSet::new(),
            gone: Vec::new(),
            waiting: VecDeque::new(),
            turn: None,
            execs: BTreeMap::new(),
            next_exec: 0,
            ended: 0,
            ending: None,
            actions: VecDeque::new(),
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
        self.tick_turn();
        self.tick_agent();
        self.tick_execs();
        self.settle();
    }

    /// When to call [`Bridge::tick`] next, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Duration> {
        let turn = self.turn.as_ref().and_then(Turn::deadline);
        let stall = self.next_stall().map(|(until, _)| until);
        [turn, stall, self.agent.deadline(), self.exec_deadline(), self.ending_deadline()]
            .into_iter()
            .flatten()
            .min()
            .filter(|deadline| *deadline != Duration::MAX)
    }

    /// The next thing to be done.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
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
