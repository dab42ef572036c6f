//! The listening socket: created without races, identified by device and inode, and removed only if it is still the
//! same file (BP-02, BP-03).
//!
//! There are two types of directories:
//! - *private*: only the user (or root) can write to it. A dead socket in it is replaced. The caller holds the
//!   sandbox's lock, so that no other process does this at the same time.
//! - *shared*, such as `/tmp`: any existing file is an error and stays untouched. A dead socket that exactly matches a
//!   record was removed before (DECISIONS 21).
//!
//! bind(2) creates the file exclusively, under a random name. It is renamed to its own name, without replacing
//! anything, once the socket listens. All checks and removals use a descriptor of the directory, so that they apply to
//! the directory that was checked.

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, open, openat, renameat2};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, linkat, unlinkat};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::id::SandboxId;
use saggar_sys::peer::PeerPolicy;
use saggar_sys::socket_record::SocketRecord;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum length of a socket path, in bytes: `sun_path` has 108 with its final NUL (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// Expands a socket path template for this sandbox: replaces `{id}` and `{short_id}` (BP-02).
///
/// # Errors
/// [`Code::Invalid`]: an unknown placeholder, or a path that is not absolute or is longer than 107 bytes.
pub fn expand_socket_path(template: &str, id: &SandboxId) -> Result<PathBuf> {
    let path = template.replace("{short_id}", id.short()).replace("{id}", id.as_str());
    if path.contains(['{', '}']) {
        return Err(Error::new(Code::Invalid, format!("socket template {template:?}: unknown placeholder"))
            .hint("use {id} or {short_id}"));
    }
    let path = PathBuf::from(path);
    check_path(&path)?;
    Ok(path)
}

/// A listening unix socket with its file.
#[derive(Debug)]
pub struct UnixSocketListener {
    socket: mio::net::UnixListener,
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    record: SocketRecord,
    peers: PeerPolicy,
    _file: OwnedFd,
}

/// A listening socket under a random name, not yet renamed to its own name.
#[derive(Debug)]
pub struct UnpublishedListener {
    listener: UnixSocketListener,
    name: OsString,
}

impl UnpublishedListener {
    /// The record of the file, to be stored before the file gets its name.
    pub fn record(&self) -> SocketRecord {
        self.listener.record
    }

    /// The directory of the file. Its path may have changed.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.listener.directory.as_fd()
    }

    /// Renames the file to its own name, without replacing anything.
    ///
    /// # Errors
    /// [`Code::Exists`] if another file took the name meanwhile; [`Code::System`].
    pub fn publish(self) -> Result<UnixSocketListener> {
        let UnpublishedListener { mut listener, name } = self;
        let path = listener.path.clone();
        let fail = |e: Errno| match e {
            Errno::EEXIST => path_taken_error(&path, "it exists"),
            e => Error::system(format!("put socket {} in its place", path.display()), e),
        };
        rename_noreplace(&listener.directory, &listener.name, &name).map_err(fail)?;
        listener.name = name;
        let found = stat_entry(&listener.directory, &listener.name).map_err(fail)?;
        // In a directory that any user can write to, the file can have been exchanged.
        let found = found.and_then(|stat| SocketRecord::from_stat(&stat));
        match found.filter(|found| found.is_same_file(&listener.record)) {
            Some(record) => listener.record = record,
            None => return Err(path_taken_error(&path, "something else was put there while it was made")),
        }
        Ok(listener)
    }
}

impl UnixSocketListener {
    /// Creates the socket at `path` and listens.
    ///
    /// # Errors
    /// As those of [`UnixSocketListener::prepare`] and [`UnpublishedListener::publish`].
    pub fn bind(path: &Path) -> Result<UnixSocketListener> {
        UnixSocketListener::prepare(path)?.publish()
    }

    /// Creates the socket file and listens, under a random name in the directory of `path`. The file has mode 0600
    /// from its creation on. A client that finds the socket under its own name is never refused.
    ///
    /// # Errors
    /// [`Code::Exists`] if the path is taken by a file that may not be replaced; [`Code::Invalid`] for a path that
    /// cannot be a socket; [`Code::System`] otherwise.
    pub fn prepare(path: &Path) -> Result<UnpublishedListener> {
        check_path(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(Code::Invalid, format!("socket {}: no file name", path.display())));
        };
        let what = |operation: &str| format!("{operation} socket {}", path.display());
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(parent, flags, Mode::empty())
            .map_err(|e| Error::system(format!("open directory {}", parent.display()), e))?;
        remove_dead_socket(path, &directory, name)?;
        let peers =
            PeerPolicy::of_this_process().map_err(|e| Error::system(what("judge the callers of"), e))?;

        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)
            .map_err(|e| Error::system(what("create"), e))?;
        // bind(2) gives the file the mode of the socket's own inode less the umask (unix_bind in af_unix.c). With the
        // mode set here, no other user can connect at any time.
        fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(|e| Error::system(what("set the mode of"), e))?;
        let hidden = OsString::from(format!(".saggar-{}", SandboxId::random()?));
        // Through the directory's descriptor, because this name is longer than the name whose length was checked.
        let address = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(&hidden);
        let address = UnixAddr::new(&address).map_err(|e| Error::system(what("name"), e))?;
        bind(socket.as_raw_fd(), &address).map_err(|e| Error::system(what("bind"), e))?;
        let record = stat_entry(&directory, &hidden)
            .map_err(|e| Error::system(what("look at"), e))?
            .and_then(|stat| SocketRecord::from_stat(&stat))
            .ok_or_else(|| Error::system(what("look at"), "it is not where it was made"))?;
        let unfinished = RemoveOnDrop { directory: &directory, name: &hidden, record };
        // Held open, so that its inode number is not reused while the socket exists.
        let file = openat(
            &directory,
            hidden.as_os_str(),
            OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| Error::system(what("hold"), e))?;
        listen(&socket, Backlog::MAXCONN).map_err(|e| Error::system(what("listen on"), e))?;
        unfinished.disarm();
        let socket = mio::net::UnixListener::from_std(socket.into());
        let listener = UnixSocketListener {
            socket,
            path: path.to_owned(),
            name: hidden,
            directory,
            record,
            peers,
            _file: file,
        };
        Ok(UnpublishedListener { listener, name: name.to_owned() })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record of the file.
    pub fn record(&self) -> SocketRecord {
        self.record
    }

    /// The processes that may connect: those allowed when the socket was created, regardless of later changes of
    /// credentials.
    pub(super) fn peers(&self) -> PeerPolicy {
        self.peers.clone()
    }

    /// The socket, for the event loop.
    pub(super) fn socket(&mut self) -> &mut mio::net::UnixListener {
        &mut self.socket
    }
}

