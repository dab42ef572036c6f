//! The state of the session that is recorded while it is served: its state whenever that changes, the hosts allowed for
//! its life, and how it ended.

use super::AgentLoop;
use crate::bridge::core::{AgentExitStatus, HostQuestionResult};
use crate::bridge::proto::LogLevel;
use crate::error::Error;
use crate::session::record::StateReason;
use crate::session::session_state::{SessionState, SessionTransition};
use crate::spec::policy::TimeoutAction;
use crate::supervise::channel::log_bridge_message;
use crate::supervise::sandbox::ProgramExit;
use crate::supervise::status::{ExceededLimit, ExitReason, SupervisionResult};

/// The source of a request to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndRequest {
    /// A server, on either socket.
    Shutdown,
    /// A signal.
    Signal,
    /// The only turn is over.
    Done,
}

impl AgentLoop<'_> {
    /// The current state of the session.
    pub(super) fn session_state(&self) -> SessionState {
        match (self.freeze.requested, self.agent_has_run, self.crash_exit()) {
            (true, ..) => SessionState::Paused,
            (_, false, _) => SessionState::Starting,
            (_, _, Some(_)) => SessionState::Error,
            _ => SessionState::Active,
        }
    }

    /// The exit of an agent that has crashed; the next query starts it again.
    fn crash_exit(&self) -> Option<&AgentExitStatus> {
        // An agent that was stopped to be restarted in another way runs again by now.
        let is_down = self.channel.agent.is_none() && !self.is_ending();
        self.last_exit.as_ref().filter(|_| is_down && self.has_crashed)
    }

    fn agent_exit_text(&self) -> Option<String> {
        self.channel.hub.core().agent_exit_text().map(str::to_owned)
    }

    /// The exit status of an agent that has exited, as a shell reports it.
    pub(super) fn last_status(&self) -> Option<u8> {
        match self.last_exit {
            Some(AgentExitStatus::Code(code)) => Some(u8::try_from(code).unwrap_or(1)),
            Some(AgentExitStatus::Signal(signal)) => Some(ProgramExit::Signal(signal).exit_status()),
            Some(AgentExitStatus::OutOfMemory) => Some(ProgramExit::Signal(libc::SIGKILL).exit_status()),
            _ => None,
        }
    }

    /// Whether an end was requested: an exit after that is not a failure.
    pub(super) fn is_ending(&self) -> bool {
        self.end_request.is_some() || self.channel.hub.core().is_shutting_down()
    }

    /// Records the state if it has changed.
    pub(super) fn record_state(&mut self) {
        if self.is_ending() {
            return;
        }
        let state = self.session_state();
        let (step, why, cause) = match state {
            SessionState::Active => (SessionTransition::Run, None, None),
            SessionState::Paused => {
                (SessionTransition::Pause, Some(self.paused_for.unwrap_or(StateReason::Request)), None)
            }
            SessionState::Error => (
                SessionTransition::Fail,
                Some(StateReason::Crash),
                self.crash_exit().and_then(|_| self.agent_exit_text()),
            ),
            // The session began in this state.
            SessionState::Starting | SessionState::Ended => return,
        };
        if let Err(error) = self.record_writer.transition(step, why, cause) {
            log_bridge_message(LogLevel::Warn, &error.to_string());
        }
    }

    /// Handles the answer to a question about a host. A permanent consent is recorded, so that it is not asked for
    /// again when the session is resumed.
    pub(super) fn record_consent(&mut self, answer: HostQuestionResult) {
        let lasts = answer.keep && answer.verdict.is_ok();
        self.network.answer(answer);
        if lasts
            && let Some(hosts) = self.network.consented_hosts()
            && let Err(error) = self.record_writer.save_consents(hosts)
        {
            log_bridge_message(LogLevel::Warn, &error.to_string());
        }
    }

    /// Syncs the record when the loop is idle.
    pub(super) fn sync_record(&mut self) {
        if let Err(error) = self.record_writer.sync() {
            log_bridge_message(LogLevel::Warn, &error.to_string());
        }
    }

    /// Whether the session survives an exceeded time limit. A detached session is frozen, if it can be and its policy
    /// does not request a kill (DECISIONS 13). For idle time and processor time, which a thaw would not reset, the
    /// session is paused and its sandbox ends.
    pub(super) fn survives_limit(&mut self, limit: ExceededLimit) -> bool {
        let pauses = self.detached
            && limit == ExceededLimit::Timeout
            && self.policy_state.timeout_action() == TimeoutAction::Pause;
        if !pauses || self.write_freezer(true).is_err() {
            return false;
        }
        self.clock.stop();
        self.paused_for = Some(StateReason::Timeout);
        log_bridge_message(
            LogLevel::Warn,
            "the limit by the clock (timeout) is reached: the session is paused",
        );
        self.on_freezer_event();
        self.record_state();
        true
    }

    /// A time limit ends the sandbox: records first that the session can be resumed, before any process is killed
    /// (KC-26).
    pub(super) fn pause_on_limit(&mut self, limit: ExceededLimit) {
        let why = if limit == ExceededLimit::Idle { StateReason::Idle } else { StateReason::Timeout };
        if let Err(error) = self.record_writer.transition(SessionTransition::Pause, Some(why), None) {
            log_bridge_message(LogLevel::Warn, &error.to_string());
        }
        self.sync_record();
    }

    /// Records how the session ended.
    pub(super) fn record_end(&mut self, outcome: &SupervisionResult<(ExitReason, u8)>) {
        let (step, why, cause) = match outcome {
            Err((_, error)) if !self.agent_has_run => {
                (SessionTransition::Fail, StateReason::Start, Some(error.to_string()))
            }
            Err((reason, error)) => failure_transition(*reason, error),
            Ok((ExitReason::Timeout, _)) => {
                let idle =
                    self.exceeded_limit.as_ref().is_some_and(|(limit, _)| *limit == ExceededLimit::Idle);
                let cause = self.exceeded_limit.as_ref().map(|(_, why)| why.clone());
                (SessionTransition::Pause, if idle { StateReason::Idle } else { StateReason::Timeout }, cause)
            }
            // The only turn failed because its agent did.
            Ok((_, status)) if *status != 0 && self.has_crashed => {
                (SessionTransition::Fail, StateReason::Crash, self.agent_exit_text())
            }
            Ok(_) => (SessionTransition::Pause, self.end_reason(), None),
        };
        if let Err(error) = self.record_writer.close(step, Some(why), cause) {
            log_bridge_message(LogLevel::Warn, &error.to_string());
        }
    }

    fn end_reason(&self) -> StateReason {
        match self.end_request {
            Some(EndRequest::Signal) => StateReason::Signal,
            Some(EndRequest::Done) => StateReason::Done,
            Some(EndRequest::Shutdown) | None => StateReason::Shutdown,
        }
    }
}

fn failure_transition(reason: ExitReason, error: &Error) -> (SessionTransition, StateReason, Option<String>) {
    let why = if reason == ExitReason::Policy { StateReason::Policy } else { StateReason::Runtime };
    (SessionTransition::Fail, why, Some(error.to_string()))
}
