//! A record of each sandbox whose workspace has not had its last scan yet. It is written before a program runs and
//! removed after the scan. When saggar is killed, or the power fails, the next start on that workspace or `saggar gc`
//! finds the record and makes the scan.
//!
//! ```text
//! <state>/unfinished/<hash of the workspace>-<id>.json             locked as long as the supervisor lives
//! <state>/unfinished/git-<hash of the git directory>-<id>.json     of one that is outside of the workspace
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "saggar's own directory, where no program of a sandbox can write"
)]

use crate::repository::{GitDirectoryPlace, find_git_directory};
use crate::workspace_scan::baseline::WorkspaceBaseline;
use crate::workspace_scan::nanoseconds;
use nix::fcntl::{Flock, FlockArg};
use saggar_sandbox::state;
use saggar_sandbox::state::base64_bytes::Base64Bytes;
use saggar_sandbox::state::process::{self, ProcessId};
use saggar_sys::error::{Error, Result};
use saggar_sys::read;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const DIRECTORY_NAME: &str = "unfinished";
/// Begins the names of records of git directories that several workspaces share.
const SHARED_PREFIX: &str = "git-";
/// Largest record that is read, in bytes.
const MAX_SIZE: u64 = 64 << 20;
/// How long to wait for the processes of a sandbox whose supervisor is dead.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for the scan of another process, and how often to look whether it is made.
const SCAN_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_POLL: Duration = Duration::from_millis(5);

/// The record of a running sandbox.
#[derive(Debug)]
pub struct UnfinishedScan {
    path: PathBuf,
    lock: Flock<File>,
}

impl AsFd for UnfinishedScan {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct UnfinishedScanRecord<R> {
    version: u32,
    id: String,
    workspace: Base64Bytes,
    quarantine: Base64Bytes,
    init: Option<ProcessId>,
    /// The process that makes the scan, unless it is killed.
    #[serde(default)]
    supervisor: Option<ProcessId>,
    recorded: R,
}

/// A scan that a dead supervisor has not made.
#[derive(Debug)]
pub struct AbandonedScan {
    /// Id of its sandbox.
    pub id: String,
    /// Path of the workspace.
    pub workspace: PathBuf,
    /// Path of the quarantine.
    pub quarantine: PathBuf,
    /// The state of the workspace at the start.
    pub recorded: WorkspaceBaseline,
    /// The record.
    pub record: UnfinishedScan,
}

impl UnfinishedScan {
    /// Writes the record of the sandbox `id`, whose first process is `init`.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`] when it cannot be written.
    pub fn write(
        id: &str,
        workspace: &Path,
        quarantine: &Path,
        init: i32,
        recorded: &WorkspaceBaseline,
    ) -> Result<Self> {
        let directory = records_directory();
        let name = match recorded.git_directory {
            Some(_) => shared_name(workspace),
            None => path_hash(workspace),
        };
        let path = directory.join(format!("{name}-{id}.json"));
        let record = UnfinishedScanRecord {
            version: 1,
            id: id.to_owned(),
            workspace: Base64Bytes::from_path(workspace),
            quarantine: Base64Bytes::from_path(quarantine),
            init: ProcessId::from_pid(init),
            supervisor: ProcessId::current(),
            recorded,
        };
        let text = serde_json::to_vec(&record).unwrap_or_default();
        let new = path.with_extension("new");
        let create = || state::lock_options().create_new(true).open(&new);
        let created = match create() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                directory.parent().map_or(Ok(()), state::ensure_private_directory)?;
                state::ensure_private_directory(&directory)?;
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
            Ok(UnfinishedScan { path: path.clone(), lock })
        };
        write().map_err(|e| Error::system(format_args!("write {}", path.display()), e))
    }

    /// Starts to sync the record without waiting: it is then on disk before any file that programs write and sync
    /// later.
    pub fn start_sync(&self) {
        saggar_sys::file::start_writeback(self.lock.as_fd());
    }

