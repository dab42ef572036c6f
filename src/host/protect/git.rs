//! Git directories and what their configuration points at (gitrepository-layout(5), git-config(1)): hooks, included
//! files, and the programs of filters, drivers and monitors, as far as they lie in the workspace.

use super::{Found, values};
use crate::spec::Origin;
use crate::spec::protect::GIT_DIRECTORY_FILES;
use std::path::{Component, Path, PathBuf};

/// How much of a configuration, or of a hook, is read.
const TEXT_LIMIT: u64 = 1 << 16;
/// How many submodules and worktrees of one repository have pins of their own. With more, their holder is read-only.
pub(super) const MEMBERS: usize = 64;
/// How many names are looked at to find them.
const NAMES: usize = 512;
/// How deep submodules are looked for.
const MODULE_DEPTH: usize = 16;
/// How many configurations are read in a start, included ones among them.
const CONFIGURATIONS: usize = 128;
/// How many words of commands are looked up in a start, and with how many pins that ends.
const WORDS: usize = 4096;
const PINS: usize = 512;
/// How many names of a directory of hooks are looked at.
const HOOKS: usize = 128;
/// How many git directories are looked at in a start.
const REPOSITORIES: usize = 128;

const WHY: &str = "decides what the host's git runs";
const POINTS: &str = "says where git's directory is";
const NAMED: &str = "named by git's configuration";
const SCRIPT: &str = "run by a hook of the host's git";

/// Names of hooks that git runs (githooks(5)).
const HOOK_NAMES: [&str; 22] = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "fsmonitor-watchman",
    "post-index-change",
];

