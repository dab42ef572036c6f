//! The caller's git, on a repository that programs of a sandbox work on.

use crate::error::{Code, Error, Result};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Variables by which git would find another repository (git-rev-parse(1), `--local-env-vars`).
const LOCAL_VARIABLES: [&str; 9] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
];
/// Settings without programs that come from the work tree, whatever it contains.
const SAFE_SETTINGS: [&str; 2] = ["core.hooksPath=/dev/null", "core.fsmonitor=false"];

/// Runs git in a directory.
#[derive(Debug)]
pub(super) struct GitCommand {
    directory: PathBuf,
    settings: Vec<OsString>,
}

impl GitCommand {
    pub(super) fn new(directory: &Path) -> Self {
        let settings = SAFE_SETTINGS.iter().map(OsString::from).collect();
        GitCommand { directory: directory.to_owned(), settings }
    }

    /// Leaves out filters that are files of the work tree (gitattributes(5)): those that a path names that is relative.
    ///
    /// # Errors
    /// As [`GitCommand::run`].
    pub(super) fn without_programs_of_the_work_tree(mut self) -> Result<Self> {
        let output =
            self.execute(["config", "-z", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$"])?;
        for entry in output.stdout.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let (name, command) =
                entry.split_at(entry.iter().position(|byte| *byte == b'\n').unwrap_or(entry.len()));
            if names_relative_path(command) {
                let filter = &name[..name.iter().rposition(|byte| *byte == b'.').unwrap_or(name.len())];
                let set = |key: &str| OsString::from_vec([filter, key.as_bytes()].concat());
                self.settings.extend([".clean=", ".smudge=", ".process=", ".required=false"].map(set));
            }
        }
        Ok(self)
    }

    /// Runs git. The inner result is the error that git reported.
    ///
    /// # Errors
    /// [`Code::NotFound`]: there is no git; [`Code::System`].
    pub(super) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<Result<()>> {
        self.execute(arguments).map(|output| check(&output))
    }

    /// What git prints.
    ///
    /// # Errors
    /// As [`GitCommand::run`]; [`Code::Invalid`] with the error that git reported.
    pub(super) fn output<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<Vec<u8>> {
        let output = self.execute(arguments)?;
        check(&output).map(|()| output.stdout)
    }

    fn execute<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<Output> {
        let mut command = Command::new("git");
        LOCAL_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
        self.settings.iter().for_each(|setting| _ = command.arg("-c").arg(setting));
        let output = command.arg("-C").arg(&self.directory).args(arguments).stdin(Stdio::null()).output();
        output.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::new(Code::NotFound, "run git: not found").hint("a worktree needs git: install it")
            }
            _ => Error::system("run git", error),
        })
    }
}

/// Whether a word of a command is a relative path.
fn names_relative_path(command: &[u8]) -> bool {
    let separates = |byte: &u8| byte.is_ascii_whitespace() || b"\"';|&()<>=".contains(byte);
    command
        .split(separates)
        .any(|word| word.contains(&b'/') && !word.starts_with(b"/") && !word.starts_with(b"~"))
}

/// The error that git wrote, if it failed.
fn check(output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let is_error = |line: &&str| line.starts_with("fatal:") || line.starts_with("error:");
    let line = text.lines().find(is_error).or_else(|| text.lines().next()).unwrap_or("it failed");
    Err(Error::new(Code::Invalid, format!("git: {line}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_of_commands_are_found() {
        for (command, expected) in [
            ("./tools/clean.sh", true),
            ("sh tools/clean.sh %f", true),
            ("sh -c 'x=bin/y; $x'", true),
            ("git-lfs clean -- %f", false),
            ("/usr/bin/clean", false),
            ("~/bin/clean --in", false),
            ("cat", false),
        ] {
            assert_eq!(names_relative_path(command.as_bytes()), expected, "{command}");
        }
    }
}
