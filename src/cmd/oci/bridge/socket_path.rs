//! The paths of a bridge's sockets and of its stored events, from an annotation. The author of a pod writes the
//! annotation and the runtime is root, so it can only name a socket in one directory, which the operator chooses.
//!
//! ```text
//! <bridge.directory>/NAME            the socket of the bridge
//! <bridge.directory>/NAME.control    the control socket
//! <bridge.directory>/NAME.events/    the stored events (`org.saggar.spool`)
//! ```

use super::BRIDGE_ANNOTATION;
use crate::error::{Code, Error, Result};
use crate::session::policy_parser::WorkerPolicyParser;
use crate::spec::policy::{self, HomeSource, PolicyOptions, PolicySources};
use crate::state::container::SidecarSpool;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::geteuid;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum length of a socket name, in bytes. With a suffix it is far from the limit of a file name (255).
const MAX_NAME: usize = 64;
/// Maximum length of a socket path, in bytes: `sun_path` has 108 with its final NUL (unix(7)).
const MAX_SOCKET_PATH: usize = 107;
/// What the names of the control socket and of the directory of events have after the name of the bridge's socket.
const CONTROL_SUFFIX: &str = ".control";
const EVENTS_SUFFIX: &str = ".events";

/// The value of the annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BridgeSocketPath {
    /// `true`: a socket in the container's state directory.
    StateDirectory,
    /// A name in the operator's directory.
    OperatorDirectory(String),
    /// An absolute path, which must be in the operator's directory.
    Path(PathBuf),
}

/// The files of a bridge on the host.
#[derive(Debug, PartialEq)]
pub(super) struct BridgeFiles {
    /// The socket of the bridge.
    pub(super) socket: PathBuf,
    /// The control socket beside a socket that has a name. Otherwise it is in the container's own directory.
    pub(super) control: Option<PathBuf>,
    /// Where its events are stored, if they are.
    pub(super) spool: Option<SidecarSpool>,
}

impl BridgeSocketPath {
    /// Parses a value of the annotation other than `false`.
    ///
    /// # Errors
    /// [`Code::Invalid`].
    pub(super) fn parse(value: &str) -> Result<Self> {
        match value {
            "true" => Ok(BridgeSocketPath::StateDirectory),
            path if path.starts_with('/') => Ok(BridgeSocketPath::Path(path.into())),
            name if is_name(name) => Ok(BridgeSocketPath::OperatorDirectory(name.to_owned())),
            other => Err(socket_error(&format!("{other:?} is neither true nor false nor a name"))
                .hint(format!("a name has letters, digits, '.', '_' and '-', {MAX_NAME} bytes at most"))),
        }
    }

    /// Returns the paths of the container with the state directory `own`; with `spool` for a named socket also where its
    /// events are stored.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a path outside of the operator's directory or one that is too long, or if that directory is
    /// writable by others. Errors of the configuration, which is not read for the state directory.
    pub(super) fn files(&self, own: &Path, spool: bool) -> Result<BridgeFiles> {
        if *self == BridgeSocketPath::StateDirectory {
            return Ok(BridgeFiles { socket: own.join("bridge.sock"), control: None, spool: None });
        }
        let current = PathBuf::from("/");
        let places = PolicySources::of_this_host(current, geteuid().as_raw(), &WorkerPolicyParser);
        let policy = policy::load_policy(&places, HomeSource::Tmp, PolicyOptions::default())?;
        let policy = policy.effective;
        let directory = policy.bridge_directory.as_ref().map(|setting| setting.value.as_path());
        let socket = self.below(directory)?;
        if let Some(directory) = directory {
            check_directory(directory)
                .map_err(|error| error.context(format_args!("annotations[{BRIDGE_ANNOTATION:?}]")))?;
        }
        let spool = spool.then(|| SidecarSpool {
            directory: with_suffix(&socket, EVENTS_SUFFIX),
            max_bytes: policy.spool_size.value.bytes(),
            remembered: policy.remembered_uuids.value,
        });
        Ok(BridgeFiles { control: Some(with_suffix(&socket, CONTROL_SUFFIX)), socket, spool })
    }

