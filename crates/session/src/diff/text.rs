//! Changes as lines for people and as JSON. An agent chose the names: bytes that are not plain text are escaped before
//! they reach a terminal.

use super::{ChangeKind, ChangeSide, FileChange};
use saggar_sys::beneath::FileKind;
use saggar_sys::text::{DisplayEscaped, hex};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path of an agent's on one line, escaped as in [`saggar_sys::text::DisplayEscaped`].
pub fn show_path(path: &Path) -> String {
    path.escaped().to_string()
}

/// A name, escaped as in [`show_path`].
pub fn show_name(name: &OsStr) -> String {
    name.escaped().to_string()
}

impl ChangeKind {
    /// The letter in front of a path.
    pub fn letter(self) -> char {
        match self {
            ChangeKind::Deleted => 'D',
            ChangeKind::Added => 'A',
            ChangeKind::Modified => 'M',
        }
    }

    fn json_name(self) -> &'static str {
        match self {
            ChangeKind::Deleted => "deleted",
            ChangeKind::Added => "added",
            ChangeKind::Modified => "modified",
        }
    }
}

impl FileChange {
    /// One line: `M src/main.rs (mode 644 to 755) [protected: …]`.
    pub fn to_line(&self) -> String {
        let mut line = format!("{} {}", self.kind.letter(), self.path.escaped());
        let last = self.after.as_ref().or(self.before.as_ref());
        if last.is_some_and(|side| side.meta.kind == FileKind::Directory) {
            line.push('/');
        }
        if let Some(target) = self.after.as_ref().and_then(|side| side.target.as_ref()) {
            let _ = write!(line, " -> {}", target.escaped());
        }
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            let (was, is) = (&before.meta, &after.meta);
            if was.kind != is.kind {
                let _ = write!(line, " ({} to {})", was.kind.name(), is.kind.name());
            } else if was.mode != is.mode && is.kind != FileKind::Symlink {
                let _ = write!(line, " (mode {:o} to {:o})", was.mode, is.mode);
            }
        } else if let (ChangeKind::Added, Some(after)) = (self.kind, &self.after)
            && after.meta.kind == FileKind::File
            && after.meta.mode & 0o111 != 0
        {
            let _ = write!(line, " (mode {:o})", after.meta.mode);
        }
        let reasons = [
            ("refused", &self.rejected),
            ("protected", &self.protected_because),
            ("link", &self.escapes),
            ("conflict", &self.conflict),
        ];
        for (word, why) in reasons {
            if let Some(why) = why {
                let _ = write!(line, " [{word}: {why}]");
            }
        }
        line
    }

    /// One JSON object. A path that is not UTF-8 is also given as hexadecimal bytes.
    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "change": self.kind.json_name(),
            "path": self.path.to_string_lossy(),
            "before": self.before.as_ref().map(side_json),
            "after": self.after.as_ref().map(side_json),
            "refused": self.rejected,
            "protected": self.protected_because,
            "leadsOut": self.escapes,
            "conflict": self.conflict,
        });
        if self.path.to_str().is_none() {
            value["pathBytes"] = hex(self.path.as_os_str().as_bytes()).into();
        }
        value
    }
}

fn side_json(side: &ChangeSide) -> Value {
    let mut value = json!({ "kind": side.meta.kind.name(), "mode": format!("{:o}", side.meta.mode) });
    if side.meta.kind == FileKind::File {
        value["size"] = side.meta.size.into();
    }
    if let Some(target) = &side.target {
        value["target"] = target.to_string_lossy().into();
        if target.to_str().is_none() {
            value["targetBytes"] = hex(target.as_os_str().as_bytes()).into();
        }
    }
    value
}
