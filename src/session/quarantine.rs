//! Quarantine: where what appeared under a protected name is moved to (DECISIONS 5), as
//! `<session>/quarantine/<n>-<name>`.
//!
//! A name is moved, whatever is there at that moment: a link and not what it leads to. Where the quarantine is on
//! another file system, the name is first exchanged for a harmless one beside it, at once; then it is copied,
//! and removed. What cannot be copied stays under the harmless name.

mod across;

use crate::error::{Error, Result};
use crate::host::appeared::{Found, Remedy};
use crate::state;
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, SysResult};
use nix::fcntl::{RenameFlags, renameat2};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

/// Its name in the directory of a session.
pub const NAME: &str = "quarantine";

/// How much of a name is kept.
const NAME_LIMIT: usize = 128;
/// How many numbers are tried.
const NUMBERS: u32 = 1 << 20;

/// The quarantine of one session, or of one sandbox without one.
#[derive(Debug)]
pub struct Quarantine {
    directory: PathBuf,
    opened: Option<OwnedFd>,
    next: u32,
}

impl Quarantine {
    /// At `directory`, which is made when it is first needed.
    pub fn new(directory: PathBuf) -> Self {
        Quarantine { directory, opened: None, next: 1 }
    }

    /// Moves what was found out of the workspace; where it is now. `None` when it is there no more.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] when it stays where it is.
    pub fn take(&mut self, found: &Found) -> Result<Option<PathBuf>> {
        let fail = |e: Errno| Error::system(format_args!("move {} to quarantine", found.path.display()), e);
        // Whose file a new one in its place is to be.
        let owner =
            nix::sys::stat::fstatat(&found.directory, &*found.name, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW);
        self.open()?;
        let to = match self.take_name(found) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other.map_err(fail)?,
        };
        if let (Remedy::Replace(text), Ok(owner)) = (&found.remedy, owner) {
            let made = replace(found, text, (owner.st_uid, owner.st_gid));
            // Somebody was faster: the next look sees to it.
            if let Err(e) = made.or_else(|e| if e == Errno::EEXIST { Ok(()) } else { Err(e) }) {
                log::warn!("{}: cannot be written anew: {}", found.path.display(), e.desc());
            }
        }
        Ok(Some(to))
    }

    fn open(&mut self) -> Result<()> {
        if self.opened.is_none() {
            if let Some(session) = self.directory.parent() {
                state::own_directory(session)?;
            }
            state::own_directory(&self.directory)?;
            let open = File::open(&self.directory);
            self.opened = Some(
                open.map_err(|e| Error::system(format_args!("open {}", self.directory.display()), e))?.into(),
            );
        }
        Ok(())
    }

    fn take_name(&mut self, found: &Found) -> SysResult<PathBuf> {
        let Some(opened) = &self.opened else { return Err(Errno::EBADF) };
        let (from, quarantine) = (found.directory.as_fd(), opened.as_fd());
        match numbered(&mut self.next, &found.name, "", |name| rename(from, &found.name, quarantine, name)) {
            Ok(name) => return Ok(self.directory.join(name)),
            Err(Errno::ENOENT) => return Err(Errno::ENOENT),
            // Another file system, or a directory that not even its owner may change: under a harmless name.
            Err(_) => {}
        }
        let aside = |name: &OsStr| rename(from, &found.name, from, name);
        let beside = numbered(&mut self.next, &found.name, ".saggar-quarantined-", aside)?;
        let mut number = self.next.saturating_sub(1);
        let copied =
            numbered(&mut number, &found.name, "", |name| across::copy(from, &beside, quarantine, name));
        match copied {
            Ok(name) => {
                across::remove(from, &beside);
                Ok(self.directory.join(name))
            }
            Err(_) => Ok(found.path.with_file_name(beside)),
        }
    }
}

/// Does something with the first number that is free in front of `name`.
fn numbered(
    next: &mut u32,
    name: &OsStr,
    prefix: &str,
    mut act: impl FnMut(&OsStr) -> SysResult<()>,
) -> SysResult<OsString> {
    let kept = &name.as_bytes()[..name.len().min(NAME_LIMIT)];
    for number in *next..NUMBERS {
        let mut numbered = format!("{prefix}{number}-").into_bytes();
        numbered.extend_from_slice(kept);
        let numbered = OsString::from_vec(numbered);
        match act(&numbered) {
            Err(Errno::EEXIST) => {}
            other => {
                *next = number + 1;
                return other.map(|()| numbered);
            }
        }
    }
    Err(Errno::EEXIST)
}

fn rename(from: BorrowedFd<'_>, old: &OsStr, to: BorrowedFd<'_>, new: &OsStr) -> SysResult<()> {
    renameat2(from, old, to, new, RenameFlags::RENAME_NOREPLACE)
}

/// A new file in the place of what was taken, for the same owner.
fn replace(found: &Found, text: &[u8], owner: (u32, u32)) -> SysResult<()> {
    let mut file = File::from(create(found.directory.as_fd(), &found.name, 0o644)?);
    let failed = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
    file.write_all(text).map_err(failed)?;
    if nix::unistd::geteuid().is_root() {
        fchown(&file, Some(owner.0), Some(owner.1)).map_err(failed)?;
    }
    Ok(())
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
