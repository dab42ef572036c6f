//! Quarantine: files that a sandbox planted are moved to `<session>/quarantine/<n>-<name>` (DECISIONS 34). An index
//! lists them, so that they can be listed, restored and removed.
//!
//! The name itself is moved, whatever it is at that moment: a link and not its target. If the quarantine is on another
//! file system, the name is first exchanged atomically for a harmless one next to it; then the file is copied and
//! removed. A file that cannot be copied, or exceeds the space that the quarantine may use, stays under the harmless
//! name, where it still counts as before.

mod bounded_copy;
pub mod index;
pub mod restore;

use crate::workspace_scan::baseline::FileIdentity;
use crate::workspace_scan::{QuarantineAction, QuarantineFinding};
use bounded_copy::CopyBudget;
use index::{Placeholder, QuarantineIndex, QuarantinedItem};
use nix::fcntl::{RenameFlags, renameat2};
use nix::sys::stat::{FileStat, Mode};
use saggar_sandbox::state;
use saggar_sandbox::state::base64_bytes::Base64Bytes;
use saggar_sys::caps;
use saggar_sys::error::{Error, Result};
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Name of the directory in the directory of a session.
pub const QUARANTINE_DIRECTORY: &str = "quarantine";

/// Bytes of a name that are kept.
const MAX_NAME_LENGTH: usize = 128;
/// Most numbers that are tried.
const MAX_NUMBERS: u32 = 1 << 24;

/// The quarantine of one session, or of one sandbox without a session.
#[derive(Debug)]
pub struct Quarantine {
    directory: PathBuf,
    opened: Option<OpenQuarantine>,
}

#[derive(Debug)]
struct OpenQuarantine {
    directory: OwnedFd,
    index: QuarantineIndex,
    next: u32,
    budget: CopyBudget,
}

/// The place to which a file was moved.
struct MovedEntry {
    /// Its name in the quarantine, or next to its old place.
    name: OsString,
    number: u32,
    /// Additional bytes on disk.
    copied: u64,
    /// Whether it is still in the workspace.
    stays_in_workspace: bool,
}

impl Quarantine {
    /// A quarantine at `directory`, which is created when it is first needed.
    pub fn new(directory: PathBuf) -> Self {
        Quarantine { directory, opened: None }
    }

    /// Path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates and opens the directory now, for a process that cannot do it later; returns its descriptors.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`].
    pub fn prepare(&mut self) -> Result<[BorrowedFd<'_>; 2]> {
        let opened = self.ensure_open()?;
        Ok([opened.directory.as_fd(), opened.index.as_fd()])
    }

    /// Moves a finding out of the tree at `workspace`; returns its new path. `None` when it no longer exists.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::System`] when it stays in place.
    pub fn move_in(&mut self, workspace: &Path, found: &QuarantineFinding) -> Result<Option<PathBuf>> {
        let fail = |e: Errno| Error::system(format_args!("move {} to quarantine", found.path.display()), e);
        // The owner for a placeholder.
        let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
        let owner = nix::sys::stat::fstatat(&found.directory, &*found.name, flags);
        let directory = self.directory.clone();
        let opened = self.ensure_open()?;
        let taken = match opened.move_name(found) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other.map_err(fail)?,
        };
        let placed = owner.ok().and_then(|owner| match put_placeholder(found, &owner) {
            Ok(placed) => placed,
            // A program has created the name again: the next scan handles it.
            Err(Errno::EEXIST) => None,
            Err(e) => {
                log::warn!("{}: cannot be written anew: {}", found.path.display(), e.desc());
                None
            }
        });
        let beside = found.path.with_file_name(&taken.name);
        let to = if taken.stays_in_workspace { workspace.join(&beside) } else { directory.join(&taken.name) };
        opened.index.record_item(&QuarantinedItem {
            number: taken.number,
            name: taken.name.to_string_lossy().into_owned(),
            workspace_name: taken.stays_in_workspace.then(|| Base64Bytes::from_path(&beside)),
            workspace: Base64Bytes::from_path(workspace),
            path: Base64Bytes::from_path(&found.path),
            why: found.reason.clone(),
            copied: taken.copied,
            placeholder: placed,
        });
        Ok(Some(to))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the session's own directory, where no program of a sandbox can write"
    )]
    fn ensure_open(&mut self) -> Result<&mut OpenQuarantine> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => {
                if let Some(session) = self.directory.parent() {
                    state::ensure_private_directory(session)?;
                }
                state::ensure_private_directory(&self.directory)?;
                let open = File::open(&self.directory);
                let directory =
                    open.map_err(|e| Error::system(format_args!("open {}", self.directory.display()), e))?;
                let (items, index) = QuarantineIndex::open(&self.directory)?;
                let next =
                    items.iter().map(|item| item.number).max().map_or(1, |last| last.saturating_add(1));
                let budget = CopyBudget::remaining_after(items.iter().map(|item| item.copied).sum());
                OpenQuarantine { directory: directory.into(), index, next, budget }
            }
        };
        Ok(self.opened.insert(opened))
    }
}

