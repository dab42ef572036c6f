//! What of the session is written down while it is served: its state, as soon as that changes, the hosts that it may
//! reach for good, and how it was left.

use super::Loop;
use crate::bridge::core::{Exit, HostAnswer};
use crate::bridge::proto::LogLevel;
use crate::error::Error;
use crate::session::record::Why;
use crate::session::states::{Move, State};
use crate::spec::policy::AtTimeout;
use crate::supervise::sandbox::Ended;
use crate::supervise::status::{Met, Outcome, Reason};
use crate::supervise::talk::log;

/// Who asked for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A server, on either socket.
    Shutdown,
    /// A signal.
    Signal,
    /// The only turn is over.
    Done,
}

impl Loop<'_> {
    /// Where the session stands.
    pub(super) fn session_state(&self) -> State {
        match (self.still.frozen, self.has_run, self.crash()) {
            (true, ..) => State::Paused,
            (_, false, _) => State::Starting,
            (_, _, Some(_)) => State::Error,
            _ => State::Active,
        }
    }

    /// How the agent ended that ended by itself and not well; the next query starts it again.
    fn crash(&self) -> Option<&Exit> {
        // One that was stopped to be started another way is there again by now.
        let is_down = self.talk.agent.is_none() && !self.is_ending();
        self.last_exit.as_ref().filter(|exit| is_down && **exit != Exit::Code(0))
    }

    /// The exit status of an agent that is gone, as a shell would say it.
    pub(super) fn last_status(&self) -> Option<u8> {
        match self.last_exit {
            Some(Exit::Code(code)) => Some(u8::try_from(code).unwrap_or(1)),
            Some(Exit::Signal(signal)) => Some(Ended::Signal(signal).exit_status()),
            Some(Exit::OutOfMemory) => Some(Ended::Signal(libc::SIGKILL).exit_status()),
            _ => None,
        }
    }

    /// Whether somebody has asked for the end: what follows is no failure.
    pub(super) fn is_ending(&self) -> bool {
        self.asked.is_some() || self.talk.hub.state().is_ending()
    }

    /// Writes the state down, when it is another.
    pub(super) fn keep(&mut self) {
        if self.is_ending() {
            return;
        }
        let state = self.session_state();
        let (step, why, cause) = match state {
            State::Active => (Move::Run, None, None),
            State::Paused => (Move::Pause, Some(self.paused_by.unwrap_or(Why::Request)), None),
            State::Error => (Move::Fail, Some(Why::Crash), self.crash().map(ToString::to_string)),
            // It began so.
            State::Starting | State::Ended => return,
        };
        if let Err(error) = self.keeper.go(step, why, cause) {
            log(LogLevel::Warn, &error.to_string());
        }
    }

    /// Takes the answer about a host. A yes that is to last is written down, so that nobody is asked again when the
    /// session goes on.
    pub(super) fn take_consent(&mut self, answer: HostAnswer) {
        let lasts = answer.keep && answer.verdict.is_ok();
        self.network.answer(answer);
        if lasts
            && let Some(hosts) = self.network.consented()
            && let Err(error) = self.keeper.keep_consents(hosts)
        {
            log(LogLevel::Warn, &error.to_string());
        }
    }

    /// Syncs what was written down, when nothing else is to be done.
    pub(super) fn settle(&mut self) {
        if let Err(error) = self.keeper.settle() {
            log(LogLevel::Warn, &error.to_string());
        }
    }

    /// Whether the session outlasts a limit of time that was reached: one that nobody waits for is frozen, where it
    /// can be and its policy does not say kill (DECISIONS 13). Idle is idle, and processor time that is used up stays
    /// so: those are put away.
    pub(super) fn outlasts(&mut self, limit: Met) -> bool {
        let pauses = self.detached && limit == Met::Timeout && self.limited.at_timeout() == AtTimeout::Pause;
        if !pauses || self.tell_freezer(true).is_err() {
            return false;
        }
        self.clock.stop();
        self.paused_by = Some(Why::Timeout);
        log(LogLevel::Warn, "the limit by the clock (timeout) is reached: the session is paused");
        self.freezer_changed();
        self.keep();
        true
    }

    /// A limit of time ends the sandbox: that the session can go on later is on disk before anything is killed
    /// (KC-26).
    pub(super) fn put_away(&mut self, limit: Met) {
        let why = if limit == Met::Idle { Why::Idle } else { Why::Timeout };
        if let Err(error) = self.keeper.go(Move::Pause, Some(why), None) {
            log(LogLevel::Warn, &error.to_string());
        }
        self.settle();
    }

    /// Writes down how the session was left.
    pub(super) fn keep_end(&mut self, outcome: &Outcome<(Reason, u8)>) {
        let (step, why, cause) = match outcome {
            Err((_, error)) if !self.has_run => (Move::Fail, Why::Start, Some(error.to_string())),
            Err((reason, error)) => failed(*reason, error),
            Ok((Reason::Timeout, _)) => {
                let idle = self.over.as_ref().is_some_and(|(limit, _)| *limit == Met::Idle);
                let cause = self.over.as_ref().map(|(_, why)| why.clone());
                (Move::Pause, if idle { Why::Idle } else { Why::Timeout }, cause)
            }
            // The only turn failed because its agent did.
            Ok((_, status)) => {
                match self.last_exit.as_ref().filter(|exit| *status != 0 && **exit != Exit::Code(0)) {
                    Some(exit) => (Move::Fail, Why::Crash, Some(exit.to_string())),
                    None => (Move::Pause, self.left_by(), None),
                }
            }
        };
        if let Err(error) = self.keeper.leave(step, Some(why), cause) {
            log(LogLevel::Warn, &error.to_string());
        }
    }

    fn left_by(&self) -> Why {
        match self.asked {
            Some(Asked::Signal) => Why::Signal,
            Some(Asked::Done) => Why::Done,
            Some(Asked::Shutdown) | None => Why::Shutdown,
        }
    }
}

fn failed(reason: Reason, error: &Error) -> (Move, Why, Option<String>) {
    let why = if reason == Reason::Policy { Why::Policy } else { Why::Runtime };
    (Move::Fail, why, Some(error.to_string()))
}
