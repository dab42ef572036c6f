//! The paths of a policy.
//!
//! No path may contain `..`: its meaning depends on symbolic links that can change between the check and
//! the use.

use super::value::{BadValue, text_value};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The reason why a path is not allowed in a policy, or `None` if it is. It may be relative.
pub(super) fn path_objection(path: &Path) -> Option<&'static str> {
    if path.as_os_str().is_empty() {
        Some("is empty")
    } else if path.as_os_str().as_encoded_bytes().contains(&0) {
        Some("has a NUL")
    } else if path.components().any(|part| part == Component::ParentDir) {
        Some("has a `..`")
    } else {
        None
    }
}

/// Removes `.` and doubled slashes, so that two spellings of one path compare equal.
pub(super) fn normalize(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// `PATH[:DEST]`: a file or directory of the host, and its path in the sandbox.
///
/// A relative PATH is allowed on the command line only, which makes it absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindSpec {
    /// The path on the host.
    pub source: PathBuf,
    /// The path in the sandbox; the source path if `None`.
    pub destination: Option<PathBuf>,
}

impl BindSpec {
    /// The path in the sandbox.
    pub fn destination(&self) -> &Path {
        self.destination.as_deref().unwrap_or(&self.source)
    }
}

impl FromStr for BindSpec {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| Err(BadValue(format!("{text:?} {why}; write PATH or PATH:DEST")));
        let (source, dest) = match text.split_once(':') {
            Some((source, dest)) => (source, Some(dest)),
            None => (text, None),
        };
        if dest.is_some_and(|dest| dest.contains(':')) {
            return bad("has more than one colon");
        }
        for path in std::iter::once(source).chain(dest) {
            if let Some(why) = path_objection(Path::new(path)) {
                return bad(why);
            }
        }
        match dest {
            Some(dest) if !dest.starts_with('/') => bad("has a DEST that is not absolute"),
            _ => Ok(BindSpec {
                source: normalize(Path::new(source)),
                destination: dest.map(|dest| normalize(Path::new(dest))),
            }),
        }
    }
}

impl fmt::Display for BindSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source.display())?;
        match &self.destination {
            Some(dest) if *dest != self.source => write!(f, ":{}", dest.display()),
            _ => Ok(()),
        }
    }
}

text_value!(BindSpec, { "type": "string", "description": "PATH or PATH:DEST, both absolute", "pattern": "^/[^:]*(:/[^:]*)?$" });

/// The access of programs to a bind mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BindAccess {
    /// Read access only.
    ReadOnly,
    /// Read and write access.
    ReadWrite,
}

/// One bind mount from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindMount {
    /// The path on the host.
    pub source: PathBuf,
    /// The path in the sandbox.
    pub destination: PathBuf,
    /// The access of programs.
    pub access: BindAccess,
}

/// A path below the workspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspacePath(PathBuf);

impl WorkspacePath {
    /// The path, relative to the workspace.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for WorkspacePath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| Err(BadValue(format!("{text:?} {why}; write a path below the workspace")));
        let path = normalize(Path::new(text));
        match path_objection(Path::new(text)) {
            Some(why) => bad(why),
            None if path.is_absolute() => bad("is absolute"),
            None if path.as_os_str().is_empty() => bad("is the workspace itself"),
            None => Ok(WorkspacePath(path)),
        }
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

text_value!(WorkspacePath, { "type": "string", "description": "a path below the workspace", "pattern": "^[^/]" });

/// An absolute path of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPath(PathBuf);

impl HostPath {
    /// The absolute path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl TryFrom<PathBuf> for HostPath {
    type Error = BadValue;

    fn try_from(path: PathBuf) -> Result<Self, BadValue> {
        let why = path_objection(&path).or((!path.is_absolute()).then_some("is not absolute"));
        match why {
            Some(why) => Err(BadValue(format!("path {path:?} {why}"))),
            None => Ok(HostPath(normalize(&path))),
        }
    }
}

impl FromStr for HostPath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        PathBuf::from(text).try_into()
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

text_value!(HostPath, { "type": "string", "description": "an absolute path", "pattern": "^/" });

/// The source of the home directory in the sandbox. Ordered from the tightest: memory, the session's
/// directory, a directory of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomeSource {
    /// A tmpfs of limited size, discarded at the end.
    Tmp,
    /// The session's own directory.
    Session,
    /// This directory of the host.
    Directory(HostPath),
}

