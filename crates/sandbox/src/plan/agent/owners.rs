//! The host ids of the inner user, when root starts a sandbox (DECISIONS 2).
//!
//! Where every tree can be idmapped, the inner user is an id of the sandbox's own block, which no host user has. Where
//! a tree that programs may write cannot be idmapped, it is the owner of that tree: the map of the sandbox contains
//! this one host id, which is never 0. A read-only tree that cannot be idmapped is mounted without a map; its files
//! appear owned by the overflow uid, as those of `/usr` do.

use super::{BlockIds, TreeMode};
use crate::host::idmap_support::UnmappableTree;
use crate::host::{HostFacts, PathKind};
use crate::spec::{HostIdMapping, ID_BLOCK_SIZE, MountSpec, SandboxSpec};
use saggar_sys::error::{Code, Error, Result};
use std::path::Path;

/// Returns the block of ids of `spec`, with the host ids of the inner user; `None` for an ordinary user's sandbox.
///
/// # Errors
/// [`Code::Refused`] for a writable tree of root that cannot be idmapped; [`Code::Unsupported`] for two such trees of
/// different owners.
pub(super) fn block(spec: &SandboxSpec, host: &HostFacts) -> Result<Option<BlockIds>> {
    let HostIdMapping::Block { base } = spec.identity.map else { return Ok(None) };
    let mut block = BlockIds::shifted(base, &spec.identity);
    let mut first: Option<&Path> = None;
    let writable = spec.mounts.iter().filter(|mount| mount.writable);
    for (mount, source, tree) in writable.filter_map(|mount| unmapped(mount, host)) {
        if let Some(why) = tree.owner_id_obstacle() {
            return Err(refused(mount, source, tree, why));
        }
        let mine = base..base + ID_BLOCK_SIZE;
        if mine.contains(&tree.uid) || mine.contains(&tree.gid) {
            return Err(refused(mount, source, tree, "its owner is an id that saggar gives to sandboxes"));
        }
        match first {
            Some(first) if (block.host_uid, block.host_gid) != (tree.uid, tree.gid) => {
                let message = format!(
                    "show {} and {} in one sandbox: neither can be idmapped, and their owners differ",
                    first.display(),
                    source.display()
                );
                return Err(Error::new(Code::Unsupported, message).hint(remedy(tree)));
            }
            _ => (block.host_uid, block.host_gid) = (tree.uid, tree.gid),
        }
        first.get_or_insert(source);
    }
    Ok(Some(block))
}

/// How the parent prepares the tree at a named path.
pub(super) fn tree_mode(
    source: &Path,
    writable: bool,
    block: Option<&BlockIds>,
    host: &HostFacts,
) -> TreeMode {
    match (block, host.unmappable_trees.get(source)) {
        (None, _) => TreeMode::None,
        (Some(_), None) => TreeMode::Mapped,
        (Some(block), Some(_)) => {
            TreeMode::Plain { owner: writable.then_some((block.host_uid, block.host_gid)) }
        }
    }
}

fn unmapped<'a>(
    mount: &'a MountSpec,
    host: &'a HostFacts,
) -> Option<(&'a MountSpec, &'a Path, &'a UnmappableTree)> {
    let source = mount.kind.named_source()?;
    // These are refused for what they are (`files::check_source`).
    if matches!(host.path_kind(source), Some(PathKind::Link(_) | PathKind::Device)) {
        return None;
    }
    host.unmappable_trees.get(source).map(|tree| (mount, source.as_path(), tree))
}

fn refused(mount: &MountSpec, source: &Path, tree: &UnmappableTree, why: &str) -> Error {
    let message = format!(
        "let programs write {} ({}): its file system, {}, cannot be idmapped ({}), and {why}, whose id no \
         sandbox gets",
        source.display(),
        mount.purpose,
        tree.filesystem,
        tree.reason,
    );
    Error::new(Code::Refused, message).hint(remedy(tree))
}

fn remedy(tree: &UnmappableTree) -> String {
    format!(
        "work on a copy of it on a file system that can be idmapped (ext4, xfs, btrfs, or tmpfs since Linux 6.3), \
         or, on {}, give it to an ordinary user with chown",
        tree.filesystem
    )
}
