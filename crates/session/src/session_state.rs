//! The states of a session, and the only transitions between them (KC-16). Pure.
//!
//! ```text
//!            Run             Pause
//! starting ──────> active <─────────> paused          any but ended ── Fail ──> error
//!    ^                ^       Run        │            any but ended ── End ───> ended
//!    │                └── Run ── error   │
//!    └─────────── Restart ──────┴────────┘
//! ```
//! A session leaves `error` by `Run` when its supervisor starts the agent again, or by `Restart` when a new sandbox is
//! created. It never leaves `ended`.

use saggar_sys::error::{Code, Error};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Its sandbox is being created; brief.
    Starting,
    /// It accepts commands.
    Active,
    /// It is frozen, or its sandbox has ended and it can be resumed; it accepts no commands.
    Paused,
    /// It ended without a request; it can be resumed.
    Error,
    /// It has ended permanently.
    Ended,
}

/// A transition of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionTransition {
    /// Its agent has started, or was resumed.
    Run,
    /// It is frozen, or its sandbox has ended and it can be resumed.
    Pause,
    /// It failed.
    Fail,
    /// A new sandbox is being created for it.
    Restart,
    /// It ends permanently.
    End,
}

impl SessionState {
    /// All states.
    pub const ALL: [SessionState; 5] = [
        SessionState::Starting,
        SessionState::Active,
        SessionState::Paused,
        SessionState::Error,
        SessionState::Ended,
    ];

    /// The state after a transition.
    ///
    /// # Errors
    /// [`IllegalTransition`] when this state does not allow the transition.
    pub fn apply(self, transition: SessionTransition) -> Result<SessionState, IllegalTransition> {
        use SessionTransition::{End, Fail, Pause, Restart, Run};
        match (self, transition) {
            (
                SessionState::Starting | SessionState::Active | SessionState::Paused | SessionState::Error,
                Run,
            ) => Ok(SessionState::Active),
            (SessionState::Starting | SessionState::Active | SessionState::Paused, Pause) => {
                Ok(SessionState::Paused)
            }
            (
                SessionState::Starting | SessionState::Active | SessionState::Paused | SessionState::Error,
                Fail,
            ) => Ok(SessionState::Error),
            (SessionState::Paused | SessionState::Error, Restart) => Ok(SessionState::Starting),
            (
                SessionState::Starting | SessionState::Active | SessionState::Paused | SessionState::Error,
                End,
            ) => Ok(SessionState::Ended),
            (from, step) => Err(IllegalTransition { from, transition: step }),
        }
    }

    /// Name of the state in JSON and in messages.
    pub fn name(self) -> &'static str {
        match self {
            SessionState::Starting => "starting",
            SessionState::Active => "active",
            SessionState::Paused => "paused",
            SessionState::Error => "error",
            SessionState::Ended => "ended",
        }
    }
}

impl fmt::Display for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A transition that a state does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IllegalTransition {
    /// The state.
    pub from: SessionState,
    /// The transition.
    pub transition: SessionTransition,
}

impl IllegalTransition {
    /// The error for the session `id`: [`Code::Ended`] when it has ended, else [`Code::State`].
    pub fn to_error(self, id: &str) -> Error {
        let IllegalTransition { from, transition: step } = self;
        if from == SessionState::Ended {
            return Error::new(Code::Ended, format!("session {id} has ended"))
                .hint("an ended session stays so: create another one");
        }
        let verb = match step {
            SessionTransition::Run | SessionTransition::Restart => "resumed",
            SessionTransition::Pause => "paused",
            SessionTransition::Fail => "failed",
            SessionTransition::End => "ended",
        };
        Error::new(Code::State, format!("session {id} is {from}, and cannot be {verb}"))
            .hint(format!("see saggar session show {id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOVES: [SessionTransition; 5] = [
        SessionTransition::Run,
        SessionTransition::Pause,
        SessionTransition::Fail,
        SessionTransition::Restart,
        SessionTransition::End,
    ];

    #[test]
    fn kc_16_the_whole_table() {
        use SessionState::{Active, Ended, Error, Paused, Starting};
        // Rows: Run, Pause, Fail, Restart, End.
        let table = [
            (Starting, [Some(Active), Some(Paused), Some(Error), None, Some(Ended)]),
            (Active, [Some(Active), Some(Paused), Some(Error), None, Some(Ended)]),
            (Paused, [Some(Active), Some(Paused), Some(Error), Some(Starting), Some(Ended)]),
            (Error, [Some(Active), None, Some(Error), Some(Starting), Some(Ended)]),
            (Ended, [None; 5]),
        ];
        for (from, row) in table {
            for (step, to) in MOVES.into_iter().zip(row) {
                assert_eq!(from.apply(step).ok(), to, "{from} {step:?}");
            }
        }
    }

    #[test]
    fn kc_17_the_end_has_a_code_of_its_own() {
        for from in SessionState::ALL {
            for step in MOVES {
                let Err(illegal) = from.apply(step) else { continue };
                let code = if from == SessionState::Ended { Code::Ended } else { Code::State };
                assert_eq!(illegal.to_error("x").code(), code, "{from} {step:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// With any sequence of transitions a session is ended from its first `End` on and never before. Until then it
        /// can always fail, be ended, and, unless it is starting or active, be resumed.
        #[test]
        fn any_life_ends_once(steps in proptest::collection::vec(0usize..5, 0..60)) {
            let (mut state, mut ended) = (SessionState::Starting, false);
            for step in steps.into_iter().map(|at| MOVES[at]) {
                match state.apply(step) {
                    Ok(next) => {
                        prop_assert!(!ended);
                        prop_assert_eq!(next == SessionState::Ended, step == SessionTransition::End);
                        ended |= step == SessionTransition::End;
                        state = next;
                    }
                    Err(illegal) => prop_assert_eq!(illegal, IllegalTransition { from: state, transition: step }),
                }
                if !ended {
                    prop_assert!(state.apply(SessionTransition::Fail).is_ok() && state.apply(SessionTransition::End).is_ok());
                    let idle = matches!(state, SessionState::Paused | SessionState::Error);
                    prop_assert_eq!(state.apply(SessionTransition::Restart).is_ok(), idle);
                }
            }
        }
    }
}
