//! The table of protected names: the program of the host that runs or obeys each of them without a prompt.
//!
//! One rule applies to every row: a path that exists at a start is read-only in the sandbox; a path that
//! appears or changes is moved to quarantine at the end and reported by name. A name belongs here when a
//! program obeys the file because a person enters the directory, opens it in an editor, or runs git in it.
//! Files that a person builds or tests a project with (`package.json`, a Makefile, `build.rs`) are not in
//! the table: writing them is the agent's task.
//!
//! saggar-security(7) prints the table; tests/manual keeps both equal.

use std::ffi::OsStr;
use std::path::Path;

/// A protected name, and the program that obeys it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectedName {
    /// Relative to a directory of the work tree, with slashes, without `.` and `..`.
    pub path: &'static str,
    /// The program that runs or obeys it.
    pub program: &'static str,
}

impl AsRef<OsStr> for ProtectedName {
    fn as_ref(&self) -> &OsStr {
        self.path.as_ref()
    }
}

impl AsRef<Path> for ProtectedName {
    fn as_ref(&self) -> &Path {
        self.path.as_ref()
    }
}

/// The rows of several programs, in order.
macro_rules! rows {
    ($($program:literal: $($path:literal)+;)+) => {
        &[$($(ProtectedName { path: $path, program: $program },)+)+]
    };
}

/// Names in the work tree, at its top level and in every directory below it.
pub const WORK_TREE_NAMES: &[ProtectedName] = rows! {
    "bash, sh": ".bashrc" ".bash_profile" ".bash_login" ".bash_logout" ".bash_aliases" ".bash_completion" ".profile";
    "zsh": ".zshrc" ".zshenv" ".zprofile" ".zlogin" ".zlogout";
    "ksh, csh, tcsh": ".kshrc" ".mkshrc" ".cshrc" ".tcshrc" ".login" ".logout";
    "fish": ".config/fish";
    "readline": ".inputrc";
    "direnv, autoenv, shadowenv, rvm, rbenv": ".envrc" ".autoenv" ".autoenv.zsh" ".shadowenv.d" ".rvmrc" ".rbenv-vars";
    "mise, asdf": "mise.toml" ".mise.toml" "mise.local.toml" ".mise.local.toml" ".mise" ".config/mise"
        ".config/mise.toml" ".tool-versions";
    "VS Code and its derivatives": ".vscode" ".devcontainer" ".devcontainer.json" ".theia";
    "Cursor": ".cursor/mcp.json" ".cursor/hooks.json" ".cursor/hooks" ".cursor/environment.json" ".cursor/cli.json";
    "JetBrains": ".idea" ".fleet";
    "Visual Studio, Eclipse": ".vs" ".externalToolBuilders";
    "Zed": ".zed";
    "Helix": ".helix";
    "Vim, Neovim": ".vimrc" ".nvimrc" ".exrc" ".gvimrc" ".lvimrc" ".vim" ".nvim.lua" ".lazy.lua" ".neoconf.json"
        ".luarc.json";
    "Emacs": ".emacs" ".emacs.el" ".emacs.d" ".dir-locals.el" ".dir-locals-2.el";
    "git": ".gitconfig" ".gitmodules" ".githooks" ".git-hooks";
    "hook managers": ".husky" ".pre-commit-config.yaml" ".overcommit.yml" "lefthook.yml" ".lefthook.yml"
        "lefthook-local.yml" ".lefthook" ".lefthook-local" ".simple-git-hooks.json" ".lintstagedrc" ".lintstagedrc.json"
        ".lintstagedrc.js" ".lintstagedrc.cjs" ".lintstagedrc.mjs" "lint-staged.config.js" "lint-staged.config.cjs"
        "lint-staged.config.mjs" "commitlint.config.js" "commitlint.config.cjs" "commitlint.config.mjs";
    "jj": ".jj/repo/config.toml" ".jj/repo/config-id" ".jj/workspace-config.toml" ".jj/repo/store/git_target"
        ".jjconfig.toml";
    "hg, sl, bzr, darcs, pijul": ".hg/hgrc" ".hg/hgrc-not-shared" ".hg/sharedpath" ".hgrc" ".sl/config"
        ".bzr/branch/branch.conf" "_darcs/prefs" ".pijul/config";
    "Claude Code": ".mcp.json" ".claude/settings.json" ".claude/settings.local.json" ".claude/hooks"
        ".claude/commands" ".claude/agents" ".claude/skills" ".claude/plugins";
    "other agents": ".gemini" ".codex" ".qwen" ".opencode" "opencode.json" "opencode.jsonc" ".crush.json" "crush.json"
        ".aider.conf.yml" ".continue" ".windsurf" ".kiro" ".amazonq" ".factory" ".roo/mcp.json" ".agents";
    "saggar": "saggar.toml" ".saggar.toml";
    "npm, yarn, pnpm": ".npmrc" ".yarnrc" ".yarnrc.yml" ".yarn/releases" ".yarn/plugins" ".pnpmfile.cjs"
        ".pnpmfile.mjs";
    "cargo, rustup": ".cargo/config" ".cargo/config.toml" "rust-toolchain" "rust-toolchain.toml";
    "debuggers": ".gdbinit" ".gdbearlyinit" ".lldbinit" ".pdbrc" ".byebugrc" ".rdbgrc" ".perldb";
    "interpreters": ".irbrc" ".pryrc" ".Rprofile" ".Renviron" ".ghci" ".ocamlinit" ".iex.exs" ".octaverc" ".psqlrc";
    "ripgrep, tmux, screen": ".ripgreprc" ".tmux.conf" ".screenrc";
};

