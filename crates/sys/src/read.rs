//! Reads files of the kernel, and safely those that another user may have replaced. For the parent only: unlike most of
//! [`crate`] these functions allocate.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Reads at most `limit` bytes of a regular file. Returns `None` for any other file or if it cannot be read. It does
/// not follow a symbolic link and does not wait for a FIFO.
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

/// Reads a whole file of proc(5), sysfs(5) or cgroupfs. Such a file has no size that could be asked for first, and mostly
/// fits into the first read(2).
///
/// # Errors
/// Those of open(2) and read(2).
pub fn kernel_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// As [`kernel_file`], for text.
///
/// # Errors
/// Those of open(2) and read(2); [`std::io::ErrorKind::InvalidData`] if it is no UTF-8.
pub fn kernel_text(path: &Path) -> std::io::Result<String> {
    String::from_utf8(kernel_file(path)?).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e))
}

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadFileError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The path is not a regular file; the value names its type.
    #[error("it is {0}, not a regular file")]
    NotRegular(&'static str),
    /// The file is larger than the limit, in bytes.
    #[error("it is larger than {}", size_text(*.0))]
    TooLarge(u64),
    /// The path leads out of the directory.
    #[error("it leads out of the folder")]
    LeavesFolder,
    /// The file is a symbolic link, and the caller follows none.
    #[error("it is a symbolic link that cannot be followed here")]
    Link,
    /// The owner of the directory may not be able to read the file.
    #[error(
        "it belongs to uid {owner}, and the owner of the folder (uid {folder}) may not be able to read it"
    )]
    ForeignOwner {
        /// Uid of the file's owner.
        owner: u32,
        /// Uid of the directory's owner.
        folder: u32,
    },
}

/// Reads a whole regular file. It follows symbolic links, since the caller named the file. It never waits, and opens
/// only regular files.
///
/// # Errors
/// [`ReadFileError`]. If the file grows while it is read, the bytes read count against the limit.
pub fn whole_file(path: &Path, limit: u64) -> Result<Vec<u8>, ReadFileError> {
    check_regular(&std::fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // A file that was exchanged after the first check is rejected here.
    let metadata = file.metadata()?;
    check_regular(&metadata)?;
    if metadata.len() > limit {
        return Err(ReadFileError::TooLarge(limit));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(ReadFileError::TooLarge(limit)) } else { Ok(bytes) }
}

/// A size as text.
fn size_text(bytes: u64) -> String {
    if bytes >> 20 == 0 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

pub(super) fn check_regular(metadata: &Metadata) -> Result<(), ReadFileError> {
    let kind = metadata.file_type();
    let name = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(ReadFileError::NotRegular(name))
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
