//! The calls of the loop to the keeper of its container, and the status messages of the keeper about commands: JSON, in
//! memory files, on pipes, and on a socket for each command.

use crate::error::Error;
use serde::{Deserialize, Serialize};

/// A call of the loop. The writing end of a pipe for the result is passed with each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum KeeperCall {
    /// Runs `/bin/sh -c` with this command in the container. Its standard output, its standard error, and the socket
    /// for its [`CommandStatus`] messages are passed with the call.
    StartCommand(String),
    /// Kills this command, by the pid of its [`CommandStatus::Started`], and all of its descendants.
    KillTree(i32),
    /// Kills the container's processes.
    Kill,
    /// Freezes or thaws all of them.
    Freeze(bool),
    /// Returns whether they are frozen.
    IsFrozen,
    /// Returns their resource usage.
    Stats,
    /// Sets the limits of `linux.resources`, as JSON.
    Update(String),
    /// Returns the state of the container.
    State,
    /// Returns how its init ended.
    Exit,
    /// Sends this signal to its init.
    Signal(i32),
    /// Returns whether the peer of the passed socket may connect.
    VerifyPeer,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum ProcessExit {
    /// Its exit status.
    Exited(i32),
    /// The number of the signal that killed it.
    Killed(i32),
}

/// A status message about a command, on its socket. When the loop shuts down its end, the command is killed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum CommandStatus {
    /// It runs, with this pid.
    Started(i32),
    /// It could not be started.
    Failed(Error),
    /// It has ended.
    Ended(ProcessExit),
}
