//! Directories: where sandboxes that run are recorded, and where sessions last (DECISIONS 27). Containers of the
//! OCI verbs have a root of their own: [`container`].

pub mod container;
pub mod counters;
pub mod lent;
pub mod live;
pub mod process;

use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use nix::sys::stat::FileStat;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where the runtime directory is: `/run/saggar`, `$XDG_RUNTIME_DIR/saggar`, else `/tmp/saggar-$UID`.
pub fn runtime_path() -> PathBuf {
    let uid = geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/saggar");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute()) {
        Some(dir) if dir.is_dir() => dir.join("saggar"),
        _ => PathBuf::from(format!("/tmp/saggar-{uid}")),
    }
}

/// The runtime directory, made when it is missing, mode 0700; one that somebody else owns or can write is
/// refused.
///
/// # Errors
/// [`Code::Refused`] for a directory that is not ours alone; [`Code::System`].
pub fn runtime_dir() -> Result<PathBuf> {
    let path = runtime_path();
    own_directory(&path)?;
    Ok(path)
}

/// Where the directory of sessions is: below `$SAGGAR_STATE_DIR`; else `/var/lib/saggar/sessions`, or below
/// `$XDG_STATE_HOME` or `~/.local/state`.
///
/// # Errors
/// [`Code::Invalid`] without a home directory, and for a relative `SAGGAR_STATE_DIR`.
pub fn sessions_path() -> Result<PathBuf> {
    let named =
        std::env::var_os("SAGGAR_STATE_DIR").map(PathBuf::from).filter(|dir| !dir.as_os_str().is_empty());
    let base = if let Some(named) = named {
        if !named.is_absolute() {
            let message =
                format!("find the directory of sessions: SAGGAR_STATE_DIR={} is relative", named.display());
            return Err(Error::new(Code::Invalid, message).hint("set it to an absolute path, or unset it"));
        }
        named
    } else if geteuid().is_root() {
        PathBuf::from("/var/lib/saggar")
    } else {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .map(|base| base.join("saggar"))
            .ok_or_else(|| {
                Error::new(
                    Code::Invalid,
                    "find the directory of sessions: neither XDG_STATE_HOME nor HOME is set",
                )
                .hint("set HOME, or XDG_STATE_HOME, to an absolute path")
            })?
    };
    Ok(base.join("sessions"))
}

/// The directory of sessions, made as [`runtime_dir`] is.
///
/// # Errors
/// As [`sessions_path`] and [`runtime_dir`].
pub fn sessions_dir() -> Result<PathBuf> {
    let sessions = sessions_path()?;
    if let Some(base) = sessions.parent() {
        own_directory(base)?;
    }
    own_directory(&sessions)?;
    Ok(sessions)
}

/// Makes `path`, mode 0700, unless it is there; in both cases it is then a directory of ours that nobody
/// else can write.
///
/// # Errors
/// [`Code::Refused`] when it is a link, not a directory, or not ours alone; [`Code::System`].
pub fn own_directory(path: &Path) -> Result<()> {
    let shown = path.display();
    if let Some(parent) = path.parent()
        && !parent.exists()
    {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)
            .map_err(|e| Error::system(format_args!("make the directory {}", parent.display()), e))?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => check_own(path),
        Err(e) => Err(Error::system(format_args!("make the directory {shown}"), e)),
    }
}

/// Whether the directory `path` is ours alone.
///
/// # Errors
/// [`Code::Refused`] when it is a link, not a directory, or not ours alone; [`Code::System`] when it is not
/// there.
pub fn check_own(path: &Path) -> Result<()> {
    let shown = path.display();
    let meta = path
        .symlink_metadata()
        .map_err(|e| Error::system(format_args!("look at the directory {shown}"), e))?;
    let refuse = |why: &str| {
        Err(Error::new(Code::Refused, format!("use the directory {shown}: {why}"))
            .hint("move it away: saggar makes its own"))
    };
    if !meta.file_type().is_dir() {
        return refuse("it is not a directory");
    }
    if meta.uid() != geteuid().as_raw() {
        return refuse("it belongs to somebody else");
    }
    if meta.permissions().mode() & 0o022 != 0 {
        return refuse("others can write to it");
    }
    Ok(())
}

/// How a lock file is opened: 0600, its content left alone, no link followed, a FIFO in its place not waited for.
pub fn lock_options() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// The runtime directory of one sandbox.
///
/// # Errors
/// As [`runtime_dir`].
pub fn sandbox_dir(id: &SandboxId) -> Result<PathBuf> {
    Ok(runtime_dir()?.join(id.as_str()))
}

/// What tells a socket file from any other: written down when it is made, so that a later start can know a dead
/// socket of ours in a shared directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketRecord {
    /// The device of the file system.
    pub dev: u64,
    /// The inode.
    pub ino: u64,
    /// When the inode last changed: seconds.
    pub ctime: i64,
    /// And nanoseconds.
    pub ctime_nsec: i64,
}

impl SocketRecord {
    // The types of these fields differ between architectures.
    #[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
    /// What tells the file of `stat` from others.
    pub fn of(stat: &FileStat) -> Option<Self> {
        Some(SocketRecord {
            dev: stat.st_dev.try_into().ok()?,
            ino: stat.st_ino.try_into().ok()?,
            ctime: stat.st_ctime.try_into().ok()?,
            ctime_nsec: stat.st_ctime_nsec.try_into().ok()?,
        })
    }

    /// Whether it is the same file, changed or not.
    pub fn same_file(&self, other: &SocketRecord) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }
}
