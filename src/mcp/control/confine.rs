//! What the server keeps: its standard streams and the socket to its broker, and no file.

use crate::error::Result;
use crate::mcp::confine::confine_server;
use crate::sys::confine::{LandlockDomain, LandlockSummary, ProcessRights};
use crate::sys::seccomp::HostProcessFilter;

/// The rights of the server, after it is confined.
const RIGHTS: ProcessRights = ProcessRights {
    name: c"saggar:mcp",
    capabilities: 0,
    filter: HostProcessFilter::Mcp,
    landlock: Some(LandlockSummary { min_abi: 1, allows: "nothing" }),
};

/// Gives up all rights. The process must have one thread.
///
/// # Errors
/// [`crate::error::Code::System`]: the process must not serve a client.
pub(super) fn confine() -> Result<()> {
    confine_server(&RIGHTS, |_: &LandlockDomain| Ok(()))
}
