//! How a run ended.

use crate::error::Result;

/// How a command or an agent ended.
#[derive(Debug)]
pub struct RunOutcome {
    /// The exit status as saggar(1) has it: the program's own, 124 after the wall-clock limit, 126 and 127 for a
    /// program that cannot be executed or is not found, 128+N after signal N. An error names what kept the program from
    /// running.
    pub status: Result<u8>,
    /// Where the changes of a workspace under an overlay are, as lines for people.
    pub notices: Vec<String>,
}
