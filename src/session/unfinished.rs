//! A record of each sandbox whose last look at its workspace is still to be made. It is written before a program runs
//! and removed after the look; when saggar is killed, or the power fails, the next start on that workspace or `saggar gc`
//! finds it and makes the look.
//!
//! ```text
//! <state>/unfinished/<hash of the workspace>-<id>.json      locked as long as the supervisor lives
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "saggar's own directory, where no program of a sandbox can write"
)]

use crate::error::{Error, Result};
use crate::host::appeared::recorded::{Bytes, Recorded};
use crate::state;
use crate::state::process::{self, ProcessId};
use crate::sys::read;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "unfinished";
/// The largest record that is read.
const LIMIT: u64 = 64 << 20;
/// How long the processes of a sandbox may take to end whose supervisor is dead.
const PATIENCE: Duration = Duration::from_secs(5);

/// The record of a running sandbox.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    lock: Flock<File>,
}

impl AsFd for Unfinished {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Record<R> {
    version: u32,
    id: String,
    workspace: Bytes,
    quarantine: Bytes,
    init: Option<ProcessId>,
    recorded: R,
}

/// A look that a dead supervisor has not made.
#[derive(Debug)]
pub struct Left {
    /// Its sandbox.
    pub id: String,
    /// The workspace.
    pub workspace: PathBuf,
    /// Where what is found goes.
    pub quarantine: PathBuf,
    /// What there was at the start.
    pub recorded: Recorded,
    record: Unfinished,
}

impl Unfinished {
    /// Writes the record of the sandbox `id`, whose first process is `init`.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when it cannot be written.
    pub fn write(
        id: &str,
        workspace: &Path,
        quarantine: &Path,
        init: i32,
        recorded: &Recorded,
    ) -> Result<Self> {
        let directory = directory();
        let path = directory.join(format!("{}-{id}.json", hash(workspace)));
        let record = Record {
            version: 1,
            id: id.to_owned(),
            workspace: Bytes::of(workspace),
            quarantine: Bytes::of(quarantine),
            init: ProcessId::of(init),
            recorded,
        };
        let text = serde_json::to_vec(&record).unwrap_or_default();
        let new = path.with_extension("new");
        let create = || state::lock_options().create_new(true).open(&new);
        let created = match create() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                directory.parent().map_or(Ok(()), state::own_directory)?;
                state::own_directory(&directory)?;
                create()
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&new).and_then(|()| create())
            }
            other => other,
        };
        let write = || -> io::Result<Self> {
            let mut file = created?;
            file.write_all(&text)?;
            let lock =
                Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| io::Error::from(e))?;
            fs::rename(&new, &path)?;
            // Begun and not waited for: it is on the disk before anything that programs write and then sync.
            crate::sys::file::begin_writing(lock.as_fd());
            Ok(Unfinished { path: path.clone(), lock })
        };
        write().map_err(|e| Error::system(format_args!("write {}", path.display()), e))
    }

    /// The look was made.
    pub fn done(self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Left {
    /// The look was made.
    pub fn done(self) {
        self.record.done();
    }
}

/// What dead supervisors left, for `workspace` or for all; each is held until it is dropped. A sandbox whose programs do
/// not end is left for later.
pub fn left(workspace: Option<&Path>) -> Vec<Left> {
    let prefix = workspace.map(hash).unwrap_or_default();
    let mut left = Vec::new();
    let entries = fs::read_dir(directory()).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.retain(|name| {
        name.to_str().is_some_and(|name| name.starts_with(&prefix) && name.ends_with(".json"))
    });
    names.sort();
    for name in names {
        left.extend(
            read_one(&directory().join(name)).filter(|left| workspace.is_none_or(|at| left.workspace == at)),
        );
    }
    left
}

fn read_one(path: &Path) -> Option<Left> {
    let file = state::lock_options().open(path).ok()?;
    let own = file.metadata().is_ok_and(|meta| meta.uid() == nix::unistd::geteuid().as_raw());
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok().filter(|_| own)?;
    let record = Unfinished { path: path.to_owned(), lock };
    let Some(read) = read::small_file(path, LIMIT)
        .and_then(|text| serde_json::from_slice::<Record<Recorded>>(&text).ok())
        .filter(|record| record.version == 1)
    else {
        log::warn!(
            "{}: the record of a sandbox that was killed cannot be read: what it left was not looked at",
            path.display()
        );
        record.done();
        return None;
    };
    if let Some(init) = read.init.filter(ProcessId::is_alive)
        && let Ok(pidfd) = init.open()
        && !process::wait(&pidfd, PATIENCE)
    {
        return None;
    }
    Some(Left {
        id: read.id,
        workspace: read.workspace.into_path(),
        quarantine: read.quarantine.into_path(),
        recorded: read.recorded,
        record,
    })
}

/// Beside the sessions, which survive the end of the machine; else in the runtime directory.
fn directory() -> PathBuf {
    let sessions = state::sessions_path().ok();
    let base = sessions.as_deref().and_then(Path::parent).map(Path::to_owned);
    base.unwrap_or_else(state::runtime_path).join(NAME)
}

/// A short name for a path (FNV-1a), so that a start need not open the records of other workspaces.
fn hash(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}
