//! Scans one git directory for files that the host's git would run, or obey to run something else. Content
//! from a sandbox is removed, and the directory remains a usable repository.

use super::baseline::RepositoryRecord;
use super::git_allow_list::{self, is_allowed, is_allowed_in_sequencer};
use super::walk::WorkspaceScan;
use super::{
    OpenDirectory, QuarantineAction, ScanMeta, git_config, open_directory, open_readable, rebase_todo,
};
use saggar_policy::protect::{is_above_protected, is_git_directory_entry, protection_reason};
use saggar_sys::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};

/// The most new entries of a hooks directory; one with more is moved as a whole.
const MAX_HOOKS: usize = 32;
/// The most entries of a hooks directory that are read.
const MAX_HOOK_ENTRIES: usize = 4096;
/// The most entries that are searched for links.
const MAX_LINK_ENTRIES: usize = 1 << 17;
/// The longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A git directory and the facts known about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct GitDirectory<'a> {
    /// The open directory.
    pub(super) here: OpenDirectory<'a>,
    /// Whether the sandbox may have put it at its path: then everything in it is treated as new.
    pub(super) moved: bool,
    /// Its record in the baseline, if it existed at the start.
    pub(super) known: Option<&'a RepositoryRecord>,
}

impl GitDirectory<'_> {
    /// Scans all of it. The git directories that it points to are added to `scan.targets`, each with
    /// whether the pointer is new.
    pub(super) fn scan(&self, scan: &mut WorkspaceScan<'_, '_>) {
        for name in ["config", "config.worktree"] {
            if scan.baseline.git_config || self.known.is_none() {
                self.scan_config(name, scan);
            }
        }
        self.scan_hooks(scan);
        self.scan_common_directory(scan);
        self.scan_alternates(scan);
        for name in ["remotes", "branches"] {
            self.scan_legacy_remotes(name, scan);
        }
        self.scan_unfinished(scan);
        self.scan_links(scan);
        if self.here.path.as_os_str().is_empty() {
            self.scan_foreign_entries(scan);
        }
    }

    /// Links through which git would write to another file. Objects by themselves are not searched: git replaces no file
    /// there, and there are many.
    fn scan_links(&self, scan: &mut WorkspaceScan<'_, '_>) {
        // The top has a bound of its own: a program can fill it.
        let (directories, _) = self.report_links(Path::new(""), MAX_LINK_ENTRIES, scan);
        let is_searched =
            |name: &OsString| !["worktrees", "modules", "objects"].iter().any(|other| name == other);
        let mut pending: Vec<PathBuf> =
            directories.into_iter().filter(is_searched).map(PathBuf::from).collect();
        pending.extend(["objects/info", "objects/pack"].map(PathBuf::from));
        let mut left = MAX_LINK_ENTRIES;
        while left > 0
            && let Some(path) = pending.pop()
        {
            let (directories, count) = self.report_links(&path, left, scan);
            left = left.saturating_sub(count);
            pending.extend(directories.iter().map(|name| path.join(name)));
        }
    }

    /// Reports the new links in the directory `path`, and the directory itself if it cannot be read or has `limit` entries.
    /// Returns its directories and the number of its entries.
    fn report_links(
        &self,
        path: &Path,
        limit: usize,
        scan: &mut WorkspaceScan<'_, '_>,
    ) -> (Vec<OsString>, usize) {
        let is_top = path.as_os_str().is_empty();
        let at = self.here.path.join(path);
        let opened = open_readable(self.here.directory, if is_top { Path::new(".") } else { path });
        let read = opened.and_then(|directory| {
            let here = OpenDirectory { path: &at, directory: directory.as_fd() };
            let (links, directories, count) = here.links(limit)?;
            for name in links {
                let is_new = |meta: ScanMeta| self.moved || meta.changed(scan.baseline.since_ns);
                let is_head = is_top && name == "HEAD" && here.read_link(&name).is_some_and(is_reference);
                if here.stat(&name).is_ok_and(is_new) && !is_head {
                    here.report(&name, LINK_REASON, QuarantineAction::Move, scan.on_finding);
                }
            }
            Ok((directories, count))
        });
        match read {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return (Vec::new(), 0),
            Ok((directories, count)) if count < limit => return (directories, count),
            _ => self.report_unsearched(path, scan),
        }
        read.unwrap_or_default()
    }

    fn report_unsearched(&self, path: &Path, scan: &mut WorkspaceScan<'_, '_>) {
        let path = if path.as_os_str().is_empty() { Path::new("HEAD") } else { path };
        let reason = "cannot be searched for links: run no git there before you have looked";
        self.here.report_below(path, reason, QuarantineAction::Report, scan.on_finding);
    }

    /// New entries at the top of a git directory outside of the workspace that are no part of it: those that programs of
    /// the host obey are moved. Work trees that the host's git made there meanwhile are known to it.
    fn scan_foreign_entries(&self, scan: &mut WorkspaceScan<'_, '_>) {
        let Some(extent) = &scan.baseline.git_directory else { return };
        let Ok(names) = self.here.names(MAX_LINK_ENTRIES) else {
            return self.report_unsearched(Path::new(""), scan);
        };
        let foreign = names.into_iter().filter(|name| !is_git_directory_entry(name));
        let is_hidden = |name: &OsString| extent.foreign.iter().any(|path| path.as_path().starts_with(name));
        let new: Vec<OsString> = foreign.filter(|name| !is_hidden(name)).collect();
        let trees = if new.is_empty() { Vec::new() } else { self.inner_work_trees(scan) };
        for name in new {
            let is_new = |meta: ScanMeta| meta.changed(scan.baseline.since_ns);
            if !self.here.stat(&name).is_ok_and(is_new) || trees.iter().any(|tree| tree.starts_with(&name)) {
                continue;
            }
            let path = Path::new(&name);
            let action = match protection_reason(path).is_some() || is_above_protected(path) {
                true => QuarantineAction::Move,
                false => QuarantineAction::Report,
            };
            self.here.report(&name, "is no part of a git directory", action, scan.on_finding);
        }
    }

    /// The work trees in it that `worktrees` names.
    fn inner_work_trees(&self, scan: &WorkspaceScan<'_, '_>) -> Vec<PathBuf> {
        let Ok(parts) = open_directory(self.here.directory, Path::new("worktrees")) else {
            return Vec::new();
        };
        let parts = OpenDirectory { path: Path::new("worktrees"), directory: parts.as_fd() };
        let Ok((_, names)) = parts.entries(MAX_LINK_ENTRIES) else { return Vec::new() };
        let tree = |name: &OsString| {
            let text = super::read_bounded(parts.directory, &Path::new(name).join("gitdir"), 1 << 13)?;
            let top = text.trim_ascii_end().strip_suffix(b"/.git")?;
            scan.resolve(&parts.path.join(name), top)
        };
        names.iter().filter_map(tree).collect()
    }

    /// The metadata of `path` in it, if the sandbox may have written the file.
    fn new_file(&self, path: &str, scan: &WorkspaceScan<'_, '_>) -> Option<ScanMeta> {
        let meta = self.here.stat(OsStr::new(path)).ok()?;
        let new = self.moved || meta.changed(scan.baseline.since_ns);
        (new && !scan.baseline.is_pinned(&self.here.path.join(path), &meta)).then_some(meta)
    }

    fn report(
        &self,
        path: &str,
        reason: impl Into<String>,
        action: QuarantineAction,
        scan: &mut WorkspaceScan<'_, '_>,
    ) {
        self.here.report_below(Path::new(path), reason, action, scan.on_finding);
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        super::read_bounded(self.here.directory, Path::new(path), MAX_FILE_BYTES)
    }

    /// A configuration keeps the allowed variables, and those that it had at the start. It is not removed
    /// as a whole: without one, git would not recognize the directory, and the work in it would be
    /// inaccessible.
    fn scan_config(&self, name: &str, scan: &mut WorkspaceScan<'_, '_>) {
        let Some(meta) = self.new_file(name, scan) else { return };
        if !meta.is_file() {
            return self.report(
                name,
                "no file, where git reads its configuration",
                QuarantineAction::Move,
                scan,
            );
        }
        let before = self.known.map(|known| known.config_entries(name)).unwrap_or_default();
        let anew = || match before.as_slice() {
            [] => QuarantineAction::Move,
            before => QuarantineAction::Replace(git_config::render(before)),
        };
        let Some(text) = self.read(name) else {
            return self.report(name, "a configuration that cannot be read", anew(), scan);
        };
        let Ok(entries) = git_config::parse(&text) else {
            return self.report(name, "a configuration that git does not read", anew(), scan);
        };
        let is_inside = |path: &[u8]| scan.resolve(self.here.path, path).is_some();
        let stays = |entry: &git_config::ConfigEntry| is_allowed(entry, &is_inside) || before.contains(entry);
        let (kept, gone): (Vec<_>, Vec<_>) = entries.into_iter().partition(stays);
        if !gone.is_empty() {
            let why = format!("sets {}", git_config::summarize_names(&gone));
            self.report(name, why, QuarantineAction::Replace(git_config::render(&kept)), scan);
        } else if meta.links > 1 {
            self.report(name, HARD_LINK_REASON, QuarantineAction::Replace(text), scan);
        }
    }

    fn scan_hooks(&self, scan: &mut WorkspaceScan<'_, '_>) {
        const NAME: &str = "hooks";
        let Ok(meta) = self.here.stat(OsStr::new(NAME)) else { return };
        if scan.baseline.is_pinned(&self.here.path.join(NAME), &meta) {
            return;
        }
        if meta.is_link() {
            if self.moved || meta.changed(scan.baseline.since_ns) {
                self.report(NAME, "a link to hooks that git runs", QuarantineAction::Move, scan);
            }
            return;
        }
        let Ok(directory) = open_readable(self.here.directory, Path::new(NAME)) else { return };
        let known = self.known.and_then(|known| known.hooks) == Some(meta.identity());
        let both = meta.changed(scan.baseline.since_ns)
            && ScanMeta::of(self.here.directory).is_ok_and(|meta| meta.changed(scan.baseline.since_ns));
        let moved = !known && (self.moved || self.known.is_some() || both);
        let path = self.here.path.join(NAME);
        let hooks = OpenDirectory { path: &path, directory: directory.as_fd() };
        let new = match hooks.names(MAX_HOOK_ENTRIES) {
            Ok(names) => new_hooks(&hooks, names, moved, scan),
            Err(_) => None,
        };
        match new {
            Some(new) if new.len() <= MAX_HOOKS => {
                for name in new {
                    hooks.report(&name, "a hook that git runs", QuarantineAction::Move, scan.on_finding);
                }
            }
            Some(new) => self.report(
                NAME,
                format!("{} hooks that git runs", new.len()),
                QuarantineAction::EmptyDirectory,
                scan,
            ),
            None => {
                self.report(NAME, "more hooks than are looked at", QuarantineAction::EmptyDirectory, scan)
            }
        }
    }

    /// A `commondir` file: another directory whose hooks and configuration git obeys.
    fn scan_common_directory(&self, scan: &mut WorkspaceScan<'_, '_>) {
        const NAME: &str = "commondir";
        if self.here.stat(OsStr::new(NAME)).is_err() {
            return;
        }
        let new = self.new_file(NAME, scan).is_some();
        let text = self.read(NAME);
        let target =
            text.as_deref().map(<[u8]>::trim_ascii_end).and_then(|to| scan.resolve(self.here.path, to));
        match target {
            Some(target) => scan.targets.push((target, new)),
            None if new => self.report(NAME, "leads git out of the workspace", QuarantineAction::Move, scan),
            None => {}
        }
    }

    /// Alternate object stores.
    fn scan_alternates(&self, scan: &mut WorkspaceScan<'_, '_>) {
        const NAME: &str = "objects/info/alternates";
        if self.new_file("objects/info/http-alternates", scan).is_some() {
            self.report(
                "objects/info/http-alternates",
                "names stores of objects",
                QuarantineAction::Move,
                scan,
            );
        }
        if self.new_file(NAME, scan).is_none() {
            return;
        }
        let objects = self.here.path.join("objects");
        let inside =
            |line: &[u8]| line.is_empty() || line.starts_with(b"#") || scan.resolve(&objects, line).is_some();
        let text = self.read(NAME);
        if !text.is_some_and(|text| text.split(|byte| *byte == b'\n').all(inside)) {
            self.report(NAME, "names stores of objects out of the workspace", QuarantineAction::Move, scan);
        }
    }

    /// Remotes in the format before git configurations (gitrepository-layout(5)).
    fn scan_legacy_remotes(&self, holder: &str, scan: &mut WorkspaceScan<'_, '_>) {
        let Ok(directory) = open_readable(self.here.directory, Path::new(holder)) else { return };
        let path = self.here.path.join(holder);
        let remotes = OpenDirectory { path: &path, directory: directory.as_fd() };
        let Ok(names) = remotes.names(MAX_HOOKS) else {
            return self.report(
                holder,
                "more remotes than are looked at",
                QuarantineAction::EmptyDirectory,
                scan,
            );
        };
        for name in names {
            let new = |meta: ScanMeta| self.moved || meta.changed(scan.baseline.since_ns);
            if remotes.stat(&name).is_ok_and(new) {
                remotes.report(&name, "sets where a remote is", QuarantineAction::Move, scan.on_finding);
            }
        }
    }

    /// A rebase, cherry-pick or revert that can be continued.
    fn scan_unfinished(&self, scan: &mut WorkspaceScan<'_, '_>) {
        for (holder, list) in
            [("rebase-merge", "rebase-merge/git-rebase-todo"), ("sequencer", "sequencer/todo")]
        {
            let Ok(meta) = self.here.stat(OsStr::new(holder)) else { continue };
            if meta.is_link() {
                if self.moved || meta.changed(scan.baseline.since_ns) {
                    self.report(holder, "a link to what git is to continue", QuarantineAction::Move, scan);
                }
                continue;
            }
            // A list that was moved here is treated like one that was written here.
            let both = meta.changed(scan.baseline.since_ns) && self.known.is_none();
            let here = GitDirectory { moved: self.moved || both, ..*self };
            here.scan_todo_list(list, scan);
        }
        for name in ["rebase-merge/strategy", "rebase-apply/strategy"] {
            let text = self.new_file(name, scan).and_then(|_| self.read(name));
            let harmless = |text: &[u8]| {
                git_allow_list::STRATEGIES.iter().any(|known| known.as_bytes() == text.trim_ascii())
            };
            if text.is_some_and(|text| !harmless(&text)) {
                self.report(name, "a merge strategy that is not a part of git", QuarantineAction::Move, scan);
            }
        }
        self.scan_sequencer_options(scan);
    }

    fn scan_todo_list(&self, name: &str, scan: &mut WorkspaceScan<'_, '_>) {
        if self.new_file(name, scan).is_none() {
            return;
        }
        let Some(text) = self.read(name) else {
            return self.report(name, "a list of commands that cannot be read", QuarantineAction::Move, scan);
        };
        let before = self.known.and_then(|known| known.file_content(name));
        let (rest, gone) = rebase_todo::without_programs(&text, before);
        if gone > 0 {
            let why = format!("{gone} lines that git rebase --continue would run");
            self.report(name, why, QuarantineAction::Replace(rest), scan);
        }
    }

    fn scan_sequencer_options(&self, scan: &mut WorkspaceScan<'_, '_>) {
        const NAME: &str = "sequencer/opts";
        if self.new_file(NAME, scan).is_none() {
            return;
        }
        let entries = self.read(NAME).and_then(|text| git_config::parse(&text).ok());
        let Some(entries) = entries else {
            return self.report(NAME, "options that cannot be read", QuarantineAction::Move, scan);
        };
        let (kept, gone): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_allowed_in_sequencer);
        if !gone.is_empty() {
            let why = format!("sets {}", git_config::summarize_names(&gone));
            self.report(NAME, why, QuarantineAction::Replace(git_config::render(&kept)), scan);
        }
    }
}

