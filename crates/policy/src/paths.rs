//! The paths of a policy.
//!
//! No path may contain `..`: its meaning depends on symbolic links that can change between the check and
//! the use.

use super::value::{BadValue, text_value};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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

/// Splits at the colon that is not escaped, and undoes the escapes: `\:` is a colon of a path, and `\\` a backslash. Any
/// other backslash stands for itself.
fn split_bind(text: &OsStr) -> Vec<PathBuf> {
    let mut parts = vec![Vec::new()];
    let mut bytes = text.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = (byte == b'\\').then(|| bytes.next_if(|next| matches!(next, b':' | b'\\'))).flatten();
        match (escaped, parts.last_mut()) {
            (None, _) if byte == b':' => parts.push(Vec::new()),
            (_, Some(part)) => part.push(escaped.unwrap_or(byte)),
            (_, None) => {}
        }
    }
    parts.into_iter().map(|part| PathBuf::from(OsString::from_vec(part))).collect()
}

impl TryFrom<OsString> for BindSpec {
    type Error = BadValue;

    fn try_from(text: OsString) -> Result<Self, BadValue> {
        let bad = |why: &str| {
            Err(BadValue(format!("{text:?} {why}; write PATH or PATH:DEST, with \\: for a colon of a path")))
        };
        let parts = split_bind(&text);
        if parts.len() > 2 {
            return bad("has more than one colon");
        }
        if let Some(why) = parts.iter().find_map(|path| path_objection(path)) {
            return bad(why);
        }
        match parts.as_slice() {
            [_, dest] if !dest.is_absolute() => bad("has a DEST that is not absolute"),
            [source, rest @ ..] => Ok(BindSpec {
                source: normalize(source),
                destination: rest.first().map(|dest| normalize(dest)),
            }),
            [] => bad("is empty"),
        }
    }
}

impl FromStr for BindSpec {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        OsString::from(text).try_into()
    }
}

impl fmt::Display for BindSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |path: &Path| path.to_string_lossy().replace('\\', "\\\\").replace(':', "\\:");
        f.write_str(&escaped(&self.source))?;
        match &self.destination {
            Some(dest) if *dest != self.source => write!(f, ":{}", escaped(dest)),
            _ => Ok(()),
        }
    }
}

text_value!(BindSpec, { "type": "string", "description": "PATH or PATH:DEST, both absolute; a colon of a path is written \\: and a backslash \\\\", "pattern": "^/([^:\\\\]|\\\\.)*(:/([^:\\\\]|\\\\.)*)?$" });

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

impl TryFrom<OsString> for HostPath {
    type Error = BadValue;

    fn try_from(text: OsString) -> Result<Self, BadValue> {
        PathBuf::from(text).try_into()
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

/// An absolute path of the host, or `~/…` below the caller's home directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserPath(PathBuf);

impl UserPath {
    /// Resolves the path for a caller with this home directory; `None` if it needs a home and `home` is
    /// `None`.
    pub fn resolve(&self, home: Option<&Path>) -> Option<PathBuf> {
        match self.0.strip_prefix("~") {
            Ok(below) => home.filter(|home| home.is_absolute()).map(|home| home.join(below)),
            Err(_) => Some(self.0.clone()),
        }
    }
}

impl TryFrom<PathBuf> for UserPath {
    type Error = BadValue;

    fn try_from(path: PathBuf) -> Result<Self, BadValue> {
        let bad = |why: &str| BadValue(format!("path {path:?} {why}"));
        match path_objection(&path) {
            Some(why) => Err(bad(why)),
            None if path.is_absolute() || path.starts_with("~") && path != Path::new("~") => {
                Ok(UserPath(normalize(&path)))
            }
            None => Err(bad("is not absolute; write /PATH or ~/PATH")),
        }
    }
}

impl FromStr for UserPath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        PathBuf::from(text).try_into()
    }
}

impl fmt::Display for UserPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

text_value!(UserPath, { "type": "string", "description": "an absolute path, or ~/ and a path below the home", "pattern": "^(/|~/)." });

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

impl TryFrom<OsString> for HomeSource {
    type Error = BadValue;

