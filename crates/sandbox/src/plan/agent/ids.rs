//! Builds the id maps of an agent's sandbox and of its idmapped trees.

use super::BlockIds;
use crate::plan::ids::UserNamespaceMaps;
use crate::spec::{HostIdMapping, ID_BLOCK_SIZE, SandboxIdentity};

/// The maps of the sandbox's own user namespace.
pub fn for_sandbox(identity: &SandboxIdentity) -> UserNamespaceMaps {
    match identity.map {
        HostIdMapping::Caller { uid, gid } => UserNamespaceMaps {
            uid: format!("{} {uid} 1\n", identity.uid),
            gid: format!("{} {gid} 1\n", identity.gid),
            deny_setgroups: true,
        },
        HostIdMapping::Block { base } => for_block(&BlockIds::shifted(base, identity)),
    }
}

/// The maps of a sandbox with a block of ids.
pub(crate) fn for_block(block: &BlockIds) -> UserNamespaceMaps {
    UserNamespaceMaps {
        uid: block_map(block.base, block.uid, block.host_uid),
        gid: block_map(block.base, block.gid, block.host_gid),
        deny_setgroups: false,
    }
}

/// Maps the whole block; `inner` is mapped to `host`.
fn block_map(base: u32, inner: u32, host: u32) -> String {
    if host == base + inner {
        return format!("0 {base} {ID_BLOCK_SIZE}\n");
    }
    let mut lines = vec![format!("{inner} {host} 1")];
    for (from, to) in [(0, inner), (inner + 1, ID_BLOCK_SIZE)] {
        if from < to {
            lines.push(format!("{from} {} {}", base + from, to - from));
        }
    }
    lines.join("\n") + "\n"
}

/// The maps of an idmapped tree of this owner, for the sandbox of `block` ([`idmap_lines`]).
pub(crate) fn for_tree(block: &BlockIds, (uid, gid): (u32, u32)) -> UserNamespaceMaps {
    UserNamespaceMaps {
        uid: idmap_lines(uid, block.uid, block.host_uid, block.base),
        gid: idmap_lines(gid, block.gid, block.host_gid, block.base),
        deny_setgroups: false,
    }
}

/// Builds the map of an idmapped tree: its `owner` on disk becomes `inner` inside, which is `host` on the host; the
/// inner id becomes the owner's, and every other id is shifted into the block. An entry for the owner alone would show
/// all other ids as the overflow id, and make even their files with mode 0666 unwritable.
fn idmap_lines(owner: u32, inner: u32, host: u32, base: u32) -> String {
    if owner == inner {
        return block_map(base, inner, host);
    }
    let mut lines = vec![format!("{owner} {host} 1")];
    let mut identity = |from: u32, to: u32| {
        if from < to {
            lines.push(format!("{from} {} {}", base + from, to - from));
        }
    };
    if owner < ID_BLOCK_SIZE {
        let (low, high) = (owner.min(inner), owner.max(inner));
        identity(0, low);
        identity(low + 1, high);
        identity(high + 1, ID_BLOCK_SIZE);
        lines.push(format!("{inner} {} 1", base + owner));
    } else {
        identity(0, inner);
        identity(inner + 1, ID_BLOCK_SIZE);
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(map: &str) -> Vec<(u64, u64, u64)> {
        let number = |word: &str| word.parse().unwrap();
        map.lines()
            .map(|line| {
                let words: Vec<u64> = line.split(' ').map(number).collect();
                (words[0], words[1], words[2])
            })
            .collect()
    }

    proptest! {
        /// What the kernel requires (no overlap on either side, at most 340 lines), what the workspace needs (the owner
        /// is the inner id, and back), and what the host needs (nothing outside the block).
        #[test]
        fn swap_maps_are_valid_and_stay_in_the_block(owner in any::<u32>(), inner in 0..ID_BLOCK_SIZE, base in 1u32<<20..1u32<<31, direct in proptest::option::of(1u32..1<<20)) {
            prop_assume!(owner != u32::MAX);
            let host = direct.unwrap_or(base + inner);
            let map = parse(&idmap_lines(owner, inner, host, base));
            prop_assert!(map.len() <= 5);
            for side in [0, 1] {
                let mut ranges: Vec<(u64, u64)> = map.iter()
                    .map(|line| { let start = if side == 0 { line.0 } else { line.1 }; (start, start + line.2) })
                    .collect();
                ranges.sort_unstable();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{map:?}");
            }
            let block = u64::from(base)..u64::from(base) + u64::from(ID_BLOCK_SIZE);
            let shifted = |line: &&(u64, u64, u64)| **line != (line.0, host.into(), 1);
            prop_assert!(map.iter().filter(shifted).all(|line| block.contains(&line.1) && block.contains(&(line.1 + line.2 - 1))));
            let find = |id: u32| map.iter().find(|line| (line.0..line.0 + line.2).contains(&id.into())).map(|line| line.1 + u64::from(id) - line.0);
            prop_assert_eq!(find(owner), Some(u64::from(host)));
            if owner < ID_BLOCK_SIZE && owner != inner {
                prop_assert_eq!(find(inner), Some(u64::from(base + owner)));
            }
        }

        /// The inner user is the one requested host id; all others are in the block, and the host's 0 is not mapped.
        #[test]
        fn a_block_with_one_id_of_the_host_is_whole(inner in 0..ID_BLOCK_SIZE, base in 1u32<<20..1u32<<31, host in 1u32..1<<20) {
            let map = parse(&block_map(base, inner, host));
            let find = |id: u32| map.iter().find(|line| (line.0..line.0 + line.2).contains(&id.into())).map(|line| line.1 + u64::from(id) - line.0);
            for id in [0, inner.saturating_sub(1), inner, (inner + 1).min(ID_BLOCK_SIZE - 1), ID_BLOCK_SIZE - 1] {
                let outside = if id == inner { host } else { base + id };
                prop_assert_eq!(find(id), Some(outside.into()));
            }
            prop_assert_eq!(map.iter().map(|line| line.2).sum::<u64>(), u64::from(ID_BLOCK_SIZE));
        }
    }
}
