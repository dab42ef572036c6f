//! Hooks (runtime-spec, config.md, "POSIX-platform Hooks"): programs that the bundle names, run by the runtime,
//! never by the container's own process.

use crate::error::{Code, Error, Result};
use crate::spec::container::Hook;
use std::os::fd::BorrowedFd;

/// In whose namespaces a hook runs.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// The runtime's.
    Runtime,
    /// All those of the process behind this pidfd, with its root and working directory.
    Container(BorrowedFd<'a>),
}

/// Runs `hooks` in order, each with `state` (JSON) on its standard input; stops at the first that fails.
///
/// # Errors
/// [`Code::System`], naming the hook and what it said: it could not be run, ended with another status than 0,
/// or ran longer than its timeout, when it was killed with its process group.
pub fn run(_kind: &str, hooks: &[Hook], _state: &str, _place: Place<'_>) -> Result<()> {
    if hooks.is_empty() { Ok(()) } else { Err(Error::new(Code::Unsupported, "run a hook: not built yet")) }
}
