//! The identity of a socket file.

use nix::sys::stat::FileStat;
use serde::{Deserialize, Serialize};

/// Identifies a socket file. It is recorded when the file is created, so that a later start recognises a stale socket
/// of saggar in a shared directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketRecord {
    /// Device of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Time of the last change of the inode: seconds since the Unix epoch.
    pub ctime: i64,
    /// The nanoseconds of that time.
    pub ctime_nsec: i64,
}

impl SocketRecord {
    // The types of these fields differ between architectures.
    #[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
    /// The identity of the file of this `stat` result.
    pub fn from_stat(stat: &FileStat) -> Option<Self> {
        Some(SocketRecord {
            dev: stat.st_dev.try_into().ok()?,
            ino: stat.st_ino.try_into().ok()?,
            ctime: stat.st_ctime.try_into().ok()?,
            ctime_nsec: stat.st_ctime_nsec.try_into().ok()?,
        })
    }

    /// Whether both name the same file, whether it was changed or not.
    pub fn is_same_file(&self, other: &SocketRecord) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }
}