/// Whether the target of a link is a reference of the same repository, as HEAD was in old repositories.
fn is_reference(target: OsString) -> bool {
    let mut parts = Path::new(&target).components();
    parts.next() == Some(Component::Normal(OsStr::new("refs")))
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// The reason for moving a link.
const LINK_REASON: &str = "a link through which git would write to another file";

/// The reason for replacing a file with a copy.
pub(super) const HARD_LINK_REASON: &str = "has another name, by which it could be written later";

/// The new hooks; `None` if there are too many to examine. Samples are kept, but lose their execute bits.
fn new_hooks(
    hooks: &OpenDirectory<'_>,
    names: Vec<OsString>,
    moved: bool,
    scan: &WorkspaceScan<'_, '_>,
) -> Option<Vec<OsString>> {
    let mut new = Vec::new();
    for name in names {
        let meta = hooks.stat(&name).ok()?;
        if meta.is_dir() || !(moved || meta.changed(scan.baseline.since_ns)) {
            continue;
        }
        if meta.is_file() && name.as_encoded_bytes().ends_with(b".sample") {
            hooks.remove_execute_bits(&name, &meta);
        } else {
            new.push(name);
        }
    }
    Some(new)
}

/// The target of the `.git` file `name`, as a path relative to the workspace.
pub(super) fn read_git_pointer(
    here: &OpenDirectory<'_>,
    name: &OsStr,
    scan: &WorkspaceScan<'_, '_>,
) -> Option<PathBuf> {
    let text = super::read_bounded(here.directory, Path::new(name), 1 << 13)?;
    let target = text.strip_prefix(b"gitdir: ")?;
    let end = target.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'))?;
    scan.resolve(here.path, &target[..=end])
}
