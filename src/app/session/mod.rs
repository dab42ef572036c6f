//! Sessions that outlive their creator, each with a supervisor of its own.

pub mod files;
pub mod snapshot;
pub mod workspace_files;

mod create;
mod detach;
mod end;
mod events;
mod exec;
mod git_command;
mod logs;
mod pause;
mod prune;
mod remove;
mod resume;
mod send;
mod suspend;
mod worktree;

pub use create::create;
pub use end::end;
pub use events::{read_events, read_events_in};
pub use exec::{SessionExecResult, exec};
pub use logs::{LogQuery, read_logs};
pub use pause::pause;
pub use prune::{PruneSelection, PrunedSession, prune};
pub use remove::remove;
pub use resume::resume;
pub(crate) use send::run_turn;
pub use send::send;
pub(crate) use suspend::suspend;
pub use worktree::worktree_path;

use crate::control::client::ControlClient;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::record::SessionRecord;
use crate::session::session_state::SessionTransition;
use crate::state;
use std::path::Path;

/// Whether there is a session with this id.
///
/// # Errors
/// [`Code::Invalid`] for an id that no session can have.
pub(crate) fn exists(id: &str) -> Result<bool> {
    let id = SandboxId::parse(id)?;
    Ok(state::sessions_path()?.join(id.as_str()).join("lock").symlink_metadata().is_ok())
}

/// Removes the empty directory that a removal which was killed in its last step has left.
pub(crate) fn remove_remains(id: &str) -> Result<()> {
    let directory = state::sessions_path()?.join(SandboxId::parse(id)?.as_str());
    match std::fs::remove_dir(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::system(format_args!("remove {}", directory.display()), error))
        }
        _ => Ok(()),
    }
}

/// The control socket of a session that is served.
///
/// # Errors
/// [`Code::State`] when nothing serves it; as [`ControlClient::connect`].
fn connect_control(record: &SessionRecord) -> Result<ControlClient> {
    ControlClient::connect(control_socket(record)?)
}

/// A connection to the control socket of the session `id` that is limited to `methods`.
///
/// # Errors
/// As [`SessionRecord::find`] and [`connect_control`].
pub(crate) fn connect_limited(id: &str, methods: &[&str]) -> Result<ControlClient> {
    let (_, _, record) = SessionRecord::find(id)?;
    ControlClient::connect_limited(control_socket(&record)?, methods)
        .map_err(|error| error.context(format_args!("session {id}")))
}

fn control_socket(record: &SessionRecord) -> Result<&Path> {
    let socket = record.control_socket.as_deref().filter(|_| record.is_served());
    socket.map(Path::new).ok_or_else(|| not_served_error(record))
}

/// Nothing serves the session.
fn not_served_error(record: &SessionRecord) -> Error {
    let id = &record.id;
    match record.state.apply(SessionTransition::Restart) {
        Err(illegal) => illegal.to_error(id),
        Ok(_) => Error::new(Code::State, format!("session {id} is {}: it is not served", record.state))
            .hint(format!("saggar session resume {id}")),
    }
}
