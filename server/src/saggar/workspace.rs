//! Files of the workspace of a session: each method runs `saggar session files …` (saggar-session(1)), which reaches
//! them whether a sandbox is running or not, and follows no link.

use super::program::{CommandError, PipedProcess, Program, run_briefly, start_piped};
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;
use uuid::Uuid;

/// Bytes of one part of a file.
const CHUNK_SIZE: usize = 64 << 10;

/// A name in a workspace.
#[derive(Debug, Clone, Deserialize)]
pub struct WorkspaceFile {
    /// The path, relative to the workspace.
    pub name: String,
    /// The type: `file`, `directory`, `link` and others.
    pub kind: String,
    /// The size in bytes.
    pub size: u64,
    /// The permissions.
    pub mode: u32,
    /// Time of the last change, in milliseconds since the Unix epoch.
    pub mtime: i64,
}

/// The size and the time of a file.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct FileSize {
    /// The size in bytes.
    pub size: u64,
}

impl Program {
    /// Lists all names in the workspace of a session, except for those in `exclude` and what is below them.
    ///
    /// # Errors
    /// Fails if saggar cannot reach the workspace.
    pub async fn list_files(&self, id: Uuid, exclude: &[&str]) -> Result<Vec<WorkspaceFile>, CommandError> {
        let mut command = self.files_command("list");
        command.arg("--json");
        for name in exclude {
            command.args(["--exclude", name]);
        }
        command.args(["--", &id.to_string()]);
        let invalid = |error| CommandError::new(format!("saggar printed an invalid file entry: {error}"));
        let output = run_briefly(command, b"").await?;
        output.lines().map(|line| serde_json::from_str(line).map_err(invalid)).collect()
    }

    /// Returns the size of a file.
    ///
    /// # Errors
    /// Fails if the path is no file that can be read.
    pub async fn file_size(&self, id: Uuid, path: &str) -> Result<FileSize, CommandError> {
        let mut command = self.files_command("show");
        command.args(["--", &id.to_string(), path]);
        let output = run_briefly(command, b"").await?;
        serde_json::from_str(&output)
            .map_err(|error| CommandError::new(format!("saggar printed an invalid file entry: {error}")))
    }

    /// Starts to read a file.
    ///
    /// # Errors
    /// Fails if saggar cannot be started.
    pub fn read_file(&self, id: Uuid, path: &str) -> Result<FileContent, CommandError> {
        let mut command = self.files_command("read");
        command.args(["--", &id.to_string(), path]);
        let (process, output) = start_piped(command)?;
        Ok(FileContent { process, output })
    }

    /// Replaces or creates a file, and creates the directories above it.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub async fn write_file(&self, id: Uuid, path: &str, content: &[u8]) -> Result<(), CommandError> {
        let mut command = self.files_command("write");
        command.args(["--", &id.to_string(), path]);
        run_briefly(command, content).await.map(drop)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Fails if the file cannot be removed.
    pub async fn remove_file(&self, id: Uuid, path: &str) -> Result<(), CommandError> {
        let mut command = self.files_command("remove");
        command.args(["--", &id.to_string(), path]);
        run_briefly(command, b"").await.map(drop)
    }

    fn files_command(&self, verb: &str) -> tokio::process::Command {
        let mut command = self.command("files");
        command.arg(verb);
        command
    }
}

/// The content of a file, as saggar prints it.
#[derive(Debug)]
pub struct FileContent {
    process: PipedProcess,
    output: ChildStdout,
}

impl FileContent {
    /// Returns the next part; `None` at the end.
    ///
    /// # Errors
    /// Fails if the file cannot be read completely.
    pub async fn next_chunk(&mut self) -> Result<Option<Vec<u8>>, CommandError> {
        let mut chunk = Vec::with_capacity(CHUNK_SIZE);
        let failed = |error| CommandError::new(format!("cannot receive from saggar: {error}"));
        if self.output.read_buf(&mut chunk).await.map_err(failed)? > 0 {
            return Ok(Some(chunk));
        }
        match self.process.wait().await.map_err(failed)? {
            status if status.success() => Ok(None),
            status => Err(CommandError::new(format!("saggar session files read exited with {status}"))),
        }
    }

    /// Returns the whole content, of at most this number of bytes.
    ///
    /// # Errors
    /// As [`FileContent::next_chunk`]; fails if there are more bytes.
    pub async fn read_to_end(mut self, most: u64) -> Result<Vec<u8>, CommandError> {
        let mut content = Vec::new();
        while let Some(mut chunk) = self.next_chunk().await? {
            content.append(&mut chunk);
            if content.len() as u64 > most {
                return Err(CommandError::new(format!("the file has more than {most} bytes")));
            }
        }
        Ok(content)
    }
}
