//! The order of mounts: a mode holds at the path that has it, whatever lies above or below.
//!
//! A mount covers what was mounted below it before. So a tree is mounted before the paths in it, in whatever order a
//! layer named them.

use super::MountSpec;
use std::path::Path;

/// Appends `named` to the mounts of the system, each after those that contain it. Of two mounts at one path, the later
/// one covers the other.
pub(super) fn append(mounts: &mut Vec<MountSpec>, named: Vec<MountSpec>) {
    let contains = |tree: &MountSpec, mount: &MountSpec| {
        tree.destination != mount.destination && is_below(&mount.destination, &tree.destination)
    };
    let (mut rest, kept): (Vec<_>, Vec<_>) =
        std::mem::take(mounts).into_iter().partition(|mount| named.iter().any(|tree| contains(tree, mount)));
    *mounts = kept;
    rest.extend(named);
    rest.sort_by_cached_key(|mount| mount.destination.components().count());
    mounts.append(&mut rest);
}

/// The mount that a mount point at `at` lies in, of those that were made earlier: the last of those that contain it.
pub(crate) fn containing<'a>(
    earlier: &'a [MountSpec],
    at: &Path,
    is_mounted: impl Fn(&MountSpec) -> bool,
) -> Option<&'a MountSpec> {
    earlier.iter().rev().find(|mount| is_below(at, &mount.destination) && is_mounted(mount))
}

/// Like [`Path::starts_with`], which parses both paths and would be called some six hundred times in a start: the first
/// byte that differs decides, unless the two could be spellings of one path.
fn is_below(at: &Path, tree: &Path) -> bool {
    let (inner, outer) = (at.as_os_str().as_encoded_bytes(), tree.as_os_str().as_encoded_bytes());
    let differ = inner.iter().zip(outer).find(|(a, b)| a != b);
    let means_nothing = |byte: &u8| b"/.".contains(byte);
    match differ {
        Some((a, b)) if !means_nothing(a) && !means_nothing(b) => false,
        _ => at.starts_with(tree),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MountKind, Origin};
    use super::*;
    use proptest::prelude::*;

    fn mount(at: &str) -> MountSpec {
        let kind = MountKind::Named { source: at.into() };
        let destination = Path::new(at).to_owned();
        MountSpec { destination, kind, writable: true, origin: Origin::BUILT_IN, purpose: "".into() }
    }

    proptest! {
        #[test]
        fn the_short_way_to_ask_says_what_the_long_way_says(at in "/?([ab./]|/b){0,6}", tree in "/?([ab./]|/b){0,6}") {
            prop_assert_eq!(is_below(at.as_ref(), tree.as_ref()), Path::new(&at).starts_with(&tree), "{} {}", at, tree);
        }

        #[test]
        fn a_tree_comes_before_what_lies_in_it(
            system in prop::collection::vec("(/[ab]){1,4}", 0..5),
            named in prop::collection::vec("(/[ab]){1,4}", 0..8),
        ) {
            // The system's own mounts are in order.
            let mut mounts: Vec<MountSpec> = system.iter().map(|at| mount(at)).collect();
            mounts.sort_by_key(|mount| mount.destination.components().count());
            append(&mut mounts, named.iter().map(|at| mount(at)).collect());
            prop_assert_eq!(mounts.len(), system.len() + named.len());
            for (at, later) in mounts.iter().enumerate() {
                for earlier in &mounts[..at] {
                    prop_assert!(
                        earlier.destination == later.destination || !earlier.destination.starts_with(&later.destination),
                        "{} is covered by {}", earlier.destination.display(), later.destination.display()
                    );
                }
            }
        }
    }
}