impl OpenQuarantine {
    fn move_name(&mut self, found: &QuarantineFinding) -> SysResult<MovedEntry> {
        let (from, quarantine) = (found.directory.as_fd(), self.directory.as_fd());
        match with_free_number(&mut self.next, &found.name, "", |name| {
            rename(from, &found.name, quarantine, name)
        }) {
            Ok((number, name)) => {
                return Ok(MovedEntry { name, number, copied: 0, stays_in_workspace: false });
            }
            Err(Errno::ENOENT) => return Err(Errno::ENOENT),
            // Another file system, or a directory that not even its owner may change: moved to a harmless name.
            Err(_) => {}
        }
        let aside = |name: &OsStr| rename(from, &found.name, from, name);
        let (number, beside) = with_free_number(&mut self.next, &found.name, ".saggar-quarantined-", aside)?;
        let (mut first, before) = (number, self.budget);
        let budget = &mut self.budget;
        let copied = with_free_number(&mut first, &found.name, "", |name| {
            *budget = before;
            bounded_copy::copy_bounded(from, &beside, quarantine, name, budget)
        });
        match copied {
            Ok((number, name)) => {
                bounded_copy::remove_tree(from, &beside);
                self.next = self.next.max(number + 1);
                Ok(MovedEntry {
                    name,
                    number,
                    copied: before.bytes_used_until(&self.budget),
                    stays_in_workspace: false,
                })
            }
            Err(_) => {
                self.budget = before;
                Ok(MovedEntry { name: beside, number, copied: 0, stays_in_workspace: true })
            }
        }
    }
}

/// Calls a function with the first free number in front of `name`.
fn with_free_number(
    next: &mut u32,
    name: &OsStr,
    prefix: &str,
    mut act: impl FnMut(&OsStr) -> SysResult<()>,
) -> SysResult<(u32, OsString)> {
    // The sandbox chose the name, and users type this one.
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+@".contains(byte);
    let kept =
        name.as_bytes().iter().take(MAX_NAME_LENGTH).map(|byte| if plain(byte) { *byte } else { b'_' });
    let kept: Vec<u8> = kept.collect();
    for number in *next..MAX_NUMBERS {
        let mut numbered = format!("{prefix}{number}-").into_bytes();
        numbered.extend_from_slice(&kept);
        let numbered = OsString::from_vec(numbered);
        match act(&numbered) {
            Err(Errno::EEXIST) => {}
            other => {
                *next = number + 1;
                return other.map(|()| (number, numbered));
            }
        }
    }
    Err(Errno::EEXIST)
}

fn rename(from: BorrowedFd<'_>, old: &OsStr, to: BorrowedFd<'_>, new: &OsStr) -> SysResult<()> {
    renameat2(from, old, to, new, RenameFlags::RENAME_NOREPLACE)
}

/// Creates the placeholder for a moved file, with the same owner and readers.
fn put_placeholder(found: &QuarantineFinding, taken: &FileStat) -> SysResult<Option<Placeholder>> {
    let failed = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
    let file = match &found.action {
        QuarantineAction::Move | QuarantineAction::Report => return Ok(None),
        QuarantineAction::Replace(text) => {
            let mut file = File::from(create_placeholder_file(found.directory.as_fd(), &found.name, 0o600)?);
            file.write_all(text).map_err(failed)?;
            let is_file = taken.st_mode & libc::S_IFMT == libc::S_IFREG;
            let mode = if is_file { taken.st_mode & 0o644 | 0o600 } else { 0o600 };
            file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
            file
        }
        QuarantineAction::EmptyDirectory => {
            nix::sys::stat::mkdirat(&found.directory, &*found.name, Mode::from_bits_truncate(0o755))?;
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let name = file::c_path(&found.name)?;
            File::from(file::open(found.directory.as_fd(), &name, flags, 0, Resolve::BeneathNoLinks)?)
        }
    };
    if caps::has(caps::CHOWN) {
        fchown(&file, Some(taken.st_uid), Some(taken.st_gid)).map_err(failed)?;
    }
    Ok(Some(Placeholder::from_metadata(&file.metadata().map_err(failed)?)))
}

impl Placeholder {
    fn from_metadata(meta: &std::fs::Metadata) -> Self {
        Placeholder {
            file: FileIdentity(meta.dev(), meta.ino()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            directory: meta.is_dir(),
        }
    }
}

/// Creates a file that must not exist.
fn create_placeholder_file(directory: BorrowedFd<'_>, name: &OsStr, mode: u32) -> SysResult<OwnedFd> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    file::open(directory, &file::c_path(name)?, flags, mode, Resolve::BeneathNoLinks)
}

/// A path for system calls that take no descriptor; the directory cannot be exchanged.
fn proc_path(directory: BorrowedFd<'_>, name: impl AsRef<Path>) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name)
}
