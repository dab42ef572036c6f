//! One git directory: what in it the host's git would run, or read to learn what to run. What a sandbox wrote there is
//! taken out, and the directory goes on to be a repository.

use super::allowed::{self, is_allowed, is_allowed_in_sequencer};
use super::recorded::Repository;
use super::walk::Look;
use super::{Here, Meta, Remedy, config, open_anyway, todo};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A directory of hooks with more new entries than this goes as a whole.
const HOOKS: usize = 32;
/// How many entries of a directory of hooks are read.
const HOOKS_READ: usize = 4096;
/// A file that is longer is not read.
const LIMIT: u64 = 1 << 20;

/// A git directory and what is known of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct GitDirectory<'a> {
    /// It, opened.
    pub(super) here: Here<'a>,
    /// Whether the sandbox may have put it where it is: then nothing in it is older than the sandbox.
    pub(super) moved: bool,
    /// What it was at the start.
    pub(super) known: Option<&'a Repository>,
}

impl GitDirectory<'_> {
    /// Looks at all of it; directories that it leads to are in `targets` then, with whether what leads there is new.
    pub(super) fn look(&self, look: &mut Look<'_, '_>) {
        for name in ["config", "config.worktree"] {
            if look.recorded.git_config || self.known.is_none() {
                self.config(name, look);
            }
        }
        self.hooks(look);
        self.common_directory(look);
        self.alternates(look);
        for name in ["remotes", "branches"] {
            self.old_remotes(name, look);
        }
        self.unfinished(look);
    }

    /// What `path` in it is, when the sandbox may have written it.
    fn new_file(&self, path: &str, look: &Look<'_, '_>) -> Option<Meta> {
        let meta = self.here.look(OsStr::new(path)).ok()?;
        let new = self.moved || meta.changed(look.recorded.since);
        (new && !look.recorded.is_pinned(&self.here.path.join(path), &meta)).then_some(meta)
    }

    fn found(&self, path: &str, why: impl Into<String>, remedy: Remedy, look: &mut Look<'_, '_>) {
        self.here.found_below(Path::new(path), why, remedy, look.take);
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        super::read(self.here.directory, Path::new(path), LIMIT)
    }

    /// A configuration keeps the keys that are allowed, and what it had at the start. Without one, git would not take
    /// the directory for its own, and the work in it would be out of reach.
    fn config(&self, name: &str, look: &mut Look<'_, '_>) {
        let Some(meta) = self.new_file(name, look) else { return };
        if !meta.is_file() {
            return self.found(name, "no file, where git reads its configuration", Remedy::Move, look);
        }
        let before = self.known.map(|known| known.entries(name)).unwrap_or_default();
        let anew = || match before.as_slice() {
            [] => Remedy::Move,
            before => Remedy::Replace(config::render(before)),
        };
        let Some(text) = self.read(name) else {
            return self.found(name, "a configuration that cannot be read", anew(), look);
        };
        let Ok(entries) = config::parse(&text) else {
            return self.found(name, "a configuration that git does not read", anew(), look);
        };
        let is_inside = |path: &[u8]| look.resolve(self.here.path, path).is_some();
        let stays = |entry: &config::Entry| is_allowed(entry, &is_inside) || before.contains(entry);
        let (kept, gone): (Vec<_>, Vec<_>) = entries.into_iter().partition(stays);
        if !gone.is_empty() {
            let why = format!("says {}", config::names(&gone));
            self.found(name, why, Remedy::Replace(config::render(&kept)), look);
        } else if meta.links > 1 {
            self.found(name, ANOTHER_NAME, Remedy::Replace(text), look);
        }
    }

    fn hooks(&self, look: &mut Look<'_, '_>) {
        const NAME: &str = "hooks";
        let Ok(meta) = self.here.look(OsStr::new(NAME)) else { return };
        if look.recorded.is_pinned(&self.here.path.join(NAME), &meta) {
            return;
        }
        if meta.is_link() {
            if self.moved || meta.changed(look.recorded.since) {
                self.found(NAME, "a link to hooks that git runs", Remedy::Move, look);
            }
            return;
        }
        let Ok(directory) = open_anyway(self.here.directory, Path::new(NAME)) else { return };
        let known = self.known.and_then(|known| known.hooks) == Some(meta.identity());
        let both = meta.changed(look.recorded.since)
            && Meta::of(self.here.directory).is_ok_and(|meta| meta.changed(look.recorded.since));
        let moved = !known && (self.moved || self.known.is_some() || both);
        let path = self.here.path.join(NAME);
        let hooks = Here { path: &path, directory: directory.as_fd() };
        let new = match hooks.names(HOOKS_READ) {
            Ok(names) => new_hooks(&hooks, names, moved, look),
            Err(_) => None,
        };
        match new {
            Some(new) if new.len() <= HOOKS => {
                for name in new {
                    hooks.found(&name, "a hook that git runs", Remedy::Move, look.take);
                }
            }
            Some(new) => self.found(NAME, format!("{} hooks that git runs", new.len()), Remedy::Empty, look),
            None => self.found(NAME, "more hooks than are looked at", Remedy::Empty, look),
        }
    }

    /// Another directory whose hooks and configuration git obeys.
    fn common_directory(&self, look: &mut Look<'_, '_>) {
        const NAME: &str = "commondir";
        if self.here.look(OsStr::new(NAME)).is_err() {
            return;
        }
        let new = self.new_file(NAME, look).is_some();
        let text = self.read(NAME);
        let target =
            text.as_deref().map(<[u8]>::trim_ascii_end).and_then(|to| look.resolve(self.here.path, to));
        match target {
            Some(target) => look.targets.push((target, new)),
            None if new => self.found(NAME, "leads git out of the workspace", Remedy::Move, look),
            None => {}
        }
    }

    /// Other stores of objects.
    fn alternates(&self, look: &mut Look<'_, '_>) {
        const NAME: &str = "objects/info/alternates";
        if self.new_file("objects/info/http-alternates", look).is_some() {
            self.found("objects/info/http-alternates", "names stores of objects", Remedy::Move, look);
        }
        if self.new_file(NAME, look).is_none() {
            return;
        }
        let objects = self.here.path.join("objects");
        let inside =
            |line: &[u8]| line.is_empty() || line.starts_with(b"#") || look.resolve(&objects, line).is_some();
        let text = self.read(NAME);
        if !text.is_some_and(|text| text.split(|byte| *byte == b'\n').all(inside)) {
            self.found(NAME, "names stores of objects out of the workspace", Remedy::Move, look);
        }
    }

    /// Remotes as git had them before its configuration (gitrepository-layout(5)).
    fn old_remotes(&self, holder: &str, look: &mut Look<'_, '_>) {
        let Ok(directory) = open_anyway(self.here.directory, Path::new(holder)) else { return };
        let path = self.here.path.join(holder);
        let remotes = Here { path: &path, directory: directory.as_fd() };
        let Ok(names) = remotes.names(HOOKS) else {
            return self.found(holder, "more remotes than are looked at", Remedy::Empty, look);
        };
        for name in names {
            let new = |meta: Meta| self.moved || meta.changed(look.recorded.since);
            if remotes.look(&name).is_ok_and(new) {
                remotes.found(&name, "says where a remote is", Remedy::Move, look.take);
            }
        }
    }

    /// A rebase, cherry-pick or revert that is to be continued.
    fn unfinished(&self, look: &mut Look<'_, '_>) {
        for (holder, list) in
            [("rebase-merge", "rebase-merge/git-rebase-todo"), ("sequencer", "sequencer/todo")]
        {
            let Ok(meta) = self.here.look(OsStr::new(holder)) else { continue };
            if meta.is_link() {
                if self.moved || meta.changed(look.recorded.since) {
                    self.found(holder, "a link to what git is to continue", Remedy::Move, look);
                }
                continue;
            }
            // A list that was moved here is as good as one that was written here.
            let both = meta.changed(look.recorded.since) && self.known.is_none();
            let here = GitDirectory { moved: self.moved || both, ..*self };
            here.list(list, look);
        }
        for name in ["rebase-merge/strategy", "rebase-apply/strategy"] {
            let text = self.new_file(name, look).and_then(|_| self.read(name));
            let harmless =
                |text: &[u8]| allowed::STRATEGIES.iter().any(|known| known.as_bytes() == text.trim_ascii());
            if text.is_some_and(|text| !harmless(&text)) {
                self.found(name, "a merge strategy that is not a part of git", Remedy::Move, look);
            }
        }
        self.options(look);
    }

    fn list(&self, name: &str, look: &mut Look<'_, '_>) {
        if self.new_file(name, look).is_none() {
            return;
        }
        let Some(text) = self.read(name) else {
            return self.found(name, "a list of commands that cannot be read", Remedy::Move, look);
        };
        let before = self.known.and_then(|known| known.text(name));
        let (rest, gone) = todo::without_programs(&text, before);
        if gone > 0 {
            let why = format!("{gone} lines that git rebase --continue would run");
            self.found(name, why, Remedy::Replace(rest), look);
        }
    }

    fn options(&self, look: &mut Look<'_, '_>) {
        const NAME: &str = "sequencer/opts";
        if self.new_file(NAME, look).is_none() {
            return;
        }
        let entries = self.read(NAME).and_then(|text| config::parse(&text).ok());
        let Some(entries) = entries else {
            return self.found(NAME, "options that cannot be read", Remedy::Move, look);
        };
        let (kept, gone): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_allowed_in_sequencer);
        if !gone.is_empty() {
            let why = format!("says {}", config::names(&gone));
            self.found(NAME, why, Remedy::Replace(config::render(&kept)), look);
        }
    }
}

/// Why a file is exchanged for a copy of its own.
pub(super) const ANOTHER_NAME: &str = "has another name, by which it could be written later";

/// The hooks that are new; `None` when they cannot all be looked at. Samples stay, and cannot be executed any more.
fn new_hooks(
    hooks: &Here<'_>,
    names: Vec<OsString>,
    moved: bool,
    look: &Look<'_, '_>,
) -> Option<Vec<OsString>> {
    let mut new = Vec::new();
    for name in names {
        let meta = hooks.look(&name).ok()?;
        if meta.is_dir() || !(moved || meta.changed(look.recorded.since)) {
            continue;
        }
        if meta.is_file() && name.as_encoded_bytes().ends_with(b".sample") {
            hooks.take_execute_bits(&name, &meta);
        } else {
            new.push(name);
        }
    }
    Some(new)
}

/// Where the `.git` file `name` leads: a path in the workspace.
pub(super) fn pointer(here: &Here<'_>, name: &OsStr, look: &Look<'_, '_>) -> Option<PathBuf> {
    let text = super::read(here.directory, Path::new(name), 1 << 13)?;
    let target = text.strip_prefix(b"gitdir: ")?;
    let end = target.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'))?;
    look.resolve(here.path, &target[..=end])
}
