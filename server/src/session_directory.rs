//! The directory of a session: `sessions/ID` in the data directory. It has the variables of the session, which can be
//! secrets, and its own copy of the agent folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;
use tracing::warn;
use uuid::Uuid;

/// Returns the directory of a session.
pub fn session_directory(data_dir: &Path, id: Uuid) -> PathBuf {
    data_dir.join("sessions").join(id.to_string())
}

/// Removes the directory of a session that no later start needs. It is not an error if there is none; other errors are
/// logged.
pub async fn remove_session_directory(data_dir: &Path, id: Uuid) {
    let directory = session_directory(data_dir, id);
    let removed = spawn_blocking(move || fs::remove_dir_all(directory)).await;
    if let Ok(Err(error)) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("cannot remove the files of session {id}: {error}");
    }
}
