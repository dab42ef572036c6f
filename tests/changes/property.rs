//! Trees that are made up: what is written is read, and what is compared and applied is equal.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

use proptest::prelude::*;
use saggar::session::apply::{ApplyOptions, apply, check_changes};
use saggar::session::diff::{WorkspaceTrees, compare_trees};
use saggar::session::snapshot::{
    SnapshotLabel, SnapshotLimits, SnapshotPart, extract, extract_part, write_snapshot,
};
use saggar::session::workspace_origin::{ChangeStorage, WorkspaceOrigin};
use saggar::session::{copy, select};
use tempfile::TempDir;

use super::trees::{act, deeds, describe};

fn label(place: ChangeStorage) -> SnapshotLabel {
    SnapshotLabel {
        version: 1,
        session: "s".into(),
        place: Some(place),
        agent_session: Some("x".into()),
        workspace: None,
    }
}

/// A session with an empty workspace and home.
fn session() -> TempDir {
    let session = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::create_dir_all(session.path().join("home/.claude")).unwrap();
    session
}

fn snapshot(session: &Path, all: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_snapshot(session, &label(ChangeStorage::Copy), &mut bytes, all, SnapshotLimits::default()).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn snapshots_of_random_trees_are_restored_exactly(work in deeds(40), home in deeds(12)) {
        let session = session();
        fs::create_dir(session.path().join("workspace")).unwrap();
        act(&session.path().join("workspace"), &work);
        act(&session.path().join("home/.claude"), &home);
        let bytes = snapshot(session.path(), true);
        let into = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = File::open(into.path()).unwrap();
        let contents = extract(&bytes[..], at.as_fd(), SnapshotLimits::default()).unwrap();
        prop_assert_eq!(contents.label, label(ChangeStorage::Copy));
        for tree in ["workspace", "home/.claude"] {
            let (was, is) = (describe(&session.path().join(tree), true), describe(&into.path().join(tree), true));
            prop_assert_eq!(was, is);
        }
        // In parts it is the same.
        let parts = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = File::open(parts.path()).unwrap();
        for part in [SnapshotPart::Tree, SnapshotPart::Home] {
            extract_part(&bytes[..], at.as_fd(), SnapshotLimits::default(), part).unwrap();
        }
        for tree in ["workspace", "home/.claude"] {
            prop_assert_eq!(describe(&parts.path().join(tree), true), describe(&into.path().join(tree), true));
        }
        // The same again is the same, byte for byte.
        prop_assert_eq!(snapshot(session.path(), true), bytes);
    }

    #[test]
    fn a_folder_is_the_workspace_when_all_is_applied(folder in deeds(30), work in deeds(30), part in any::<usize>()) {
        let session = session();
        let from = session.path().join("folder");
        fs::create_dir(&from).unwrap();
        act(&from, &folder);
        fs::create_dir(session.path().join("workspace")).unwrap();
        let (source, copy) = (File::open(&from).unwrap(), File::open(session.path().join("workspace")).unwrap());
        copy::copy_content(&from, source.as_fd(), copy.as_fd()).unwrap().store(session.path()).unwrap();
        let origin = WorkspaceOrigin { storage: ChangeStorage::Copy, folder: from.clone(), since: i128::MAX, protected_by_policy: Vec::new() };
        let unchanged = compare_trees(&WorkspaceTrees::open(session.path(), origin.clone()).unwrap()).unwrap();
        prop_assert!(unchanged.is_empty(), "{:?}", unchanged);
        act(&session.path().join("workspace"), &work);
        let allowed = ApplyOptions { allow_protected: true, allow_conflicts: false, allow_links: true };
        // First one of the changes alone, with what it needs; then the rest.
        let mut trees = WorkspaceTrees::open(session.path(), origin.clone()).unwrap();
        let changes = compare_trees(&trees).unwrap();
        if !changes.is_empty() {
            let path = changes[part % changes.len()].path.clone();
            let some = select::select_with_parents(changes, std::slice::from_ref(&path)).unwrap();
            check_changes(&some, &allowed).unwrap();
            apply(&mut trees, &some, &allowed).unwrap();
            trees.manifest.store(session.path()).unwrap();
        }
        let mut trees = WorkspaceTrees::open(session.path(), origin).unwrap();
        let changes = compare_trees(&trees).unwrap();
        check_changes(&changes, &allowed).unwrap();
        apply(&mut trees, &changes, &allowed).unwrap();
        prop_assert_eq!(describe(&from, false), describe(&session.path().join("workspace"), false));
        prop_assert!(compare_trees(&trees).unwrap().is_empty());
    }

    /// A stand-in for a fuzzer: a true archive with some bytes changed, taken out or put in, packed again.
    #[test]
    fn a_damaged_archive_is_refused_or_read_and_makes_nothing_elsewhere(
        work in deeds(12),
        damage in proptest::collection::vec((any::<usize>(), 0u8..3, any::<u8>()), 1..6),
        headers in any::<bool>(),
    ) {
        let session = session();
        fs::create_dir(session.path().join("workspace")).unwrap();
        act(&session.path().join("workspace"), &work);
        let mut tar = zstd::decode_all(&snapshot(session.path(), true)[..]).unwrap();
        for (at, how, byte) in damage {
            let at = at % tar.len();
            match how {
                0 => tar[at] = byte,
                1 => drop(tar.drain(at..(at + usize::from(byte)).min(tar.len()))),
                _ => tar.splice(at..at, std::iter::repeat_n(byte, 512)).for_each(drop),
            }
            if tar.is_empty() { break }
        }
        if headers {
            // As somebody would who damages it on purpose.
            for block in tar.chunks_exact_mut(512) {
                let sum: u32 = block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) }).sum();
                if block[257..262] == *b"ustar" {
                    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
                }
            }
        }
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        let into = outside.path().join("into");
        fs::create_dir(&into).unwrap();
        let at = File::open(&into).unwrap();
        let limits = SnapshotLimits { entries: 1000, bytes: 1 << 20 };
        let _ = extract(&zstd::encode_all(&tar[..], 1).unwrap()[..], at.as_fd(), limits);
        let beside: Vec<_> = fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        prop_assert_eq!(beside, ["into"]);
    }

    #[test]
    fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2000), packed in any::<bool>()) {
        let into = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = File::open(into.path()).unwrap();
        let bytes = if packed { zstd::encode_all(&bytes[..], 1).unwrap() } else { bytes };
        prop_assert!(extract(&bytes[..], at.as_fd(), SnapshotLimits::default()).is_err());
    }
}
