//! Git directories and the paths that their configuration names (gitrepository-layout(5), git-config(1)):
//! hooks, included files, and the programs of filters, drivers and monitors, if they are in the workspace.

use super::{BoundedTree, ProtectionFinder, git_variables};
use crate::repository::{OutsideGitDirectory, plain_path};
use saggar_policy::protect::GIT_DIRECTORY_FILES;
use saggar_sandbox::spec::Origin;
use saggar_sys::read;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The most bytes of a configuration or a hook that are read.
const TEXT_LIMIT: u64 = 1 << 16;
/// The most submodules and worktrees of one repository with their own pins. With more, their parent
/// directory is read-only.
pub(super) const MAX_MEMBERS: usize = 64;
/// The most names that are examined to find them.
const MAX_NAMES: usize = 512;
/// The maximum depth of the search for submodules.
const MAX_MODULE_DEPTH: usize = 16;
/// The most configurations that a start reads, including included ones.
const MAX_CONFIGURATIONS: usize = 128;
/// The most words of commands that a start looks up, and the number of pins at which that stops.
const MAX_WORDS: usize = 4096;
const MAX_PINS: usize = 512;
/// The most names of a hooks directory that are examined.
const MAX_HOOKS: usize = 128;
/// The most git directories that a start examines.
const MAX_REPOSITORIES: usize = 128;

pub(super) const GIT_CONTROL_REASON: &str = "decides what the host's git runs";
const POINTER_REASON: &str = "decides where git's directory is";
const CONFIGURED_REASON: &str = "named by git's configuration";
const HOOK_SCRIPT_REASON: &str = "run by a hook of the host's git";

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

