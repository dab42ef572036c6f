//! Which scripts of an agent's folder a start runs (KC-28).

use crate::session::Session;
use crate::supervise::agent::Script;
use crate::sys::untrusted_directory::UntrustedDirectory;
use std::time::Duration;

/// Runs once in a session.
const INSTALL: &str = "install.sh";
/// Runs at each start.
const STARTUP: &str = "startup.sh";

/// Those that are in a folder, in their order, and when they run.
pub(crate) fn list(folder: &UntrustedDirectory) -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = [(INSTALL, "once in a session"), (STARTUP, "at each start")];
    all.into_iter().filter(move |(name, _)| folder.has(name.as_ref()))
}

/// Those that this start runs. `folder` is what stands inside as the agent's folder.
pub(crate) fn scripts_to_run(folder: &UntrustedDirectory, session: &Session, limit: Duration) -> Vec<Script> {
    let is_installed = session.installed_marker().exists();
    let scripts =
        list(folder).map(|(name, _)| Script { name, timeout: limit, once_per_session: name == INSTALL });
    scripts.filter(|script| !(script.once_per_session && is_installed)).collect()
}
