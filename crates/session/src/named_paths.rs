//! The paths of a workspace that `files.hide` and `protect.paths` name: those that are written, and those that a search finds
//! for patterns (saggar-policy(5)). The search follows no link, and fails where it would not be complete.

use rustix::fs::{Access, AtFlags, Dir, FileType, OFlags};
use saggar_policy::{
    BindMount, EffectivePolicy, PatternSet, PolicyDocument, PolicyLayer, Setting, WorkspacePattern,
};
use saggar_sys::beneath::{self, FileKind};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::text::{DisplayEscaped, summary};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of files and directories that are compared with the patterns: a few seconds.
const MAX_FILES: usize = 1_000_000;
/// Maximum number of paths that the patterns of one list match: each is a mount.
const MAX_MATCHES: usize = 1024;
/// Maximum size of the paths of directories that are still to be searched, in bytes.
const MAX_PENDING: usize = 64 << 20;
/// Longest path that a system call takes, in bytes, without the NUL (PATH_MAX).
const MAX_PATH: usize = 4095;

/// A path, relative to the workspace, and the layer whose entry names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    /// The path.
    pub path: PathBuf,
    /// The layer.
    pub layer: PolicyLayer,
}

/// An entry that names nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedEntry {
    /// The key of its list.
    pub key: &'static str,
    /// The entry as it is written.
    pub text: PathBuf,
    /// Its layer.
    pub layer: PolicyLayer,
}

impl fmt::Display for UnmatchedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} names nothing", self.key, self.text.escaped())
    }
}

/// The paths that the policy names in one workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NamedPaths {
    /// Paths that programs cannot read.
    pub hidden: Vec<NamedPath>,
    /// Paths that are read-only, those included that do not exist.
    pub protected: Vec<NamedPath>,
    /// Entries that name nothing that exists.
    pub unmatched: Vec<UnmatchedEntry>,
}

/// Finds the paths that the policy names in the tree at `root`, which is at `workspace` in the sandbox.
///
/// # Errors
/// [`Code::Invalid`] if the patterns match too much, or a path is too long; [`Code::System`] if a directory cannot be
/// searched.
pub fn find_named(root: &Path, workspace: &Path, policy: &EffectivePolicy) -> Result<NamedPaths> {
    let binds = policy.files.binds.iter().map(|bind| &bind.value);
    let mounts = binds.filter_map(|bind| MountedTree::new(bind, workspace)).collect();
    let found = find(root, &policy.files.hide, &policy.protect.paths, mounts)?;
    let long = found.hidden.iter().find(|named| workspace.join(&named.path).as_os_str().len() > MAX_PATH);
    match long {
        // Nothing could be mounted there, and a program finds it from a directory below the workspace.
        Some(named) => Err(too_deep(workspace, &named.path)),
        None => Ok(found),
    }
}

/// Notes on the policy of a folder: the entries that name nothing in it, or why that is not known.
pub fn folder_notes(folder: &Path, document: &PolicyDocument) -> Vec<String> {
    let settings = |entries: &[WorkspacePattern]| -> Vec<Setting<WorkspacePattern>> {
        entries.iter().map(|entry| Setting::new(entry.clone(), &PolicyLayer::CommandLine)).collect()
    };
    let (hide, protect) = (settings(&document.files.hide), settings(&document.protect.paths));
    match find(folder, &hide, &protect, Vec::new()) {
        Ok(found) => found.unmatched.iter().map(|entry| format!("{entry} in {}", folder.escaped())).collect(),
        Err(error) => vec![error.to_string()],
    }
}

fn find(
    root: &Path,
    hide: &[Setting<WorkspacePattern>],
    protect: &[Setting<WorkspacePattern>],
    mounts: Vec<MountedTree>,
) -> Result<NamedPaths> {
    if hide.is_empty() && protect.is_empty() {
        return Ok(NamedPaths::default());
    }
    let (mut hide, mut protect) = (List::new("files.hide", hide)?, List::new("protect.paths", protect)?);
    let has_patterns = !(hide.patterns.is_empty() && protect.patterns.is_empty());
    let unmatched = match beneath::open_root(root) {
        Ok(opened) => {
            if has_patterns {
                Search {
                    root: &opened,
                    shown: root,
                    hide: &mut hide,
                    protect: &mut protect,
                    mounts,
                    files: 0,
                }
                .run()?;
            }
            [hide.unmatched(&opened), protect.unmatched(&opened)].concat()
        }
        Err(e) if has_patterns => return Err(search_error(root, Path::new(""), e)),
        // The start itself says what is wrong with the workspace.
        Err(_) => Vec::new(),
    };
    hide.drop_harmless_links(root);
    let tops: Vec<PathBuf> = hide.matches.iter().map(|one| one.named.path.clone()).collect();
    let mut hidden = hide.named();
    // Nothing below a hidden directory exists in the sandbox.
    hidden.retain(|named| tops.iter().all(|top| named.path == *top || !named.path.starts_with(top)));
    Ok(NamedPaths { hidden, protected: protect.named(), unmatched })
}

