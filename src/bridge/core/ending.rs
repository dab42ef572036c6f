//! The end of the bridge: `shutdown`, or SIGTERM (BP-10, BP-35). From the first word to the last at most four
//! seconds, whatever the agent does.
//!
//! 1. What waits is refused, what runs is aborted, for at most [`TURNS`].
//! 2. The agent is stopped, harder and harder, for at most [`AGENT`].
//! 3. The acknowledgements leave, and [`Action::Shutdown`].

use super::Bridge;
use super::action::{Action, Stop};
use super::agent::Life;
use super::conn::Reply;
use crate::bridge::proto::permission::By;
use std::time::Duration;

const TURNS: Duration = Duration::from_millis(2000);
const AGENT: Duration = Duration::from_millis(2000);
const REASON: &str = "the bridge is shutting down";

/// How far the end has come.
#[derive(Debug)]
pub(super) struct Ending {
    stage: Stage,
    /// Who asked with an id, and hears of it.
    replies: Vec<Reply>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Turns { until: Duration },
    Agent { until: Duration },
    Over,
}

impl Bridge {
    /// Begins the end as if a server had asked for it: SIGTERM to the supervisor (BP-35).
    pub fn terminate(&mut self) {
        self.shut_down(None);
        self.settle();
    }

    pub(super) fn shut_down(&mut self, reply: Option<Reply>) {
        if let Some(reply) = &reply {
            self.opened(reply);
        }
        if let Some(ending) = &mut self.ending {
            return ending.replies.extend(reply);
        }
        let stage = Stage::Turns { until: self.now + TURNS };
        self.ending = Some(Ending { stage, replies: reply.into_iter().collect() });
        self.refuse_waiting(REASON);
        self.kill_execs(|_| true);
        self.abort_turn();
        self.withdraw_all(By::Shutdown, REASON);
    }

    pub(super) fn ending_deadline(&self) -> Option<Duration> {
        match self.ending.as_ref()?.stage {
            Stage::Turns { until } | Stage::Agent { until } => Some(until),
            Stage::Over => None,
        }
    }

    /// Goes on with the end, as far as what it waits for has happened.
    pub(super) fn advance_ending(&mut self) {
        let Some(ending) = &mut self.ending else { return };
        if let Stage::Turns { until } = ending.stage {
            let quiet = self.turn.is_none() && self.execs.is_empty();
            if !quiet && self.now < until {
                return;
            }
            ending.stage = Stage::Agent { until: self.now + AGENT };
            let outcome = match &self.turn {
                Some(turn) if turn.is_aborting() => Ok(()),
                _ => Err(REASON.to_owned()),
            };
            self.end_turn(outcome);
            self.say_taken_back();
            self.fail_execs(REASON);
            self.stop_agent(Stop::CloseInput);
        }
        let Some(ending) = &mut self.ending else { return };
        if let Stage::Agent { until } = ending.stage {
            if self.agent.life != Life::Down && self.now < until {
                return;
            }
            ending.stage = Stage::Over;
            let session = self.session.clone().unwrap_or_default();
            for reply in std::mem::take(&mut ending.replies) {
                self.done(reply, &session);
            }
            self.fail_replays(REASON);
            self.say_closing();
            self.actions.push_back(Action::Shutdown);
        }
    }
}
