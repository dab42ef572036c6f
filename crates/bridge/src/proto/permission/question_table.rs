//! The open questions. Each has two ids: the agent's own, and a unique one of the bridge (RB-31, RB-35, DECISIONS 19).
//! Removing a question answers it, so that none is answered twice.

use super::AgentQuestion;
use crate::proto::sdk_dialect::{MAX_UUID_LENGTH, SeenUuids};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Maximum number of open questions: far above what an agent asks, and small enough for memory.
pub const MAX_OPEN_QUESTIONS: usize = 256;

/// Number of ids of answered questions that are remembered, so that an id is not used twice.
const MAX_USED_IDS: usize = 2000;

/// An open question. `W` identifies the recipient.
#[derive(Debug)]
pub struct PendingQuestion<W> {
    /// The bridge's id of the question.
    pub id: String,
    /// The question.
    pub question: AgentQuestion,
    /// The recipient; `None` if the question was not sent.
    pub recipient: Option<W>,
    /// When the agent asked.
    pub asked: Duration,
    /// When the question is denied for want of an answer.
    pub deadline: Option<Duration>,
}

/// The open questions of one agent.
#[derive(Debug)]
pub struct QuestionTable<W> {
    /// By order of arrival.
    open: BTreeMap<u64, PendingQuestion<W>>,
    by_id: HashMap<String, u64>,
    by_agent_id: HashMap<String, u64>,
    next: u64,
    /// The agent's ids of earlier questions. A late response to one of them must not match a new question.
    used_ids: SeenUuids,
}

impl<W> Default for QuestionTable<W> {
    fn default() -> Self {
        QuestionTable {
            open: BTreeMap::new(),
            by_id: HashMap::new(),
            by_agent_id: HashMap::new(),
            next: 0,
            used_ids: SeenUuids::new(MAX_USED_IDS),
        }
    }
}

impl<W> QuestionTable<W> {
    /// Adds a question.
    ///
    /// # Errors
    /// The question, and the reason: its id was used before, or too many questions are open. The caller must deny it.
    pub fn add(
        &mut self,
        pending: PendingQuestion<W>,
    ) -> Result<(), (Box<PendingQuestion<W>>, &'static str)> {
        if self.used_ids.contains(&pending.question.agent_request_id)
            || self.by_agent_id.contains_key(&pending.question.agent_request_id)
        {
            return Err((Box::new(pending), "the request_id of this question was used before"));
        }
        if pending.question.agent_request_id.len() > MAX_UUID_LENGTH {
            return Err((Box::new(pending), "the request_id of this question is too long"));
        }
        if self.open.len() >= MAX_OPEN_QUESTIONS {
            return Err((Box::new(pending), "too many questions are open"));
        }
        let number = self.next;
        self.next += 1;
        self.used_ids.insert(&pending.question.agent_request_id);
        self.by_agent_id.insert(pending.question.agent_request_id.clone(), number);
        self.by_id.insert(pending.id.clone(), number);
        self.open.insert(number, pending);
        Ok(())
    }

    /// The question with this id of the bridge.
    pub fn get(&self, id: &str) -> Option<&PendingQuestion<W>> {
        self.open.get(self.by_id.get(id)?)
    }

    /// The question with this id of the agent.
    pub(crate) fn get_by_agent_id(&self, agent_id: &str) -> Option<&PendingQuestion<W>> {
        self.open.get(self.by_agent_id.get(agent_id)?)
    }

    /// Removes the question with this id of the bridge.
    pub fn take(&mut self, id: &str) -> Option<PendingQuestion<W>> {
        let number = self.by_id.remove(id)?;
        let pending = self.open.remove(&number)?;
        self.by_agent_id.remove(&pending.question.agent_request_id);
        Some(pending)
    }

    /// Removes the question with this id of the agent.
    pub(crate) fn take_by_agent_id(&mut self, agent_id: &str) -> Option<PendingQuestion<W>> {
        let id = self.get_by_agent_id(agent_id)?.id.clone();
        self.take(&id)
    }

    /// Removes all questions, in order of arrival.
    pub(crate) fn take_all(&mut self) -> Vec<PendingQuestion<W>> {
        self.by_id.clear();
        self.by_agent_id.clear();
        std::mem::take(&mut self.open).into_values().collect()
    }

    /// The open questions, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = &PendingQuestion<W>> {
        self.open.values()
    }

    /// The open questions, in order of arrival, to change their recipient.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut PendingQuestion<W>> {
        self.open.values_mut()
    }

    /// The earliest deadline of an open question.
    pub fn deadline(&self) -> Option<Duration> {
        self.open.values().filter_map(|pending| pending.deadline).min()
    }

    /// The bridge's ids of the questions whose deadline has passed.
    pub fn expired(&self, now: Duration) -> Vec<String> {
        let late = |pending: &&PendingQuestion<W>| pending.deadline.is_some_and(|until| until <= now);
        self.open.values().filter(late).map(|pending| pending.id.clone()).collect()
    }
}