/// Additional names of a home directory, protected if it is the workspace or in it (`--allow-home`). Paths
/// that have their own variables (`XDG_CONFIG_HOME`) are also found by the variables.
pub const HOME_NAMES: &[ProtectedName] = rows! {
    "saggar": ".config/saggar" ".local/state/saggar" ".local/share/saggar";
    "ssh, gpg, pass": ".ssh" ".gnupg" ".password-store";
    "systemd": ".config/systemd" ".local/share/systemd" ".config/environment.d";
    "the desktop": ".config/autostart" ".config/plasma-workspace" ".config/autostart-scripts" ".config/sway"
        ".config/i3" ".config/hypr" ".config/mimeapps.list" ".local/share/applications" ".local/share/dbus-1"
        ".local/share/nautilus" ".local/share/keyrings" ".xinitrc" ".xsession" ".xsessionrc" ".xprofile" ".Xresources"
        ".pam_environment";
    "cron, at, mail": ".crontab" ".forward" ".procmailrc";
    "git, jj, hg": ".config/git" ".config/jj" ".config/hg" ".config/gh";
    "shells": ".config/zsh" ".config/bash" ".config/direnv" ".config/tmux" ".config/starship.toml"
        ".local/share/direnv" ".local/share/fish" ".oh-my-zsh" ".zsh" ".p10k.zsh";
    "terminals": ".config/kitty" ".config/alacritty" ".config/wezterm" ".config/ghostty" ".wezterm.lua";
    "editors": ".config/nvim" ".config/helix" ".config/zed" ".config/emacs" ".config/Code" ".config/VSCodium"
        ".config/Cursor" ".config/JetBrains" ".local/share/nvim" ".vscode-server" ".cursor-server";
    "programs on PATH": "bin" ".local/bin" ".local/lib" ".cargo/bin" ".cargo/env" ".rustup" ".nvm" ".pyenv" ".rbenv"
        ".asdf" ".sdkman" ".bun/bin" ".deno/bin" "go/bin" ".local/share/mise" ".local/pipx";
    "agents": ".claude.json" ".cursor";
    "network tools": ".netrc" ".curlrc" ".wgetrc" ".aws" ".docker" ".kube" ".subversion";
    "builds": ".m2/settings.xml" ".gradle/init.d" ".gradle/init.gradle" ".config/pip" ".config/pnpm";
};

/// Control files and directories of a git directory: the main one, a submodule's or a linked worktree's.
pub const GIT_DIRECTORY_FILES: &[&str] =
    &["hooks", "config", "config.worktree", "commondir", "gitdir", "info", "objects/info/alternates"];

/// Files and directories that git and its extensions have at the top of a git directory (gitrepository-layout(5)).
const GIT_DIRECTORY_ENTRIES: &[&str] = &[
    "AUTO_MERGE",
    "EDIT_DESCRIPTION",
    "HEAD",
    "addp-hunk-edit.diff",
    "annex",
    "branches",
    "commondir",
    "config",
    "config.worktree",
    "description",
    "gc.log",
    "gc.pid",
    "gitdir",
    "gitk.cache",
    "hooks",
    "index",
    "info",
    "lfs",
    "locked",
    "logs",
    "lost-found",
    "modules",
    "objects",
    "packed-refs",
    "rebase-apply",
    "rebase-merge",
    "refs",
    "reftable",
    "remotes",
    "rr-cache",
    "sequencer",
    "shallow",
    "svn",
    "worktrees",
];
/// Beginnings and ends of further names.
const GIT_DIRECTORY_PREFIXES: &[&str] = &[
    "BISECT_",
    "MERGE_",
    "NOTES_MERGE_",
    ".merge_file_",
    "fsmonitor--daemon",
    "index.stash.",
    "next-index-",
    "sharedindex.",
];
const GIT_DIRECTORY_SUFFIXES: &[&str] = &["_HEAD", "_MSG", "_EDITMSG"];
/// Ends that are added to a name while a file is replaced.
const TEMPORARY_SUFFIXES: &[&str] = &[".lock", ".new"];

/// Whether git or an extension of it uses this name at the top of a git directory. A git directory can also be a directory
/// of the user, with other files in it.
pub fn is_git_directory_entry(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let stem = TEMPORARY_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    GIT_DIRECTORY_ENTRIES.contains(&stem)
        || GIT_DIRECTORY_PREFIXES.iter().any(|prefix| stem.starts_with(prefix))
        || GIT_DIRECTORY_SUFFIXES.iter().any(|suffix| stem.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_in_a_git_directory_is_known() {
        let known = [
            "HEAD",
            "MERGE_MSG",
            "packed-refs.lock",
            "packed-refs.new",
            "HEAD.lock",
            "sharedindex.0a",
            "ORIG_HEAD",
        ];
        let foreign = [
            ".env",
            "deploy",
            "Head",
            "README",
            "notes.lock",
            ".ssh",
            "HEAD.md",
            "Makefile",
            "MY_SECRET_ENV",
            "tmp_keys",
        ];
        for (names, expected) in [(known.as_slice(), true), (foreign.as_slice(), false)] {
            for name in names {
                assert_eq!(is_git_directory_entry(OsStr::new(name)), expected, "{name}");
            }
        }
    }

    #[test]
    fn names_are_plain_relative_paths_and_stand_once() {
        let mut seen = BTreeSet::new();
        for name in WORK_TREE_NAMES.iter().chain(HOME_NAMES) {
            assert!(seen.insert(name.path), "{} stands twice", name.path);
            let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
            assert!(name.path.split('/').all(is_plain), "{}", name.path);
        }
    }
}
