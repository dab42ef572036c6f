//! The conversation of a restored home.
//!
//! Claude Code files the transcripts of a directory below `.claude/projects`, under the path of the directory with `-`
//! for every other character than a letter or a digit. The copy of a folder has another path in each session, and the
//! agent would not find its conversation there.

use saggar_sys::beneath::{self, FileKind};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Above this length Claude Code shortens the name, and adds a hash that only it can compute.
const MAX_PROJECT_NAME: usize = 200;

/// Moves the transcripts in the extracted `home` that belong to the workspace `from` to those of the workspace `to`,
/// unless the home has transcripts of both.
///
/// # Errors
/// Those of rename(2).
pub(super) fn move_transcripts(home: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
    let (Some(from), Some(to)) = (project_name(from), project_name(to)) else { return Ok(()) };
    // An archive may have a link or a file of this name.
    let Ok(projects) = beneath::open_directory(home, ".claude/projects") else { return Ok(()) };
    let projects = projects.as_fd();
    let is_directory = |name: &str| {
        let meta = beneath::stat_beneath(projects, Path::new(name))?;
        Ok::<_, io::Error>(meta.is_some_and(|meta| meta.kind == FileKind::Directory))
    };
    if from == to || !is_directory(&from)? || beneath::stat_beneath(projects, Path::new(&to))?.is_some() {
        return Ok(());
    }
    Ok(rustix::fs::renameat(projects, from, projects, to)?)
}

fn project_name(workspace: &str) -> Option<String> {
    // The agent counts and replaces UTF-16 code units.
    let units = workspace.encode_utf16().map(|unit| {
        let letter = char::from_u32(unit.into()).filter(char::is_ascii_alphanumeric);
        letter.unwrap_or('-')
    });
    let name: String = units.collect();
    (name.len() <= MAX_PROJECT_NAME).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_name_replaces_each_code_unit() {
        assert_eq!(project_name("/a/b.c_d").unwrap(), "-a-b-c-d");
        assert_eq!(project_name("/é𝄞").unwrap(), "----");
        assert!(project_name(&"a".repeat(201)).is_none());
    }
}
