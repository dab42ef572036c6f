//! Where an annotation may have the bridge of a container listen. The author of a pod writes it, and the runtime is root:
//! so it names nothing but a socket in one directory, which the operator has chosen.

use super::BRIDGE;
use crate::error::{Code, Error, Result};
use crate::spec::policy::{self, CommandLine, Home, Places};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::geteuid;
use std::path::{Path, PathBuf};

/// The longest name of a socket, in bytes.
const LONGEST: usize = 64;

/// What the annotation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// `true`: the container's own directory.
    Own,
    /// A name in the operator's directory.
    Named(String),
    /// An absolute path, which has to lead to the same.
    Path(PathBuf),
}

impl Place {
    /// Reads a value of the annotation other than `false`.
    ///
    /// # Errors
    /// [`Code::Invalid`].
    pub(super) fn parse(value: &str) -> Result<Self> {
        match value {
            "true" => Ok(Place::Own),
            path if path.starts_with('/') => Ok(Place::Path(path.into())),
            name if is_name(name) => Ok(Place::Named(name.to_owned())),
            other => Err(refused(&format!("{other:?} is neither true nor false nor a name"))
                .hint(format!("a name has letters, digits, '.', '_' and '-', {LONGEST} bytes at most"))),
        }
    }

    /// The path of the socket of the container whose own directory is `own`.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a place outside of the operator's directory, and for a directory that others can write;
    /// those of the configuration, which is read for a name alone.
    pub(super) fn path(&self, own: &Path) -> Result<PathBuf> {
        if *self == Place::Own {
            return Ok(own.join("bridge.sock"));
        }
        let current = PathBuf::from("/");
        let places = Places::of_this_host(current, geteuid().as_raw());
        let policy = policy::load(&places, Home::Tmp, CommandLine::default())?;
        let directory = policy.effective.bridge_directory;
        let directory = directory.as_ref().map(|setting| setting.value.as_path());
        let path = self.below(directory)?;
        if let Some(directory) = directory {
            check(directory).map_err(|error| error.context(format_args!("annotations[{BRIDGE:?}]")))?;
        }
        Ok(path)
    }

    fn below(&self, directory: Option<&Path>) -> Result<PathBuf> {
        const CONFIGURE: &str = "set it to true for a socket in the container's own directory; with \
            bridge.directory = '/DIRECTORY' in /etc/saggar/config.toml it may name a socket there";
        let shown = match self {
            Place::Named(name) => format!("{name:?}"),
            Place::Own => "true".to_owned(),
            Place::Path(path) => format!("{:?}", path.display()),
        };
        let Some(directory) = directory else {
            let message = format!("{shown} names a socket, and no directory is configured for them");
            return Err(refused(&message).hint(CONFIGURE));
        };
        let name = match self {
            Place::Own => None,
            Place::Named(name) => Some(name.as_str()),
            Place::Path(path) => path.strip_prefix(directory).ok().and_then(Path::to_str),
        };
        match name.filter(|name| is_name(name)) {
            Some(name) => Ok(directory.join(name)),
            None => {
                let message = format!("{shown} is not a socket in {}", directory.display());
                Err(refused(&message).hint(CONFIGURE))
            }
        }
    }
}

/// One name of a file, and not a hidden one.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LONGEST).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// Refuses a directory that others can write: they could have put anything at the name.
fn check(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let opened = open(
        directory,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
        Mode::empty(),
    );
    let found = opened.and_then(fstat).map_err(|e| {
        Error::system(format_args!("open bridge.directory {shown}"), e)
            .hint(format!("install -d -m 700 {shown}, at each boot (tmpfiles.d(5)) where it is below /run"))
    })?;
    let ours = found.st_uid == 0 || found.st_uid == geteuid().as_raw();
    match ours && found.st_mode & 0o022 == 0 {
        true => Ok(()),
        false => Err(Error::new(Code::Invalid, format!("bridge.directory {shown}: others can write in it"))
            .hint(format!("chmod 700 {shown}, and let it belong to you or root"))),
    }
}

fn refused(why: &str) -> Error {
    Error::new(Code::Invalid, format!("annotations[{BRIDGE:?}]: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_names_a_socket_in_the_directory_alone() {
        let directory = Path::new("/run/agents");
        let below = |value: &str| Place::parse(value).and_then(|place| place.below(Some(directory)));
        for value in ["web-1.sock", "/run/agents/web-1.sock", "/run/agents//web-1.sock"] {
            assert_eq!(below(value).unwrap(), directory.join("web-1.sock"), "{value}");
        }
        for value in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "../x",
            "/",
            "/run/agents",
            "/run/agents/",
            "/run/agents/..",
            "/run/agents/../x",
            "/run/agents/a/b",
            "/run/agentsx/a",
            "/etc/passwd",
            "a b",
            "a\0b",
            "\u{202e}a",
            &"x".repeat(65),
        ] {
            let error = below(value).unwrap_err();
            assert!(error.to_string().starts_with("annotations[\"org.saggar.bridge\"]: "), "{error}");
        }
        assert!(Place::parse("a").unwrap().below(None).is_err());
        assert!(Place::parse("/run/agents/a").unwrap().below(None).is_err());
        assert_eq!(Place::parse("true").unwrap().path(directory).unwrap(), directory.join("bridge.sock"));
    }
}
