//! Whether a session has reached its disk limit. No signal or exit status reports that: a program that gets ENOSPC or
//! EDQUOT may continue.

use super::image::DiskImage;
use super::session_project::SessionProject;
use nix::sys::statvfs::statvfs;

/// Bytes below a limit at which a write may already have failed: a program writes more than one block at once.
const MARGIN: u64 = 64 << 10;

/// The mechanism that limits a session's disk usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskUsage {
    /// A project quota.
    ProjectQuota(SessionProject),
    /// The size of its mounted image.
    DiskImage(DiskImage),
}

impl DiskUsage {
    /// Whether no bytes or no inodes are left. False if that cannot be determined.
    pub fn is_full(&self) -> bool {
        match self {
            DiskUsage::ProjectQuota(project) => project.usage().is_some_and(|used| {
                (used.bytes_limit > 0 && used.bytes + MARGIN > used.bytes_limit)
                    || (used.inodes_limit > 0 && used.inodes >= used.inodes_limit)
            }),
            DiskUsage::DiskImage(image) => statvfs(&image.mount_point()).is_ok_and(|left| {
                left.blocks_available() * left.fragment_size() < MARGIN || left.files_available() == 0
            }),
        }
    }
}
