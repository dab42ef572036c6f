//! Streams that are open for both directions, of a sandbox whose programs have ids of their own.
//!
//! A pipe has one direction. So a FIFO, or a file with O_APPEND, is opened once more, through a detached mount
//! on which its owner is the programs' user: they may open it again for either. Any other file gets a pipe like those of
//! one direction: an opening of its own would have an offset of its own, and what the program writes would lie over what
//! another process writes to the same stream meanwhile.

use super::{may_open, set_stream};
use crate::launch::idmap::IdmapNamespaces;
use crate::plan::agent::{BlockIds, ids};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{FileStat, fstat};
use nix::unistd::{Whence, lseek};
use saggar_sys::{Errno, SysResult, file, mount};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The caller's streams for which this process has others.
#[derive(Debug, Default)]
pub(super) struct MappedStreams(Vec<MappedStream>);

#[derive(Debug)]
struct MappedStream {
    file: OwnedFd,
    mapped: OwnedFd,
    /// The standard streams that use it.
    numbers: Vec<i32>,
}

impl MappedStreams {
    /// Replaces each standard stream of that kind which these ids may not open for both. One whose file system cannot be
    /// idmapped stays.
    pub(super) fn replace(&mut self, ids: &BlockIds) -> SysResult<()> {
        for number in 0..=2 {
            let file = match file::duplicate(number) {
                Err(Errno::EBADF) => continue,
                other => other?,
            };
            let stat = fstat(&file)?;
            let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
            let is_for_both = flags & OFlag::O_ACCMODE == OFlag::O_RDWR;
            let is_fifo = stat.st_mode & libc::S_IFMT == libc::S_IFIFO;
            let has_no_offset = is_fifo || flags.contains(OFlag::O_APPEND);
            let is_of_this_kind = is_for_both && has_no_offset && super::is_replaceable(&file, &stat)?;
            if !is_of_this_kind || may_open_for_both(&stat, ids) {
                continue;
            }
            let is_duplicate =
                |known: &MappedStream| file::is_same_description(known.file.as_fd(), file.as_fd());
            let at = match self.0.iter().position(is_duplicate) {
                Some(at) => at,
                None => {
                    let Some(mapped) = open_as_owner(file.as_fd(), &stat, flags, ids) else { continue };
                    copy_offset(file.as_fd(), mapped.as_fd())?;
                    self.0.push(MappedStream { file, mapped, numbers: Vec::new() });
                    self.0.len() - 1
                }
            };
            set_stream(number, self.0[at].mapped.as_fd())?;
            self.0[at].numbers.push(number);
        }
        Ok(())
    }

    /// Gives the caller its files back, to be read on where the program stopped.
    pub(super) fn restore(&mut self) -> SysResult<()> {
        let mut result = Ok(());
        for MappedStream { file, mapped, numbers } in self.0.drain(..) {
            result = result.and(copy_offset(mapped.as_fd(), file.as_fd()));
            for number in numbers {
                result = result.and(set_stream(number, file.as_fd()));
            }
        }
        result
    }
}

fn may_open_for_both(stat: &FileStat, ids: &BlockIds) -> bool {
    [OFlag::O_RDONLY, OFlag::O_WRONLY].into_iter().all(|mode| may_open(stat, ids, mode))
}

/// Opens the file again on a mount of its own, which these ids see as their user's. `None` where there can be no such
/// mount, as for a memfd, or where even its owner may not open it for both.
fn open_as_owner(file: BorrowedFd<'_>, stat: &FileStat, flags: OFlag, ids: &BlockIds) -> Option<OwnedFd> {
    let maps = ids::for_tree(ids, (stat.st_uid, stat.st_gid));
    let tree = mount::clone_tree(file, false).ok()?;
    mount::idmap_tree(tree.as_fd(), IdmapNamespaces::default().userns(maps).ok()?).ok()?;
    let kept = OFlag::O_ACCMODE | OFlag::O_APPEND | OFlag::O_NONBLOCK | OFlag::O_SYNC | OFlag::O_DIRECT;
    let mapped = file::reopen(tree.as_fd(), (flags & kept).bits()).ok()?;
    may_open_for_both(&fstat(&mapped).ok()?, ids).then_some(mapped)
}

/// The offset for reading; a FIFO has none.
fn copy_offset(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> SysResult<()> {
    match lseek(from, 0, Whence::SeekCur).and_then(|offset| lseek(to, offset, Whence::SeekSet)) {
        Ok(_) | Err(Errno::ESPIPE) => Ok(()),
        Err(errno) => Err(errno),
    }
}
