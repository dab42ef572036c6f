//! Files that somebody else may have exchanged for something else, read without harm. For the parent: unlike its
//! neighbours this allocates.

use std::fs::{Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// At most `limit` bytes of a regular file; `None` for anything else, or when it cannot be read. A link is not
/// followed, a FIFO is not waited for.
pub fn small_file(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Why a file was not read whole.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// It cannot be opened or read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is something else than a regular file.
    #[error("it is {0}, not a regular file")]
    Kind(&'static str),
    /// It is larger than the limit, in bytes.
    #[error("it is larger than {}", size(*.0))]
    TooLarge(u64),
    /// It is not in the folder that it was looked for in.
    #[error("it leads out of the folder")]
    LeavesFolder,
    /// It is a link where none is followed.
    #[error("it is a symbolic link that cannot be followed here")]
    Link,
    /// The owner of the folder that it is in may not be able to read it.
    #[error(
        "it belongs to uid {owner}, and the owner of the folder (uid {folder}) may not be able to read it"
    )]
    Foreign {
        /// The owner of the file.
        owner: u32,
        /// The owner of the folder.
        folder: u32,
    },
}

/// The whole of a regular file. Links are followed, as the caller named the file; nothing is waited for, and what is
/// not a regular file is not even opened.
///
/// # Errors
/// [`Unread`]; the file may grow while it is read, and then counts by what was read.
pub fn whole_file(path: &Path, limit: u64) -> Result<Vec<u8>, Unread> {
    regular(&std::fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // Whoever exchanged it in between gets no further than this.
    let metadata = file.metadata()?;
    regular(&metadata)?;
    if metadata.len() > limit {
        return Err(Unread::TooLarge(limit));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(Unread::TooLarge(limit)) } else { Ok(bytes) }
}

/// A limit in words.
fn size(bytes: u64) -> String {
    if bytes >> 20 == 0 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

pub(super) fn regular(metadata: &Metadata) -> Result<(), Unread> {
    let kind = metadata.file_type();
    let name = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(Unread::Kind(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_read_and_no_more_than_the_limit() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        std::fs::write(path("file"), "12345").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(small_file(&path("file"), 3).as_deref(), Some(b"123".as_slice()));
        for name in ["link", "fifo", "missing", "."] {
            assert_eq!(small_file(&path(name), 3), None, "{name}");
        }
    }
    #[test]
    fn a_whole_file_is_a_regular_one_within_the_limit() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        std::fs::write(path("file"), "12345").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        assert_eq!(whole_file(&path("link"), 5).unwrap(), b"12345");
        let refused = |name: &str| whole_file(&path(name), 4).unwrap_err().to_string();
        assert_eq!(refused("file"), "it is larger than 0 KiB");
        assert_eq!(refused("fifo"), "it is a FIFO, not a regular file");
        assert_eq!(refused("socket"), "it is a socket, not a regular file");
        assert_eq!(refused("."), "it is a directory, not a regular file");
        assert_eq!(refused("/dev/zero"), "it is a device, not a regular file");
        assert!(refused("missing").contains("No such file"), "{}", refused("missing"));
    }
}