    /// Removes the record after the scan.
    pub fn complete(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The pending scans of dead supervisors, for `workspace` and the git directories of its repository, or for all; each is
/// locked until it is dropped. A sandbox whose programs do not exit is left for later.
pub fn find_abandoned(workspace: Option<&Path>) -> Vec<AbandonedScan> {
    let entries = fs::read_dir(records_directory()).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let prefixes = workspace.map(|at| {
        let outside = match find_git_directory(at) {
            GitDirectoryPlace::Inside => at.join(".git"),
            GitDirectoryPlace::Outside(git) => git.common,
            GitDirectoryPlace::Unverified(git) => git.directory,
        };
        [path_hash(at), shared_name(at), shared_name(&outside)]
    });
    let mut left = Vec::new();
    names.retain(|name| {
        name.to_str().is_some_and(|name| {
            let is_asked_for =
                |prefixes: &[String; 3]| prefixes.iter().any(|prefix| name.starts_with(prefix));
            prefixes.as_ref().is_none_or(is_asked_for) && name.ends_with(".json")
        })
    });
    names.sort();
    for name in names {
        left.extend(read_record(&records_directory().join(name)).filter(|left| {
            left.recorded.git_directory.is_some() || workspace.is_none_or(|at| left.workspace == at)
        }));
    }
    left
}

/// The workspaces of sandboxes that could have written `file` as it is, and whose scans are pending.
pub fn pending_writers(file: &Path) -> Vec<PathBuf> {
    #[derive(Deserialize)]
    struct Start {
        since_ns: i128,
    }
    let Ok(meta) = file.symlink_metadata() else { return Vec::new() };
    // No program can set this time.
    let changed = nanoseconds(meta.ctime(), meta.ctime_nsec());
    let entries = fs::read_dir(records_directory()).into_iter().flatten().flatten();
    let hashes: Vec<String> = file.ancestors().map(path_hash).collect();
    let is_above = |name: &str| hashes.iter().any(|hash| name.starts_with(hash)) && name.ends_with(".json");
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_above))
        .filter_map(|entry| parse_record::<Start>(&entry.path()))
        .filter(|record| changed >= record.recorded.since_ns)
        .map(|record| record.workspace.into_path())
        .filter(|workspace| file.starts_with(workspace))
        .collect()
}

fn read_record(path: &Path) -> Option<AbandonedScan> {
    let file = state::lock_options().open(path).ok()?;
    file.metadata().ok().filter(|meta| meta.uid() == nix::unistd::geteuid().as_raw())?;
    let record = UnfinishedScan { path: path.to_owned(), lock: lock_abandoned(file, path)? };
    if record.lock.metadata().is_ok_and(|meta| meta.nlink() == 0) {
        return None;
    }
    let Some(read) = parse_record::<WorkspaceBaseline>(path) else {
        log::warn!(
            "{}: the record of a sandbox that was killed cannot be read: what it left was not looked at",
            path.display()
        );
        record.complete();
        return None;
    };
    Some(AbandonedScan {
        id: read.id,
        workspace: read.workspace.into_path(),
        quarantine: read.quarantine.into_path(),
        recorded: read.recorded,
        record,
    })
}

/// Parses a record, with the recorded state of the workspace or without it.
fn parse_record<R: DeserializeOwned>(path: &Path) -> Option<UnfinishedScanRecord<R>> {
    let text = read::small_file(path, MAX_SIZE)?;
    serde_json::from_slice(&text).ok().filter(|record: &UnfinishedScanRecord<R>| record.version == 1)
}

/// Locks the record of a sandbox that has ended; `None` while it runs. While another process makes the scan, this one waits:
/// what is about to be taken away would be taken for the user's.
///
/// While the sandbox runs, its supervisor has the lock; others look with a shared one, and wait for the sandbox's end before
/// they take it. The launcher keeps the lock of a supervisor that was killed until it has cleaned up.
fn lock_abandoned(file: File, path: &Path) -> Option<Flock<File>> {
    let record = parse_record::<IgnoredAny>(path);
    let (init, supervisor) = record.map(|record| (record.init, record.supervisor)).unwrap_or_default();
    let init = init.filter(ProcessId::is_alive_or_hidden);
    let is_supervised = supervisor.is_none_or(|supervisor| supervisor.is_alive_or_hidden());
    let mut file = match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(look) => look.unlock().ok()?,
        Err(_) if init.is_some() && is_supervised => return None,
        Err((file, _)) => file,
    };
    if let Some(init) = init
        && let Ok(pidfd) = init.open_pidfd_to_wait()
        && !process::wait_for_exit(&pidfd, EXIT_TIMEOUT)
    {
        return None;
    }
    let until = Instant::now() + SCAN_TIMEOUT;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err(_) if Instant::now() >= until => return None,
            Err((locked, _)) => file = locked,
        }
        std::thread::sleep(LOCK_POLL);
    }
}

/// The beginning of the name of a record of a git directory: that of all git directories of one repository.
fn shared_name(git: &Path) -> String {
    let main = git.ancestors().find(|above| above.file_name() == Some(OsStr::new(".git")));
    format!("{SHARED_PREFIX}{}", path_hash(main.unwrap_or(git)))
}

/// The directory of records: next to the sessions, which survive a reboot; else in the runtime directory.
fn records_directory() -> PathBuf {
    let sessions = state::sessions_path().ok();
    let base = sessions.as_deref().and_then(Path::parent).map(Path::to_owned);
    base.unwrap_or_else(state::runtime_path).join(DIRECTORY_NAME)
}

/// A short hash of a path (FNV-1a), so that a start need not open the records of other workspaces.
fn path_hash(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}
