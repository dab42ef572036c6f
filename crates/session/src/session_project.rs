//! The project quota of a session: one for all of its data on disk, including workspace and home (DECISIONS 29).
//!
//! The session's directory has a project id that new files inherit as long as the directory exists, so an id that files
//! have is never used for another session. The limit is set while a sandbox runs, and removed at the end by
//! [`saggar_sandbox::launch::agent::cleanup`].

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use nix::fcntl::{Flock, FlockArg};
use saggar_sandbox::launch::ids::PROJECT_IDS;
use saggar_sandbox::state;
use saggar_sys::beneath;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult, quota, random};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most ids that are tried.
const MAX_TRIES: usize = 64;
/// Most levels of directories in which an existing session is marked.
const MAX_DEPTH: usize = 128;

/// The project of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionProject {
    /// The session's directory.
    pub directory: PathBuf,
    /// Its project id.
    pub id: u32,
}

impl SessionProject {
    /// The project of the session in `directory`; assigns one if it has none.
    ///
    /// # Errors
    /// [`Code::System`] when the file system does not support project ids.
    pub fn for_session(directory: &Path) -> Result<Self> {
        let fail = |e: &dyn std::fmt::Display| {
            Error::system(format_args!("give {} a project quota", directory.display()), e)
        };
        let opened = File::open(directory).map_err(|e| fail(&e))?;
        let known = quota::project(opened.as_fd()).map_err(|e| fail(&e.desc()))?;
        if PROJECT_IDS.contains(&known) {
            return Ok(SessionProject { directory: directory.to_owned(), id: known });
        }
        // Until the directory has the id, it seems free to other processes.
        let lock = state::with_shared_locks(|runtime| {
            state::lock_options().create(true).open(runtime.join("projects.lock")).map_err(|e| fail(&e))
        })?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| fail(&e.desc()))?;
        let number = find_free_id(&opened).map_err(|e| fail(&e.desc()))?;
        assign_project(opened.as_fd(), number, 0).map_err(|e| fail(&e))?;
        Ok(SessionProject { directory: directory.to_owned(), id: number })
    }

    /// Current usage and limits; `None` if they cannot be read.
    pub fn usage(&self) -> Option<quota::ProjectQuota> {
        let directory = File::open(&self.directory).ok()?;
        quota::project_quota(directory.as_fd(), self.id).ok()
    }

    /// Sets the limit and reads it back.
    ///
    /// # Errors
    /// [`Code::Invalid`] when usage exceeds the limit already, and no limit is set; [`Code::Unsupported`] when the
    /// limit does not read back as it was set.
    pub fn set_limit(&self, bytes: u64, inodes: u64) -> Result<()> {
        let shown = self.directory.display();
        let fail = |e: &dyn std::fmt::Display| Error::system(format_args!("set the quota of {shown}"), e);
        let directory = File::open(&self.directory).map_err(|e| fail(&e))?;
        let now = || quota::project_quota(directory.as_fd(), self.id).map_err(|e| fail(&e.desc()));
        let used = now()?;
        // Records of root grow beyond the agent's limit, and are not counted for the agent.
        let (own_bytes, own_inodes) = records_usage(&self.directory);
        if used.bytes > bytes.saturating_add(own_bytes) || used.inodes > inodes.saturating_add(own_inodes) {
            let message = format!(
                "use {shown}: it has {} bytes and {} inodes already, more than the limits disk = {bytes} and inodes = \
                 {inodes}",
                used.bytes, used.inodes
            );
            return Err(Error::new(Code::Invalid, message)
                .hint("raise --disk or --inodes, or use --workspace DIR to work on the folder itself"));
        }
        quota::limit_project(directory.as_fd(), self.id, bytes, inodes).map_err(|e| fail(&e.desc()))?;
        let set = now()?;
        if (set.bytes_limit, set.inodes_limit) != (bytes & !1023, inodes) {
            let message = format!("set the quota of {shown}: it does not read as it was set");
            return Err(Error::new(Code::Unsupported, message)
                .hint("leave --disk and --inodes out, and see the quotas of this file system"));
        }
        Ok(())
    }
}

/// A project id that no file has.
fn find_free_id(directory: &File) -> SysResult<u32> {
    for _ in 0..MAX_TRIES {
        let mut bytes = [0; 4];
        random::fill(&mut bytes)?;
        let number = PROJECT_IDS.start + u32::from_ne_bytes(bytes) % (PROJECT_IDS.end - PROJECT_IDS.start);
        if quota::project_quota(directory.as_fd(), number)?.inodes == 0 {
            return Ok(number);
        }
    }
    Err(Errno::EAGAIN)
}

/// Marks a directory and its content. Links and special files count where they were created.
fn assign_project(itself: BorrowedFd<'_>, number: u32, depth: usize) -> std::io::Result<()> {
    let is_directory = beneath::stat_fd(itself)?.kind == beneath::FileKind::Directory;
    quota::set_project(itself, number, is_directory)?;
    if !is_directory {
        return Ok(());
    }
    if depth == MAX_DEPTH {
        return Err(std::io::Error::other("it is too deep"));
    }
    let names = rustix::fs::Dir::read_from(itself)?;
    for entry in names {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let named = file::open(itself, name, libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::BeneathNoLinks)?;
        let kind = beneath::stat_fd(named.as_fd())?.kind;
        if matches!(kind, beneath::FileKind::Directory | beneath::FileKind::File) {
            let below = file::open(itself, name, flags, 0, Resolve::BeneathNoLinks)?;
            assign_project(below.as_fd(), number, depth + 1)?;
        }
    }
    Ok(())
}

/// Directories of the agent's data in a session; the rest are records about the session.
const AGENT_DIRECTORIES: [&str; 4] = ["home", "workspace", "upper", "quarantine"];

/// Bytes and inodes of a session's records: its files, and those one directory below.
fn records_usage(session: &Path) -> (u64, u64) {
    let files = |directory: &Path| -> Vec<(PathBuf, fs::Metadata)> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((entry.path(), entry.path().symlink_metadata().ok()?))).collect()
    };
    let is_agents = |path: &Path| AGENT_DIRECTORIES.iter().any(|name| path.ends_with(name));
    let mut all = files(session);
    all.retain(|(path, _)| !is_agents(path));
    let below: Vec<_> =
        all.iter().filter(|(_, meta)| meta.is_dir()).flat_map(|(path, _)| files(path)).collect();
    let each = all.iter().chain(&below);
    each.fold((0, 0), |(bytes, inodes), (_, meta)| (bytes + meta.blocks() * 512, inodes + 1))
}
