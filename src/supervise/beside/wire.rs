//! What the loop asks of the keeper of its container, and what the keeper tells of commands: JSON, in files in memory,
//! on pipes and on a socket for each command.

use crate::error::Error;
use serde::{Deserialize, Serialize};

/// From the loop. The writing end of a pipe for the answer comes beside each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    /// Begin to run `/bin/sh -c` with this in the container; its standard output, its standard error and the socket on
    /// which a [`Told`] each comes are beside it.
    Exec(String),
    /// Kill this command, by the number that it was told with, and everything that it has started.
    KillTree(i32),
    /// Kill the container's processes.
    Kill,
    /// Stop all of them, or let them go on.
    Freeze(bool),
    /// Do they stand still?
    IsFrozen,
    /// What do they use?
    Stats,
    /// Set the limits of `linux.resources`, this JSON.
    Update(String),
    /// What is the state of the container?
    State,
    /// How did its init end?
    Exit,
    /// Send its init this signal.
    Signal(i32),
    /// May who is at the other end of the socket beside this call here?
    Judge,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum How {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// What became of a command, on its socket. When the loop shuts its end down, the command is to be killed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    /// It runs, as this process.
    Started(i32),
    /// It did not come to run.
    Failed(Error),
    /// It has ended.
    Ended(How),
}