impl Drop for UnixSocketListener {
    fn drop(&mut self) {
        remove_if_same(&self.directory, &self.name, &self.record);
    }
}

/// Removes a created file on drop, unless disarmed.
struct RemoveOnDrop<'a> {
    directory: &'a OwnedFd,
    name: &'a OsStr,
    record: SocketRecord,
}

impl RemoveOnDrop<'_> {
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        remove_if_same(self.directory, self.name, &self.record);
    }
}

/// Renames without replacing anything: atomically if the file system supports it, else with a second link.
fn rename_noreplace(directory: &OwnedFd, from: &OsStr, to: &OsStr) -> nix::Result<()> {
    match renameat2(directory, from, directory, to, RenameFlags::RENAME_NOREPLACE) {
        Err(Errno::EINVAL) => {
            linkat(directory, from, directory, to, AtFlags::empty())?;
            unlinkat(directory, from, UnlinkatFlags::NoRemoveDir)
        }
        other => other,
    }
}

/// Removes the file if it still matches the record. A missing or different file is left alone.
fn remove_if_same(directory: &OwnedFd, name: &OsStr, record: &SocketRecord) {
    let found = stat_entry(directory, name).ok().flatten().and_then(|stat| SocketRecord::from_stat(&stat));
    if found.is_some_and(|found| found.is_same_file(record)) {
        let _ = unlinkat(directory, name, UnlinkatFlags::NoRemoveDir);
    }
}

fn check_path(path: &Path) -> Result<()> {
    let bad = |why: &str| Err(Error::new(Code::Invalid, format!("socket {}: {why}", path.display())));
    let bytes = path.as_os_str().as_bytes();
    if !path.is_absolute() {
        return bad("the path is not absolute");
    }
    if bytes.contains(&0) {
        return bad("the path has a NUL");
    }
    if bytes.len() > MAX_SOCKET_PATH {
        let length = bytes.len();
        return bad(&format!(
            "the path has {length} bytes, and a unix socket takes {MAX_SOCKET_PATH} at most"
        ));
    }
    Ok(())
}

/// Whether only this user and root can create or remove names in the directory.
fn is_private(directory: &OwnedFd) -> nix::Result<bool> {
    let stat = fstat(directory)?;
    let owner = stat.st_uid == geteuid().as_raw() || stat.st_uid == 0;
    // With an access control list the group bits are its mask, which covers that case.
    Ok(owner && stat.st_mode & 0o022 == 0)
}

fn stat_entry(directory: &OwnedFd, name: &OsStr) -> nix::Result<Option<FileStat>> {
    match fstatat(directory.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Removes a dead socket at the path if this user may replace it.
fn remove_dead_socket(path: &Path, directory: &OwnedFd, name: &OsStr) -> Result<()> {
    let system = |e: Errno| Error::system(format!("look at socket {}", path.display()), e);
    let Some(stat) = stat_entry(directory, name).map_err(system)? else { return Ok(()) };
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
        return Err(path_taken_error(path, "it exists and is not a socket"));
    }
    if !is_private(directory).map_err(system)? {
        return Err(path_taken_error(path, "it exists, in a directory that others can write")
            .hint("remove it if it is yours, or let the socket be in the runtime directory"));
    }
    if has_listener(path) {
        return Err(path_taken_error(path, "a running program listens on it"));
    }
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(Error::system(format!("remove the dead socket {}", path.display()), e)),
    }
}

/// Whether a process listens. Only ECONNREFUSED proves that none does.
fn has_listener(path: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let attempt = socket(AddressFamily::Unix, SockType::Stream, flags, None).and_then(|probe| {
        let address = UnixAddr::new(path)?;
        connect(probe.as_raw_fd(), &address)
    });
    attempt != Err(Errno::ECONNREFUSED)
}

fn path_taken_error(path: &Path, why: &str) -> Error {
    Error::new(Code::Exists, format!("socket {}: {why}", path.display()))
}

#[cfg(test)]
mod tests;
