//! The questions that are open, each under two names: the agent's own, and one of the bridge's that nobody else
//! has (RB-31, RB-35, DECISIONS 19). What is taken out is answered; nothing is ever found twice.

use super::Ask;
use crate::bridge::proto::second::{LONGEST, Seen};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How many questions may be open at once: far more than an agent asks, and few enough to hold.
pub const OPEN: usize = 256;

/// How many names of answered questions are remembered, so that none is asked by twice.
const USED: usize = 2000;

/// A question that is open. `W` is who was told of it.
#[derive(Debug)]
pub struct Pending<W> {
    /// The bridge's own name of it.
    pub id: String,
    /// The question.
    pub ask: Ask,
    /// Who was told, if anybody was.
    pub told: Option<W>,
    /// When nobody is waited for any more.
    pub until: Option<Duration>,
}

/// The open questions of one agent.
#[derive(Debug)]
pub struct Table<W> {
    /// In the order in which they were asked.
    open: BTreeMap<u64, Pending<W>>,
    by_id: HashMap<String, u64>,
    by_agent_id: HashMap<String, u64>,
    next: u64,
    /// The agent's names of earlier questions. A late answer to one of them must not fit a new question.
    used: Seen,
}

impl<W> Default for Table<W> {
    fn default() -> Self {
        Table {
            open: BTreeMap::new(),
            by_id: HashMap::new(),
            by_agent_id: HashMap::new(),
            next: 0,
            used: Seen::new(USED),
        }
    }
}

impl<W> Table<W> {
    /// Takes a question in.
    ///
    /// # Errors
    /// The question, and why it cannot be asked: its name was used before, or too many are open. It is to be
    /// denied.
    pub fn add(&mut self, pending: Pending<W>) -> Result<(), (Box<Pending<W>>, &'static str)> {
        if self.used.has(&pending.ask.agent_id) || self.by_agent_id.contains_key(&pending.ask.agent_id) {
            return Err((Box::new(pending), "the request_id of this question was used before"));
        }
        if pending.ask.agent_id.len() > LONGEST {
            return Err((Box::new(pending), "the request_id of this question is too long"));
        }
        if self.open.len() >= OPEN {
            return Err((Box::new(pending), "too many questions are open"));
        }
        let number = self.next;
        self.next += 1;
        self.used.add(&pending.ask.agent_id);
        self.by_agent_id.insert(pending.ask.agent_id.clone(), number);
        self.by_id.insert(pending.id.clone(), number);
        self.open.insert(number, pending);
        Ok(())
    }

    /// The question of this name of the bridge's.
    pub fn get(&self, id: &str) -> Option<&Pending<W>> {
        self.open.get(self.by_id.get(id)?)
    }

    /// The question that the agent calls so.
    pub fn get_agents(&self, agent_id: &str) -> Option<&Pending<W>> {
        self.open.get(self.by_agent_id.get(agent_id)?)
    }

    /// Takes out the question of this name of the bridge's.
    pub fn take(&mut self, id: &str) -> Option<Pending<W>> {
        let number = self.by_id.remove(id)?;
        let pending = self.open.remove(&number)?;
        self.by_agent_id.remove(&pending.ask.agent_id);
        Some(pending)
    }

    /// Takes out the question that the agent calls so.
    pub fn take_agents(&mut self, agent_id: &str) -> Option<Pending<W>> {
        let id = self.get_agents(agent_id)?.id.clone();
        self.take(&id)
    }

    /// Takes out everything, in the order in which it was asked.
    pub fn take_all(&mut self) -> Vec<Pending<W>> {
        self.by_id.clear();
        self.by_agent_id.clear();
        std::mem::take(&mut self.open).into_values().collect()
    }

    /// The open questions, in the order in which they were asked.
    pub fn iter(&self) -> impl Iterator<Item = &Pending<W>> {
        self.open.values()
    }

    /// The same, to tell somebody else of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pending<W>> {
        self.open.values_mut()
    }

    /// When the first of them is given up.
    pub fn deadline(&self) -> Option<Duration> {
        self.open.values().filter_map(|pending| pending.until).min()
    }

    /// The names of those that are given up by now.
    pub fn late(&self, now: Duration) -> Vec<String> {
        let late = |pending: &&Pending<W>| pending.until.is_some_and(|until| until <= now);
        self.open.values().filter(late).map(|pending| pending.id.clone()).collect()
    }
}
