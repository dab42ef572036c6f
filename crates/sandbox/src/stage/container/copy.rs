//! `tmpcopyup`: what lies at a path of the root, copied into the tmpfs that will cover it. Both ends are
//! descriptors, and no link is followed.

use crate::stage::call;
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Directories in directories: each takes a few KiB of stack.
const MAX_DEPTH: usize = 64;

/// Where the name begins in `struct linux_dirent64` (getdents64(2)), and its length field.
const NAME: usize = 19;
const RECORD: usize = 16;

/// Copies what is in the directory `from` into the directory `to`: directories, files, links, FIFOs and
/// devices with their modes, owners and times of change. Extended attributes and hard links are not kept.
pub(super) fn copy_tree(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> SysResult<()> {
    copy_directory(from, to, MAX_DEPTH)
}

fn copy_directory(from: BorrowedFd<'_>, to: BorrowedFd<'_>, depth: usize) -> SysResult<()> {
    if depth == 0 {
        return Err(Errno::ELOOP);
    }
    let from = open_directory(from, c".")?;
    let mut buffer = [0u8; 2048];
    loop {
        let len = file::read_entries(from.as_fd(), &mut buffer)?;
        let mut rest = &buffer[..len];
        if rest.is_empty() {
            return Ok(());
        }
        while rest.len() > NAME {
            let record = usize::from(u16::from_ne_bytes([rest[RECORD], rest[RECORD + 1]]));
            let name = CStr::from_bytes_until_nul(&rest[NAME..]).map_err(|_| Errno::EIO)?;
            if name != c"." && name != c".." {
                copy_entry(from.as_fd(), to, name, depth)?;
            }
            rest = rest.get(record..).filter(|_| record > NAME).ok_or(Errno::EIO)?;
        }
    }
}

fn open_directory(parent: BorrowedFd<'_>, name: &CStr) -> SysResult<OwnedFd> {
    file::open(
        parent,
        name,
        libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW,
        0,
        Resolve::BeneathNoLinks,
    )
}

fn copy_entry(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr, depth: usize) -> SysResult<()> {
    let source = file::open(from, name, libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::BeneathNoLinks);
    let source = match source {
        // Whether a link may be opened by O_PATH under RESOLVE_NO_SYMLINKS has changed between kernels.
        Err(Errno::ELOOP) => return copy_link(from, to, name),
        other => other?,
    };
    let stat = nix::sys::stat::fstat(&source)?;
    let mode = stat.st_mode & 0o7777;
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFLNK => return copy_link(from, to, name),
        libc::S_IFDIR => {
            file::mkdir(to, name, 0o700)?;
            let made = open_directory(to, name)?;
            copy_directory(source.as_fd(), made.as_fd(), depth - 1)?;
            return copy_metadata(made.as_fd(), &stat, mode);
        }
        libc::S_IFREG => {
            let input = file::open(
                from,
                name,
                libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK,
                0,
                Resolve::BeneathNoLinks,
            )?;
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
            let output = file::open(to, name, flags, 0o600, Resolve::BeneathNoLinks)?;
            copy_bytes(input.as_fd(), output.as_fd())?;
            return copy_metadata(output.as_fd(), &stat, mode);
        }
        _ => match file::make_node(to, name, stat.st_mode, stat.st_rdev) {
            // Sockets mean nothing without who listens; devices are not a user namespace's to make.
            Err(Errno::EPERM) => return Ok(()),
            other => other?,
        },
    }
    let made = file::open(to, name, libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::BeneathNoLinks)?;
    file::set_owner(made.as_fd(), stat.st_uid, stat.st_gid)
}

fn copy_link(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> SysResult<()> {
    let mut target = [0u8; libc::PATH_MAX as usize];
    let len = file::read_link(from, name, &mut target)?;
    *target.get_mut(len).ok_or(Errno::ENAMETOOLONG)? = 0;
    file::symlink(CStr::from_bytes_until_nul(&target).map_err(|_| Errno::EIO)?, to, name)
}

/// Owner before mode: a change of the owner clears set-id bits.
fn copy_metadata(made: BorrowedFd<'_>, stat: &libc::stat, mode: u32) -> SysResult<()> {
    match file::set_owner(made, stat.st_uid, stat.st_gid) {
        // An owner that the user namespace does not map stays nobody's.
        Err(Errno::EINVAL | Errno::EPERM | Errno::EOVERFLOW) | Ok(()) => {}
        Err(errno) => return Err(errno),
    }
    nix::sys::stat::fchmod(made, nix::sys::stat::Mode::from_bits_truncate(mode))
}

fn copy_bytes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> SysResult<()> {
    let nowhere = std::ptr::null_mut::<libc::off_t>();
    while call!(libc::SYS_sendfile, to.as_raw_fd(), from.as_raw_fd(), nowhere, 1usize << 20)? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_tree_is_copied_and_links_stay_links() {
        let scratch = tempfile::tempdir().unwrap();
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir_all(from.join("d/e")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("d/e/file"), vec![7; 3 << 20]).unwrap();
        fs::set_permissions(from.join("d/e/file"), fs::Permissions::from_mode(0o4750)).unwrap();
        symlink("/etc/shadow", from.join("link")).unwrap();
        for n in 0..200 {
            fs::write(from.join(format!("a-rather-long-name-{n}")), n.to_string()).unwrap();
        }
        let open = |path: &std::path::Path| OwnedFd::from(fs::File::open(path).unwrap());
        copy_tree(open(&from).as_fd(), open(&to).as_fd()).unwrap();
        assert_eq!(fs::read(to.join("d/e/file")).unwrap().len(), 3 << 20);
        assert_eq!(fs::metadata(to.join("d/e/file")).unwrap().permissions().mode() & 0o7777, 0o4750);
        assert_eq!(fs::read_link(to.join("link")).unwrap().to_str(), Some("/etc/shadow"));
        assert_eq!(fs::read_dir(&to).unwrap().count(), 202);
        assert_eq!(fs::read_to_string(to.join("a-rather-long-name-199")).unwrap(), "199");
    }
}
