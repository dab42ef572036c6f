//! Unix sockets of the host that were named for programs inside: each is a socket and nothing else, and one that leads
//! out of any sandbox is told loudly.

use crate::error::{Code, Error, Result};
use crate::spec::policy::sockets::{MAX_SOCKET_PATH, escape_risk};
use crate::spec::policy::{BindSpec, EffectivePolicy, PolicyLayer, Setting};
use crate::state;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A socket that gives more than a sandbox should have.
#[derive(Debug)]
pub(crate) struct RiskySocket {
    pub(crate) path: PathBuf,
    pub(crate) layer: PolicyLayer,
    why: &'static str,
}

impl std::fmt::Display for RiskySocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RiskySocket { path, layer, why } = self;
        write!(f, "the socket {} is a way out of the sandbox: {why} (named by {layer})", path.display())
    }
}

/// Refuses what is no socket, or is named by a path that can be made to mean another.
///
/// # Errors
/// [`Code::Invalid`], naming the path and the cure.
pub(crate) fn check(policy: &EffectivePolicy) -> Result<()> {
    for Setting { value, layer } in &policy.sockets {
        let BindSpec { source, .. } = value;
        let real = resolve_socket(source)?;
        if real != *source {
            let message =
                format!("show the socket {}: its path leads over a symbolic link", source.display());
            let hint =
                format!("name {}, and see who may change that link ({layer} names it)", real.display());
            return Err(Error::new(Code::Invalid, message).hint(hint));
        }
        let length = value.destination().as_os_str().len();
        if length > MAX_SOCKET_PATH {
            let dest = value.destination().display();
            let message = format!(
                "show a socket at {dest}: the path has {length} bytes, {MAX_SOCKET_PATH} are the most"
            );
            return Err(Error::new(Code::Invalid, message).hint("give it a shorter one: PATH:DEST"));
        }
    }
    Ok(())
}

/// The path of a socket, without links.
///
/// # Errors
/// [`Code::Invalid`] when there is nothing, or something else.
pub(crate) fn resolve_socket(path: &Path) -> Result<PathBuf> {
    let wrong = |why: &str| Error::new(Code::Invalid, format!("show the socket {}: {why}", path.display()));
    let real = path.canonicalize().map_err(|e| {
        wrong(&e.to_string())
            .hint("start the server of this socket first, since this file itself is mounted inside")
    })?;
    let is_socket = real.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    match is_socket {
        true => Ok(real),
        false => Err(wrong("it is no socket").hint("files and directories are shown with --ro and --rw")),
    }
}

/// Those of the named sockets that give more than a sandbox should have.
pub(crate) fn risky_sockets(policy: &EffectivePolicy) -> Vec<RiskySocket> {
    let ssh = std::env::var_os("SSH_AUTH_SOCK").map(PathBuf::from);
    let own: Vec<PathBuf> =
        [Ok(state::runtime_path()), state::sessions_path()].into_iter().flatten().collect();
    let own: Vec<&Path> = own.iter().map(PathBuf::as_path).collect();
    let judged = policy.sockets.iter().filter_map(|Setting { value, layer }| {
        let why = escape_risk(&value.source, ssh.as_deref(), &own)?;
        Some(RiskySocket { path: value.source.clone(), layer: layer.clone(), why })
    });
    judged.collect()
}
