//! The listening socket: made safely, watched by dev and inode, removed when it is still ours (BP-02, BP-03).
//!
//! Two kinds of directories:
//! - *private*: only we (or root) can write in it. A dead socket found there is replaced; the caller holds the
//!   sandbox's lock, so nobody else does the same at the same time.
//! - *shared*, such as `/tmp`: whatever is found there is an error and stays untouched. The dead socket that a
//!   record of ours describes exactly has been swept before ([`crate::launch::guard::sweep_socket`], DECISIONS 21).
//!
//! bind(2) makes the file itself, exclusively, under a name of no meaning; it gets its own name, without replacing
//! anything, once it listens. All looks and removals go through a descriptor of the directory, so that they mean the directory
//! that was checked.

use crate::error::{Code, Error, Result};
use crate::host::peer::Peers;
use crate::id::SandboxId;
use crate::state::SocketRecord;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, open, openat, renameat2};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, linkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest path of a socket, in bytes: `sun_path` is 108 with its final NUL (unix(7)).
const PATH_LIMIT: usize = 107;

/// The path that a template means for this sandbox: `{id}` and `{short_id}` are put in (BP-02).
///
/// # Errors
/// [`Code::Invalid`]: a placeholder nobody knows, a path that is not absolute or is longer than 107 bytes.
pub fn expand(template: &str, id: &SandboxId) -> Result<PathBuf> {
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
pub struct Listener {
    socket: mio::net::UnixListener,
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    record: SocketRecord,
    peers: Peers,
    _file: OwnedFd,
}

/// A socket that listens and has no name yet that anybody knows.
#[derive(Debug)]
pub struct Unpublished {
    listener: Listener,
    name: OsString,
}

impl Unpublished {
    /// What to write down about the file before it gets its name.
    pub fn record(&self) -> SocketRecord {
        self.listener.record
    }

    /// The directory that the file is in, which may have other names by now.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.listener.directory.as_fd()
    }

    /// Gives the file its name, replacing nothing.
    ///
    /// # Errors
    /// [`Code::Exists`] when something took the name meanwhile; [`Code::System`].
    pub fn publish(self) -> Result<Listener> {
        let Unpublished { mut listener, name } = self;
        let path = listener.path.clone();
        let fail = |e: Errno| match e {
            Errno::EEXIST => taken(&path, "it exists"),
            e => Error::system(format!("put socket {} in its place", path.display()), e),
        };
        rename_new(&listener.directory, &listener.name, &name).map_err(fail)?;
        listener.name = name;
        let found = look(&listener.directory, &listener.name).map_err(fail)?;
        // In a directory that anybody can write without restriction, the file can have been exchanged.
        let found = found.and_then(|stat| SocketRecord::of(&stat));
        match found.filter(|found| found.same_file(&listener.record)) {
            Some(record) => listener.record = record,
            None => return Err(taken(&path, "something else was put there while it was made")),
        }
        Ok(listener)
    }
}

impl Listener {
    /// Makes the socket at `path` and listens.
    ///
    /// # Errors
    /// As [`Listener::prepare`] and [`Unpublished::publish`].
    pub fn bind(path: &Path) -> Result<Listener> {
        Listener::prepare(path)?.publish()
    }

