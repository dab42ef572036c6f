//! Project quotas: quotactl_fd(2), Linux 5.14, and the project id of a file (FS_IOC_FSSETXATTR,
//! ioctl_xfs_fsgetxattr(2)).
//!
//! A project id is a number that new files inherit from their directory; ext4 and xfs count bytes and inodes for each
//! project. Only the initial user namespace may change the project id of a file.

use super::{SysResult, call};
use std::os::fd::{AsRawFd, BorrowedFd};

const PROJECT: libc::c_int = 2;
const Q_GETQUOTA: libc::c_int = 0x80_0007;
const Q_SETQUOTA: libc::c_int = 0x80_0008;
/// XQM_CMD(8): the quota types that are counted and enforced, on ext4 too.
const Q_XGETQSTATV: libc::c_int = 0x5808;
const QIF_BLIMITS: u32 = 1;
const QIF_ILIMITS: u32 = 4;
/// Bytes in one block of a limit (QIF_DQBLKSIZE).
const BLOCK: u64 = 1024;
const ENFORCED: u16 = 1 << 5;
const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401c_5820;
const PROJECT_INHERITED: u32 = 0x200;

/// `struct if_dqblk` (linux/quota.h).
#[repr(C)]
#[derive(Default)]
struct QuotaBlock {
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
struct QuotaState {
    version: i8,
    pad: u8,
    flags: u16,
    rest: [u32; 39],
}

/// `struct fsxattr` (linux/fs.h).
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    flags: u32,
    extent: u32,
    extents: u32,
    project: u32,
    more: u32,
    pad: [u8; 8],
}

/// Usage and limits of a project; a limit of 0 means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProjectQuota {
    /// Bytes in use.
    pub bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Maximum number of bytes, in whole kibibytes.
    pub bytes_limit: u64,
    /// Maximum number of inodes.
    pub inodes_limit: u64,
}

fn quotactl<T>(file: BorrowedFd<'_>, command: libc::c_int, id: u32, with: &mut T) -> SysResult<()> {
    let command = (command << 8) | PROJECT;
    call!(libc::SYS_quotactl_fd, file.as_raw_fd(), command, id, std::ptr::from_mut(with))?;
    Ok(())
}

/// Whether the file system of `file` enforces project limits.
///
/// # Errors
/// ENOSYS if the file system does not support quotas or none is enabled; ESRCH.
pub fn is_enforced(file: BorrowedFd<'_>) -> SysResult<bool> {
    let mut state = QuotaState { version: 1, pad: 0, flags: 0, rest: [0; 39] };
    quotactl(file, Q_XGETQSTATV, 0, &mut state)?;
    Ok(state.flags & ENFORCED != 0)
}

/// Usage and limits of `project` on the file system of `file`.
///
/// # Errors
/// Those of quotactl(2): ESRCH without project quotas, EPERM without CAP_SYS_ADMIN.
pub fn project_quota(file: BorrowedFd<'_>, project: u32) -> SysResult<ProjectQuota> {
    let mut block = QuotaBlock::default();
    match quotactl(file, Q_GETQUOTA, project, &mut block) {
        // xfs: no file has this project id yet.
        Err(super::Errno::ENOENT) => return Ok(ProjectQuota::default()),
        other => other?,
    }
    Ok(ProjectQuota {
        bytes: block.bytes,
        inodes: block.inodes,
        bytes_limit: block.bytes_hard.saturating_mul(BLOCK),
        inodes_limit: block.inodes_hard,
    })
}

/// Limits `project` to `bytes`, rounded down to kibibytes, and to `inodes`; 0 means no limit.
///
/// # Errors
/// Those of quotactl(2).
pub fn limit_project(file: BorrowedFd<'_>, project: u32, bytes: u64, inodes: u64) -> SysResult<()> {
    let (bytes_hard, valid) = (bytes / BLOCK, QIF_BLIMITS | QIF_ILIMITS);
    let mut block = QuotaBlock { bytes_hard, inodes_hard: inodes, valid, ..QuotaBlock::default() };
    quotactl(file, Q_SETQUOTA, project, &mut block)
}

/// The project id of an open file or directory; 0 means none.
///
/// # Errors
/// ENOTTY or EOPNOTSUPP if the file system does not support projects.
pub fn project(file: BorrowedFd<'_>) -> SysResult<u32> {
    attributes(file).map(|attributes| attributes.project)
}

fn attributes(file: BorrowedFd<'_>) -> SysResult<FileAttributes> {
    let mut attributes = FileAttributes::default();
    call!(libc::SYS_ioctl, file.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes)?;
    Ok(attributes)
}

/// Sets the project id of an open file, or of a directory and all files created in it later.
///
/// # Errors
/// EOPNOTSUPP if the file system was created without projects; EINVAL in a user namespace.
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
        assert_eq!(size_of::<QuotaBlock>(), 72);
        assert_eq!(size_of::<QuotaState>(), 160);
        assert_eq!(std::mem::offset_of!(QuotaState, flags), 2);
        assert_eq!((size_of::<FileAttributes>(), std::mem::offset_of!(FileAttributes, project)), (28, 12));
    }
}
