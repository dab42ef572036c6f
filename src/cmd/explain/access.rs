//! Predicts from mode and owner whether the inner user may read, write and search a file of the host.
//!
//! Access control lists and security modules are ignored, unless the inner user is the caller.

use crate::plan::agent::BlockIds;
use crate::spec::ID_BLOCK_SIZE;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::AccessFlags;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Rights from file permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileRights {
    pub(super) read: bool,
    pub(super) write: bool,
    /// Execute a file, or look up names in a directory.
    pub(super) search: bool,
}

/// How the owners of a tree appear inside the sandbox.
#[derive(Debug, Clone, Copy)]
pub(super) enum TreeOwners<'a> {
    /// The inner user is the caller, so access(2) gives the answer.
    Caller,
    /// A sandbox of root, a tree without an id map: inside, only the id of the inner user is mapped.
    Plain(BlockIds),
    /// A sandbox of root, an idmapped tree: the owner of its root is the inner user.
    Mapped(&'a Metadata),
}

impl<'a> TreeOwners<'a> {
    /// Selects the owners of a tree: `mapped` if it is idmapped, `root` is its root directory.
    pub(super) fn of(block: Option<BlockIds>, mapped: bool, root: Option<&'a Metadata>) -> Self {
        match (block, mapped, root) {
            (None, ..) => TreeOwners::Caller,
            (Some(_), true, Some(root)) => TreeOwners::Mapped(root),
            (Some(block), ..) => TreeOwners::Plain(block),
        }
    }
}

/// Returns the rights of the inner user on `path` of the host, which is not a symbolic link.
pub(super) fn rights(path: &Path, meta: &Metadata, owners: TreeOwners<'_>) -> FileRights {
    if matches!(owners, TreeOwners::Caller) {
        let may = |flag| nix::unistd::access(path, flag).is_ok();
        return FileRights {
            read: may(AccessFlags::R_OK),
            write: may(AccessFlags::W_OK),
            search: may(AccessFlags::X_OK),
        };
    }
    let mut rights = by_mode(meta.mode(), mode_class(meta, owners));
    let read_only = statvfs(path).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_RDONLY));
    rights.write &= !read_only && can_be_written(meta, owners);
    rights
}

/// Selects the three bits of the mode that apply: 2 for the owner, 1 for the group, 0 for others.
fn mode_class(meta: &Metadata, owners: TreeOwners<'_>) -> u32 {
    match owners {
        TreeOwners::Mapped(root) if meta.uid() == root.uid() => 2,
        TreeOwners::Mapped(root) if meta.gid() == root.gid() => 1,
        TreeOwners::Plain(block) if meta.uid() == block.host_uid => 2,
        TreeOwners::Plain(block) if meta.gid() == block.host_gid => 1,
        _ => 0,
    }
}

/// In an idmapped mount, the kernel denies writes to a file whose owner has no mapping (mount_setattr(2)).
fn can_be_written(meta: &Metadata, owners: TreeOwners<'_>) -> bool {
    match owners {
        TreeOwners::Mapped(root) => {
            let has_id = |id: u32, root: u32| id < ID_BLOCK_SIZE || id == root;
            has_id(meta.uid(), root.uid()) && has_id(meta.gid(), root.gid())
        }
        _ => true,
    }
}

fn by_mode(mode: u32, class: u32) -> FileRights {
    let bits = mode >> (3 * class) & 7;
    FileRights { read: bits & 4 != 0, write: bits & 2 != 0, search: bits & 1 != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_the_class_count() {
        assert_eq!(by_mode(0o640, 2), FileRights { read: true, write: true, search: false });
        assert_eq!(by_mode(0o640, 1), FileRights { read: true, write: false, search: false });
        assert_eq!(by_mode(0o641, 0), FileRights { read: false, write: false, search: true });
    }
}
