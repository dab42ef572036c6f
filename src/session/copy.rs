//! Copies a folder into a session: regular files, directories and links as they are. Nothing is followed,
//! nothing that is not a file is copied, and no set-id bit survives.

use crate::error::{Code, Error, Result};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// How much a folder may hold: an agent's folder is small, and a home directory given by mistake is not.
const MAX_ENTRIES: u64 = 200_000;
const MAX_BYTES: u64 = 4 << 30;
const MAX_DEPTH: usize = 128;

/// Copies the directory `from` to `to`, which must not exist.
///
/// # Errors
/// [`Code::Invalid`] for a folder that is too large or too deep; [`Code::System`] naming the path.
pub fn tree(from: &Path, to: &Path) -> Result<()> {
    let mut room = Room { entries: MAX_ENTRIES, bytes: MAX_BYTES };
    directory(from, to, 0, &mut room)
}

struct Room {
    entries: u64,
    bytes: u64,
}

impl Room {
    fn take(&mut self, path: &Path, bytes: u64) -> Result<()> {
        let left = (self.entries.checked_sub(1), self.bytes.checked_sub(bytes));
        let (Some(entries), Some(bytes)) = left else {
            let message = format!("copy {}: the folder is larger than a workspace may be", path.display());
            return Err(
                Error::new(Code::Invalid, message).hint("say --workspace DIR to work on the folder itself")
            );
        };
        (self.entries, self.bytes) = (entries, bytes);
        Ok(())
    }
}

fn directory(from: &Path, to: &Path, depth: usize, room: &mut Room) -> Result<()> {
    let fail = |e: std::io::Error| Error::system(format_args!("copy {}", from.display()), e);
    if depth > MAX_DEPTH {
        return Err(Error::new(Code::Invalid, format!("copy {}: it is too deep", from.display())));
    }
    fs::DirBuilder::new().mode(0o700).create(to).map_err(fail)?;
    for entry in fs::read_dir(from).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(fail)?;
        if kind.is_dir() {
            room.take(&source, 0)?;
            directory(&source, &target, depth + 1, room)?;
        } else if kind.is_symlink() {
            room.take(&source, 0)?;
            let link = fs::read_link(&source).map_err(fail)?;
            std::os::unix::fs::symlink(link, &target).map_err(fail)?;
        } else if kind.is_file() {
            file(&source, &target, room)?;
        }
    }
    let mode = fs::symlink_metadata(from).map_err(fail)?.permissions().mode();
    fs::set_permissions(to, fs::Permissions::from_mode(mode & 0o777 | 0o700)).map_err(fail)
}

fn file(from: &Path, to: &Path, room: &mut Room) -> Result<()> {
    let fail = |e: std::io::Error| Error::system(format_args!("copy {}", from.display()), e);
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut source = options.open(from).map_err(fail)?;
    let meta = source.metadata().map_err(fail)?;
    // It may have become something else since the directory was read.
    if !meta.is_file() {
        return Ok(());
    }
    room.take(from, meta.len())?;
    let mode = meta.permissions().mode() & 0o777;
    let mut target = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(to).map_err(fail)?;
    std::io::copy(&mut source, &mut target).map_err(fail)?;
    target.set_permissions(fs::Permissions::from_mode(mode)).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_links_and_odd_files_stay_out() {
        let scratch = tempfile::tempdir().unwrap();
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/f"), "text").unwrap();
        fs::set_permissions(from.join("a/b/f"), fs::Permissions::from_mode(0o4755)).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", from.join("link")).unwrap();
        nix::unistd::mkfifo(&from.join("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        tree(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/b/f")).unwrap(), "text");
        assert_eq!(fs::metadata(to.join("a/b/f")).unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/etc/shadow"));
        assert!(!to.join("fifo").exists());
        assert!(tree(&from, &to).is_err(), "an existing target is never written into");
    }
}
