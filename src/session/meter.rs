//! Whether what bounds a session on disk has been reached. No signal and no exit status tells: a program that gets
//! ENOSPC or EDQUOT goes its own way.

use super::image::Image;
use super::project::Project;
use nix::sys::statvfs::statvfs;

/// So near to a limit a write may have been refused: a program writes more than a block at once.
const NEAR: u64 = 64 << 10;

/// What bounds a session on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meter {
    /// The quota of its project.
    Quota(Project),
    /// The size of its image, mounted.
    Image(Image),
}

impl Meter {
    /// Whether there is no room for more bytes, or no inode. False where it cannot be known.
    pub fn is_met(&self) -> bool {
        match self {
            Meter::Quota(project) => project.usage().is_some_and(|used| {
                (used.bytes_limit > 0 && used.bytes + NEAR > used.bytes_limit)
                    || (used.inodes_limit > 0 && used.inodes >= used.inodes_limit)
            }),
            Meter::Image(image) => statvfs(&image.place()).is_ok_and(|left| {
                left.blocks_available() * left.fragment_size() < NEAR || left.files_available() == 0
            }),
        }
    }
}
