//! The state of containers on disk: a directory for each below `--root`, mode 0700.
//!
//! ```text
//! <root>/<id>/lock             held (flock) by the verb that is changing the container; holds the record once more,
//!                              for the end of a container whose other records are both damaged
//! <root>/<id>/state.json       the record: what the container is, and what was made for it
//! <root>/<id>/state.copy.json  the same once more, when the container is complete: for when the first is damaged
//! <root>/<id>/config.json      the bundle's configuration as it was at create
//! <root>/<id>/start.sock       where the program waits for start
//! <root>/<id>/bridge.sock      where the bridge listens, and bridge.log, what its supervisor has to say
//! ```
//! Invariants:
//! - A directory is claimed by mkdir(2), so that of many creates of one id one wins.
//! - A thing that has to be removed is in the record before it is made. Whoever finds the directory can remove
//!   what a killed runtime left.
//! - A record is exchanged whole (a temporary file, rename); a reader sees the old one or the new one. Nothing is
//!   synced: a container ends with the boot, and what a crash of the machine left half written is a damaged record.
//! - Whatever lies where a file of ours should be is never waited for, never followed, and never read without
//!   end: it is an error, and `delete --force` removes it.
//! - What a container is doing is asked of the kernel, not read here: only its processes know.
//!
//! It is not the agents' runtime directory, whose sweep removes what it does not know.

mod directory;
mod record;

pub use directory::{Claim, Directory, Held, write_atomically};
pub use record::{Beside, RECORD_VERSION, Record};

use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory that `--root` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// `path`, or the default: `/run/saggar-oci`; for an ordinary user, and for root of a user namespace,
    /// `$XDG_RUNTIME_DIR/saggar-oci`, else `/tmp/saggar-oci-$UID`.
    ///
    /// # Errors
    /// [`Code::Invalid`] for the agents' runtime directory; [`Code::System`] when a relative path has no
    /// beginning.
    pub fn new(path: Option<&Path>) -> Result<Self> {
        let path = match path {
            Some(path) => std::path::absolute(path)
                .map_err(|e| Error::system(format_args!("find the root {}", path.display()), e))?,
            None => default_path(),
        };
        if path == super::runtime_path() {
            return Err(Error::new(
                Code::Invalid,
                format!("--root {}: sandboxes of agents are recorded there", path.display()),
            )
            .hint("choose another directory, or leave --root out"));
        }
        Ok(Root { path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Claims the directory of `id`, making the root when it is missing.
    ///
    /// # Errors
    /// [`Code::Exists`] when the id is in use; [`Code::Refused`] when others can write to the root;
    /// [`Code::System`].
    pub fn claim(&self, id: &SandboxId) -> Result<Claim> {
        super::own_directory(&self.path)?;
        Claim::new(self.path.join(id.as_str()), id)
    }

    /// The directory of a container.
    ///
    /// # Errors
    /// [`Code::NotFound`] when it does not exist.
    pub fn find(&self, id: &SandboxId) -> Result<Directory> {
        let path = self.path.join(id.as_str());
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => Ok(Directory::new(path, id.clone())),
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

    /// The directories of all containers, by name; none without a root.
    ///
    /// # Errors
    /// [`Code::System`] when the root cannot be read.
    pub fn all(&self) -> Result<Vec<Directory>> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::system(format_args!("read {}", self.path.display()), e)),
        };
        let mut found: Vec<Directory> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| {
                let id = SandboxId::parse(entry.file_name().to_str()?).ok()?;
                Some(Directory::new(entry.path(), id))
            })
            .collect();
        found.sort_by(|a, b| a.id().as_str().cmp(b.id().as_str()));
        Ok(found)
    }
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

/// Whether some ids of the host have no name here: then we are not in its own user namespace.
pub fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = ["0", "0", "4294967295"];
    !map.lines().any(|line| line.split_whitespace().eq(whole))
}
