//! The names that are protected in a workspace: what the host's programs start or obey without asking
//! (DECISIONS 5). Which of them exist is for [`crate::host::protect`] to find.

mod table;

pub use table::{GIT_DIRECTORY_FILES, HOME, Name, WORK_TREE};

use std::ffi::OsStr;
use std::path::Path;

/// Why `path`, below a work tree, is protected: by name alone, in every directory of it, since programs look for these
/// names in the directory that they are started in. Case does not count: there are file systems for which it does not.
pub fn why(path: &Path) -> Option<&'static str> {
    let parts: Vec<&OsStr> = path.components().map(|part| part.as_os_str()).collect();
    for at in 0..parts.len() {
        if WORK_TREE.iter().any(|name| begins(&parts[at..], name.path)) {
            return Some("the host's programs start or read it");
        }
        if parts[at].eq_ignore_ascii_case(".git") && decides_for_git(&parts[at + 1..]) {
            return Some("it decides what the host's git runs");
        }
    }
    None
}

/// Whether something protected could be below `path`, so that a link there would lead to another.
pub fn is_on_the_way(path: &Path) -> bool {
    let parts: Vec<&OsStr> = path.components().map(|part| part.as_os_str()).collect();
    let leads = |parts: &[&OsStr], name: &str| {
        let mut wanted = name.split('/');
        parts.iter().all(|part| wanted.next().is_some_and(|want| part.eq_ignore_ascii_case(want)))
    };
    parts.iter().any(|part| part.eq_ignore_ascii_case(".git"))
        || (0..parts.len()).any(|at| WORK_TREE.iter().any(|name| leads(&parts[at..], name.path)))
}

/// Whether the path begins with all parts of `name`.
fn begins(parts: &[&OsStr], name: &str) -> bool {
    let mut wanted = name.split('/');
    let mut parts = parts.iter();
    wanted.all(|want| parts.next().is_some_and(|part| part.eq_ignore_ascii_case(want)))
}

/// A path in git's directory, a submodule's or a linked worktree's among it.
fn decides_for_git(parts: &[&OsStr]) -> bool {
    let decides = |parts: &[&OsStr]| GIT_DIRECTORY_FILES.iter().any(|name| begins(parts, name));
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
            assert!(why(Path::new(path)).is_some(), "{path}");
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
            assert_eq!(why(Path::new(path)), None, "{path}");
        }
        for (path, leads) in
            [(".claude", true), ("a/.config", true), (".git/objects", true), ("a/claude", false)]
        {
            assert_eq!(is_on_the_way(Path::new(path)), leads, "{path}");
        }
    }
}
