//! The paths of a workspace that `files.hide` and `protect.paths` name: those that are written, and those that a search finds
//! for patterns (saggar-policy(5)). The search follows no link, and fails where it cannot be complete.

use rustix::fs::{Dir, FileType};
use saggar_policy::{BindMount, EffectivePolicy, PolicyDocument, PolicyLayer, Setting, WorkspacePattern};
use saggar_sys::beneath::{self, FileKind};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::text::DisplayEscaped;
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
/// Maximum size of the paths that a search remembers, in bytes.
const MAX_PATH_BYTES: usize = 64 << 20;

/// The names of the lists.
const HIDE: &str = "files.hide";
const PROTECT: &str = "protect.paths";

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
/// [`Code::Invalid`] if the patterns match too much; [`Code::System`] if a directory cannot be searched.
pub fn find_named(root: &Path, workspace: &Path, policy: &EffectivePolicy) -> Result<NamedPaths> {
    let binds = policy.files.binds.iter().map(|bind| &bind.value);
    let covered = binds.filter_map(|bind| covered_by(bind, workspace)).collect();
    find(root, &policy.files.hide, &policy.protect.paths, covered)
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
    covered: Vec<PathBuf>,
) -> Result<NamedPaths> {
    let mut found = NamedPaths::default();
    if hide.is_empty() && protect.is_empty() {
        return Ok(found);
    }
    let lists = [List::new(HIDE, hide), List::new(PROTECT, protect)];
    let has_patterns = lists.iter().any(List::has_patterns);
    let opened = match beneath::open_root(root) {
        Ok(opened) => opened,
        Err(e) if has_patterns => return Err(search_error(root, e)),
        // The start itself says what is wrong with the workspace.
        Err(_) => {
            let [hidden, protected] = lists.map(|list| list.paths());
            return Ok(NamedPaths { hidden, protected, ..found });
        }
    };
    let mut search = Search { root: &opened, shown: root, lists, covered, files: 0, path_bytes: 0 };
    if has_patterns {
        search.run()?;
    }
    let [hide, protect] = &mut search.lists;
    hide.drop_harmless_links(root);
    hide.keep_topmost();
    for list in [&*hide, &*protect] {
        let exists = |entry: &Setting<WorkspacePattern>| match entry.value.has_wildcards() {
            true => list.matched.iter().any(|one| entry.value.matches(&one.path)),
            false => exists_beneath(&opened, entry.value.text()),
        };
        let unmatched = list.entries.iter().filter(|entry| !exists(entry));
        found.unmatched.extend(unmatched.map(|entry| UnmatchedEntry {
            key: list.key,
            text: entry.value.text().to_owned(),
            layer: entry.layer.clone(),
        }));
    }
    found.hidden = search.lists[0].paths();
    found.protected = search.lists[1].paths();
    Ok(found)
}

/// The directory of the workspace that another tree is mounted over.
fn covered_by(bind: &BindMount, workspace: &Path) -> Option<PathBuf> {
    let below = bind.destination.strip_prefix(workspace).ok()?;
    (bind.source != bind.destination).then(|| below.to_owned())
}

fn exists_beneath(root: &OwnedFd, path: &Path) -> bool {
    let above = path.parent().unwrap_or(Path::new(""));
    let directory = beneath::open_directory(root.as_fd(), above);
    let name = path.file_name().unwrap_or_default();
    directory.is_ok_and(|directory| {
        beneath::stat_beneath(directory.as_fd(), name).is_ok_and(|meta| meta.is_some())
    })
}

/// One list of the policy, and what its patterns match.
struct List<'a> {
    key: &'static str,
    entries: &'a [Setting<WorkspacePattern>],
    matched: Vec<Match>,
}

/// A path that a pattern matches.
struct Match {
    path: PathBuf,
    layer: PolicyLayer,
    is_link: bool,
}

impl<'a> List<'a> {
    fn new(key: &'static str, entries: &'a [Setting<WorkspacePattern>]) -> Self {
        List { key, entries, matched: Vec::new() }
    }

    fn has_patterns(&self) -> bool {
        self.entries.iter().any(|entry| entry.value.has_wildcards())
    }

