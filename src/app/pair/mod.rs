//! A pair run: two agents in sandboxes of their own that work on one task by messages (saggar-pair(1)).
//!
//! ```text
//!              PairRun (saggar_mailbox::pair, no I/O)
//!                 │ Prompt, Post, Finish     ^ Message, TurnEnded
//!                 v                          │
//!              PairRunner ── one turn ──> session of an agent ── send_to_agent ──> mailbox
//!                 └──────────────── reads, in order ───────────────────────────────┘
//! ```
//! The agents are sessions, each with a supervisor of its own. The state of the run is in the mailbox and its record, so
//! that a run continues after any of the processes was killed.

mod agent;
mod launch;

pub use agent::PairAgent;
pub use launch::PairLaunch;

use crate::error::{Code, Error, Result};
use crate::supervise::agent::TurnOutcome;
use crate::supervise::signals;
use jiff::Timestamp;
use saggar_mailbox::pair::{Outcome, PairEffect, PairEvent, PairRun, PairSettings};
use saggar_mailbox::runs::{AgentsLock, NewRun, Run, RunRecord, Runs};
use saggar_mailbox::{FileStore, Limits, Mailbox, Message, Position};

/// The name in a run of the person who sends messages with `saggar pair send`.
pub const PERSON: &str = "person";

/// What shows the messages of a run as they come.
pub trait Timeline {
    /// Shows what the run is about, before its messages.
    ///
    /// # Errors
    /// [`Code::System`]: it cannot be shown.
    fn begin(&mut self, run: u64, settings: &PairSettings) -> Result<()>;

    /// Shows a message.
    ///
    /// # Errors
    /// [`Code::System`]: it cannot be shown.
    fn show(&mut self, message: &Message) -> Result<()>;
}

/// A run whose agents this process runs.
#[expect(missing_debug_implementations, reason = "a timeline is any printer")]
pub struct PairRunner<'a> {
    run: Run,
    mailbox: Mailbox<FileStore>,
    pair: PairRun,
    agents: [PairAgent; 2],
    /// The last message that was read.
    position: Option<Position>,
    timeline: &'a mut dyn Timeline,
    /// The signal that ended the run, if one did.
    signal: Option<i32>,
    _lock: AgentsLock,
}

/// Checks the settings of a run that is to be created.
///
/// # Errors
/// [`Code::Invalid`]: names or the task are not valid.
pub fn check(settings: &PairSettings) -> Result<()> {
    PairRun::new(settings.clone())?;
    Ok(())
}

/// Creates a run with these settings, and keeps how its agents are started.
///
/// # Errors
/// As [`check`]; a file cannot be written.
pub fn create(runs: &Runs, settings: &PairSettings, launch: &PairLaunch) -> Result<Run> {
    check(settings)?;
    let new = NewRun {
        task: settings.task.clone(),
        members: settings.members(),
        max_iterations: settings.max_iterations,
        both_review: settings.both_review,
        launch: serde_json::to_value(launch).ok(),
    };
    Ok(runs.create(new, Timestamp::now())?)
}

/// The settings that a run was created with.
///
/// # Errors
/// [`Code::State`]: it is no pair run.
pub fn settings(record: &RunRecord) -> Result<PairSettings> {
    let name = |is_it: fn(&saggar_mailbox::Member) -> bool| {
        record.members.iter().find(|member| is_it(member)).map(|member| member.name.clone())
    };
    // The members are in the order of the settings: worker, reviewer, persons.
    let worker = name(|member| member.roles.works);
    let reviewer =
        record.members.get(1).filter(|member| member.roles.reviews).map(|member| member.name.clone());
    let (Some(worker), Some(reviewer)) = (worker, reviewer) else {
        return Err(Error::new(Code::State, format!("run {} is no pair run", record.run_id))
            .hint("saggar pair list shows the pair runs"));
    };
    let persons = record.members.iter().filter(|member| member.roles.is_person);
    Ok(PairSettings {
        task: record.task.clone(),
        worker,
        reviewer,
        persons: persons.map(|member| member.name.clone()).collect(),
        max_iterations: record.max_iterations,
        both_review: record.both_review,
    })
}

