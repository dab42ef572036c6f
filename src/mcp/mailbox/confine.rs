//! What the server of a mailbox keeps: the files of its run, and no other rights.

use crate::error::Result;
use crate::mcp::confine::confine_server;
use crate::sys::confine::{LandlockSummary, ProcessRights};
use crate::sys::seccomp::HostProcessFilter;
use ::landlock::AccessFs;
use std::path::Path;

/// The rights of the process that serves the mailbox of a sandbox, after it is confined.
pub const MAILBOX_RIGHTS: ProcessRights = ProcessRights {
    name: c"saggar:mailbox",
    capabilities: 0,
    filter: HostProcessFilter::Mailbox,
    landlock: Some(LandlockSummary { min_abi: 2, allows: "files of its run" }),
};

/// Gives up all rights but those to the files in `run`. The process must have one thread.
///
/// # Errors
/// [`crate::error::Code::System`]: the process must not serve an agent.
pub(super) fn confine(run: &Path) -> Result<()> {
    let reads = AccessFs::ReadFile | AccessFs::ReadDir;
    let changes = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::RemoveFile;
    let makes = AccessFs::MakeReg | AccessFs::MakeDir;
    confine_server(&MAILBOX_RIGHTS, |domain| domain.allow(run, reads | changes | makes))
}
