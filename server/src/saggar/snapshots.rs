//! Snapshots and changes of a session: each method runs `saggar session …` (saggar-workspace(7)).

use super::program::{CommandError, Program, run_briefly};
use super::workspace_change::{ChangeListing, WorkspaceChange};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Suffix of the file of a snapshot.
const SUFFIX: &str = ".tar.zst";

/// A snapshot of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name, unique in the session.
    pub name: String,
    /// The path of its file.
    pub file: PathBuf,
}

impl Snapshot {
    fn new(file: PathBuf) -> Option<Self> {
        let name = file.file_name().and_then(OsStr::to_str)?.strip_suffix(SUFFIX)?.to_owned();
        Some(Snapshot { name, file })
    }
}

impl Program {
    /// Takes a snapshot of a session, whose processes are frozen meanwhile if its sandbox supports that.
    ///
    /// # Errors
    /// Fails if the session cannot be read, or exceeds the limits of a snapshot.
    pub async fn take_snapshot(&self, id: Uuid) -> Result<Snapshot, CommandError> {
        let mut command = self.command("snapshot");
        command.args(["--", &id.to_string()]);
        let output = run_briefly(command, b"").await?;
        let file = PathBuf::from(output.trim_end_matches('\n'));
        Snapshot::new(file).ok_or_else(|| CommandError::new("saggar printed no name of a snapshot"))
    }

    /// Takes a snapshot of a session that becomes this file, and is not one of its snapshots.
    ///
    /// # Errors
    /// As [`Program::take_snapshot`]; fails if the file exists, or is on another file system than the session.
    pub async fn save_snapshot(&self, id: Uuid, file: &Path) -> Result<(), CommandError> {
        let snapshot = self.take_snapshot(id).await?;
        let linked = tokio::fs::hard_link(&snapshot.file, file).await;
        self.remove_snapshot(id, &snapshot.name).await?;
        linked.map_err(|error| CommandError::new(format!("cannot link {}: {error}", file.display())))
    }

    /// Lists the snapshots of a session by name, which is the time when they were taken.
    ///
    /// # Errors
    /// Fails if the session cannot be read.
    pub async fn list_snapshots(&self, id: Uuid) -> Result<Vec<Snapshot>, CommandError> {
        let directory = self.session_directory(id).join("snapshots");
        let mut command = self.command("snapshot");
        command.args(["--list", "--", &id.to_string()]);
        let names = run_briefly(command, b"").await?;
        Ok(names.lines().filter_map(|name| Snapshot::new(directory.join(name))).collect())
    }

    /// Removes a snapshot.
    ///
    /// # Errors
    /// Fails if the session has no such snapshot.
    pub async fn remove_snapshot(&self, id: Uuid, name: &str) -> Result<(), CommandError> {
        let mut command = self.command("snapshot");
        command.args(["--remove", &format!("{name}{SUFFIX}"), "--", &id.to_string()]);
        run_briefly(command, b"").await.map(drop)
    }

    /// Returns the changes of the agent in its workspace, as `saggar session diff --json` prints them.
    ///
    /// # Errors
    /// Fails if the workspace cannot be compared with its folder.
    pub async fn changes(&self, id: Uuid) -> Result<Vec<WorkspaceChange>, CommandError> {
        let mut command = self.command("diff");
        command.args(["--json", "--", &id.to_string()]);
        let output = run_briefly(command, b"").await?;
        let list: ChangeListing = serde_json::from_str(&output).map_err(|error| {
            CommandError::new(format!("saggar printed an invalid list of changes: {error}"))
        })?;
        Ok(list.changes)
    }

    /// Returns the changes of the agent as a unified diff.
    ///
    /// # Errors
    /// As [`Program::changes`].
    pub async fn patch(&self, id: Uuid) -> Result<String, CommandError> {
        let mut command = self.command("diff");
        command.args(["--patch", "--", &id.to_string()]);
        run_briefly(command, b"").await
    }

    /// Applies the changes at `paths` (all without one) to the folder of the session, or discards them.
    ///
    /// # Errors
    /// Fails if the session is running, or a change is refused; nothing is changed then.
    pub async fn settle_changes(
        &self,
        id: Uuid,
        verb: Settlement,
        paths: &[String],
    ) -> Result<(), CommandError> {
        let mut command = self.command(match verb {
            Settlement::Apply => "apply",
            Settlement::Discard => "discard",
        });
        command.args(["--", &id.to_string()]).args(paths);
        run_briefly(command, b"").await.map(drop)
    }

    /// The directory that saggar has for a session.
    pub(super) fn session_directory(&self, id: Uuid) -> PathBuf {
        self.state_directory().join("sessions").join(id.to_string())
    }
}

/// What becomes of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// They are applied to the folder of the session.
    Apply,
    /// They are removed from the workspace.
    Discard,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_snapshot_is_that_of_its_file() {
        let snapshot = Snapshot::new(PathBuf::from("/s/20261127T120000Z.tar.zst")).unwrap();
        assert_eq!(snapshot.name, "20261127T120000Z");
        assert!(Snapshot::new(PathBuf::from("/s/x.partial")).is_none());
    }
}
