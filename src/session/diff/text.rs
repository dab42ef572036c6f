//! Changes as lines for people and as JSON. Names are what an agent chose: no byte of them reaches a terminal as it
//! is, unless it is plain.

use super::{Act, Change, Side};
use crate::session::beneath::Kind;
use crate::text::Show;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path of an agent's, on one line, as [`crate::text::Shown`] has it.
pub fn path(path: &Path) -> String {
    path.shown().to_string()
}

/// A name, as [`path`] shows it.
pub fn name(name: &OsStr) -> String {
    name.shown().to_string()
}

impl Act {
    /// As it stands in front of a path.
    pub fn letter(self) -> char {
        match self {
            Act::Deleted => 'D',
            Act::Added => 'A',
            Act::Modified => 'M',
        }
    }

    fn name(self) -> &'static str {
        match self {
            Act::Deleted => "deleted",
            Act::Added => "added",
            Act::Modified => "modified",
        }
    }
}

impl Change {
    /// On one line: `M src/main.rs (mode 644 to 755) [protected: …]`.
    pub fn line(&self) -> String {
        let mut line = format!("{} {}", self.act.letter(), self.path.shown());
        let last = self.after.as_ref().or(self.before.as_ref());
        if last.is_some_and(|side| side.meta.kind == Kind::Directory) {
            line.push('/');
        }
        if let Some(target) = self.after.as_ref().and_then(|side| side.target.as_ref()) {
            let _ = write!(line, " -> {}", target.shown());
        }
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            let (was, is) = (&before.meta, &after.meta);
            if was.kind != is.kind {
                let _ = write!(line, " ({} to {})", was.kind.name(), is.kind.name());
            } else if was.mode != is.mode && is.kind != Kind::Link {
                let _ = write!(line, " (mode {:o} to {:o})", was.mode, is.mode);
            }
        } else if let (Act::Added, Some(after)) = (self.act, &self.after)
            && after.meta.kind == Kind::File
            && after.meta.mode & 0o111 != 0
        {
            let _ = write!(line, " (mode {:o})", after.meta.mode);
        }
        let reasons = [
            ("refused", &self.refused),
            ("protected", &self.protected),
            ("link", &self.leads_out),
            ("conflict", &self.conflict),
        ];
        for (word, why) in reasons {
            if let Some(why) = why {
                let _ = write!(line, " [{word}: {why}]");
            }
        }
        line
    }

    /// As one JSON object. A path that is no text has its bytes in hexadecimal beside it.
    pub fn json(&self) -> Value {
        let mut value = json!({
            "change": self.act.name(),
            "path": self.path.to_string_lossy(),
            "before": self.before.as_ref().map(side),
            "after": self.after.as_ref().map(side),
            "refused": self.refused,
            "protected": self.protected,
            "leadsOut": self.leads_out,
            "conflict": self.conflict,
        });
        if self.path.to_str().is_none() {
            value["pathBytes"] = hex(self.path.as_os_str()).into();
        }
        value
    }
}

fn side(side: &Side) -> Value {
    let mut value = json!({ "kind": side.meta.kind.name(), "mode": format!("{:o}", side.meta.mode) });
    if side.meta.kind == Kind::File {
        value["size"] = side.meta.size.into();
    }
    if let Some(target) = &side.target {
        value["target"] = target.to_string_lossy().into();
        if target.to_str().is_none() {
            value["targetBytes"] = hex(target.as_os_str()).into();
        }
    }
    value
}

fn hex(name: &OsStr) -> String {
    name.as_bytes().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