/// A tree that the policy mounts in the workspace.
struct MountedTree {
    /// Its place, relative to the workspace.
    at: PathBuf,
    /// Whether it is the workspace's own tree at this place, such as one that is read-only.
    is_own: bool,
}

impl MountedTree {
    fn new(bind: &BindMount, workspace: &Path) -> Option<Self> {
        let at = bind.destination.strip_prefix(workspace).ok()?.to_owned();
        Some(MountedTree { at, is_own: bind.source == bind.destination })
    }
}

/// One list of the policy, and what its patterns match.
struct List<'a> {
    key: &'static str,
    entries: &'a [Setting<WorkspacePattern>],
    patterns: PatternSet,
    /// For each entry, whether its pattern has matched.
    has_matched: Vec<bool>,
    matches: Vec<Match>,
}

/// A path that a pattern matches.
struct Match {
    named: NamedPath,
    is_link: bool,
}

impl<'a> List<'a> {
    fn new(key: &'static str, entries: &'a [Setting<WorkspacePattern>]) -> Result<Self> {
        let patterns = PatternSet::new(entries.iter().map(|entry| &entry.value));
        let patterns = patterns.map_err(|e| Error::new(Code::Invalid, format!("{key}: {e}")))?;
        Ok(List { key, entries, patterns, has_matched: vec![false; entries.len()], matches: Vec::new() })
    }

    /// Compares a path with the list. Returns whether an entry names it, and if that is a pattern, the first one.
    fn compare(&mut self, path: &Path) -> (bool, Option<usize>) {
        let mut first = None;
        for place in self.patterns.matching(path) {
            if let Some(has_matched) = self.has_matched.get_mut(place) {
                *has_matched = true;
            }
            first = Some(first.map_or(place, |first: usize| first.min(place)));
        }
        let is_written =
            self.entries.iter().any(|entry| !entry.value.has_wildcards() && entry.value.text() == path);
        (is_written || first.is_some(), first.filter(|_| !is_written))
    }

    fn push(&mut self, path: &Path, pattern: usize, is_link: bool) -> Result<()> {
        let Some(entry) = self.entries.get(pattern) else { return Ok(()) };
        if self.matches.len() == MAX_MATCHES {
            let (key, pattern) = (self.key, entry.value.text().escaped());
            let message =
                format!("the patterns of {key} match more than {MAX_MATCHES} paths, the last one {pattern}");
            return Err(Error::new(Code::Invalid, message)
                .hint("name the directories that the files are in, such as DIR in place of DIR/**"));
        }
        self.matches
            .push(Match { named: NamedPath { path: path.to_owned(), layer: entry.layer.clone() }, is_link });
        Ok(())
    }

    fn unmatched(&self, root: &OwnedFd) -> Vec<UnmatchedEntry> {
        let entries = self.entries.iter().zip(&self.has_matched);
        let unmatched = entries.filter(|(entry, has_matched)| match entry.value.has_wildcards() {
            true => !**has_matched,
            false => !exists_beneath(root, entry.value.text()),
        });
        unmatched
            .map(|(entry, _)| UnmatchedEntry {
                key: self.key,
                text: entry.value.text().to_owned(),
                layer: entry.layer.clone(),
            })
            .collect()
    }

    /// Drops links that show nothing of the workspace: their targets do not exist, lie elsewhere, or are hidden, too. A sandbox
    /// with another link does not start, since its target would stay visible.
    #[expect(clippy::disallowed_methods, reason = "the target of a link, which is only compared")]
    fn drop_harmless_links(&mut self, root: &Path) {
        let Ok(top) = root.canonicalize() else { return };
        let entries = self.entries;
        self.matches.retain(|one| {
            let target = one.is_link.then(|| top.join(&one.named.path).canonicalize());
            target.is_none_or(|target| {
                let below = target.as_deref().ok().and_then(|target| target.strip_prefix(&top).ok());
                below.is_some_and(|below| !entries.iter().any(|entry| entry.value.covers(below)))
            })
        });
    }

    /// The written paths, and the matches in order.
    fn named(mut self) -> Vec<NamedPath> {
        self.matches.sort_by(|one, other| one.named.path.cmp(&other.named.path));
        let written = self.entries.iter().filter(|entry| !entry.value.has_wildcards());
        let written = written
            .map(|entry| NamedPath { path: entry.value.text().to_owned(), layer: entry.layer.clone() });
        written.chain(self.matches.into_iter().map(|one| one.named)).collect()
    }
}

