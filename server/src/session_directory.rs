//! The directory of a session: `sessions/ID` in the data directory. It has the variables of the session, which can be
//! secrets, and its own copy of the agent folder.

use crate::store::Session;
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

/// Whether a session has been resumed on another machine since this one had it: then its files here are not used.
pub async fn is_stale(data_dir: &Path, session: &Session) -> bool {
    if session.generation == 0 {
        return false;
    }
    let text = tokio::fs::read_to_string(generation_file(data_dir, session.id)).await;
    // Without a file, it was created here.
    let generation: u64 = text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    generation < session.generation
}

/// Writes the generation of the files of a session on this machine, atomically.
///
/// # Errors
/// Fails if the file cannot be written.
pub async fn write_generation(data_dir: &Path, id: Uuid, generation: u64) -> io::Result<()> {
    let file = generation_file(data_dir, id);
    let new = file.with_extension("generation.new");
    if let Some(directory) = file.parent() {
        tokio::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).await?;
    }
    tokio::fs::write(&new, generation.to_string()).await?;
    tokio::fs::rename(&new, &file).await
}

/// Removes what tells the generation of a session that was deleted.
pub async fn remove_generation(data_dir: &Path, id: Uuid) {
    let _ = tokio::fs::remove_file(generation_file(data_dir, id)).await;
}

/// Beside the directory of the session, which is removed when the session ends.
fn generation_file(data_dir: &Path, id: Uuid) -> PathBuf {
    data_dir.join("sessions").join(format!("{id}.generation"))
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
