//! Changes of text as a unified diff. It is for reading: what is no text, or too long, is named and not shown.

use super::{Change, Trees, text};
use crate::session::beneath::{self, Kind};
use similar::{Algorithm, TextDiff};
use std::fmt::Write as _;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// The longest file that is compared line by line.
const MAX_FILE: u64 = 1 << 20;
/// How long one comparison looks for the shortest answer; then any will do.
const PATIENCE: Duration = Duration::from_millis(500);

/// The change of one file or link; nothing for a directory.
pub fn of(change: &Change, trees: &Trees) -> String {
    let side = |side: &Option<super::Side>, at: BorrowedFd<'_>| match side {
        Some(side) => match side.meta.kind {
            Kind::File => content(at, &change.path),
            Kind::Link => Some(format!("{}\n", text::path(side.target.as_deref().unwrap_or(Path::new(""))))),
            Kind::Directory | Kind::Other(_) => None,
        },
        None => Some(String::new()),
    };
    let is =
        |kind: Kind| [&change.before, &change.after].into_iter().flatten().any(|side| side.meta.kind == kind);
    if is(Kind::Directory) {
        return String::new();
    }
    let path = text::path(&change.path);
    let name =
        |letter: char, there: bool| if there { format!("{letter}/{path}") } else { "/dev/null".to_owned() };
    let (old, new) = (name('a', change.before.is_some()), name('b', change.after.is_some()));
    let mut patch = String::new();
    let sides = (side(&change.before, trees.folder.as_fd()), side(&change.after, trees.left.as_fd()));
    let (Some(was), Some(is)) = sides else {
        let _ = writeln!(patch, "{old} and {new} differ, and are not shown");
        return patch;
    };
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).timeout(PATIENCE).diff_lines(&was, &is);
    let unified = diff.unified_diff().context_radius(3).header(&old, &new).to_string();
    for line in unified.lines() {
        let _ = writeln!(patch, "{}", crate::text::block(line));
    }
    patch
}

/// The whole of a file that is text.
fn content(at: BorrowedFd<'_>, path: &Path) -> Option<String> {
    let (file, meta) = beneath::file(at, path).ok()?;
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).ok()?;
    (meta.size <= MAX_FILE && text.len() as u64 <= MAX_FILE && !text.contains('\0')).then_some(text)
}
