//! Which scripts of an agent's folder a start runs (KC-28).

use crate::session::Session;
use crate::supervise::agent::Script;
use std::path::Path;
use std::time::Duration;

/// Runs once in a session.
const INSTALL: &str = "install.sh";
/// Runs at each start.
const STARTUP: &str = "startup.sh";

/// Those that are in a folder, in their order, and when they run.
pub(super) fn found(folder: &Path) -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = [(INSTALL, "once in a session"), (STARTUP, "at each start")];
    all.into_iter().filter(move |(name, _)| folder.join(name).symlink_metadata().is_ok())
}

/// Those that this start runs. `folder` is what stands inside as the agent's folder.
pub(super) fn of(folder: &Path, session: &Session, limit: Duration) -> Vec<Script> {
    let installed = session.installed();
    let scripts = found(folder).map(|(name, _)| {
        let mark = (name == INSTALL).then(|| installed.clone());
        Script { name, limit, mark }
    });
    scripts.filter(|script| !script.mark.as_ref().is_some_and(|mark| mark.exists())).collect()
}
