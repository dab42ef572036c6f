//! Whether the inner user may read, write and search a file of the host: by its mode and its owner.
//!
//! A reading, not a test: access control lists and security modules of the host are not asked.

use crate::plan::Block;
use crate::spec::BLOCK;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::AccessFlags;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What file permissions give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) read: bool,
    pub(super) write: bool,
    /// Execute a file, or look names up in a directory.
    pub(super) search: bool,
}

/// Whose tree a file lies in, which decides who its owner is inside.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owners<'a> {
    /// The inner user is the caller: the kernel can be asked.
    Caller,
    /// Root's sandbox, a tree as it is on the host: all ids in it are strangers but the inner user's own.
    Plain(Block),
    /// Root's sandbox, an idmapped tree: the owner of its root is the inner user.
    Mapped(&'a Metadata),
}

impl<'a> Owners<'a> {
    /// The owners of a tree of the host, whose owners are mapped or not, and whose root is `root`.
    pub(super) fn of(block: Option<Block>, mapped: bool, root: Option<&'a Metadata>) -> Self {
        match (block, mapped, root) {
            (None, ..) => Owners::Caller,
            (Some(_), true, Some(root)) => Owners::Mapped(root),
            (Some(block), ..) => Owners::Plain(block),
        }
    }
}

/// What the inner user may do with `path` of the host, which is no link.
pub(super) fn rights(path: &Path, meta: &Metadata, owners: Owners<'_>) -> Rights {
    if matches!(owners, Owners::Caller) {
        let may = |flag| nix::unistd::access(path, flag).is_ok();
        return Rights {
            read: may(AccessFlags::R_OK),
            write: may(AccessFlags::W_OK),
            search: may(AccessFlags::X_OK),
        };
    }
    let mut rights = by_mode(meta.mode(), class(meta, owners));
    let read_only = statvfs(path).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_RDONLY));
    rights.write &= !read_only && can_be_written(meta, owners);
    rights
}

/// Which three bits of the mode count: 2 for the owner, 1 for the group, 0 for others.
fn class(meta: &Metadata, owners: Owners<'_>) -> u32 {
    match owners {
        Owners::Mapped(root) if meta.uid() == root.uid() => 2,
        Owners::Mapped(root) if meta.gid() == root.gid() => 1,
        Owners::Plain(block) if meta.uid() == block.host_uid => 2,
        Owners::Plain(block) if meta.gid() == block.host_gid => 1,
        _ => 0,
    }
}

/// The kernel refuses to write a file whose owner has no id in an idmapped mount (mount_setattr(2)).
fn can_be_written(meta: &Metadata, owners: Owners<'_>) -> bool {
    match owners {
        Owners::Mapped(root) => {
            let has_id = |id: u32, root: u32| id < BLOCK || id == root;
            has_id(meta.uid(), root.uid()) && has_id(meta.gid(), root.gid())
        }
        _ => true,
    }
}

fn by_mode(mode: u32, class: u32) -> Rights {
    let bits = mode >> (3 * class) & 7;
    Rights { read: bits & 4 != 0, write: bits & 2 != 0, search: bits & 1 != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_the_class_count() {
        assert_eq!(by_mode(0o640, 2), Rights { read: true, write: true, search: false });
        assert_eq!(by_mode(0o640, 1), Rights { read: true, write: false, search: false });
        assert_eq!(by_mode(0o641, 0), Rights { read: false, write: false, search: true });
    }
}
