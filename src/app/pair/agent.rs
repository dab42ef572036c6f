//! An agent of a pair run: a session, of which one turn at a time is asked.

use crate::app::agent::{self, AgentRequest};
use crate::app::session;
use crate::error::{Code, Error, Result};
use crate::session::record::{SessionOptions, SessionRecord};
use crate::session::session_state::SessionState;
use crate::supervise::agent::{ConsoleFormat, TurnOutcome};
use std::thread;
use std::time::{Duration, Instant};

/// How long a session may take to start, and how often it is looked at.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const START_INTERVAL: Duration = Duration::from_millis(20);

/// An agent, and the session that it has or will have.
#[derive(Debug, Clone)]
pub struct PairAgent {
    /// Its name in the run.
    pub name: String,
    /// The id of its session.
    pub session: String,
    /// What the session is created with.
    pub request: AgentRequest,
    /// The same, as it is kept for later starts.
    pub options: SessionOptions,
}

impl PairAgent {
    /// Loads the policy of the agent, and refuses what it or this host does not allow.
    ///
    /// # Errors
    /// As [`agent::check`].
    pub fn check(&self) -> Result<()> {
        let checked = agent::check(self.request.clone());
        checked.map(drop).map_err(|error| error.context(format_args!("the agent {}", self.name)))
    }

    /// One turn, for which the session is created or resumed if it is not served. `meanwhile` is called several times a
    /// second.
    ///
    /// # Errors
    /// The session cannot be started; those of `meanwhile`.
    pub(super) fn turn(
        &self,
        prompt: &str,
        meanwhile: &mut dyn FnMut() -> Result<()>,
    ) -> Result<TurnOutcome> {
        if session::exists(&self.session)?
            && SessionRecord::find(&self.session)?.2.state == SessionState::Ended
        {
            // A conversation that the user has ended is not continued; the run is.
            session::remove(&self.session)?;
        }
        if session::exists(&self.session)? {
            self.await_start()?;
            session::resume(&self.session, |_| Ok((self.request.clone(), self.options.clone())))?;
        } else {
            session::create(self.request.clone(), self.options.clone())?;
        }
        session::run_turn(&self.session, prompt, ConsoleFormat::Questions, Some(meanwhile))
            .map(|(outcome, _)| outcome)
    }

    /// Waits for a supervisor that another runner, which was killed, has started.
    fn await_start(&self) -> Result<()> {
        let until = Instant::now() + START_TIMEOUT;
        while Instant::now() < until {
            let (_, _, record) = SessionRecord::find(&self.session)?;
            if record.state != SessionState::Starting || !record.is_served() {
                return Ok(());
            }
            thread::sleep(START_INTERVAL);
        }
        Err(Error::new(Code::State, format!("session {} does not start within 60 s", self.session))
            .hint(format!("see saggar session logs {}", self.session)))
    }

    /// Ends the sandbox of the agent, and removes its session if nothing is to be continued.
    ///
    /// # Errors
    /// The session cannot be ended.
    pub(super) fn stop(&self, is_over: bool) -> Result<()> {
        let stopped = match (session::exists(&self.session)?, is_over) {
            (false, _) => Ok(()),
            (true, true) => session::end(&self.session, true),
            (true, false) => return session::suspend(&self.session),
        };
        // The worker of a runner that was killed may have removed all but the directory meanwhile.
        match session::exists(&self.session)? {
            true => stopped,
            false => session::remove_remains(&self.session),
        }
    }
}
