//! The project quota of a session: one for all that it has on disk, in which its workspace and its home are
//! (DECISIONS 29).
//!
//! The session's directory has a number that what is made in it inherits, for as long as it is there: a number that
//! files have is never another session's. The limit on it stands while a sandbox runs, and is taken away at the end
//! by [`crate::launch::guard`].

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::beneath;
use crate::error::{Code, Error, Result};
use crate::state;
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult, quota, random};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The numbers that sessions get; what an administrator chooses is far below.
pub const NUMBERS: std::ops::Range<u32> = 0x5347_0000..0x5357_0000;
/// How many numbers are tried.
const TRIES: usize = 64;
/// How deep a session that had no project is marked.
const DEPTH: usize = 128;

/// The project of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The session's directory.
    pub directory: PathBuf,
    /// Its number.
    pub number: u32,
}

impl Project {
    /// The project of the session in `directory`, which gets one where it has none.
    ///
    /// # Errors
    /// [`Code::System`] when the file system takes none.
    pub fn of(directory: &Path) -> Result<Self> {
        let fail = |e: &dyn std::fmt::Display| {
            Error::system(format_args!("give {} a project quota", directory.display()), e)
        };
        let opened = File::open(directory).map_err(|e| fail(&e))?;
        let known = quota::project(opened.as_fd()).map_err(|e| fail(&e.desc()))?;
        if NUMBERS.contains(&known) {
            return Ok(Project { directory: directory.to_owned(), number: known });
        }
        // Until the directory has the number, it looks free to others.
        let path = state::runtime_dir()?.join("projects.lock");
        let lock = state::lock_options().create(true).open(&path).map_err(|e| fail(&e))?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| fail(&e.desc()))?;
        let number = free(&opened).map_err(|e| fail(&e.desc()))?;
        mark(opened.as_fd(), number, 0).map_err(|e| fail(&e))?;
        Ok(Project { directory: directory.to_owned(), number })
    }

    /// What it uses, and its limits; `None` where nobody can tell.
    pub fn usage(&self) -> Option<quota::Quota> {
        let directory = File::open(&self.directory).ok()?;
        quota::of_project(directory.as_fd(), self.number).ok()
    }

    /// Sets the limit and reads it back.
    ///
    /// # Errors
    /// [`Code::Invalid`] when there is more already, and then none is set; [`Code::Unsupported`] when it does not
    /// read as it was set.
    pub fn limit(&self, bytes: u64, inodes: u64) -> Result<()> {
        let shown = self.directory.display();
        let fail = |e: &dyn std::fmt::Display| Error::system(format_args!("set the quota of {shown}"), e);
        let directory = File::open(&self.directory).map_err(|e| fail(&e))?;
        let now = || quota::of_project(directory.as_fd(), self.number).map_err(|e| fail(&e.desc()));
        let used = now()?;
        // Root's own records go on where the agent's limit was reached, and are none of its doing.
        let (own_bytes, own_inodes) = records(&self.directory);
        if used.bytes > bytes.saturating_add(own_bytes) || used.inodes > inodes.saturating_add(own_inodes) {
            let message = format!(
                "use {shown}: it has {} bytes and {} inodes already, more than the limits disk = {bytes} and inodes = \
                 {inodes}",
                used.bytes, used.inodes
            );
            return Err(Error::new(Code::Invalid, message)
                .hint("raise --disk or --inodes, or say --workspace DIR to work on the folder itself"));
        }
        quota::limit_project(directory.as_fd(), self.number, bytes, inodes).map_err(|e| fail(&e.desc()))?;
        let set = now()?;
        if (set.bytes_limit, set.inodes_limit) != (bytes & !1023, inodes) {
            let message = format!("set the quota of {shown}: it does not read as it was set");
            return Err(Error::new(Code::Unsupported, message)
                .hint("leave --disk and --inodes out, and see the quotas of this file system"));
        }
        Ok(())
    }
}

/// A number that no file has.
fn free(directory: &File) -> SysResult<u32> {
    for _ in 0..TRIES {
        let mut bytes = [0; 4];
        random::fill(&mut bytes)?;
        let number = NUMBERS.start + u32::from_ne_bytes(bytes) % (NUMBERS.end - NUMBERS.start);
        if quota::of_project(directory.as_fd(), number)?.inodes == 0 {
            return Ok(number);
        }
    }
    Err(Errno::EAGAIN)
}

/// Marks a directory, and what is in it already. Links and what is no file count where they are made.
fn mark(itself: BorrowedFd<'_>, number: u32, depth: usize) -> std::io::Result<()> {
    let is_directory = beneath::itself(itself)?.kind == beneath::Kind::Directory;
    quota::set_project(itself, number, is_directory)?;
    if !is_directory {
        return Ok(());
    }
    if depth == DEPTH {
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
        let kind = beneath::itself(named.as_fd())?.kind;
        if matches!(kind, beneath::Kind::Directory | beneath::Kind::File) {
            let below = file::open(itself, name, flags, 0, Resolve::BeneathNoLinks)?;
            mark(below.as_fd(), number, depth + 1)?;
        }
    }
    Ok(())
}

/// What in a session's directory is of the agent; the rest is what is written down about it.
const AGENTS: [&str; 4] = ["home", "workspace", "upper", "quarantine"];

/// Bytes and inodes of the records of a session: its files, and those one directory down.
fn records(session: &Path) -> (u64, u64) {
    let files = |directory: &Path| -> Vec<(PathBuf, fs::Metadata)> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((entry.path(), entry.path().symlink_metadata().ok()?))).collect()
    };
    let is_agents = |path: &Path| AGENTS.iter().any(|name| path.ends_with(name));
    let mut all = files(session);
    all.retain(|(path, _)| !is_agents(path));
    let below: Vec<_> =
        all.iter().filter(|(_, meta)| meta.is_dir()).flat_map(|(path, _)| files(path)).collect();
    let each = all.iter().chain(&below);
    each.fold((0, 0), |(bytes, inodes), (_, meta)| (bytes + meta.blocks() * 512, inodes + 1))
}