fn exists_beneath(root: &OwnedFd, path: &Path) -> bool {
    let directory = beneath::open_directory(root.as_fd(), path.parent().unwrap_or(Path::new("")));
    let name = path.file_name().unwrap_or_default();
    directory.is_ok_and(|directory| {
        beneath::stat_beneath(directory.as_fd(), name).is_ok_and(|meta| meta.is_some())
    })
}

/// A directory that is to be searched.
struct PendingDirectory {
    path: PathBuf,
    /// Whether it is read-only as a whole, so that nothing below it has to be.
    is_protected: bool,
}

struct Search<'a, 'b> {
    root: &'a OwnedFd,
    /// For messages.
    shown: &'a Path,
    hide: &'a mut List<'b>,
    protect: &'a mut List<'b>,
    mounts: Vec<MountedTree>,
    files: usize,
}

impl Search<'_, '_> {
    fn run(&mut self) -> Result<()> {
        let mut pending = vec![PendingDirectory { path: PathBuf::new(), is_protected: false }];
        let mut size = 0;
        while let Some(directory) = pending.pop() {
            size -= directory.path.as_os_str().len();
            let before = pending.len();
            self.search_directory(&directory, &mut pending)?;
            size += pending.iter().skip(before).map(|new| new.path.as_os_str().len()).sum::<usize>();
            if size > MAX_PENDING {
                return Err(self.too_large("has too many directories"));
            }
        }
        Ok(())
    }

    fn search_directory(
        &mut self,
        directory: &PendingDirectory,
        pending: &mut Vec<PendingDirectory>,
    ) -> Result<()> {
        let fail = |e: io::Error| search_error(self.shown, &directory.path, e);
        let opened = match beneath::open_directory(self.root.as_fd(), &directory.path) {
            // Another program has removed or replaced it.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => {
                return Ok(());
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && self.is_closed(&directory.path) => {
                return Ok(());
            }
            opened => opened.map_err(fail)?,
        };
        let is_own = self.shows_own_files(&directory.path);
        for entry in Dir::read_from(&opened).map_err(|errno| fail(errno.into()))? {
            let entry = entry.map_err(|errno| fail(errno.into()))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.files += 1;
            if self.files > MAX_FILES {
                return Err(self.too_large(&format!("has more than {MAX_FILES} files")));
            }
            let kind = match entry.file_type() {
                FileType::Directory => FileKind::Directory,
                FileType::Symlink => FileKind::Symlink,
                FileType::Unknown => match beneath::stat_beneath(opened.as_fd(), name).map_err(fail)? {
                    Some(meta) => meta.kind,
                    None => continue,
                },
                _ => FileKind::File,
            };
            let found =
                PendingDirectory { path: directory.path.join(name), is_protected: directory.is_protected };
            pending.extend(self.compare(found, kind, is_own)?);
        }
        Ok(())
    }

    /// Compares a path with the lists, if it is in the workspace's own tree. Returns it if the search continues below it.
    fn compare(
        &mut self,
        mut found: PendingDirectory,
        kind: FileKind,
        is_own: bool,
    ) -> Result<Option<PendingDirectory>> {
        if is_own {
            let is_link = kind == FileKind::Symlink;
            let (is_protected, pattern) = self.protect.compare(&found.path);
            if let Some(pattern) = pattern.filter(|_| !found.is_protected) {
                self.protect.push(&found.path, pattern, is_link)?;
            }
            found.is_protected |= is_protected;
            let (is_hidden, pattern) = self.hide.compare(&found.path);
            if let Some(pattern) = pattern {
                self.hide.push(&found.path, pattern, is_link)?;
            }
            // Nothing below a hidden directory exists in the sandbox.
            if is_hidden {
                return Ok(None);
            }
        }
        let continues = kind == FileKind::Directory
            && (self.shows_own_files(&found.path)
                || self.mounts.iter().any(|mount| mount.is_own && mount.at.starts_with(&found.path)));
        Ok(continues.then_some(found))
    }

    /// Whether the sandbox shows the workspace's own files in this directory. The place of a mount is one of those of the
    /// directory above it.
    fn shows_own_files(&self, directory: &Path) -> bool {
        let at = self.mounts.iter().filter(|mount| directory.starts_with(&mount.at));
        at.max_by_key(|mount| mount.at.components().count()).is_none_or(|mount| mount.is_own)
    }

    /// Whether this directory, which cannot be read, belongs to another user, and the caller cannot enter it: neither can
    /// programs in the sandbox.
    fn is_closed(&self, path: &Path) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let Ok(directory) = beneath::open(self.root.as_fd(), path, flags, 0) else { return false };
        let belongs_to_caller = |owner| owner == nix::unistd::geteuid().as_raw();
        rustix::fs::fstat(&directory).is_ok_and(|stat| !belongs_to_caller(stat.st_uid))
            && rustix::fs::accessat(&directory, ".", Access::EXEC_OK, AtFlags::EACCESS).is_err()
    }

    fn too_large(&self, why: &str) -> Error {
        let message =
            format!("the workspace {} {why}, and the policy has patterns of paths", self.shown.escaped());
        Error::new(Code::Invalid, message).hint(
            "write paths in files.hide and protect.paths, or hide the directories with most of the files",
        )
    }
}

