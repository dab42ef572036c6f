//! Trees that are made up, and what is there in the end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

/// One thing that is done to a tree; names are chosen among what is there, so that most do something.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    Write(usize, Vec<u8>, Vec<u8>),
    Hole(usize, Vec<u8>, u32),
    Directory(usize, Vec<u8>),
    Link(usize, Vec<u8>, Vec<u8>),
    Second(usize, usize, Vec<u8>),
    Mode(usize, u32),
    Remove(usize),
    Rename(usize, usize, Vec<u8>),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-e]".prop_map(String::into_bytes),
        1 => proptest::collection::vec(1u8..=255, 1..12),
        1 => "[a-z]{100,200}".prop_map(String::into_bytes),
    ]
    .prop_map(|mut name| {
        name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'_');
        if name == b"." || name == b".." { vec![b'x'] } else { name }
    })
}

pub(super) fn deeds(most: usize) -> impl Strategy<Value = Vec<Deed>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    let at = || any::<usize>();
    let deed = prop_oneof![
        6 => (at(), name(), bytes()).prop_map(|(at, name, bytes)| Deed::Write(at, name, bytes)),
        1 => (at(), name(), 0u32..300_000).prop_map(|(at, name, size)| Deed::Hole(at, name, size)),
        4 => (at(), name()).prop_map(|(at, name)| Deed::Directory(at, name)),
        2 => (at(), name(), name()).prop_map(|(at, name, target)| Deed::Link(at, name, target)),
        1 => (at(), at(), name()).prop_map(|(at, other, name)| Deed::Second(at, other, name)),
        2 => (at(), 0u32..0o1000).prop_map(|(at, mode)| Deed::Mode(at, mode)),
        2 => at().prop_map(Deed::Remove),
        2 => (at(), at(), name()).prop_map(|(at, to, name)| Deed::Rename(at, to, name)),
    ];
    proptest::collection::vec(deed, 0..most)
}

/// Every path below `root`, and `root` itself first.
fn paths(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut next = 0;
    while next < found.len() {
        if found[next].symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            let mut inside: Vec<PathBuf> =
                fs::read_dir(&found[next]).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
            inside.sort();
            found.extend(inside);
        }
        next += 1;
    }
    found
}

/// Does it; what cannot be done is left out.
pub(super) fn act(root: &Path, deeds: &[Deed]) {
    for deed in deeds {
        let paths = paths(root);
        let directories: Vec<&PathBuf> =
            paths.iter().filter(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir())).collect();
        let any = |at: &usize| &paths[at % paths.len()];
        let below = |at: &usize, name: &[u8]| {
            directories[at % directories.len()].join(OsString::from_vec(name.to_vec()))
        };
        match deed {
            Deed::Write(at, name, bytes) => {
                let path = below(at, name);
                if path.symlink_metadata().map_or(true, |meta| meta.is_file()) {
                    let _ = fs::write(path, bytes);
                }
            }
            Deed::Hole(at, name, size) => {
                let path = below(at, name);
                if path.symlink_metadata().is_err()
                    && let Ok(mut file) = File::create(path)
                {
                    file.set_len((*size).into()).unwrap();
                    file.write_all(b"begin").unwrap();
                }
            }
            Deed::Directory(at, name) => drop(fs::create_dir(below(at, name))),
            Deed::Link(at, name, target) => {
                drop(symlink(OsString::from_vec(target.clone()), below(at, name)));
            }
            Deed::Second(at, other, name) => {
                if any(other).symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                    let _ = fs::hard_link(any(other), below(at, name));
                }
            }
            Deed::Mode(at, mode) => {
                let path = any(at);
                let meta = path.symlink_metadata().unwrap();
                // What nobody may enter is a test of its own.
                let mode = if meta.is_dir() { mode | 0o700 } else { mode | 0o400 };
                if !meta.is_symlink() && path != root {
                    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
                }
            }
            Deed::Remove(at) => {
                let path = any(at);
                if path != root && fs::remove_file(path).is_err() {
                    let _ = fs::remove_dir_all(path);
                }
            }
            Deed::Rename(at, to, name) => {
                if any(at) != root {
                    let _ = fs::rename(any(at), below(to, name));
                }
            }
        }
    }
}

/// What one name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Is {
    Directory { mode: u32, time: Option<(i64, i64)> },
    File { mode: u32, content: Vec<u8>, time: Option<(i64, i64)>, first: PathBuf },
    Link { target: PathBuf },
    Other { mode: u32, device: u64 },
}

/// Every name below `root`; with times, and which files are one, where that is meant to be kept.
pub(super) fn describe(root: &Path, exactly: bool) -> BTreeMap<PathBuf, Is> {
    let mut firsts: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let all = paths(root);
    let mut sorted: Vec<&PathBuf> = all.iter().skip(1).collect();
    sorted.sort();
    let mut described = BTreeMap::new();
    for path in sorted {
        let relative = path.strip_prefix(root).unwrap().to_owned();
        let meta = path.symlink_metadata().unwrap();
        let (mode, time) = (meta.mode() & 0o7777, exactly.then(|| (meta.mtime(), meta.mtime_nsec())));
        let is = if meta.is_symlink() {
            Is::Link { target: fs::read_link(path).unwrap() }
        } else if meta.is_dir() {
            Is::Directory { mode, time }
        } else if !meta.is_file() {
            Is::Other { mode: meta.mode(), device: meta.rdev() }
        } else {
            let first = firsts.entry(meta.ino()).or_insert_with(|| relative.clone()).clone();
            let first = if exactly { first } else { PathBuf::new() };
            Is::File { mode, content: fs::read(path).unwrap(), time, first }
        };
        described.insert(relative, is);
    }
    described
}
