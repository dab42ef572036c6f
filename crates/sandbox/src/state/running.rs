//! The running named sandboxes of this user. Each holds the lock in its runtime directory while it runs.

use super::{check_private_directory, runtime_path};
use saggar_sys::error::Result;
use saggar_sys::id::SandboxId;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The names of the running sandboxes. The kernel's list of locks (proc_locks(5)) is read; no lock is taken, which
/// could make the start of a sandbox fail.
///
/// # Errors
/// As [`check_private_directory`], when there is a runtime directory.
pub fn running_sandboxes() -> Result<Vec<SandboxId>> {
    Ok(list_locked(&runtime_path())?.into_iter().filter_map(|one| one.holder_pid.map(|_| one.id)).collect())
}

/// A directory with a lock file: of a sandbox or of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedDirectory {
    /// Name of the directory.
    pub id: SandboxId,
    /// Pid of the process that holds the lock, if any.
    pub holder_pid: Option<i32>,
}

/// All directories with a lock file in `root`, which only this user can write; empty if `root` does not exist.
///
/// # Errors
/// As [`check_private_directory`].
pub fn list_locked(root: &Path) -> Result<Vec<LockedDirectory>> {
    if root.symlink_metadata().is_err() {
        return Ok(Vec::new());
    }
    check_private_directory(root)?;
    let locks = parse_flocks(&fs::read_to_string("/proc/locks").unwrap_or_default());
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let id = SandboxId::parse(entry.file_name().to_str()?).ok()?;
        let meta = entry.path().join("lock").symlink_metadata().ok()?;
        Some(LockedDirectory { id, holder_pid: locks.get(&meta.ino()).copied() })
    });
    Ok(found.collect())
}

/// Inodes of the files locked with flock(2), and the pid of each holder. Device numbers in the list do not always equal
/// those of stat(2) and are ignored: a wrong match would only list one name too many.
fn parse_flocks(list: &str) -> BTreeMap<u64, i32> {
    let lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let flocks = lines.filter(|words| words.get(1) == Some(&"FLOCK") && words.get(3) == Some(&"WRITE"));
    let lock = |words: Vec<&str>| {
        Some((words.get(5)?.rsplit(':').next()?.parse().ok()?, words.get(4)?.parse().ok()?))
    };
    flocks.filter_map(lock).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_list_of_locks_is_read() {
        let list = "1: POSIX  ADVISORY  WRITE 10 00:1a:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 11 00:1a:1234 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 12 00:1a:99 0 EOF\n3: FLOCK  ADVISORY  READ 13 fe:01:5 0 EOF\n";
        assert_eq!(super::parse_flocks(list), [(1234, 11)].into());
    }
}