    fn below(&self, directory: Option<&Path>) -> Result<PathBuf> {
        const CONFIGURE: &str = "set it to true for a socket in the container's own directory; with \
            bridge.directory = '/DIRECTORY' in /etc/saggar/config.toml it may name a socket there";
        let shown = match self {
            BridgeSocketPath::OperatorDirectory(name) => format!("{name:?}"),
            BridgeSocketPath::StateDirectory => "true".to_owned(),
            BridgeSocketPath::Path(path) => format!("{:?}", path.display()),
        };
        let Some(directory) = directory else {
            let message = format!("{shown} names a socket, and no directory is configured for them");
            return Err(socket_error(&message).hint(CONFIGURE));
        };
        let name = match self {
            BridgeSocketPath::StateDirectory => None,
            BridgeSocketPath::OperatorDirectory(name) => Some(name.as_str()),
            BridgeSocketPath::Path(path) => path.strip_prefix(directory).ok().and_then(Path::to_str),
        };
        let Some(name) = name.filter(|name| is_name(name)) else {
            let message = format!("{shown} is not a socket in {}", directory.display());
            return Err(socket_error(&message).hint(CONFIGURE));
        };
        if let Some(suffix) = [CONTROL_SUFFIX, EVENTS_SUFFIX].iter().find(|suffix| name.ends_with(**suffix)) {
            let message =
                format!("{shown} ends in {suffix}, the end of a name beside the socket of another bridge");
            return Err(socket_error(&message).hint("choose a name with another end"));
        }
        let path = directory.join(name);
        let length = path.as_os_str().as_bytes().len() + CONTROL_SUFFIX.len();
        if length > MAX_SOCKET_PATH {
            let message = format!(
                "{}{CONTROL_SUFFIX}, its control socket, has {length} bytes, and a unix socket takes \
                 {MAX_SOCKET_PATH} at most",
                path.display()
            );
            return Err(socket_error(&message).hint("choose a shorter name, or a shorter bridge.directory"));
        }
        Ok(path)
    }
}

/// The path beside `path` whose name has this suffix more.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned();
    path.as_mut_os_string().push(suffix);
    path
}

/// Returns whether this is a single file name that is not hidden.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// Rejects a directory that others can write, because they could have created any file under the name.
fn check_directory(directory: &Path) -> Result<()> {
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
    let is_trusted_owner = found.st_uid == 0 || found.st_uid == geteuid().as_raw();
    match is_trusted_owner && found.st_mode & 0o022 == 0 {
        true => Ok(()),
        false => Err(Error::new(Code::Invalid, format!("bridge.directory {shown}: others can write in it"))
            .hint(format!("chmod 700 {shown}, and let it belong to you or root"))),
    }
}

fn socket_error(why: &str) -> Error {
    Error::new(Code::Invalid, format!("annotations[{BRIDGE_ANNOTATION:?}]: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_names_a_socket_in_the_directory_alone() {
        let directory = Path::new("/run/agents");
        let below =
            |value: &str| BridgeSocketPath::parse(value).and_then(|place| place.below(Some(directory)));
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
            "a.control",
            "/run/agents/a.events",
        ] {
            let error = below(value).unwrap_err();
            assert!(error.to_string().starts_with("annotations[\"org.saggar.bridge\"]: "), "{error}");
        }
        assert!(BridgeSocketPath::parse("a").unwrap().below(None).is_err());
        assert!(BridgeSocketPath::parse("/run/agents/a").unwrap().below(None).is_err());
        assert_eq!(
            BridgeSocketPath::parse("true").unwrap().files(directory, true).unwrap(),
            BridgeFiles { socket: directory.join("bridge.sock"), control: None, spool: None }
        );
    }

    #[test]
    fn name_leaves_room_for_that_of_the_control_socket() {
        let name = "x".repeat(MAX_NAME);
        // "/", the name, and ".control" are beside the directory.
        let longest = format!("/{}", "d".repeat(MAX_SOCKET_PATH - 1 - 1 - MAX_NAME - CONTROL_SUFFIX.len()));
        let below = |directory: &str| BridgeSocketPath::parse(&name).unwrap().below(Some(directory.as_ref()));
        let path = below(&longest).unwrap();
        assert_eq!(with_suffix(&path, CONTROL_SUFFIX).as_os_str().len(), MAX_SOCKET_PATH);
        let error = below(&format!("{longest}d")).unwrap_err().to_string();
        assert!(error.contains("xx.control, its control socket, has 108 bytes"), "{error}");
    }
}
