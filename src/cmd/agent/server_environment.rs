//! Options of `saggar agent` from the environment of a server that starts it in place of its own bridge (DECISIONS 22, 36).

use crate::app::agent::{ServerEnvironment, ServerPermissionMode, parse_names};
use crate::app::session;
use crate::cli::AgentArgs;
use crate::error::{Code, Error, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Fills the options that are not set. `socket` is ASH_BRIDGE_SOCKET, which such a server always sets.
pub(super) fn apply(args: &mut AgentArgs, socket: &OsStr) -> Result<ServerEnvironment> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if args.agent.bridge_socket.is_none() {
        let template = socket.to_string_lossy().parse();
        args.agent.bridge_socket =
            Some(template.map_err(|e| Error::new(Code::Usage, format!("ASH_BRIDGE_SOCKET: {e}")))?);
    }
    let path = |name| variable(name).map(PathBuf::from);
    args.dir = args.dir.take().or_else(|| path("ASH_AGENT_DIR"));
    args.sandbox.workspace = args.sandbox.workspace.take().or_else(|| path("ASH_WORKSPACE_DIR"));
    args.sandbox.id = args.sandbox.id.take().or_else(|| variable("ASH_SANDBOX_ID"));
    if args.session.is_none() {
        args.session = variable("ASH_SESSION_ID");
        args.resume |= args.session.as_deref().map_or(Ok(false), session::exists)?;
    }
    args.ready_fd = args.ready_fd.or(args.prompt.is_none().then_some(1));
    // A parent in another pid namespace cannot be watched; saggar then ends by a signal or by `shutdown` alone.
    args.die_with_parent |= nix::unistd::getppid().as_raw() != 0;
    Ok(ServerEnvironment {
        permission_mode: ServerPermissionMode::parse(&variable("ASH_PERMISSION_MODE").unwrap_or_default())?,
        workspace_is_home: is_same(args.sandbox.workspace.as_deref(), path("HOME").as_deref()),
        passed_names: variable("ASH_SANDBOX_ENV").as_deref().map(parse_names).transpose()?,
    })
}

/// Whether both are there and one directory.
fn is_same(one: Option<&Path>, other: Option<&Path>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}