impl<'a> PairRunner<'a> {
    /// A runner for a run that was created now or before.
    ///
    /// # Errors
    /// [`Code::Refused`]: another process runs its agents; the files of the run cannot be used.
    pub fn new(run: Run, agents: [PairAgent; 2], timeline: &'a mut dyn Timeline) -> Result<Self> {
        let lock = run.lock_agents()?;
        let settings = settings(run.record())?;
        let pair = PairRun::new(settings.clone())?.with_answered(run.record().answered);
        let mailbox = run.mailbox(Limits::default())?;
        timeline.begin(run.id(), &settings)?;
        Ok(PairRunner { run, mailbox, pair, agents, position: None, timeline, signal: None, _lock: lock })
    }

    /// Runs the agents to the end of the run, and returns the signal that ended it, if one did. If the run is approved the
    /// sessions of the agents are removed; otherwise they can be resumed.
    ///
    /// # Errors
    /// A file of the run cannot be used, or an agent cannot be started; the agents of the run are suspended.
    pub fn run(mut self) -> Result<(Outcome, Option<i32>)> {
        // A signal between two turns ends the next one.
        signals::block()?;
        let outcome = self.run_agents();
        if !matches!(outcome, Ok(Outcome::Approved { .. })) {
            self.stop_agents(false);
        }
        Ok((outcome?, self.signal))
    }

    fn stop_agents(&self, remove: bool) {
        for agent in &self.agents {
            agent.stop(remove).unwrap_or_else(|error| log::warn!("{error}"));
        }
    }

    fn run_agents(&mut self) -> Result<Outcome> {
        let active = self.run.record().active.clone();
        self.run.set_outcome(None)?;
        // Messages of before have no effects: the run has not started.
        self.read_messages()?;
        let started = match &active {
            Some(agent) => PairEvent::Continued { agent },
            None => PairEvent::Started,
        };
        let mut effects = self.pair.handle(started)?;
        while let Some(effect) = effects.pop() {
            effects = match effect {
                PairEffect::Post { agent, draft } => {
                    self.mailbox.send(&agent, draft, Timestamp::now())?;
                    self.read_messages()?
                }
                PairEffect::Prompt { agent, text } => self.take_turn(&agent, &text)?,
                PairEffect::Finish(outcome) => {
                    // No one resumes an approved run, so that nothing is left of it when that is recorded.
                    if matches!(outcome, Outcome::Approved { .. }) {
                        self.stop_agents(true);
                    }
                    self.run.set_outcome(Some(outcome.clone()))?;
                    return Ok(outcome);
                }
            };
        }
        Err(Error::new(Code::System, format!("run {} has nothing left to do", self.run.id()))
            .hint("this is a defect; saggar pair resume continues the run"))
    }

    /// One turn of an agent, and what comes after it.
    fn take_turn(&mut self, name: &str, prompt: &str) -> Result<Vec<PairEffect>> {
        self.run.begin_turn(name)?;
        let Some(agent) = self.agents.iter().find(|agent| agent.name == name).cloned() else {
            return Err(Error::new(Code::State, format!("{name} is no agent of run {}", self.run.id())));
        };
        let outcome = agent.turn(prompt, &mut || self.read_messages().map(drop));
        // All that the agent has sent comes before the end of its turn.
        self.read_messages()?;
        let outcome = outcome?;
        let event = match &outcome {
            TurnOutcome::Done => {
                let effects = self.pair.handle(PairEvent::TurnEnded { agent: name })?;
                self.run.end_turn(self.pair.answered())?;
                return Ok(effects);
            }
            TurnOutcome::Signal(signal) => {
                self.signal = Some(*signal);
                PairEvent::Interrupted
            }
            TurnOutcome::Failed(reason) => PairEvent::AgentFailed { agent: name, reason },
        };
        Ok(self.pair.handle(event)?)
    }

    /// Reads the new messages, shows them and reports them to the run.
    fn read_messages(&mut self) -> Result<Vec<PairEffect>> {
        let PairRunner { mailbox, position, timeline, pair, .. } = self;
        let mut effects = Vec::new();
        mailbox.read_on(position, |message| -> Result<()> {
            timeline.show(message)?;
            effects.extend(pair.handle(PairEvent::Message(message))?);
            Ok(())
        })?;
        Ok(effects)
    }
}