    fn try_from(text: OsString) -> Result<Self, BadValue> {
        match text.to_str() {
            Some("tmp") => Ok(HomeSource::Tmp),
            Some("session") => Ok(HomeSource::Session),
            _ => match text.try_into() {
                Ok(path) => Ok(HomeSource::Directory(path)),
                Err(BadValue(why)) => Err(BadValue(format!("home is tmp, session or a directory: {why}"))),
            },
        }
    }
}

impl FromStr for HomeSource {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        OsString::from(text).try_into()
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
pub struct SocketPathTemplate(OsString);

impl SocketPathTemplate {
    /// The path for the sandbox with this id.
    pub fn expand(&self, id: &saggar_sys::id::SandboxId) -> PathBuf {
        PathBuf::from(fill(&self.0, id.short(), id.as_str()))
    }
}

/// The template with these values in place of its names.
fn fill(template: &OsStr, short_id: &str, id: &str) -> OsString {
    const NAMES: [&[u8]; 2] = [b"{short_id}", b"{id}"];
    let mut filled = Vec::new();
    let mut rest = template.as_bytes();
    while let [first, after @ ..] = rest {
        let named = NAMES.iter().zip([short_id, id]).find(|(name, _)| rest.starts_with(name));
        match named {
            Some((name, value)) => {
                filled.extend_from_slice(value.as_bytes());
                rest = &rest[name.len()..];
            }
            None => {
                filled.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(filled)
}

impl TryFrom<OsString> for SocketPathTemplate {
    type Error = BadValue;

    fn try_from(text: OsString) -> Result<Self, BadValue> {
        let bad = |why: &str| Err(BadValue(format!("template {text:?} {why}")));
        if fill(&text, "x", "x").as_bytes().iter().any(|byte| matches!(byte, b'{' | b'}')) {
            return bad("has a brace that is neither {id} nor {short_id}");
        }
        match path_objection(Path::new(&text)) {
            Some(why) => bad(why),
            None if !Path::new(&text).is_absolute() => bad("is not absolute"),
            None => Ok(SocketPathTemplate(text)),
        }
    }
}

impl FromStr for SocketPathTemplate {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        OsString::from(text).try_into()
    }
}

impl fmt::Display for SocketPathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
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
    fn a_user_path_is_absolute_or_below_the_home() {
        let path =
            |text: &str, home: Option<&str>| text.parse::<UserPath>().unwrap().resolve(home.map(Path::new));
        assert_eq!(path("/etc/saggar/./key", None), Some("/etc/saggar/key".into()));
        assert_eq!(path("~/.config/key", Some("/home/a")), Some("/home/a/.config/key".into()));
        assert_eq!(path("~/key", None), None);
        assert_eq!(path("~/key", Some("a")), None);
        for text in ["", "key", "./key", "~", "~root/key", "/a/../key", "~/../key", "/a\0"] {
            assert!(text.parse::<UserPath>().is_err(), "{text:?}");
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
        taken::<BindSpec>(&[(r"/a\:b", r"/a\:b"), (r"/a\\:/b\x", r"/a\\:/b\\x"), (r"/\", r"/\\")]);
        let spec: BindSpec = r"/a\:b:/c\\\:d".parse().unwrap();
        assert_eq!((spec.source.as_path(), spec.destination()), (Path::new("/a:b"), Path::new(r"/c\:d")));
        refused::<BindSpec>(&["", ":", "/a:", ":/b", "/a:b", "/a:/b:/c", "/a/../b", "/a:/..", "/a\0", ".."]);
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
    fn paths_are_bytes() {
        let text = OsString::from_vec(b"/a\xff:/b\xfe".to_vec());
        let spec = BindSpec::try_from(text).unwrap();
        assert_eq!(
            (spec.source.as_os_str().as_bytes(), spec.destination().as_os_str().as_bytes()),
            (&b"/a\xff"[..], &b"/b\xfe"[..])
        );
        let id = saggar_sys::id::SandboxId::parse("0123456789").unwrap();
        let template = SocketPathTemplate::try_from(OsString::from_vec(b"/\xff{id}".to_vec())).unwrap();
        assert_eq!(template.expand(&id).as_os_str().as_bytes(), b"/\xff0123456789");
        assert!(HomeSource::try_from(OsString::from_vec(b"/\xff".to_vec())).is_ok());
        assert!(HomeSource::try_from(OsString::from_vec(b"\xff".to_vec())).is_err());
    }

    #[test]
    fn templates() {
        let id = saggar_sys::id::SandboxId::parse("0123456789").unwrap();
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
