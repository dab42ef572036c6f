//! Files of the workspace of a session, served or not.
//!
//! ```text
//! served      ── control socket ──> supervisor ──> worker in the mounts of the sandbox
//! not served  ────────────────────────────────────> file worker on the tree itself
//! ```

use super::connect_control;
use super::files::{directory, lock_session};
use crate::bridge::content::{Encoding, from_base64};
use crate::control::client::ControlClient;
use crate::control::files::{FilePart, FileRequest};
use crate::error::{Code, Error, Result};
use crate::session::SessionLock;
use crate::session::files::unserved::perform_unserved;
use crate::session::record::SessionRecord;
use crate::sys::random;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::PathBuf;

/// Bytes of a file in one request. Each control line has at most 1 MiB, and base64 adds a third.
const CHUNK_SIZE: usize = 512 << 10;
/// Names in one response.
const PAGE_SIZE: usize = 1000;

/// A name below a directory of the workspace.
#[derive(Debug, Deserialize)]
pub struct WorkspaceEntry {
    /// Path, relative to the listed directory.
    pub name: String,
    /// Type of the file.
    pub kind: String,
    /// Size in bytes.
    pub size: u64,
    /// Permissions.
    pub mode: u32,
    /// Time of the last change of the content, in milliseconds since the Unix epoch.
    pub mtime: i64,
}

#[derive(Debug, Deserialize)]
struct Page {
    entries: Vec<WorkspaceEntry>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Chunk {
    content: String,
    next: Option<u64>,
    size: u64,
    mtime: i64,
}

/// The way to the files of a session.
enum FileAccess {
    Served(Box<ControlClient>),
    Unserved { directory: PathBuf, _lock: Option<SessionLock> },
}

impl FileAccess {
    /// Opens the files of the session `id`. To change files of one that is not served, its lock is taken.
    fn open(id: &str, is_change: bool) -> Result<Self> {
        if let Ok((_, _, record)) = SessionRecord::find(id)
            && record.is_served()
        {
            return Ok(FileAccess::Served(Box::new(connect_control(&record)?)));
        }
        if is_change {
            let (directory, lock) = lock_session(id)?;
            return Ok(FileAccess::Unserved { directory, _lock: Some(lock) });
        }
        // Its record is read for the error of a session that does not exist.
        SessionRecord::find(id)?;
        Ok(FileAccess::Unserved { directory: directory(id)?, _lock: None })
    }

    fn perform<T: DeserializeOwned>(&mut self, request: &FileRequest) -> Result<T> {
        let result = match self {
            FileAccess::Served(control) => {
                let (method, params) = request.to_call();
                control.call(method, &params)
            }
            FileAccess::Unserved { directory, .. } => perform_unserved(directory, request),
        };
        serde_json::from_value(result?)
            .map_err(|e| Error::new(Code::System, format!("files of a session: {e}")))
    }
}

/// Passes on the names in the directory `path` of the workspace and below, except for those in `exclude`.
///
/// # Errors
/// [`Code::Invalid`] for a path that is not below the workspace, [`Code::Unsupported`] for an overlay that is not served,
/// [`Code::State`] and [`Code::System`] of the control socket; those of `pass_on`.
pub fn list(
    id: &str,
    path: &str,
    exclude: &[String],
    mut pass_on: impl FnMut(WorkspaceEntry) -> Result<()>,
) -> Result<()> {
    let mut access = FileAccess::open(id, false)?;
    let mut after = None;
    loop {
        let request =
            FileRequest::Walk { path: path.to_owned(), after, limit: PAGE_SIZE, exclude: exclude.to_vec() };
        let page: Page = access.perform(&request)?;
        page.entries.into_iter().try_for_each(&mut pass_on)?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// The size of a file of the workspace in bytes, and the time of its last change in milliseconds since the Unix epoch.
///
/// # Errors
/// As [`list`].
pub fn show(id: &str, path: &str) -> Result<(u64, i64)> {
    let path = path.to_owned();
    // The shortest part of a file that can be requested.
    let request = FileRequest::Read { path, offset: 0, limit: 4, encoding: Encoding::Base64 };
    let chunk: Chunk = FileAccess::open(id, false)?.perform(&request)?;
    Ok((chunk.size, chunk.mtime))
}

/// Writes the content of a file of the workspace to `output`.
///
/// # Errors
/// As [`list`]; those of writing.
pub fn read(id: &str, path: &str, mut output: impl Write) -> Result<()> {
    let mut access = FileAccess::open(id, false)?;
    let (mut offset, mut begun) = (0, None);
    loop {
        let request = FileRequest::Read {
            path: path.to_owned(),
            offset,
            limit: CHUNK_SIZE,
            encoding: Encoding::Base64,
        };
        let chunk: Chunk = access.perform(&request)?;
        // Each chunk opens the file again, which a program may have replaced.
        let version = (chunk.size, chunk.mtime);
        if *begun.get_or_insert(version) != version {
            return Err(Error::new(Code::State, format!("read {path}: it changed meanwhile")));
        }
        let bytes = from_base64(&chunk.content)
            .ok_or_else(|| Error::new(Code::System, "files of a session: the content is not base64"))?;
        match output.write_all(&bytes) {
            // The reader wants no more.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(|e| Error::system("write to standard output", e))?,
        }
        match chunk.next {
            Some(next) => offset = next,
            None => return Ok(()),
        }
    }
}

/// Replaces or creates a file of the workspace by the content of `input`, with the missing directories above it. The old
/// file stays until all of the input is written.
///
/// # Errors
/// As [`list`]; [`Code::Refused`] for a protected name; those of reading.
pub fn write(id: &str, path: &str, mut input: impl Read) -> Result<()> {
    let mut access = FileAccess::open(id, true)?;
    let mut number = [0; 8];
    random::fill(&mut number).map_err(|e| Error::system("name a transfer", std::io::Error::from(e)))?;
    let upload = format!("{:016x}", u64::from_ne_bytes(number));
    let mut offset = 0;
    loop {
        let mut content = Vec::new();
        input
            .by_ref()
            .take(CHUNK_SIZE as u64)
            .read_to_end(&mut content)
            .map_err(|e| Error::system("read standard input", e))?;
        let is_last = content.len() < CHUNK_SIZE;
        let size = content.len() as u64;
        let part = (offset > 0 || !is_last).then(|| FilePart { upload: upload.clone(), offset, is_last });
        let request = FileRequest::Write { path: path.to_owned(), content, parents: true, part };
        access.perform::<Value>(&request)?;
        if is_last {
            return Ok(());
        }
        offset += size;
    }
}

/// Removes a file, or with `recursive` a directory, of the workspace.
///
/// # Errors
/// As [`list`]; [`Code::Refused`] for a protected name, or a directory that is not empty.
pub fn remove(id: &str, path: &str, recursive: bool) -> Result<()> {
    let request = FileRequest::Remove { path: path.to_owned(), recursive };
    FileAccess::open(id, true)?.perform::<Value>(&request).map(drop)
}
