//! The states of a session, and the only moves between them (KC-16). Pure.
//!
//! ```text
//!            Run             Pause
//! starting ──────> active <─────────> paused          any but ended ── Fail ──> error
//!    ^                ^       Run        │            any but ended ── End ───> ended
//!    │                └── Run ── error   │
//!    └─────────── Restart ──────┴────────┘
//! ```
//! `error` can be left: by `Run` when the supervisor lives and starts the agent again, by `Restart` when a new sandbox
//! is to be made. `ended` cannot.

use crate::error::{Code, Error};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its sandbox is being made; brief.
    Starting,
    /// It takes commands.
    Active,
    /// It stands still, or has been put away; it takes no commands.
    Paused,
    /// Something ended it that was not asked to; it can be resumed.
    Error,
    /// Over, for good.
    Ended,
}

/// What happens to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Its agent runs, or goes on.
    Run,
    /// It is stopped, frozen or put away, and can go on.
    Pause,
    /// It failed.
    Fail,
    /// A new sandbox is made for it.
    Restart,
    /// It is given up.
    End,
}

impl State {
    /// All of them.
    pub const ALL: [State; 5] = [State::Starting, State::Active, State::Paused, State::Error, State::Ended];

    /// Where the move leads.
    ///
    /// # Errors
    /// [`Illegal`] when the session cannot move so.
    pub fn after(self, step: Move) -> Result<State, Illegal> {
        use Move::{End, Fail, Pause, Restart, Run};
        match (self, step) {
            (State::Starting | State::Active | State::Paused | State::Error, Run) => Ok(State::Active),
            (State::Starting | State::Active | State::Paused, Pause) => Ok(State::Paused),
            (State::Starting | State::Active | State::Paused | State::Error, Fail) => Ok(State::Error),
            (State::Paused | State::Error, Restart) => Ok(State::Starting),
            (State::Starting | State::Active | State::Paused | State::Error, End) => Ok(State::Ended),
            (from, step) => Err(Illegal { from, step }),
        }
    }

    /// Its name, as everywhere.
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Active => "active",
            State::Paused => "paused",
            State::Error => "error",
            State::Ended => "ended",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A move that a session in this state cannot make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Illegal {
    /// The state.
    pub from: State,
    /// The move.
    pub step: Move,
}

impl Illegal {
    /// The error for the session `id`: [`Code::Ended`] when it is over, else [`Code::State`].
    pub fn error(self, id: &str) -> Error {
        let Illegal { from, step } = self;
        if from == State::Ended {
            return Error::new(Code::Ended, format!("session {id} has ended"))
                .hint("an ended session stays so: create another one");
        }
        let verb = match step {
            Move::Run | Move::Restart => "resumed",
            Move::Pause => "paused",
            Move::Fail => "failed",
            Move::End => "ended",
        };
        Error::new(Code::State, format!("session {id} is {from}, and cannot be {verb}"))
            .hint(format!("saggar session show {id} says more"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOVES: [Move; 5] = [Move::Run, Move::Pause, Move::Fail, Move::Restart, Move::End];

    #[test]
    fn kc_16_the_whole_table() {
        use State::{Active, Ended, Error, Paused, Starting};
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
                assert_eq!(from.after(step).ok(), to, "{from} {step:?}");
            }
        }
    }

    #[test]
    fn kc_17_the_end_has_a_code_of_its_own() {
        for from in State::ALL {
            for step in MOVES {
                let Err(illegal) = from.after(step) else { continue };
                let code = if from == State::Ended { Code::Ended } else { Code::State };
                assert_eq!(illegal.error("x").code(), code, "{from} {step:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// Whatever happens to a session in whatever order: it is ended from its first `End` on and never before, and
        /// until then it can always fail, be ended, and, unless it is being made or runs, be resumed.
        #[test]
        fn any_life_ends_once(steps in proptest::collection::vec(0usize..5, 0..60)) {
            let (mut state, mut ended) = (State::Starting, false);
            for step in steps.into_iter().map(|at| MOVES[at]) {
                match state.after(step) {
                    Ok(next) => {
                        prop_assert!(!ended);
                        prop_assert_eq!(next == State::Ended, step == Move::End);
                        ended |= step == Move::End;
                        state = next;
                    }
                    Err(illegal) => prop_assert_eq!(illegal, Illegal { from: state, step }),
                }
                if !ended {
                    prop_assert!(state.after(Move::Fail).is_ok() && state.after(Move::End).is_ok());
                    let idle = matches!(state, State::Paused | State::Error);
                    prop_assert_eq!(state.after(Move::Restart).is_ok(), idle);
                }
            }
        }
    }
}
