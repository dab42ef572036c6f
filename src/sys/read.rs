//! Files that somebody else may have exchanged for something else, read without harm. For the parent: unlike its
//! neighbours this allocates.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
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
}
