//! The names that are protected in a workspace: files that programs of the host run or obey without a
//! prompt (DECISIONS 34). The survey of a workspace finds which of them exist.

mod table;

pub use table::{GIT_DIRECTORY_FILES, HOME_NAMES, ProtectedName, WORK_TREE_NAMES, is_git_directory_entry};

use std::ffi::OsStr;
use std::path::Path;

/// The reason why `path`, below a work tree, is protected, or `None`. A name is protected in every
/// directory of the work tree, because programs look for these names in the directory in which they are
/// started. The comparison ignores case, because some file systems do.
pub fn protection_reason(path: &Path) -> Option<&'static str> {
    let parts: Vec<&OsStr> = path.components().map(|part| part.as_os_str()).collect();
    for at in 0..parts.len() {
        if WORK_TREE_NAMES.iter().any(|name| starts_with_parts(&parts[at..], name.path)) {
            return Some("the host's programs start or read it");
        }
        if parts[at].eq_ignore_ascii_case(".git") && is_git_control_path(&parts[at + 1..]) {
            return Some("it decides what the host's git runs");
        }
    }
    None
}

/// Whether protected names can be below `path`, so that a link at `path` would redirect them.
pub fn is_above_protected(path: &Path) -> bool {
    let parts: Vec<&OsStr> = path.components().map(|part| part.as_os_str()).collect();
    let leads = |parts: &[&OsStr], name: &str| {
        let mut wanted = name.split('/');
        parts.iter().all(|part| wanted.next().is_some_and(|want| part.eq_ignore_ascii_case(want)))
    };
    parts.iter().any(|part| part.eq_ignore_ascii_case(".git"))
        || (0..parts.len()).any(|at| WORK_TREE_NAMES.iter().any(|name| leads(&parts[at..], name.path)))
}

/// Whether the path begins with all components of `name`.
fn starts_with_parts(parts: &[&OsStr], name: &str) -> bool {
    let mut wanted = name.split('/');
    let mut parts = parts.iter();
    wanted.all(|want| parts.next().is_some_and(|part| part.eq_ignore_ascii_case(want)))
}

/// Whether the path, relative to a git directory, is a control file; submodules and linked worktrees
/// included.
fn is_git_control_path(parts: &[&OsStr]) -> bool {
    let decides = |parts: &[&OsStr]| GIT_DIRECTORY_FILES.iter().any(|name| starts_with_parts(parts, name));
    let nested = parts
        .first()
        .is_some_and(|first| ["modules", "worktrees"].iter().any(|name| first.eq_ignore_ascii_case(name)));
    decides(parts) || nested && (1..parts.len()).any(|at| decides(&parts[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_protected_wherever_they_are() {
        for path in [
            ".bashrc",
            "a/b/.envrc",
            ".vscode/tasks.json",
            "sub/.claude/settings.json",
            ".claude/hooks/run",
            "saggar.toml",
            ".git/hooks/pre-commit",
            ".git/config",
            ".GIT/Config",
            "sub/.git/info/attributes",
            ".git/modules/a/b/config",
            ".git/worktrees/x/config.worktree",
            ".git/objects/info/alternates",
            ".claude/agents/x.md",
            "a/.cargo/config.toml",
        ] {
            assert!(protection_reason(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "src/main.rs",
            ".git/objects/ab/cd",
            ".git/refs/heads/main",
            ".git/HEAD",
            ".git/modules/a/HEAD",
            ".claude/todo.md",
            "config",
            "hooks/x",
            ".config/other",
        ] {
            assert_eq!(protection_reason(Path::new(path)), None, "{path}");
        }
        for (path, leads) in
            [(".claude", true), ("a/.config", true), (".git/objects", true), ("a/claude", false)]
        {
            assert_eq!(is_above_protected(Path::new(path)), leads, "{path}");
        }
    }
}
