//! Quarantine: where what a sandbox planted is moved to (DECISIONS 34), as `<session>/quarantine/<n>-<name>`, and the
//! index of it, from which it can be listed, restored and removed.
//!
//! A name is moved, whatever is there at that moment: a link and not what it leads to. Where the quarantine is on
//! another file system, the name is first exchanged for a harmless one beside it, at once; then it is copied,
//! and removed. What cannot be copied, or is more than the quarantine may take from the disk, stays under the harmless
//! name, where it counts as before.

mod across;
pub mod index;
pub mod restore;

use crate::error::{Error, Result};
use crate::host::appeared::recorded::{Bytes, Identity};
use crate::host::appeared::{Found, Remedy};
use crate::state;
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult};
use across::Budget;
use index::{Index, Item, Placed};
use nix::fcntl::{RenameFlags, renameat2};
use nix::sys::stat::{FileStat, Mode};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Its name in the directory of a session.
pub const NAME: &str = "quarantine";

/// How much of a name is kept.
const NAME_LIMIT: usize = 128;
/// How many numbers are tried.
const NUMBERS: u32 = 1 << 24;

/// The quarantine of one session, or of one sandbox without one.
#[derive(Debug)]
pub struct Quarantine {
    directory: PathBuf,
    workspace: PathBuf,
    opened: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    directory: OwnedFd,
    index: Index,
    next: u32,
    budget: Budget,
}

/// Where something was moved to.
struct Taken {
    /// Its name in the quarantine, or beside where it was.
    name: OsString,
    number: u32,
    /// Bytes that it takes from the disk anew.
    copied: u64,
    /// Whether it is still in the workspace.
    aside: bool,
}

impl Quarantine {
    /// At `directory`, which is made when it is first needed, for what is in `workspace`.
    pub fn new(directory: PathBuf, workspace: PathBuf) -> Self {
        Quarantine { directory, workspace, opened: None }
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Moves what was found out of the workspace; where it is now. `None` when it is there no more.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when it stays where it is.
    pub fn take(&mut self, found: &Found) -> Result<Option<PathBuf>> {
        let fail = |e: Errno| Error::system(format_args!("move {} to quarantine", found.path.display()), e);
        // Whose file a new one in its place is to be.
        let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
        let owner = nix::sys::stat::fstatat(&found.directory, &*found.name, flags);
        let (directory, workspace) = (self.directory.clone(), self.workspace.clone());
        let opened = self.open()?;
        let taken = match opened.take_name(found) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other.map_err(fail)?,
        };
        let placed = owner.ok().and_then(|owner| match place(found, &owner) {
            Ok(placed) => placed,
            // The other side was faster: the next look sees to it.
            Err(Errno::EEXIST) => None,
            Err(e) => {
                log::warn!("{}: cannot be written anew: {}", found.path.display(), e.desc());
                None
            }
        });
        let beside = found.path.with_file_name(&taken.name);
        let to = if taken.aside { workspace.join(&beside) } else { directory.join(&taken.name) };
        opened.index.add(&Item {
            number: taken.number,
            name: taken.name.to_string_lossy().into_owned(),
            aside: taken.aside.then(|| Bytes::of(&beside)),
            workspace: Bytes::of(&workspace),
            path: Bytes::of(&found.path),
            why: found.why.clone(),
            copied: taken.copied,
            placed,
        });
        Ok(Some(to))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the session's own directory, where no program of a sandbox can write"
    )]
    fn open(&mut self) -> Result<&mut Opened> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => {
                if let Some(session) = self.directory.parent() {
                    state::own_directory(session)?;
                }
                state::own_directory(&self.directory)?;
                let open = File::open(&self.directory);
                let directory =
                    open.map_err(|e| Error::system(format_args!("open {}", self.directory.display()), e))?;
                let (items, index) = Index::open(&self.directory)?;
                let next =
                    items.iter().map(|item| item.number).max().map_or(1, |last| last.saturating_add(1));
                let budget = Budget::after(items.iter().map(|item| item.copied).sum());
                Opened { directory: directory.into(), index, next, budget }
            }
        };
        Ok(self.opened.insert(opened))
    }
}