fn search_error(root: &Path, directory: &Path, error: io::Error) -> Error {
    if error.raw_os_error() == Some(libc::ENAMETOOLONG) {
        return too_deep(root, directory);
    }
    let shown = root.join(directory);
    Error::system(
        format_args!("search {} for the patterns of files.hide and protect.paths", shown.display()),
        error,
    )
    .hint("make it readable, or name it in files.hide")
}

/// The error for a path that no system call takes, with its beginning.
fn too_deep(root: &Path, path: &Path) -> Error {
    let top = path.components().next().map_or(root.to_owned(), |first| root.join(first));
    let shown = summary(&path.display().to_string());
    let message = format!(
        "a path in {} is too long to be hidden, or to be searched for patterns: {shown}",
        root.display()
    );
    Error::new(Code::Invalid, message).hint(format!("remove it, or name {} in files.hide", top.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn settings(entries: &[&str]) -> Vec<Setting<WorkspacePattern>> {
        entries.iter().map(|text| Setting::new(text.parse().unwrap(), &PolicyLayer::CommandLine)).collect()
    }

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        directory
    }

    fn paths(named: &[NamedPath]) -> Vec<&str> {
        named.iter().map(|named| named.path.to_str().unwrap()).collect()
    }

    #[test]
    fn written_paths_and_matches_are_found_in_order() {
        let tree = tree(&["z.env", "a/b.env", "keys/x.env", "lock", "ci/x/y", "vendor/a.env"]);
        let hide = settings(&["gone", "*.env", "keys", "keys/x.env"]);
        let protect = settings(&["vendor", "ci/**", "lock", "*.none"]);
        let found = find(tree.path(), &hide, &protect, Vec::new()).unwrap();
        assert_eq!(paths(&found.hidden), ["gone", "keys", "keys/x.env", "a/b.env", "vendor/a.env", "z.env"]);
        assert_eq!(paths(&found.protected), ["vendor", "lock", "ci/x"]);
        let unmatched: Vec<String> = found.unmatched.iter().map(ToString::to_string).collect();
        assert_eq!(unmatched, ["files.hide: gone names nothing", "protect.paths: *.none names nothing"]);
    }

    #[test]
    fn links_are_not_followed_and_kept_only_where_they_show_something() {
        let tree = tree(&["real.env", "plain", "d/e.env"]);
        for (link, target) in
            [("a.env", "real.env"), ("b.env", "plain"), ("c.env", "/etc"), ("e.env", "none"), ("dir", "d")]
        {
            symlink(target, tree.path().join(link)).unwrap();
        }
        let found = find(tree.path(), &settings(&["*.env"]), &[], Vec::new()).unwrap();
        assert_eq!(paths(&found.hidden), ["b.env", "d/e.env", "real.env"]);
        let found = find(tree.path(), &[], &settings(&["*.env"]), Vec::new()).unwrap();
        assert_eq!(paths(&found.protected), ["a.env", "b.env", "c.env", "d/e.env", "e.env", "real.env"]);
    }

    #[test]
    fn mounted_trees_have_names_of_their_own() {
        let tree = tree(&["data/a.env", "data/own/b.env", "data/own/other/c.env", "d.env"]);
        let mounts = [("data", false), ("data/own", true), ("data/own/other", false)];
        let mounts = mounts.map(|(at, is_own)| MountedTree { at: at.into(), is_own });
        let found = find(tree.path(), &settings(&["*.env", "oth*"]), &[], mounts.into()).unwrap();
        assert_eq!(paths(&found.hidden), ["d.env", "data/own/b.env", "data/own/other"]);
    }

    #[test]
    fn bounds_are_errors() {
        let many: Vec<String> = (0..=MAX_MATCHES).map(|number| format!("{number}.env")).collect();
        let tree = tree(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let error = find(tree.path(), &settings(&["*.env"]), &[], Vec::new()).unwrap_err();
        assert!(error.to_string().contains("files.hide match more than 1024"), "{error}");
        let error = too_deep(Path::new("/w"), Path::new(&"d/".repeat(3000)));
        assert!(error.to_string().len() < 1000 && error.hint_text().unwrap().contains("/w/d"), "{error}");
        let missing = find(Path::new("/nonexistent"), &settings(&["*.env"]), &[], Vec::new()).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent"), "{missing}");
        assert!(find(Path::new("/nonexistent"), &settings(&["a"]), &[], Vec::new()).is_ok());
    }
}