    fn entry_for(&self, path: &Path) -> Option<&'a Setting<WorkspacePattern>> {
        self.entries.iter().find(|entry| entry.value.matches(path))
    }

    fn push(&mut self, path: &Path, entry: &Setting<WorkspacePattern>, is_link: bool) -> Result<()> {
        if !entry.value.has_wildcards() {
            return Ok(());
        }
        if self.matched.len() == MAX_MATCHES {
            let message = format!("the patterns of {} match more than {MAX_MATCHES} paths", self.key);
            return Err(Error::new(Code::Invalid, message).hint("name the directories that the files are in"));
        }
        self.matched.push(Match { path: path.to_owned(), layer: entry.layer.clone(), is_link });
        Ok(())
    }

    /// Drops links that show nothing of the workspace: their targets do not exist, lie elsewhere, or are hidden, too. A sandbox
    /// with another link does not start, since its target would stay visible.
    #[expect(clippy::disallowed_methods, reason = "the target of a link, which is only compared")]
    fn drop_harmless_links(&mut self, root: &Path) {
        let Ok(top) = root.canonicalize() else { return };
        let entries = self.entries;
        self.matched.retain(|one| {
            let target = one.is_link.then(|| top.join(&one.path).canonicalize());
            target.is_none_or(|target| {
                let below = target.as_deref().ok().and_then(|target| target.strip_prefix(&top).ok());
                below.is_some_and(|below| !entries.iter().any(|entry| entry.value.covers(below)))
            })
        });
    }

    /// Drops what lies below another match: nothing of it exists in the sandbox.
    fn keep_topmost(&mut self) {
        let tops: Vec<PathBuf> = self.matched.iter().map(|one| one.path.clone()).collect();
        let is_below = |path: &Path| tops.iter().any(|top| path != top && path.starts_with(top));
        self.matched.retain(|one| !is_below(&one.path));
    }

    /// The written paths and the matches.
    fn paths(&self) -> Vec<NamedPath> {
        let is_below = |path: &Path| self.matched.iter().any(|one| path.starts_with(&one.path));
        let written = self.entries.iter().filter(|entry| !entry.value.has_wildcards());
        let written = written
            .map(|entry| NamedPath { path: entry.value.text().to_owned(), layer: entry.layer.clone() })
            .filter(|named| self.key != HIDE || !is_below(&named.path));
        let matched = self.matched.iter();
        let matched = matched
            .map(|one| NamedPath { path: one.path.clone(), layer: one.layer.clone() })
            .collect::<Vec<_>>();
        written.chain(matched).collect()
    }
}

struct Search<'a> {
    root: &'a OwnedFd,
    /// For messages.
    shown: &'a Path,
    /// `files.hide` and `protect.paths`.
    lists: [List<'a>; 2],
    /// Directories that something else is mounted over.
    covered: Vec<PathBuf>,
    files: usize,
    path_bytes: usize,
}

impl Search<'_> {
    fn run(&mut self) -> Result<()> {
        let mut directories = vec![PathBuf::new()];
        while let Some(directory) = directories.pop() {
            self.path_bytes -= directory.as_os_str().len();
            self.search_directory(&directory, &mut directories)?;
        }
        for list in &mut self.lists {
            list.matched.sort_by(|one, other| one.path.cmp(&other.path));
        }
        Ok(())
    }

    fn search_directory(&mut self, directory: &Path, directories: &mut Vec<PathBuf>) -> Result<()> {
        let fail = |e: io::Error| search_error(&self.shown.join(directory), e);
        let opened = match beneath::open_directory(self.root.as_fd(), directory) {
            // Another program has removed or replaced it.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => {
                return Ok(());
            }
            opened => opened.map_err(fail)?,
        };
        let entries = Dir::read_from(&opened).map_err(|errno| fail(errno.into()))?;
        for entry in entries {
            let entry = entry.map_err(|errno| fail(errno.into()))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.files += 1;
            if self.files > MAX_FILES {
                return Err(self.too_large(&format!("has more than {MAX_FILES} files")));
            }
            let path = directory.join(name);
            let kind = match entry.file_type() {
                FileType::Directory => FileKind::Directory,
                FileType::Symlink => FileKind::Symlink,
                FileType::Unknown => match beneath::stat_beneath(opened.as_fd(), name).map_err(fail)? {
                    Some(meta) => meta.kind,
                    None => continue,
                },
                _ => FileKind::File,
            };
            if self.compare(&path, kind)? {
                self.path_bytes += path.as_os_str().len();
                if self.path_bytes > MAX_PATH_BYTES {
                    return Err(self.too_large("has too many directories"));
                }
                directories.push(path);
            }
        }
        Ok(())
    }

    /// Compares a path with the lists. Returns whether the search continues below it.
    fn compare(&mut self, path: &Path, kind: FileKind) -> Result<bool> {
        if self.covered.iter().any(|covered| covered == path) {
            return Ok(false);
        }
        let [hide, protect] = &mut self.lists;
        if let Some(entry) = protect.entry_for(path) {
            protect.push(path, entry, kind == FileKind::Symlink)?;
        }
        // Nothing below a hidden directory exists in the sandbox.
        if let Some(entry) = hide.entry_for(path) {
            hide.push(path, entry, kind == FileKind::Symlink)?;
            return Ok(false);
        }
        Ok(kind == FileKind::Directory)
    }

    fn too_large(&self, why: &str) -> Error {
        let message =
            format!("the workspace {} {why}, and the policy has patterns of paths", self.shown.escaped());
        Error::new(Code::Invalid, message).hint(
            "write paths in files.hide and protect.paths, or hide the directories with most of the files",
        )
    }
}

/// A search that is not complete would show what is to be hidden.
fn search_error(path: &Path, error: io::Error) -> Error {
    Error::system(
        format_args!("search {} for the patterns of files.hide and protect.paths", path.display()),
        error,
    )
    .hint("make it readable, or name it in files.hide")
}