impl Found<'_> {
    /// The repository whose work tree is `top`, if there is one: its `.git` is a directory, a link or a file.
    pub(super) fn repository(&mut self, top: &Path, config: bool) {
        let Some(git) = self.resolve(&top.join(".git")) else { return };
        let Ok(meta) = self.tree.look(&git) else { return };
        if meta.is_directory() {
            return self.git(&git, top, config);
        }
        if meta.is_file() {
            self.pin(&git, POINTS, Origin::BUILT_IN);
            let above = git.parent().unwrap_or(Path::new("")).to_owned();
            if let Some(directory) = self.pointed(&git, "gitdir:", &above) {
                self.git(&directory, top, config);
            }
        }
    }

    /// Whether `path` is a git directory as git itself tells one.
    pub(super) fn is_bare(&self, path: &Path) -> bool {
        ["HEAD", "objects", "refs"].iter().all(|mark| self.tree.look(&path.join(mark)).is_ok())
    }

    /// A git directory with its worktrees and submodules; `top` is a work tree of it.
    pub(super) fn git(&mut self, git: &Path, top: &Path, config: bool) {
        let mut git = git.to_owned();
        let common = self.pointed(&git.join("commondir"), "", &git).filter(|common| *common != git);
        if let Some(common) = common {
            self.git_directory(&git, top, config, false);
            git = common;
        }
        let is_new = self.repositories.insert(git.clone());
        if self.repositories.len() > REPOSITORIES {
            return;
        }
        self.git_directory(&git, top, config, true);
        if is_new {
            self.worktrees(&git, config);
            let modules = git.join("modules");
            let mut left = NAMES;
            if !self.submodules(&modules, config, MODULE_DEPTH, &mut left) {
                self.pins.retain(|path, _| !path.starts_with(&modules));
                self.missing.retain(|missing| !missing.path.starts_with(self.workspace.join(&modules)));
                self.holder(&modules);
            }
        }
    }

    fn worktrees(&mut self, git: &Path, config: bool) {
        let holder = git.join("worktrees");
        let (directories, whole) = self.tree.directories(&holder, MEMBERS);
        if !whole {
            return self.holder(&holder);
        }
        for name in directories {
            let pointer = self.pointed(&name.join("gitdir"), "", &name);
            let top = pointer.as_deref().and_then(Path::parent).unwrap_or(&name).to_owned();
            self.git_directory(&name, &top, config, false);
            if let Some(pointer) = pointer {
                self.protect(&pointer, POINTS, Origin::BUILT_IN);
            }
        }
    }

    /// What holds more than can be pinned one by one.
    fn holder(&mut self, path: &Path) {
        self.protect(path, "holds more git directories than are protected one by one", Origin::BUILT_IN);
    }

    /// The directories of submodules. Their names have slashes in them as those of their work trees do, and
    /// submodules have submodules. False when there are too many.
    fn submodules(&mut self, below: &Path, config: bool, depth: usize, left: &mut usize) -> bool {
        let (directories, whole) = self.tree.directories(below, *left);
        *left = left.saturating_sub(directories.len());
        if !whole || depth == 0 && !directories.is_empty() {
            return false;
        }
        for name in directories {
            // HEAD alone would not do: an agent can take it away in one session, and give it back in the next.
            let mut marks = ["HEAD", "config", "objects"].iter();
            let is_git = marks.any(|mark| self.tree.look(&name.join(mark)).is_ok());
            if is_git {
                self.members += 1;
                if self.members > MEMBERS {
                    return false;
                }
                let top = self.work_tree(&name);
                self.git_directory(&name, top.as_deref().unwrap_or(&name), config, true);
                if let Some(top) = top {
                    self.protect(&top.join(".git"), POINTS, Origin::BUILT_IN);
                }
            }
            let below = if is_git { name.join("modules") } else { name };
            if !self.submodules(&below, config, depth - 1, left) {
                return false;
            }
        }
        true
    }

    /// The work tree that a submodule's `core.worktree` names, when its `.git` is a file.
    fn work_tree(&self, git: &Path) -> Option<PathBuf> {
        let text = self.tree.read(&git.join("config"), TEXT_LIMIT)?;
        let (_, value) = values::of(&text).into_iter().find(|(name, _)| name == "core.worktree")?;
        let top = self.inside(git, Path::new(&value))?;
        self.tree.look(&top.join(".git")).is_ok_and(|meta| meta.is_file()).then_some(top)
    }

    /// Where a file of one line points, when that lies in the workspace.
    fn pointed(&self, file: &Path, prefix: &str, base: &Path) -> Option<PathBuf> {
        let text = self.tree.read(file, TEXT_LIMIT)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        self.inside(base, Path::new(text.strip_prefix(prefix)?.trim()))
    }

    /// `path` from `base`, without `..` and `.`, relative to the workspace; `None` outside of it.
    fn inside(&self, base: &Path, path: &Path) -> Option<PathBuf> {
        let home = path.strip_prefix("~").ok().and_then(|rest| Some(super::home()?.join(rest)));
        let path = home.as_deref().unwrap_or(path);
        let whole = if path.is_absolute() { path.to_owned() } else { self.workspace.join(base).join(path) };
        let mut plain = PathBuf::new();
        for part in whole.components() {
            match part {
                Component::ParentDir => {
                    plain.pop();
                }
                Component::CurDir => {}
                part => plain.push(part),
            }
        }
        plain.strip_prefix(self.workspace).ok().map(Path::to_owned)
    }

    fn git_directory(&mut self, git: &Path, top: &Path, config: bool, is_main: bool) {
        if is_main {
            self.want(&git.join("hooks"), None, WHY);
            self.want(&git.join("info"), None, WHY);
            // What git assumes without one: an agent that wrote it would own the host's next git command.
            self.want(&git.join("commondir"), Some(".\n"), WHY);
        }
        for name in GIT_DIRECTORY_FILES {
            if config || !name.starts_with("config") {
                self.protect(&git.join(name), WHY, Origin::BUILT_IN);
            }
        }
        self.scripts(&git.join("hooks"), top);
        for name in ["config", "config.worktree"] {
            self.configuration(&git.join(name), top);
        }
    }

    /// Pins what a configuration of the work tree `top` points at, and what included ones do.
    fn configuration(&mut self, file: &Path, top: &Path) {
        if self.configurations.len() >= CONFIGURATIONS
            || !self.configurations.insert((file.to_owned(), top.to_owned()))
        {
            return;
        }
        let Some(text) = self.tree.read(file, TEXT_LIMIT) else { return };
        for (name, value) in values::of(&text) {
            if name == "core.hookspath" {
                self.hooks_path(&value, top);
            } else if name.starts_with("include") && name.ends_with(".path") {
                let above = file.parent().unwrap_or(Path::new(""));
                if let Some(path) = self.inside(above, Path::new(&value)) {
                    self.points_at(&path);
                    if let Some(real) = self.resolve(&path) {
                        self.configuration(&real, top);
                    }
                }
            } else if !values::is_harmless(&name) && (!name.starts_with("alias.") || value.starts_with('!')) {
                self.files_of(&value, top, NAMED, |_| true);
            }
        }
    }

    /// Pins a directory of hooks whole, unless it holds the work itself: then the hooks in it.
    fn hooks_path(&mut self, value: &str, top: &Path) {
        let Some(path) = self.inside(top, Path::new(value)) else { return };
        if path.as_os_str().is_empty() || self.repositories.iter().any(|git| git.starts_with(&path)) {
            for name in HOOK_NAMES {
                self.points_at(&path.join(name));
            }
        } else {
            self.points_at(&path);
        }
        self.scripts(&path, top);
    }

    /// Pins a path that git's configuration names; what is not there is looked for at the end.
    fn points_at(&mut self, path: &Path) {
        if self.tree.look(path).is_err_and(|errno| errno == crate::sys::Errno::ENOENT) {
            self.absent.push(path.to_owned());
        }
        self.protect(path, NAMED, Origin::BUILT_IN);
    }

    /// Pins what hooks are links to, and the scripts of the workspace that hooks name.
    pub(super) fn scripts(&mut self, hooks: &Path, top: &Path) {
        let Some(hooks) = self.resolve(hooks) else { return };
        let (names, _) = self.tree.names(&hooks, HOOKS);
        for name in names.iter().filter(|name| !name.as_encoded_bytes().ends_with(b".sample")) {
            let Some(hook) = self.resolve(&hooks.join(name)) else { continue };
            self.protect(&hook, SCRIPT, Origin::BUILT_IN);
            let Some(text) = self.tree.read(&hook, TEXT_LIMIT) else { continue };
            let text = String::from_utf8_lossy(&text).into_owned();
            for line in text.lines() {
                let is_started = |before: Option<&str>| before.is_some_and(is_interpreter);
                let mut before = None;
                for word in values::words(line) {
                    let started = is_started(before);
                    self.files_of(word, top, SCRIPT, |meta| started || meta.is_executable());
                    before = Some(word);
                }
            }
        }
    }

    /// Pins the files of the work tree that a command names.
    fn files_of(
        &mut self,
        command: &str,
        top: &Path,
        why: &'static str,
        is_meant: impl Fn(&super::tree::Meta) -> bool,
    ) {
        for word in values::words(command) {
            if self.words >= WORDS || self.pins.len() >= PINS {
                return;
            }
            self.words += 1;
            let Some(path) = self.inside(top, Path::new(word)) else { continue };
            let Some(real) = self.resolve_quietly(&path) else { continue };
            if self.tree.look(&real).is_ok_and(|meta| meta.is_file() && is_meant(&meta)) {
                self.protect(&path, why, Origin::BUILT_IN);
            }
        }
    }
}

/// Programs whose next word is a script, executable or not.
fn is_interpreter(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(
        name,
        "sh" | "bash"
            | "dash"
            | "zsh"
            | "ksh"
            | "fish"
            | "source"
            | "python"
            | "node"
            | "ruby"
            | "perl"
            | "php"
            | "lua"
            | "deno"
            | "bun"
            | "env"
            | "exec"
            | ""
    )
}