impl ProtectionFinder<'_> {
    /// Protects the repository of `work_tree`, if there is one: its `.git` is a directory, a link or a
    /// file.
    pub(super) fn protect_repository(&mut self, work_tree: &Path, protect_config: bool) {
        let Some(git) = self.resolve(&work_tree.join(".git")) else { return };
        let Ok(meta) = self.tree.stat(&git) else { return };
        if meta.is_directory() {
            return self.protect_git_directory_tree(&git, work_tree, protect_config);
        }
        if meta.is_file() {
            self.pin(&git, POINTER_REASON, Origin::BUILT_IN);
            let above = git.parent().unwrap_or(Path::new("")).to_owned();
            if let Some(directory) = self.read_pointer(&git, "gitdir:", &above) {
                self.protect_git_directory_tree(&directory, work_tree, protect_config);
            }
        }
    }

    /// Protects a git directory with its worktrees and submodules. `work_tree` is a work tree of it.
    pub(super) fn protect_git_directory_tree(&mut self, git: &Path, work_tree: &Path, protect_config: bool) {
        let mut git = git.to_owned();
        let common = self.read_pointer(&git.join("commondir"), "", &git).filter(|common| *common != git);
        if let Some(common) = common {
            self.protect_git_directory(&git, work_tree, protect_config, false);
            git = common;
        }
        let is_new = self.repositories.insert(git.clone());
        if self.repositories.len() > MAX_REPOSITORIES {
            return;
        }
        self.protect_git_directory(&git, work_tree, protect_config, true);
        if is_new {
            self.protect_worktrees(&git, protect_config);
            self.protect_modules(&git.join("modules"), protect_config);
        }
    }

    /// Protects the git directories of submodules in `modules`.
    pub(super) fn protect_modules(&mut self, modules: &Path, protect_config: bool) {
        let mut left = MAX_NAMES;
        if !self.protect_submodules(modules, protect_config, MAX_MODULE_DEPTH, &mut left) {
            self.pins.retain(|path, _| !path.starts_with(modules));
            self.paths_to_create.retain(|missing| !missing.path.starts_with(self.workspace.join(modules)));
            self.protect_holder(modules);
        }
    }

    pub(super) fn protect_worktrees(&mut self, git: &Path, protect_config: bool) {
        let holder = git.join("worktrees");
        let (directories, whole) = self.tree.directories(&holder, MAX_MEMBERS);
        if !whole {
            return self.protect_holder(&holder);
        }
        for name in directories {
            let pointer = self.read_pointer(&name.join("gitdir"), "", &name);
            let top = pointer.as_deref().and_then(Path::parent).unwrap_or(&name).to_owned();
            self.protect_git_directory(&name, &top, protect_config, false);
            if let Some(pointer) = pointer {
                self.protect(&pointer, POINTER_REASON, Origin::BUILT_IN);
            }
        }
    }

    /// Protects a directory with more members than can be pinned separately.
    fn protect_holder(&mut self, path: &Path) {
        self.protect(path, "holds more git directories than are protected one by one", Origin::BUILT_IN);
    }

    /// Protects the directories of submodules. Their names can contain slashes, like the paths of their
    /// work trees, and submodules can contain submodules. Returns false if there are too many.
    fn protect_submodules(
        &mut self,
        below: &Path,
        protect_config: bool,
        depth: usize,
        budget: &mut usize,
    ) -> bool {
        let (directories, whole) = self.tree.directories(below, *budget);
        *budget = budget.saturating_sub(directories.len());
        if !whole || depth == 0 && !directories.is_empty() {
            return false;
        }
        for name in directories {
            // HEAD alone is not sufficient: an agent can remove it in one session and restore it in the
            // next.
            let mut marks = ["HEAD", "config", "objects"].iter();
            let is_git = marks.any(|mark| self.tree.stat(&name.join(mark)).is_ok());
            if is_git {
                self.submodule_count += 1;
                if self.submodule_count > MAX_MEMBERS {
                    return false;
                }
                let top = self.submodule_work_tree(&name);
                self.protect_git_directory(&name, top.as_deref().unwrap_or(&name), protect_config, true);
                if let Some(top) = top {
                    self.protect(&top.join(".git"), POINTER_REASON, Origin::BUILT_IN);
                }
            }
            let below = if is_git { name.join("modules") } else { name };
            if !self.protect_submodules(&below, protect_config, depth - 1, budget) {
                return false;
            }
        }
        true
    }

    /// The work tree that a submodule's `core.worktree` names, if its `.git` is a file.
    fn submodule_work_tree(&self, git: &Path) -> Option<PathBuf> {
        let text = self.tree.read(&git.join("config"), TEXT_LIMIT)?;
        let (_, value) =
            git_variables::parse_variables(&text).into_iter().find(|(name, _)| name == "core.worktree")?;
        let top = self.workspace_relative(git, Path::new(&value))?;
        self.tree.stat(&top.join(".git")).is_ok_and(|meta| meta.is_file()).then_some(top)
    }

    /// The path in a file of one line, if it is in the workspace.
    fn read_pointer(&self, file: &Path, prefix: &str, base: &Path) -> Option<PathBuf> {
        let text = self.tree.read(file, TEXT_LIMIT)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        self.workspace_relative(base, Path::new(text.strip_prefix(prefix)?.trim()))
    }

    /// Resolves `path` from `base`, without `..` and `.`, relative to the workspace; `None` outside of it.
    fn workspace_relative(&self, base: &Path, path: &Path) -> Option<PathBuf> {
        let whole = self.absolute(base, path);
        whole.strip_prefix(self.workspace).ok().map(Path::to_owned)
    }

    /// The absolute path, without `..` and `.`, that a configuration means by `path` from `base`.
    fn absolute(&self, base: &Path, path: &Path) -> PathBuf {
        let home = path.strip_prefix("~").ok().and_then(|rest| Some(super::home_directory()?.join(rest)));
        plain_path(&self.workspace.join(base), home.as_deref().unwrap_or(path))
    }

    pub(super) fn protect_git_directory(
        &mut self,
        git: &Path,
        work_tree: &Path,
        protect_config: bool,
        is_main: bool,
    ) {
        if is_main {
            self.pin_or_create(&git.join("hooks"), None, GIT_CONTROL_REASON);
            self.pin_or_create(&git.join("info"), None, GIT_CONTROL_REASON);
            // Git's default if the file is missing. An agent that could write the file would control the
            // next git command of the host.
            self.pin_or_create(&git.join("commondir"), Some(".\n"), GIT_CONTROL_REASON);
        }
        for name in GIT_DIRECTORY_FILES {
            if protect_config || !name.starts_with("config") {
                self.protect(&git.join(name), GIT_CONTROL_REASON, Origin::BUILT_IN);
            }
        }
        self.protect_hook_scripts(&git.join("hooks"), work_tree);
        for name in ["config", "config.worktree"] {
            self.protect_configured_paths(&git.join(name), work_tree);
        }
    }

    /// Pins the paths that a configuration of `work_tree` and its included files name.
    fn protect_configured_paths(&mut self, file: &Path, work_tree: &Path) {
        if self.configurations.len() >= MAX_CONFIGURATIONS
            || !self.configurations.insert((file.to_owned(), work_tree.to_owned()))
        {
            return;
        }
        let Some(text) = self.tree.read(file, TEXT_LIMIT) else { return };
        self.protect_paths_in(&text, file.parent().unwrap_or(Path::new("")), work_tree);
    }

    /// Pins the paths that the text of a configuration in the directory `above` names.
    fn protect_paths_in(&mut self, text: &[u8], above: &Path, work_tree: &Path) {
        for (name, value) in git_variables::parse_variables(text) {
            if name == "core.hookspath" {
                self.protect_hooks_path(&value, work_tree);
            } else if is_include(&name) {
                if let Some(path) = self.workspace_relative(above, Path::new(&value)) {
                    self.protect_configured_path(&path);
                    if let Some(real) = self.resolve(&path) {
                        self.protect_configured_paths(&real, work_tree);
                    }
                }
            } else if !git_variables::is_harmless(&name)
                && (!name.starts_with("alias.") || value.starts_with('!'))
            {
                self.protect_command_files(&value, work_tree, CONFIGURED_REASON, |_| true);
                self.note_missing_commands(&value, work_tree);
            }
        }
    }

    /// Pins a whole hooks directory, or only the hooks in it if it also contains the work tree.
    fn protect_hooks_path(&mut self, value: &str, work_tree: &Path) {
        let Some(path) = self.workspace_relative(work_tree, Path::new(value)) else { return };
        if path.as_os_str().is_empty() || self.repositories.iter().any(|git| git.starts_with(&path)) {
            for name in HOOK_NAMES {
                self.protect_configured_path(&path.join(name));
            }
        } else {
            self.protect_configured_path(&path);
        }
        self.protect_hook_scripts(&path, work_tree);
    }

    /// Pins a path that git's configuration names. If it does not exist, the scan at the end looks for it.
    fn protect_configured_path(&mut self, path: &Path) {
        if self.tree.stat(path).is_err_and(|errno| errno == saggar_sys::Errno::ENOENT) {
            self.unresolved_paths.push(path.to_owned());
        }
        self.protect(path, CONFIGURED_REASON, Origin::BUILT_IN);
    }

    /// Pins the targets of hooks that are links, and the scripts of the workspace that hooks name.
    pub(super) fn protect_hook_scripts(&mut self, hooks: &Path, work_tree: &Path) {
        let Some(hooks) = self.resolve(hooks) else { return };
        let (names, _) = self.tree.names(&hooks, MAX_HOOKS);
        for name in names.iter().filter(|name| !is_sample(name)) {
            let Some(hook) = self.resolve(&hooks.join(name)) else { continue };
            self.protect(&hook, HOOK_SCRIPT_REASON, Origin::BUILT_IN);
            if let Some(text) = self.tree.read(&hook, TEXT_LIMIT) {
                self.protect_scripts_in(&text, work_tree);
            }
        }
    }

    /// Pins the scripts of the workspace that the text of a hook names.
    fn protect_scripts_in(&mut self, text: &[u8], work_tree: &Path) {
        let text = String::from_utf8_lossy(text).into_owned();
        for line in text.lines() {
            let is_started = |before: Option<&str>| before.is_some_and(is_interpreter);
            let mut before = None;
            for word in git_variables::command_words(line) {
                let started = is_started(before);
                self.protect_command_files(word, work_tree, HOOK_SCRIPT_REASON, |meta| {
                    started || meta.is_executable()
                });
                before = Some(word);
            }
        }
    }

    /// Pins the paths of the work tree that the configurations and hooks of its git directory, which is outside of the
    /// workspace, name.
    pub(super) fn protect_paths_named_outside(&mut self, git: &OutsideGitDirectory) {
        let own = git.worktree.as_deref().unwrap_or(Path::new("")).join("config.worktree");
        for file in [Path::new("config"), &own] {
            self.protect_paths_of_outside_configuration(&git.common.join(file));
        }
        let Ok(outside) = BoundedTree::open(&git.common) else { return };
        let hooks = Path::new("hooks");
        let (names, _) = outside.names(hooks, MAX_HOOKS);
        for name in names.iter().filter(|name| !is_sample(name)) {
            if let Ok(text) = read::whole_file(&git.common.join(hooks).join(name), TEXT_LIMIT) {
                self.protect_scripts_in(&text, Path::new(""));
            }
        }
    }

    /// Pins the paths of the work tree that a configuration of the host and the files that it includes name.
    fn protect_paths_of_outside_configuration(&mut self, file: &Path) {
        let known = (file.to_owned(), PathBuf::new());
        if self.configurations.len() >= MAX_CONFIGURATIONS || !self.configurations.insert(known) {
            return;
        }
        let Ok(text) = read::whole_file(file, TEXT_LIMIT) else { return };
        let above = file.parent().unwrap_or(Path::new("/"));
        self.protect_paths_in(&text, above, Path::new(""));
        for (name, value) in git_variables::parse_variables(&text) {
            if is_include(&name) && self.workspace_relative(above, Path::new(&value)).is_none() {
                self.protect_paths_of_outside_configuration(&self.absolute(above, Path::new(&value)));
            }
        }
    }

    /// Notes the paths of the work tree that a command names and that do not exist, so that the scan at the end looks for
    /// them.
    fn note_missing_commands(&mut self, command: &str, work_tree: &Path) {
        let is_path = |word: &&str| word.contains('/') && !word.contains("://") && !word.starts_with('-');
        for word in git_variables::command_words(command).filter(is_path) {
            if self.unresolved_paths.len() >= MAX_PINS {
                return;
            }
            let Some(path) = self.workspace_relative(work_tree, Path::new(word)) else { continue };
            let is_missing = self.tree.stat(&path).is_err_and(|errno| errno == saggar_sys::Errno::ENOENT);
            if is_missing && !path.as_os_str().is_empty() {
                self.unresolved_paths.push(path);
            }
        }
    }

    /// Pins the files of the work tree that a command names.
    fn protect_command_files(
        &mut self,
        command: &str,
        work_tree: &Path,
        reason: &'static str,
        matches_file: impl Fn(&super::tree::TreeMeta) -> bool,
    ) {
        for word in git_variables::command_words(command) {
            if self.word_count >= MAX_WORDS || self.pins.len() >= MAX_PINS {
                return;
            }
            self.word_count += 1;
            let Some(path) = self.workspace_relative(work_tree, Path::new(word)) else { continue };
            let Some(real) = self.resolve_without_pins(&path) else { continue };
            if self.tree.stat(&real).is_ok_and(|meta| meta.is_file() && matches_file(&meta)) {
                self.protect(&path, reason, Origin::BUILT_IN);
            }
        }
    }
}

fn is_include(variable: &str) -> bool {
    variable.starts_with("include") && variable.ends_with(".path")
}

/// Whether a hook is one of those that git creates and does not run.
fn is_sample(name: &OsStr) -> bool {
    name.as_encoded_bytes().ends_with(b".sample")
}

/// Programs whose next argument is a script, executable or not.
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
