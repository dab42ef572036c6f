//! The names that are protected in a workspace: what the host's programs start or obey without asking
//! (DECISIONS 5). Which of them exist is for [`crate::host::protect`] to find.

/// Files and directories of the work tree.
pub const WORK_TREE: &[&str] = &[
    // Shells.
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".envrc",
    ".config/fish",
    // Editors.
    ".vscode",
    ".idea",
    ".vimrc",
    ".nvimrc",
    ".exrc",
    ".gvimrc",
    ".emacs",
    ".emacs.d",
    ".dir-locals.el",
    ".nvim.lua",
    // Tools that run what they are told in a file.
    ".gitconfig",
    ".ripgreprc",
    ".npmrc",
    // Agents, and this program's own policy.
    ".mcp.json",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/hooks",
    "saggar.toml",
    ".saggar.toml",
];

/// Files and directories of git's own directory, the main one, a submodule's or a linked worktree's.
pub const GIT_DIRECTORY_FILES: &[&str] =
    &["hooks", "config", "config.worktree", "commondir", "gitdir", "info", "objects/info/alternates"];