impl FromStr for HomeSource {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text {
            "tmp" => Ok(HomeSource::Tmp),
            "session" => Ok(HomeSource::Session),
            _ => match text.parse() {
                Ok(path) => Ok(HomeSource::Directory(path)),
                Err(BadValue(why)) => Err(BadValue(format!("home is tmp, session or a directory: {why}"))),
            },
        }
    }
}

impl fmt::Display for HomeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HomeSource::Tmp => f.write_str("tmp"),
            HomeSource::Session => f.write_str("session"),
            HomeSource::Directory(path) => path.fmt(f),
        }
    }
}

text_value!(HomeSource, { "type": "string", "description": "tmp, session, or an absolute path", "pattern": "^(tmp|session|/.*)$" });

/// The path of a socket. It may contain `{id}` or `{short_id}` (the first eight characters of the id).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPathTemplate(String);

impl SocketPathTemplate {
    /// The path for the sandbox with this id.
    pub fn expand(&self, id: &crate::id::SandboxId) -> PathBuf {
        PathBuf::from(self.0.replace("{short_id}", id.short()).replace("{id}", id.as_str()))
    }
}

impl FromStr for SocketPathTemplate {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = |why: &str| Err(BadValue(format!("template {text:?} {why}")));
        let plain = text.replace("{short_id}", "x").replace("{id}", "x");
        if plain.contains(['{', '}']) {
            return bad("has a brace that is neither {id} nor {short_id}");
        }
        match path_objection(Path::new(text)) {
            Some(why) => bad(why),
            None if !text.starts_with('/') => bad("is not absolute"),
            None => Ok(SocketPathTemplate(text.to_owned())),
        }
    }
}

impl fmt::Display for SocketPathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(SocketPathTemplate, { "type": "string", "description": "an absolute path; {id} and {short_id} are replaced by the sandbox's id", "pattern": "^/" });

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn taken<T: FromStr<Err = BadValue> + fmt::Display>(texts: &[(&str, &str)]) {
        for (text, canonical) in texts {
            let value: T = text.parse().unwrap_or_else(|why| panic!("{text:?}: {why}"));
            assert_eq!(value.to_string(), *canonical);
        }
    }

    fn refused<T: FromStr<Err = BadValue> + Debug>(texts: &[&str]) {
        for text in texts {
            assert!(text.parse::<T>().is_err(), "{text:?} is taken");
        }
    }

    #[test]
    fn binds() {
        taken::<BindSpec>(&[
            ("/a", "/a"),
            ("//a/./b/", "/a/b"),
            ("/a:/b/", "/a:/b"),
            ("a", "a"),
            ("/a:/a", "/a"),
        ]);
        refused::<BindSpec>(&["", ":", "/a:", ":/b", "/a:b", "/a:/b:/c", "/a/../b", "/a:/..", "/a\0", ".."]);
    }

    #[test]
    fn workspace_paths() {
        taken::<WorkspacePath>(&[
            ("a", "a"),
            ("./a//b/", "a/b"),
            (".git/hooks", ".git/hooks"),
            ("..a", "..a"),
        ]);
        refused::<WorkspacePath>(&["", ".", "./", "/", "/a", "..", "a/../b", "a/..", "a\0b"]);
    }

    #[test]
    fn homes_and_host_paths() {
        taken::<HomeSource>(&[
            ("tmp", "tmp"),
            ("session", "session"),
            ("/tmp", "/tmp"),
            ("/srv//h/", "/srv/h"),
        ]);
        refused::<HomeSource>(&["", "temp", "./x", "~", "/a/../b"]);
        refused::<HostPath>(&["", "a", "./a", "/..", "/a\0"]);
    }

    #[test]
    fn templates() {
        let id = crate::id::SandboxId::parse("0123456789").unwrap();
        let path = |text: &str| text.parse::<SocketPathTemplate>().unwrap().expand(&id).display().to_string();
        assert_eq!(path("/tmp/ash-{short_id}.sock"), "/tmp/ash-01234567.sock");
        assert_eq!(path("/run/{id}/{id}"), "/run/0123456789/0123456789");
        refused::<SocketPathTemplate>(&[
            "",
            "x",
            "{id}",
            "/{}",
            "/{pid}",
            "/{id",
            "/}",
            "/{{id}}",
            "/{{short_id}id}",
            "/../{id}",
        ]);
    }
}
