//! The directory of a session: `sessions/ID` in the data directory. It has the variables of the session, which can be
//! secrets, and its own copy of the agent folder.

use crate::durable_file::replace;
use crate::error::{Context, Error, Result};
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

/// Returns the folder in the directory of a session that only this session has, as it has its own prompt or MCP servers.
/// Without it, the folder of the session is that of its agent.
pub fn own_folder(directory: &Path) -> PathBuf {
    directory.join("agent")
}

/// Whether the files of a session on this machine are those that its row means: not those of a machine that the session
/// has left, nor those of a restore that was not completed.
///
/// # Errors
/// Fails if the generation of the files cannot be read: then it is unknown.
pub async fn is_here(data_dir: &Path, session: &Session) -> Result<bool> {
    let file = generation_file(data_dir, session.id);
    let context = || format!("cannot read {}", file.display());
    match tokio::fs::read_to_string(&file).await {
        Ok(text) if text.trim().is_empty() => Err(Error::new(format!("{}: it is empty", context()))),
        Ok(text) => Ok(text.trim() == session.generation),
        // It was created here, and never restored.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(session.generation.is_empty()),
        Err(error) => Err(error).context(context),
    }
}

/// Writes the generation of the files of a session on this machine, atomically.
///
/// # Errors
/// Fails if the file cannot be written.
pub async fn write_generation(data_dir: &Path, id: Uuid, generation: &str) -> Result<()> {
    let file = generation_file(data_dir, id);
    let context = || format!("cannot write {}", file.display());
    let (file, generation) = (file.clone(), generation.to_owned());
    spawn_blocking(move || replace(&file, generation.as_bytes())).await.context(context)?.context(context)
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
