//! Replaces a file as a whole: a reader, and a crash at any moment, see the old content or the new one.
//!
//! For directories that only their owner writes. Where others can exchange a name, such as in a workspace, files are
//! replaced beneath a descriptor instead (`session::files`).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What of a replaced file is on the disk before the function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Nothing: the content has no meaning after a power failure, or the reader detects that it is cut short.
    None,
    /// The content, before the file gets its name: after a power failure the old or the new file is there, whole.
    Content,
}

/// Who else may write the same file meanwhile, which decides the temporary name. What is there under that name already
/// is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Nobody: a lock excludes other writers, and the directory is saggar's. The temporary name is always `PATH.new`, so
    /// that at most one file of killed writers is left, until the next one.
    One,
    /// Other processes, or the directory is the user's, whose `PATH.new` is to stay: `PATH.new-PID`.
    Many,
}

/// Writes the file `path` by `fill`, under a temporary name at first; then it takes the place of the file that was
/// there. `mode` is that of open(2).
///
/// # Errors
/// Those of open(2), fsync(2) and rename(2), and those of `fill`. Nothing is left of the new file then.
pub fn replace_file(
    path: &Path,
    writers: Writers,
    mode: u32,
    sync: SyncPolicy,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(match writers {
        Writers::One => ".new".to_owned(),
        Writers::Many => format!(".new-{}", std::process::id()),
    });
    let new = path.with_file_name(name);
    let create = || File::options().write(true).create_new(true).mode(mode).open(&new);
    let write = || {
        let mut file = create().or_else(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => fs::remove_file(&new).and_then(|()| create()),
            _ => Err(e),
        })?;
        fill(&mut file)?;
        if sync == SyncPolicy::Content {
            file.sync_all()?;
        }
        fs::rename(&new, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_failed_replacement_leaves_the_old_file_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("record");
        let write = |text: &'static str| move |file: &mut File| file.write_all(text.as_bytes());
        replace_file(&path, Writers::One, 0o600, SyncPolicy::Content, write("old")).unwrap();
        let failed = replace_file(&path, Writers::One, 0o600, SyncPolicy::None, |file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_writer_left_is_replaced_and_never_written_through() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, other) = (scratch.path().join("record"), scratch.path().join("other"));
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, scratch.path().join("record.new")).unwrap();
        replace_file(&path, Writers::One, 0o600, SyncPolicy::None, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