    /// Makes the socket file, mode 0600 from its first instant, and listens, under a name beside `path` that
    /// nobody knows: whoever finds the socket at its own name is never refused.
    ///
    /// # Errors
    /// [`Code::Exists`] when the path is taken and not ours to replace; [`Code::Invalid`] for a path that cannot
    /// be a socket; [`Code::System`] otherwise.
    pub fn prepare(path: &Path) -> Result<Unpublished> {
        check_path(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(Code::Invalid, format!("socket {}: no file name", path.display())));
        };
        let what = |operation: &str| format!("{operation} socket {}", path.display());
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(parent, flags, Mode::empty())
            .map_err(|e| Error::system(format!("open directory {}", parent.display()), e))?;
        clear_way(path, &directory, name)?;
        let peers = Peers::of_this_process().map_err(|e| Error::system(what("judge the callers of"), e))?;

        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)
            .map_err(|e| Error::system(what("create"), e))?;
        // bind(2) gives the file the mode of the socket's own inode less the umask (unix_bind in af_unix.c):
        // set here, there is no instant at which another user could connect.
        fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(|e| Error::system(what("set the mode of"), e))?;
        let hidden = OsString::from(format!(".saggar-{}", SandboxId::random()?));
        // By the directory's descriptor: the name is longer than the one that was checked for its length.
        let address = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(&hidden);
        let address = UnixAddr::new(&address).map_err(|e| Error::system(what("name"), e))?;
        bind(socket.as_raw_fd(), &address).map_err(|e| Error::system(what("bind"), e))?;
        let record = look(&directory, &hidden)
            .map_err(|e| Error::system(what("look at"), e))?
            .and_then(|stat| SocketRecord::of(&stat))
            .ok_or_else(|| Error::system(what("look at"), "it is not where it was made"))?;
        let unfinished = Removal { directory: &directory, name: &hidden, record };
        // Held open, so that its inode is no other file's as long as we live.
        let file = openat(
            &directory,
            hidden.as_os_str(),
            OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| Error::system(what("hold"), e))?;
        listen(&socket, Backlog::MAXCONN).map_err(|e| Error::system(what("listen on"), e))?;
        unfinished.keep();
        let socket = mio::net::UnixListener::from_std(socket.into());
        let listener =
            Listener { socket, path: path.to_owned(), name: hidden, directory, record, peers, _file: file };
        Ok(Unpublished { listener, name: name.to_owned() })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What to write down about the file.
    pub fn record(&self) -> SocketRecord {
        self.record
    }

    /// The processes that may call: those that could when the socket was made, whatever we became since.
    pub(super) fn peers(&self) -> Peers {
        self.peers.clone()
    }

    /// The socket, for the loop.
    pub(super) fn socket(&mut self) -> &mut mio::net::UnixListener {
        &mut self.socket
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        remove(&self.directory, &self.name, &self.record);
    }
}

/// Removes a file that was made, unless all goes well.
struct Removal<'a> {
    directory: &'a OwnedFd,
    name: &'a OsStr,
    record: SocketRecord,
}

impl Removal<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        remove(self.directory, self.name, &self.record);
    }
}

/// Renames without replacing anything: at once where the file system can, else by a second name.
fn rename_new(directory: &OwnedFd, from: &OsStr, to: &OsStr) -> nix::Result<()> {
    match renameat2(directory, from, directory, to, RenameFlags::RENAME_NOREPLACE) {
        Err(Errno::EINVAL) => {
            linkat(directory, from, directory, to, AtFlags::empty())?;
            unlinkat(directory, from, UnlinkatFlags::NoRemoveDir)
        }
        other => other,
    }
}

/// Removes the file if it is still the one that was recorded. One that is gone, or another's, stays.
fn remove(directory: &OwnedFd, name: &OsStr, record: &SocketRecord) {
    let found = look(directory, name).ok().flatten().and_then(|stat| SocketRecord::of(&stat));
    if found.is_some_and(|found| found.same_file(record)) {
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
    if bytes.len() > PATH_LIMIT {
        let length = bytes.len();
        return bad(&format!("the path has {length} bytes, and a unix socket takes {PATH_LIMIT} at most"));
    }
    Ok(())
}

/// Whether nobody but us and root can make or remove names in the directory.
fn is_private(directory: &OwnedFd) -> nix::Result<bool> {
    let stat = fstat(directory)?;
    let owner = stat.st_uid == geteuid().as_raw() || stat.st_uid == 0;
    // With an access control list the group bits are its mask: they cover that case.
    Ok(owner && stat.st_mode & 0o022 == 0)
}

fn look(directory: &OwnedFd, name: &OsStr) -> nix::Result<Option<FileStat>> {
    match fstatat(directory.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Removes a dead socket that stands in the way and is ours to remove.
fn clear_way(path: &Path, directory: &OwnedFd, name: &OsStr) -> Result<()> {
    let system = |e: Errno| Error::system(format!("look at socket {}", path.display()), e);
    let Some(stat) = look(directory, name).map_err(system)? else { return Ok(()) };
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
        return Err(taken(path, "it exists and is not a socket"));
    }
    if !is_private(directory).map_err(system)? {
        return Err(taken(path, "it exists, in a directory that others can write")
            .hint("remove it if it is yours, or let the socket be in the runtime directory"));
    }
    if answers(path) {
        return Err(taken(path, "a running program listens on it"));
    }
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(Error::system(format!("remove the dead socket {}", path.display()), e)),
    }
}

/// Whether somebody listens. Only a plain refusal says that nobody does.
fn answers(path: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let attempt = socket(AddressFamily::Unix, SockType::Stream, flags, None).and_then(|probe| {
        let address = UnixAddr::new(path)?;
        connect(probe.as_raw_fd(), &address)
    });
    attempt != Err(Errno::ECONNREFUSED)
}

fn taken(path: &Path, why: &str) -> Error {
    Error::new(Code::Exists, format!("socket {}: {why}", path.display()))
}
