//! The directories in which running sandboxes are recorded and sessions are stored (DECISIONS 27). The containers of
//! the OCI commands have a root of their own: [`container`]. Beside the sessions [`group_only_record`] keeps what saves a
//! search.

pub mod base64_bytes;
pub mod container;
pub mod counters;
pub mod delegated_directory;
pub mod group_only_record;
pub mod process;
pub mod running;

use nix::unistd::geteuid;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::id::SandboxId;
use saggar_sys::replace_file::{SyncPolicy, Writers, replace_file};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Replaces the file `path` of a directory of saggar's as a whole, while a lock excludes other writers.
///
/// # Errors
/// [`Code::System`].
pub fn replace_record(path: &Path, bytes: &[u8], mode: u32, sync: SyncPolicy) -> Result<()> {
    replace_file(path, Writers::One, mode, sync, |file| file.write_all(bytes))
        .map_err(|e| Error::system(format_args!("write {}", path.display()), e))
}

/// The variable that names the runtime directory: where `/run` cannot be written, as in some containers.
const RUNTIME_VARIABLE: &str = "SAGGAR_RUNTIME_DIR";

/// Path of the runtime directory: `$SAGGAR_RUNTIME_DIR`; else `/run/saggar`, `$XDG_RUNTIME_DIR/saggar`, or
/// `/tmp/saggar-$UID`.
pub fn runtime_path() -> PathBuf {
    named_runtime_path().unwrap_or_else(default_runtime_path)
}

/// The runtime directory that the caller has named.
pub fn named_runtime_path() -> Option<PathBuf> {
    std::env::var_os(RUNTIME_VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from)
}

/// The runtime directory of a caller that names none.
pub fn default_runtime_path() -> PathBuf {
    let uid = geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/saggar");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute()) {
        Some(dir) if dir.is_dir() => dir.join("saggar"),
        _ => PathBuf::from(format!("/tmp/saggar-{uid}")),
    }
}

/// An empty file that makes a directory of the caller's choice a runtime directory: entries of one that belong to no sandbox
/// are removed.
pub const RUNTIME_MARKER: &str = ".saggar";

fn with_variable(error: Error) -> Error {
    match error.code() {
        Code::System => error.hint(format!("{RUNTIME_VARIABLE}=PATH names another directory")),
        _ => error,
    }
}

/// Makes a directory that the caller has named, or checks that it was made for this.
fn make_named_runtime_directory(path: PathBuf) -> Result<PathBuf> {
    let marker = path.join(RUNTIME_MARKER);
    if marker.symlink_metadata().is_ok() {
        check_private_directory(&path)?;
        return Ok(path);
    }
    ensure_private_directory(&path).map_err(with_variable)?;
    let fails = |what: &str, e| Error::system(format_args!("{what} {}", path.display()), e);
    let mut entries = fs::read_dir(&path).map_err(|e| fails("list", e))?;
    // Another start may have made the marker meanwhile.
    if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != RUNTIME_MARKER)) && !marker.exists() {
        let message = format!("{RUNTIME_VARIABLE}={} is not empty", path.display());
        return Err(Error::new(Code::Refused, message)
            .hint("name a directory for saggar alone: what belongs to no sandbox is removed from it"));
    }
    lock_options().create(true).open(&marker).map_err(|e| fails("make a file in", e))?;
    Ok(path)
}

/// The runtime directory, if it has one already and it may be cleaned up: one that the caller has named has the marker.
pub fn existing_runtime_path() -> Option<PathBuf> {
    let path = check_runtime_path(runtime_path()).ok()?;
    let is_ours = named_runtime_path().is_none() || path.join(RUNTIME_MARKER).symlink_metadata().is_ok();
    (is_ours && path.symlink_metadata().is_ok()).then_some(path)
}

/// A directory for locks of what all sandboxes of this user share, whatever runtime directory each has; that which the caller
/// has named only if it cannot be written. `lock` is called with one after the other.
///
/// # Errors
/// Those of `lock`, and of [`runtime_dir`].
pub fn with_shared_locks<T>(lock: impl Fn(&Path) -> Result<T>) -> Result<T> {
    if named_runtime_path().is_none() {
        return lock(&runtime_dir()?);
    }
    let shared = default_runtime_path();
    match ensure_private_directory(&shared).and_then(|()| lock(&shared)) {
        Err(error) if matches!(error.code(), Code::System | Code::Refused) => lock(&runtime_dir()?),
        done => done,
    }
}

/// The path, if it is absolute.
///
/// # Errors
/// [`Code::Invalid`] for a relative one.
pub fn check_runtime_path(path: PathBuf) -> Result<PathBuf> {
    if path.is_absolute() {
        return Ok(path.components().collect());
    }
    let message = format!("find the runtime directory: {RUNTIME_VARIABLE}={} is relative", path.display());
    Err(Error::new(Code::Invalid, message).hint("set it to an absolute path, or unset it"))
}

/// The runtime directory, created with mode 0700 if it is missing. A directory that another user owns or can write is
/// refused.
///
/// # Errors
/// [`Code::Invalid`] for a relative `SAGGAR_RUNTIME_DIR`; [`Code::Refused`] for a directory that another user owns or can
/// write; [`Code::System`].
pub fn runtime_dir() -> Result<PathBuf> {
    let path = check_runtime_path(runtime_path())?;
    if named_runtime_path().is_some() {
        return make_named_runtime_directory(path);
    }
    ensure_private_directory(&path).map_err(with_variable)?;
    Ok(path)
}

/// Path of the directory of sessions: below `$SAGGAR_STATE_DIR`; else `/var/lib/saggar/sessions`, or below
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

/// The directory of sessions, created as [`runtime_dir`] is.
///
/// # Errors
/// As [`sessions_path`] and [`runtime_dir`].
pub fn sessions_dir() -> Result<PathBuf> {
    let sessions = sessions_path()?;
    if let Some(base) = sessions.parent() {
        ensure_private_directory(base)?;
    }
    ensure_private_directory(&sessions)?;
    Ok(sessions)
}

/// Creates `path` with mode 0700 unless it exists. On success it is a directory that this user owns and no other user
/// can write.
///
/// # Errors
/// [`Code::Refused`] when it is a symbolic link, not a directory, or owned or writable by another user;
/// [`Code::System`].
pub fn ensure_private_directory(path: &Path) -> Result<()> {
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
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => check_private_directory(path),
        Err(e) => Err(Error::system(format_args!("make the directory {shown}"), e)),
    }
}

/// Checks that `path` is a directory that this user owns and no other user can write.
///
/// # Errors
/// [`Code::Refused`] when it is a symbolic link, not a directory, or owned or writable by another user;
/// [`Code::System`] when it does not exist.
pub fn check_private_directory(path: &Path) -> Result<()> {
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
        return refuse("it belongs to another user");
    }
    if meta.permissions().mode() & 0o022 != 0 {
        return refuse("others can write to it");
    }
    Ok(())
}

/// The options to open a lock file: mode 0600, content kept, no symbolic link followed, no wait for a FIFO in its
/// place.
pub fn lock_options() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// The runtime directory of one sandbox.
///
/// # Errors
/// As [`runtime_dir`].
pub(crate) fn sandbox_dir(id: &SandboxId) -> Result<PathBuf> {
    Ok(runtime_dir()?.join(id.as_str()))
}
