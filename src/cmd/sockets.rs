//! Unix sockets of the host that were named for programs inside: each is a socket and nothing else, and one that leads
//! out of any sandbox is told loudly.

use crate::error::{Code, Error, Result};
use crate::spec::policy::sockets::{LONGEST_PATH, way_out};
use crate::spec::policy::{BindSpec, Effective, Layer, Setting};
use crate::state;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// A socket that gives more than a sandbox should have.
#[derive(Debug)]
pub(super) struct WayOut {
    pub(super) path: PathBuf,
    pub(super) layer: Layer,
    why: &'static str,
}

impl std::fmt::Display for WayOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let WayOut { path, layer, why } = self;
        write!(f, "the socket {} is a way out of the sandbox: {why} (named by {layer})", path.display())
    }
}

/// Refuses what is no socket, or is named by a path that can be made to mean another.
///
/// # Errors
/// [`Code::Invalid`], naming the path and the cure.
pub(super) fn check(policy: &Effective) -> Result<()> {
    for Setting { value, layer } in &policy.sockets {
        let BindSpec { source, .. } = value;
        let real = socket(source)?;
        if real != *source {
            let message =
                format!("show the socket {}: its path leads over a symbolic link", source.display());
            let hint =
                format!("name {}, and see who may change that link ({layer} names it)", real.display());
            return Err(Error::new(Code::Invalid, message).hint(hint));
        }
        let length = value.dest().as_os_str().len();
        if length > LONGEST_PATH {
            let dest = value.dest().display();
            let message =
                format!("show a socket at {dest}: the path has {length} bytes, {LONGEST_PATH} are the most");
            return Err(Error::new(Code::Invalid, message).hint("give it a shorter one: PATH:DEST"));
        }
    }
    Ok(())
}

/// The path of a socket, without links.
///
/// # Errors
/// [`Code::Invalid`] when there is nothing, or something else.
pub(super) fn socket(path: &Path) -> Result<PathBuf> {
    let wrong = |why: &str| Error::new(Code::Invalid, format!("show the socket {}: {why}", path.display()));
    let real = path.canonicalize().map_err(|e| {
        wrong(&e.to_string()).hint(
            "whoever listens there has to be started first, since it is this very file that stands inside",
        )
    })?;
    let is_socket = real.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    match is_socket {
        true => Ok(real),
        false => Err(wrong("it is no socket").hint("files and directories are shown with --ro and --rw")),
    }
}

/// Those of the named sockets that give more than a sandbox should have.
pub(super) fn ways_out(policy: &Effective) -> Vec<WayOut> {
    let ssh = std::env::var_os("SSH_AUTH_SOCK").map(PathBuf::from);
    let own: Vec<PathBuf> =
        [Ok(state::runtime_path()), state::sessions_path()].into_iter().flatten().collect();
    let own: Vec<&Path> = own.iter().map(PathBuf::as_path).collect();
    let judged = policy.sockets.iter().filter_map(|Setting { value, layer }| {
        let why = way_out(&value.source, ssh.as_deref(), &own)?;
        Some(WayOut { path: value.source.clone(), layer: layer.clone(), why })
    });
    judged.collect()
}
