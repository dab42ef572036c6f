//! The named sandboxes of this user that run: each holds the lock in its runtime directory as long as it lives.

use super::{check_own, runtime_path};
use crate::error::Result;
use crate::id::SandboxId;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Their names. The locks are looked up in the kernel's list of them (proc_locks(5)) and not tried: to take one for a
/// moment would refuse the sandbox that is just about to.
///
/// # Errors
/// As [`check_own`], when there is a runtime directory.
pub fn named() -> Result<Vec<SandboxId>> {
    Ok(in_directory(&runtime_path())?.into_iter().filter_map(|one| one.holder.map(|_| one.id)).collect())
}

/// A directory with a lock in it: of a sandbox, or of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locked {
    /// Its name.
    pub id: SandboxId,
    /// Who holds the lock, if anybody does, by its pid.
    pub holder: Option<i32>,
}

/// All that have a lock in the directory `root`, which is ours alone; none without it.
///
/// # Errors
/// As [`check_own`].
pub fn in_directory(root: &Path) -> Result<Vec<Locked>> {
    if root.symlink_metadata().is_err() {
        return Ok(Vec::new());
    }
    check_own(root)?;
    let locks = locked(&fs::read_to_string("/proc/locks").unwrap_or_default());
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let id = SandboxId::parse(entry.file_name().to_str()?).ok()?;
        let meta = entry.path().join("lock").symlink_metadata().ok()?;
        Some(Locked { id, holder: locks.get(&meta.ino()).copied() })
    });
    Ok(found.collect())
}

/// Inodes of the files with a lock of flock(2), and who took it. Device numbers there are not always those of stat(2),
/// and are left aside: a name too many is what a wrong match would cost.
fn locked(list: &str) -> BTreeMap<u64, i32> {
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
        assert_eq!(super::locked(list), [(1234, 11)].into());
    }
}
