//! Who the inner user is on the host, when root starts a sandbox (DECISIONS 2).
//!
//! Where every tree can be idmapped, nobody: an id of the sandbox's own block. Where a tree that programs may
//! write cannot be, its owner: that one id stands in the map of the sandbox, and never the host's 0. A tree
//! that they only read is shown as it is, and its owner is a stranger, as the owner of `/usr` is.

use super::{Block, Tree};
use crate::error::{Code, Error, Result};
use crate::host::Host;
use crate::host::owners::Unmapped;
use crate::spec::{BLOCK, IdMap, Mount, SandboxSpec};
use std::path::Path;

/// The block of ids of `spec`, with what the inner user is on the host; `None` for an ordinary user's sandbox.
///
/// # Errors
/// [`Code::Refused`] for a writable tree that cannot be idmapped and is root's; [`Code::Unsupported`] for two
/// such trees of different owners.
pub(super) fn block(spec: &SandboxSpec, host: &Host) -> Result<Option<Block>> {
    let IdMap::Block { base } = spec.identity.map else { return Ok(None) };
    let mut block = Block::shifted(base, &spec.identity);
    let mut first: Option<&Path> = None;
    let writable = spec.mounts.iter().filter(|mount| mount.writable);
    for (mount, source, tree) in writable.filter_map(|mount| unmapped(mount, host)) {
        if let Some(why) = tree.never() {
            return Err(refused(mount, source, tree, why));
        }
        let mine = base..base + BLOCK;
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
                return Err(Error::new(Code::Unsupported, message).hint(cure(tree)));
            }
            _ => (block.host_uid, block.host_gid) = (tree.uid, tree.gid),
        }
        first.get_or_insert(source);
    }
    Ok(Some(block))
}

/// What the parent makes of a named path.
pub(super) fn tree(source: &Path, writable: bool, block: Option<&Block>, host: &Host) -> Tree {
    match (block, host.unmapped.get(source)) {
        (None, _) => Tree::None,
        (Some(_), None) => Tree::Mapped,
        (Some(block), Some(_)) => Tree::Plain { owner: writable.then_some((block.host_uid, block.host_gid)) },
    }
}

fn unmapped<'a>(mount: &'a Mount, host: &'a Host) -> Option<(&'a Mount, &'a Path, &'a Unmapped)> {
    let source = mount.kind.named()?;
    host.unmapped.get(source).map(|tree| (mount, source.as_path(), tree))
}

fn refused(mount: &Mount, source: &Path, tree: &Unmapped, why: &str) -> Error {
    let message = format!(
        "let programs write {} ({}): its file system, {}, cannot be idmapped ({}), and {why}, whose id no \
         sandbox gets",
        source.display(),
        mount.why,
        tree.file_system,
        tree.why,
    );
    Error::new(Code::Refused, message).hint(cure(tree))
}

fn cure(tree: &Unmapped) -> String {
    format!(
        "work on a copy of it on a file system that can be idmapped (ext4, xfs, btrfs, or tmpfs since Linux 6.3), \
         or, on {}, give it to an ordinary user with chown",
        tree.file_system
    )
}