impl Opened {
    fn take_name(&mut self, found: &Found) -> SysResult<Taken> {
        let (from, quarantine) = (found.directory.as_fd(), self.directory.as_fd());
        match numbered(&mut self.next, &found.name, "", |name| rename(from, &found.name, quarantine, name)) {
            Ok((number, name)) => return Ok(Taken { name, number, copied: 0, aside: false }),
            Err(Errno::ENOENT) => return Err(Errno::ENOENT),
            // Another file system, or a directory that not even its owner may change: under a harmless name.
            Err(_) => {}
        }
        let aside = |name: &OsStr| rename(from, &found.name, from, name);
        let (number, beside) = numbered(&mut self.next, &found.name, ".saggar-quarantined-", aside)?;
        let (mut first, before) = (number, self.budget);
        let budget = &mut self.budget;
        let copied = numbered(&mut first, &found.name, "", |name| {
            *budget = before;
            across::copy(from, &beside, quarantine, name, budget)
        });
        match copied {
            Ok((number, name)) => {
                across::remove(from, &beside);
                self.next = self.next.max(number + 1);
                Ok(Taken { name, number, copied: before.bytes_until(&self.budget), aside: false })
            }
            Err(_) => {
                self.budget = before;
                Ok(Taken { name: beside, number, copied: 0, aside: true })
            }
        }
    }
}

/// Does something with the first number that is free in front of `name`.
fn numbered(
    next: &mut u32,
    name: &OsStr,
    prefix: &str,
    mut act: impl FnMut(&OsStr) -> SysResult<()>,
) -> SysResult<(u32, OsString)> {
    // What the name is made of is the other side's; people type this one.
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+@".contains(byte);
    let kept = name.as_bytes().iter().take(NAME_LIMIT).map(|byte| if plain(byte) { *byte } else { b'_' });
    let kept: Vec<u8> = kept.collect();
    for number in *next..NUMBERS {
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

/// What takes the place of what was taken, for the same owner and readers.
fn place(found: &Found, taken: &FileStat) -> SysResult<Option<Placed>> {
    let failed = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
    let file = match &found.remedy {
        Remedy::Move | Remedy::Report => return Ok(None),
        Remedy::Replace(text) => {
            let mut file = File::from(create(found.directory.as_fd(), &found.name, 0o600)?);
            file.write_all(text).map_err(failed)?;
            let is_file = taken.st_mode & libc::S_IFMT == libc::S_IFREG;
            let mode = if is_file { taken.st_mode & 0o644 | 0o600 } else { 0o600 };
            file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
            file
        }
        Remedy::Empty => {
            nix::sys::stat::mkdirat(&found.directory, &*found.name, Mode::from_bits_truncate(0o755))?;
            let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let name = c_name(&found.name)?;
            File::from(file::open(found.directory.as_fd(), &name, flags, 0, Resolve::BeneathNoLinks)?)
        }
    };
    if nix::unistd::geteuid().is_root() {
        fchown(&file, Some(taken.st_uid), Some(taken.st_gid)).map_err(failed)?;
    }
    Ok(Some(Placed::of(&file.metadata().map_err(failed)?)))
}

impl Placed {
    fn of(meta: &std::fs::Metadata) -> Self {
        Placed {
            is: Identity(meta.dev(), meta.ino()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            directory: meta.is_dir(),
        }
    }
}

/// Makes a file that is not there.
fn create(directory: BorrowedFd<'_>, name: &OsStr, mode: u32) -> SysResult<OwnedFd> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    file::open(directory, &c_name(name)?, flags, mode, Resolve::BeneathNoLinks)
}

fn c_name(name: impl AsRef<OsStr>) -> SysResult<CString> {
    CString::new(name.as_ref().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// A path for calls that have none by descriptor; the directory cannot be exchanged under it.
fn by_descriptor(directory: BorrowedFd<'_>, name: impl AsRef<Path>) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name)
}
