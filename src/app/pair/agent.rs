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
/// How long another process may take to remove a session.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

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
        self.start_session()?;
        session::run_turn(&self.session, prompt, ConsoleFormat::Questions, Some(meanwhile))
            .map(|(outcome, _)| outcome)
    }

    /// Creates or resumes the session. A process that a runner which was killed had started may do the same at this moment:
    /// then there is one that this one can use.
    fn start_session(&self) -> Result<()> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            match self.create_or_resume() {
                Err(error) if error.code() == Code::Exists && Instant::now() < until => {
                    thread::sleep(START_INTERVAL);
                }
                done => return done,
            }
        }
    }

    fn create_or_resume(&self) -> Result<()> {
        if session::exists(&self.session)?
            && SessionRecord::find(&self.session)?.2.state == SessionState::Ended
        {
            // A conversation that the user has ended is not continued; the run is.
            session::remove(&self.session, false)?;
        }
        if !session::exists(&self.session)? {
            return session::create(self.request.clone(), None, self.options.clone()).map(drop);
        }
        self.await_start()?;
        session::resume(&self.session, |_| Ok((self.request.clone(), self.options.clone())))
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
        if !is_over {
            return if session::exists(&self.session)? { session::suspend(&self.session) } else { Ok(()) };
        }
        let until = Instant::now() + REMOVAL_TIMEOUT;
        while session::exists(&self.session)? {
            match session::end(&self.session, true) {
                // A worker of a runner that was killed may be removing it.
                Err(_) if Instant::now() < until => thread::sleep(START_INTERVAL),
                done => return done,
            }
        }
        session::remove_remains(&self.session)
    }
}
