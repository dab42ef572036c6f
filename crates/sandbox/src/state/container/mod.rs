//! The state of containers on disk: one directory for each below `--root`, mode 0700.
//!
//! ```text
//! <root>/<id>/lock             locked (flock) by the command that is changing the container; also holds the record,
//!                              to delete a container whose other records are both damaged
//! <root>/<id>/state.json       the record: the state of the container, and the resources created for it
//! <root>/<id>/state.copy.json  a copy of the record of a complete container, for when the first is damaged
//! <root>/<id>/config.json      the bundle's configuration at the time of create
//! <root>/<id>/start.sock       the socket on which the program waits for start
//! <root>/<id>/bridge.sock      the socket of the bridge, and bridge.log, the log of its supervisor
//! ```
//! Invariants:
//! - A directory is claimed by mkdir(2): of several concurrent creates of one id, one succeeds.
//! - A resource that has to be removed is recorded before it is created, so that any later command can remove what a
//!   killed runtime left.
//! - A record is replaced atomically (temporary file, rename): a reader sees the old one or the new one. No file is
//!   synced: a container ends with the boot, and a file that a crash of the machine left half written counts as a
//!   damaged record.
//! - An unexpected file in the place of one of these is not waited for, not followed, and not read without limit: it is
//!   an error, and `delete --force` removes it.
//! - The run state of a container is read from the kernel, not from the record.
//!
//! This is not the agents' runtime directory, whose clean-up removes entries that it does not know.

mod directory;
mod record;

pub use directory::{ContainerClaim, ContainerDirectory, ContainerLock, write_atomically};
pub use record::{ContainerRecord, RECORD_VERSION, SidecarRecord, SidecarSocket, SidecarSpool};

use saggar_sys::error::{Code, Error, Result};
use saggar_sys::id::SandboxId;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory that `--root` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRoot {
    path: PathBuf,
}

impl ContainerRoot {
    /// The root at `path`, or the default: `$SAGGAR_RUNTIME_DIR-oci`; else `/run/saggar-oci`; for an unprivileged user, and
    /// for root of a user namespace, `$XDG_RUNTIME_DIR/saggar-oci`, else `/tmp/saggar-oci-$UID`.
    ///
    /// # Errors
    /// [`Code::Invalid`] for the agents' runtime directory; [`Code::System`] when a relative path cannot be made
    /// absolute.
    pub fn new(path: Option<&Path>) -> Result<Self> {
        let path = match path {
            Some(path) => std::path::absolute(path)
                .map_err(|e| Error::system(format_args!("find the root {}", path.display()), e))?,
            None => match super::named_runtime_path() {
                Some(named) => beside(&super::check_runtime_path(named)?),
                None => default_path(),
            },
        };
        if path == super::runtime_path() {
            return Err(Error::new(
                Code::Invalid,
                format!("--root {}: sandboxes of agents are recorded there", path.display()),
            )
            .hint("choose another directory, or leave --root out"));
        }
        Ok(ContainerRoot { path })
    }

    /// Absolute path of the root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Claims the directory of `id`, and creates the root if it is missing.
    ///
    /// # Errors
    /// [`Code::Exists`] when the id is in use; [`Code::Refused`] when other users can write to the root;
    /// [`Code::System`].
    pub fn claim_directory(&self, id: &SandboxId) -> Result<ContainerClaim> {
        super::ensure_private_directory(&self.path)?;
        ContainerClaim::new(self.path.join(id.as_str()), id)
    }

    /// Finds the directory of a container.
    ///
    /// # Errors
    /// [`Code::NotFound`] when it does not exist.
    pub fn find_directory(&self, id: &SandboxId) -> Result<ContainerDirectory> {
        let path = self.path.join(id.as_str());
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => Ok(ContainerDirectory::new(path, id.clone())),
            Ok(_) => Err(Error::new(
                Code::Invalid,
                format!("container {id}: {} is not a directory", path.display()),
            )
            .hint("it was not made by saggar: remove it by hand")),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::new(Code::NotFound, format!("container {id:?} does not exist", id = id.as_str())))
            }
            Err(e) => Err(Error::system(format_args!("look at {}", path.display()), e)),
        }
    }

    /// The directories of all containers, sorted by name; empty if the root does not exist.
    ///
    /// # Errors
    /// [`Code::System`] when the root cannot be read.
    pub fn list(&self) -> Result<Vec<ContainerDirectory>> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::system(format_args!("read {}", self.path.display()), e)),
        };
        let mut found: Vec<ContainerDirectory> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| {
                let id = SandboxId::parse(entry.file_name().to_str()?).ok()?;
                Some(ContainerDirectory::new(entry.path(), id))
            })
            .collect();
        found.sort_by(|a, b| a.id().as_str().cmp(b.id().as_str()));
        Ok(found)
    }
}

/// The root beside a runtime directory, in which files that belong to no sandbox are removed.
fn beside(runtime: &Path) -> PathBuf {
    let mut path = runtime.as_os_str().to_owned();
    path.push("-oci");
    path.into()
}

fn default_path() -> PathBuf {
    const NAME: &str = "saggar-oci";
    let uid = nix::unistd::geteuid();
    let of_user = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute() && dir.is_dir());
    match (uid.is_root() && !in_user_namespace(), of_user) {
        (false, Some(dir)) => dir.join(NAME),
        (false, None) if !uid.is_root() => PathBuf::from(format!("/tmp/{NAME}-{uid}")),
        _ => PathBuf::from("/run").join(NAME),
    }
}

/// Whether some ids of the host are not mapped: then this process is not in the initial user namespace.
pub fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = ["0", "0", "4294967295"];
    !map.lines().any(|line| line.split_whitespace().eq(whole))
}
