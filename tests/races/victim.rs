//! What lies outside of the trees that a verb works on, and must stay as it is and unread.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What must never be read into a tree, a snapshot or an output.
pub(super) const SECRET: &str = "SECRET-that-no-tree-may-hold";
/// What an adversary can give a second name to, or mount: it may be read, and not changed.
const PLAIN: &str = "text that may be read\n";

/// A tree outside of the folder.
pub(super) struct Victim {
    pub(super) root: PathBuf,
    before: Vec<Seen>,
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    path: PathBuf,
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    attributes: Vec<u8>,
    content: Vec<u8>,
}

impl Victim {
    /// Makes one in the empty directory `root`, for `own` to give its files to their owner.
    pub(super) fn new(root: PathBuf, own: impl Fn(&Path)) -> Self {
        for name in ["dir", "mounted", "mounted/sub"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let files = [
            ("file", SECRET, 0o600),
            ("dir/key", SECRET, 0o600),
            ("dir/run", SECRET, 0o750),
            ("linked", PLAIN, 0o640),
            ("mounted/file", PLAIN, 0o640),
            ("mounted/sub/file", PLAIN, 0o640),
        ];
        for (name, content, mode) in files {
            fs::write(root.join(name), content).unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        for (name, mode) in [("dir", 0o710), ("mounted", 0o750), ("mounted/sub", 0o750), ("", 0o750)] {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        for path in below(&root) {
            own(&path);
        }
        let before = Victim::see(&root);
        Victim { root, before }
    }

    fn see(root: &Path) -> Vec<Seen> {
        let see = |path: PathBuf| {
            let meta = path.symlink_metadata().unwrap();
            let content = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let mut attributes = vec![0; 4096];
            let length = rustix::fs::llistxattr(&path, &mut attributes[..]).unwrap();
            attributes.truncate(length);
            let (owner, mtime) = ((meta.uid(), meta.gid()), (meta.mtime(), meta.mtime_nsec()));
            Seen { path, mode: meta.mode(), owner, mtime, attributes, content }
        };
        below(root).into_iter().map(see).collect()
    }

    /// Whether it is as it was: names, content, modes, owners, attributes and times.
    pub(super) fn check(&self, when: &str) {
        let now = Victim::see(&self.root);
        let changed = |one: &[Seen], other: &[Seen]| -> Vec<String> {
            one.iter().filter(|seen| !other.contains(seen)).map(|seen| format!("{seen:?}")).collect()
        };
        assert_eq!(changed(&now, &self.before), changed(&self.before, &now), "{when}");
    }
}

/// `root` and everything below it, sorted.
fn below(root: &Path) -> Vec<PathBuf> {
    let mut paths = vec![root.to_owned()];
    let mut next = 0;
    while next < paths.len() {
        if paths[next].symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            let entries = fs::read_dir(&paths[next]).into_iter().flatten().flatten();
            paths.extend(entries.map(|entry| entry.path()));
        }
        next += 1;
    }
    paths.sort();
    paths
}

/// Panics when a file below `root` holds the secret; archives are unpacked.
pub(super) fn has_no_secret(root: &Path, when: &str) {
    for path in below(root) {
        if !path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let mut bytes = fs::read(&path).unwrap_or_default();
        if let Ok(unpacked) = zstd::decode_all(&bytes[..]) {
            bytes = unpacked;
        }
        let found = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
        assert!(!found, "{when}: {} holds the secret", path.display());
    }
}
