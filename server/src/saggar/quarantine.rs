//! The quarantine of a session: each method runs `saggar quarantine …` (saggar(1)).

use super::program::{CommandError, Program, run_briefly};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;
use tokio::task::spawn_blocking;
use utoipa::ToSchema;
use uuid::Uuid;

/// The command line has at most this number of names; more are passed to several processes.
const NAMES_PER_COMMAND: usize = 1000;

/// The exit status of `saggar quarantine restore` if another file exists at an original path (saggar(1)).
const OTHER_FILE_STATUS: i32 = 3;

/// A file in quarantine, as `saggar quarantine list --json` prints it. Other fields are left out: the place of the file on
/// the host concerns no client.
#[derive(Debug, Deserialize)]
struct ListedFile {
    number: u32,
    name: String,
    path: String,
    workspace: String,
    why: String,
    replaced: bool,
}

/// A file that was moved out of the workspace because programs of the host would run it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct QuarantinedFile {
    number: u32,
    /// The number and the last part of the path.
    name: String,
    /// The original path, relative to the workspace.
    path: String,
    why: String,
    /// Whether a copy without the settings that run programs took the place of the file.
    replaced: bool,
}

impl From<ListedFile> for QuarantinedFile {
    fn from(listed: ListedFile) -> Self {
        let path = Path::new(&listed.path).strip_prefix(&listed.workspace);
        QuarantinedFile {
            number: listed.number,
            path: path.map_or_else(|_| listed.name.clone(), |path| path.to_string_lossy().into_owned()),
            name: listed.name,
            why: listed.why,
            replaced: listed.replaced,
        }
    }
}

impl QuarantinedFile {
    /// Its name in the quarantine, which no other file of the session has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its original path, relative to the workspace.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Selects the files that a client means: by their numbers, names or original paths.
///
/// # Errors
/// Returns a name that no file has.
pub fn select_quarantined<'f, 'n>(
    files: &'f [QuarantinedFile],
    names: &'n [String],
) -> Result<Vec<&'f QuarantinedFile>, &'n str> {
    let wanted: HashSet<&str> = names.iter().map(String::as_str).collect();
    let (mut selected, mut found) = (Vec::new(), HashSet::new());
    for file in files {
        let number = file.number.to_string();
        let own = [number.as_str(), &file.name, &file.path];
        let meant: Vec<&str> = own.into_iter().filter_map(|name| wanted.get(name).copied()).collect();
        if !meant.is_empty() {
            selected.push(file);
        }
        found.extend(meant);
    }
    match names.iter().find(|name| !found.contains(name.as_str())) {
        Some(name) => Err(name),
        None => Ok(selected),
    }
}

/// What becomes of files in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// They are moved back to their original paths.
    Restore {
        /// Whether a file that is in the way is moved to quarantine.
        force: bool,
    },
    /// They are deleted.
    Remove,
}

impl Program {
    /// Lists the files in the quarantine of a session, the oldest first.
    ///
    /// # Errors
    /// Fails if the list cannot be read.
    pub async fn quarantined_files(&self, id: Uuid) -> Result<Vec<QuarantinedFile>, CommandError> {
        // It is created with the first file, and saggar reports one that does not exist as an error.
        let index = self.session_directory(id).join("quarantine/index.jsonl");
        if !matches!(tokio::fs::try_exists(index).await, Ok(true)) {
            return Ok(Vec::new());
        }
        let mut command = self.command_of("quarantine", "list");
        command.args(["--json", "--", &id.to_string()]);
        let output = run_briefly(command, b"").await.map_err(|error| self.without_host_paths(id, &error))?;
        // An agent can make the list long.
        let parsed = spawn_blocking(move || output.lines().map(parse_file).collect()).await;
        parsed.map_err(|error| CommandError::new(format!("cannot parse the list: {error}")))?
    }

    /// Restores or removes the files with these names, or all files of a quarantine that has some.
    ///
    /// # Errors
    /// Fails if a file cannot be restored or removed; others were nevertheless, but none after the thousand of this one.
    pub async fn release(
        &self,
        id: Uuid,
        release: Release,
        names: Option<&[&str]>,
    ) -> Result<(), CommandError> {
        let Some(names) = names else { return self.release_named(id, release, &[]).await };
        // saggar restores the newest file of a command first: a directory before the files that were moved out of it.
        for names in names.rchunks(NAMES_PER_COMMAND) {
            self.release_named(id, release, names).await?;
        }
        Ok(())
    }

    /// The same with one process. No names mean all files.
    async fn release_named(&self, id: Uuid, release: Release, names: &[&str]) -> Result<(), CommandError> {
        let mut command = self.command_of(
            "quarantine",
            match release {
                Release::Restore { .. } => "restore",
                Release::Remove => "remove",
            },
        );
        if release == (Release::Restore { force: true }) {
            command.arg("--force");
        }
        command.args(["--", &id.to_string()]).args(names);
        let released = run_briefly(command, b"").await;
        released.map(drop).map_err(|error| self.without_host_paths(id, &error))
    }

    /// The error of a command, without its hint, which is about options, and without paths of the state directory.
    fn without_host_paths(&self, id: Uuid, error: &CommandError) -> CommandError {
        let text = error.to_string();
        let marked = text.lines().find_map(|line| line.strip_prefix("saggar: error: "));
        let line = marked.or_else(|| text.lines().next()).unwrap_or_default();
        let session = self.session_directory(id);
        let line = line.replace(&format!("{}/", session.join("workspace").display()), "");
        error.with_text(line.replace(&format!("{}/", session.display()), ""))
    }
}

impl CommandError {
    /// Whether a file was not restored since another one exists at its original path.
    pub fn is_other_file(&self) -> bool {
        self.exit_code() == Some(OTHER_FILE_STATUS)
    }
}

fn parse_file(line: &str) -> Result<QuarantinedFile, CommandError> {
    let listed = serde_json::from_str::<ListedFile>(line);
    listed
        .map(QuarantinedFile::from)
        .map_err(|error| CommandError::new(format!("saggar printed an invalid quarantined file: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_file_is_that_in_the_workspace() {
        let line = r#"{"id":"s","number":3,"name":"3-config","path":"/s/workspace/a/.git/config",
            "workspace":"/s/workspace","why":"sets core.pager","replaced":true,"at":"/s/quarantine/3-config"}"#;
        let file = QuarantinedFile::from(serde_json::from_str::<ListedFile>(line).unwrap());
        assert_eq!((file.path.as_str(), file.name()), ("a/.git/config", "3-config"));
        let files = [file.clone()];
        for (name, is_named) in [("3", true), ("3-config", true), ("a/.git/config", true), ("config", false)]
        {
            let names = [name.to_owned(), "3".to_owned()];
            let selected = select_quarantined(&files, &names).map(|files| files.len());
            assert_eq!(selected, if is_named { Ok(1) } else { Err(name) });
        }
        assert!(!serde_json::to_string(&file).unwrap().contains("/s/"));
    }
}
