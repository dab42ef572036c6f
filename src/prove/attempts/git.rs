//! Files that git, shells and editors on the host evaluate later. A write inside is not an escape in itself: the result
//! is judged by what the host finds when the sandbox has exited ([`is_planted`]).

use super::super::context::{GIT_CONFIG, ProbeContext};
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The attempts of this class; each tries to leave something in its own repository.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("git-hook", "Plant a hook", |_, scene| plant_program(&scene.work.join(".git/hooks/post-checkout"))),
    new("git-config", "Change the configuration", |_, scene| append(&scene.work.join(".git/config"))),
    new("git-config-replace", "Replace the configuration", |_, scene| {
        let new = scene.probe_path("config");
        fs::write(&new, PLANTED).map_err(error)?;
        fs::rename(&new, scene.work.join(".git/config")).map_err(error)
    }),
    new("git-config-link", "Give the configuration a second name, and change that", |_, scene| {
        let link = scene.probe_path("config-link");
        fs::hard_link(scene.work.join(".git/config"), &link).map_err(error)?;
        append(&link)
    }),
    new("git-commondir", "Lead .git to another one", |_, scene| {
        fs::write(scene.work.join(".git/commondir"), "../own\n").map_err(error)
    }),
    new("git-attributes", "Plant attributes that name a filter", |_, scene| {
        fs::create_dir_all(scene.work.join(".git/info")).map_err(error)?;
        fs::write(scene.work.join(".git/info/attributes"), "* filter=planted\n").map_err(error)
    }),
    new("git-worktree-config", "Plant a configuration of the work tree", |_, scene| {
        fs::write(scene.work.join(".git/config.worktree"), PLANTED).map_err(error)
    }),
    new("git-nested", "Plant a repository with a hook", |_, scene| {
        let git = scene.work.join("nested/.git");
        fs::create_dir_all(git.join("hooks")).map_err(error)?;
        for directory in ["objects", "refs"] {
            fs::create_dir_all(git.join(directory)).map_err(error)?;
        }
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").map_err(error)?;
        fs::write(git.join("config"), PLANTED).map_err(error)?;
        plant_program(&git.join("hooks/post-checkout"))
    }),
    new("shell-start-up", "Plant a start-up file of the shell", |_, scene| {
        append(&scene.work.join(".bashrc"))
    }),
    new("directory-hook", "Plant a file that direnv runs", |_, scene| append(&scene.work.join(".envrc"))),
    new("editor-tasks", "Plant tasks of an editor", |_, scene| {
        fs::create_dir_all(scene.work.join(".vscode")).map_err(error)?;
        append(&scene.work.join(".vscode/tasks.json"))
    }),
    new("agent-settings", "Change the settings of the agent", |_, scene| {
        append(&scene.work.join(".claude/settings.json"))
    }),
    new("agent-servers", "Change the agent's list of servers", |_, scene| {
        append(&scene.work.join(".mcp.json"))
    }),
    new("protected-link", "Replace the agent's list of servers by a link", |_, scene| {
        let list = scene.work.join(".mcp.json");
        fs::remove_file(&list).map_err(error)?;
        symlink("planted", &list).map_err(error)
    }),
    new("git-hooks-rename", "Replace .git/hooks", |_, scene| {
        fs::rename(scene.work.join(".git/hooks"), scene.work.join(".git/hooks-old")).map_err(error)
    }),
    // This must be the last attempt: if it succeeds, no later check finds the files.
    new("git-rename", "Replace .git", |_, scene| {
        fs::rename(scene.work.join(".git"), scene.work.join(".git-old")).map_err(error)
    }),
];

const PLANTED: &str = "[core]\n\tfsmonitor = ./planted\n\thooksPath = ./planted\n";

const fn new(
    name: &'static str,
    does: &'static str,
    run: fn(&crate::sys::disposable_child::DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::Protect, does, run)
}

fn append(path: &Path) -> AttemptResult {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(path).map_err(error)?;
    file.write_all(PLANTED.as_bytes()).map_err(error)
}

fn plant_program(path: &Path) -> AttemptResult {
    fs::write(path, "#!/bin/sh\n").map_err(error)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(error)
}

fn error(error: std::io::Error) -> AttemptFailure {
    error
        .raw_os_error()
        .map_or(AttemptFailure::NoEffect, |number| AttemptFailure::Error(crate::sys::Errno::from_raw(number)))
}

/// Whether the change that this attempt tried to plant in `work` exists when the sandbox has exited.
pub fn is_planted(attempt: &str, work: &Path) -> bool {
    // If another attempt has moved the files, they are inspected at the new path.
    let moved = |to: PathBuf, from: PathBuf| if to.exists() { to } else { from };
    let git = moved(work.join(".git-old"), work.join(".git"));
    let hooks = moved(git.join("hooks-old"), git.join("hooks"));
    let text = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let planted = |name: &str| !text(work.join(name)).is_empty();
    match attempt {
        "git-hook" => hooks.join("post-checkout").symlink_metadata().is_ok(),
        "git-config" | "git-config-replace" | "git-config-link" => text(git.join("config")) != GIT_CONFIG,
        "git-rename" => !work.join(".git").is_dir() || work.join(".git-old").exists(),
        "git-hooks-rename" => git.join("hooks-old").exists(),
        "git-commondir" => !["", "."].contains(&text(git.join("commondir")).trim_end()),
        "git-attributes" => !text(git.join("info/attributes")).is_empty(),
        "git-worktree-config" => text(git.join("config.worktree")).contains("planted"),
        "git-nested" => {
            let nested = work.join("nested/.git");
            nested.join("hooks/post-checkout").exists() || text(nested.join("config")).contains("planted")
        }
        "shell-start-up" => planted(".bashrc"),
        "directory-hook" => planted(".envrc"),
        "editor-tasks" => planted(".vscode/tasks.json"),
        "agent-settings" => text(work.join(".claude/settings.json")) != "{}\n",
        "agent-servers" | "protected-link" => text(work.join(".mcp.json")) != "{}\n",
        _ => false,
    }
}
