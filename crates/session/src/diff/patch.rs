//! Changes of text files as a unified diff, for reading only: binary or large files are named and not shown.

use super::{FileChange, WorkspaceTrees, text};
use saggar_sys::beneath::{self, FileKind};
use similar::{Algorithm, TextDiff};
use std::fmt::Write as _;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// Largest file in bytes that is compared line by line.
const MAX_FILE_SIZE: u64 = 1 << 20;
/// Time limit of the search for the shortest diff; after it any diff is accepted.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// The diff of one file or link; empty for a directory.
pub fn unified_diff(change: &FileChange, trees: &WorkspaceTrees) -> String {
    let side = |side: &Option<super::ChangeSide>, at: BorrowedFd<'_>| match side {
        Some(side) => match side.meta.kind {
            FileKind::File => read_text(at, &change.path),
            FileKind::Symlink => {
                Some(format!("{}\n", text::show_path(side.target.as_deref().unwrap_or(Path::new("")))))
            }
            FileKind::Directory | FileKind::Other(_) => None,
        },
        None => Some(String::new()),
    };
    let is = |kind: FileKind| {
        [&change.before, &change.after].into_iter().flatten().any(|side| side.meta.kind == kind)
    };
    if is(FileKind::Directory) {
        return String::new();
    }
    let path = text::show_path(&change.path);
    let name =
        |letter: char, there: bool| if there { format!("{letter}/{path}") } else { "/dev/null".to_owned() };
    let (old, new) = (name('a', change.before.is_some()), name('b', change.after.is_some()));
    let mut patch = String::new();
    let sides = (side(&change.before, trees.folder.as_fd()), side(&change.after, trees.changed_tree.as_fd()));
    let (Some(was), Some(is)) = sides else {
        let _ = writeln!(patch, "{old} and {new} differ, and are not shown");
        return patch;
    };
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).timeout(DIFF_TIMEOUT).diff_lines(&was, &is);
    let unified = diff.unified_diff().context_radius(3).header(&old, &new).to_string();
    for line in unified.lines() {
        let _ = writeln!(patch, "{}", saggar_sys::text::multi_line(line));
    }
    patch
}

/// The whole content of a text file.
fn read_text(at: BorrowedFd<'_>, path: &Path) -> Option<String> {
    let (is, meta) = beneath::open_file(at, path).ok()?;
    let mut text = String::new();
    is.take(MAX_FILE_SIZE + 1).read_to_string(&mut text).ok()?;
    (meta.size <= MAX_FILE_SIZE && text.len() as u64 <= MAX_FILE_SIZE && !text.contains('\0')).then_some(text)
}
