//! Project quotas: quotactl_fd(2), Linux 5.14, and the project of a file (FS_IOC_FSSETXATTR, ioctl_xfs_fsgetxattr(2)).
//!
//! A project is a number that a directory gives to what is made in it; ext4 and xfs count bytes and inodes of each.
//! Only the initial user namespace may change the number of a file.

use super::{SysResult, call};
use std::os::fd::{AsRawFd, BorrowedFd};

const PROJECT: libc::c_int = 2;
const Q_GETQUOTA: libc::c_int = 0x80_0007;
const Q_SETQUOTA: libc::c_int = 0x80_0008;
/// XQM_CMD(8): what is counted and what is enforced, on ext4 too.
const Q_XGETQSTATV: libc::c_int = 0x5808;
const QIF_BLIMITS: u32 = 1;
const QIF_ILIMITS: u32 = 4;
/// Bytes of one block of a limit (QIF_DQBLKSIZE).
const BLOCK: u64 = 1024;
const ENFORCED: u16 = 1 << 5;
const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401c_5820;
const PROJECT_INHERITED: u32 = 0x200;

/// `struct if_dqblk` (linux/quota.h).
#[repr(C)]
#[derive(Default)]
struct Block {
    bytes_hard: u64,
    bytes_soft: u64,
    bytes: u64,
    inodes_hard: u64,
    inodes_soft: u64,
    inodes: u64,
    bytes_time: u64,
    inodes_time: u64,
    valid: u32,
}

/// `struct fs_quota_statv` (linux/dqblk_xfs.h).
#[repr(C)]
struct State {
    version: i8,
    pad: u8,
    flags: u16,
    rest: [u32; 39],
}

/// `struct fsxattr` (linux/fs.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent: u32,
    extents: u32,
    project: u32,
    more: u32,
    pad: [u8; 8],
}

/// What a project uses, and what it may use; a limit of 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Bytes in use.
    pub bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Bytes at most, in whole kibibytes.
    pub bytes_limit: u64,
    /// Inodes at most.
    pub inodes_limit: u64,
}

fn quotactl<T>(file: BorrowedFd<'_>, command: libc::c_int, id: u32, with: &mut T) -> SysResult<()> {
    let command = (command << 8) | PROJECT;
    call!(libc::SYS_quotactl_fd, file.as_raw_fd(), command, id, std::ptr::from_mut(with))?;
    Ok(())
}

/// Whether the file system of `file` enforces limits of projects.
///
/// # Errors
/// ENOSYS where the file system has no quotas or none is on; ESRCH.
pub fn is_enforced(file: BorrowedFd<'_>) -> SysResult<bool> {
    let mut state = State { version: 1, pad: 0, flags: 0, rest: [0; 39] };
    quotactl(file, Q_XGETQSTATV, 0, &mut state)?;
    Ok(state.flags & ENFORCED != 0)
}

/// What `project` uses and may use on the file system of `file`.
///
/// # Errors
/// Those of quotactl(2): ESRCH without project quotas, EPERM without CAP_SYS_ADMIN.
pub fn of_project(file: BorrowedFd<'_>, project: u32) -> SysResult<Quota> {
    let mut block = Block::default();
    match quotactl(file, Q_GETQUOTA, project, &mut block) {
        // xfs: nothing has this number yet.
        Err(super::Errno::ENOENT) => return Ok(Quota::default()),
        other => other?,
    }
    Ok(Quota {
        bytes: block.bytes,
        inodes: block.inodes,
        bytes_limit: block.bytes_hard.saturating_mul(BLOCK),
        inodes_limit: block.inodes_hard,
    })
}

/// Limits `project` to so many bytes, rounded down to kibibytes, and inodes; 0 is no limit.
///
/// # Errors
/// Those of quotactl(2).
pub fn limit_project(file: BorrowedFd<'_>, project: u32, bytes: u64, inodes: u64) -> SysResult<()> {
    let (bytes_hard, valid) = (bytes / BLOCK, QIF_BLIMITS | QIF_ILIMITS);
    let mut block = Block { bytes_hard, inodes_hard: inodes, valid, ..Block::default() };
    quotactl(file, Q_SETQUOTA, project, &mut block)
}

/// The project of an open file or directory; 0 is none.
///
/// # Errors
/// ENOTTY or EOPNOTSUPP where the file system has none.
pub fn project(file: BorrowedFd<'_>) -> SysResult<u32> {
    attributes(file).map(|attributes| attributes.project)
}

fn attributes(file: BorrowedFd<'_>) -> SysResult<Attributes> {
    let mut attributes = Attributes::default();
    call!(libc::SYS_ioctl, file.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes)?;
    Ok(attributes)
}

/// Gives an open file, or a directory and all that will be made in it, to a project.
///
/// # Errors
/// EOPNOTSUPP where the file system was made without projects; EINVAL in a user namespace.
pub fn set_project(file: BorrowedFd<'_>, project: u32, is_directory: bool) -> SysResult<()> {
    let mut attributes = attributes(file)?;
    attributes.project = project;
    if is_directory {
        attributes.flags |= PROJECT_INHERITED;
    }
    call!(libc::SYS_ioctl, file.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const attributes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernel_layout() {
        assert_eq!(size_of::<Block>(), 72);
        assert_eq!(size_of::<State>(), 160);
        assert_eq!(std::mem::offset_of!(State, flags), 2);
        assert_eq!((size_of::<Attributes>(), std::mem::offset_of!(Attributes, project)), (28, 12));
    }
}
