//! Files of the mailbox below a directory descriptor.
//!
//! Other programs of the same user write to these directories, so that a name may be a link, a FIFO or a directory by
//! the time it is opened. Every file is opened without following links and without blocking, and used only if it is a
//! regular file of this user with one link (open(2): O_NOFOLLOW, O_NONBLOCK).

mod check;

use crate::error::{Error, Result};
use check::{check_directory, check_file, unsafe_file};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIRECTORY_MODE: Mode = Mode::RWXU;
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// How often a file is opened that others replace meanwhile.
const MAX_TRIES: usize = 100;

/// An open directory of this user.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory that the caller chose, and creates it if it is missing; its parent must exist. Links are
    /// followed, since the path comes from the user.
    pub(crate) fn open_or_create_root(path: &Path) -> Result<Self> {
        if !create_private(CWD, path)
            .map_err(|cause| Error::system(format_args!("create {}", path.display()), cause))?
        {
            return Directory::open_root(path);
        }
        let root = Directory::open_root(path)?;
        // The name must survive a crash as well as the messages below it.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        rustix::fs::openat(CWD, parent, DIRECTORY_FLAGS, Mode::empty())
            .and_then(rustix::fs::fsync)
            .map_err(|cause| Error::system(format_args!("sync directory {}", parent.display()), cause))?;
        Ok(root)
    }

    /// Opens a directory that the caller chose.
    pub(crate) fn open_root(path: &Path) -> Result<Self> {
        let fd = rustix::fs::openat(CWD, path, DIRECTORY_FLAGS, Mode::empty())
            .map_err(|cause| Error::system(format_args!("open directory {}", path.display()), cause))?;
        Directory { fd, path: path.to_owned() }.checked()
    }

    /// As [`Directory::open_root`]; `None` if it does not exist.
    pub(crate) fn find_root(path: &Path) -> Result<Option<Self>> {
        match rustix::fs::statat(CWD, path, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(None),
            _ => Directory::open_root(path).map(Some),
        }
    }

    /// The same directory with a descriptor of its own.
    pub(crate) fn reopen(&self) -> Result<Self> {
        let fd = self
            .fd
            .try_clone()
            .map_err(|cause| Error::system(format_args!("open directory {}", self.path.display()), cause))?;
        Ok(Directory { fd, path: self.path.clone() })
    }

    /// Opens a directory below; `None` if it does not exist.
    pub(crate) fn open_directory(&self, name: &str) -> Result<Option<Self>> {
        let path = self.path.join(name);
        match rustix::fs::openat(&self.fd, name, DIRECTORY_FLAGS | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => Directory { fd, path }.checked().map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(unsafe_file(&path, "it is not a directory")),
            Err(cause) => Err(Error::system(format_args!("open directory {}", path.display()), cause)),
        }
    }

    /// Creates a directory below, with mode 0700 whatever the umask is; an existing one is opened.
    pub(crate) fn open_or_create_directory(&self, name: &str) -> Result<Self> {
        let is_new =
            create_private(&self.fd, Path::new(name)).map_err(|cause| self.failed("create", name, cause))?;
        let directory = self.open_directory(name)?.ok_or_else(|| self.failed("open", name, Errno::NOENT))?;
        if is_new {
            self.sync()?;
        }
        Ok(directory)
    }

    /// Opens a file for reading and appending; `None` if it does not exist.
    pub(crate) fn open_file(&self, name: &str) -> Result<Option<File>> {
        self.open_with(name, OFlags::RDWR | OFlags::APPEND)
    }

    /// Opens a file for reading and for writing at offsets; `None` if it does not exist.
    pub(crate) fn open_file_at_offsets(&self, name: &str) -> Result<Option<File>> {
        self.open_with(name, OFlags::RDWR)
    }

    /// As [`Directory::open_file`]; a missing file is created with mode 0600 whatever the umask is.
    pub(crate) fn open_or_create_file(&self, name: &str) -> Result<File> {
        loop {
            if let Some(file) = self.open_file(name)? {
                return Ok(file);
            }
            match self.create(name, OFlags::APPEND) {
                Ok(file) => {
                    self.sync()?;
                    return Ok(file);
                }
                // Another process was faster.
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(self.failed("create", name, cause)),
            }
        }
    }

    /// Creates a file in place of an older one, which may be the remainder of a crash.
    pub(crate) fn create_anew(&self, name: &str) -> Result<File> {
        self.remove_file(name)?;
        self.create(name, OFlags::empty()).map_err(|cause| self.failed("create", name, cause))
    }

    /// Replaces a file: after a crash it has the old or the new content, and both are durable.
    pub(crate) fn write_atomically(&self, name: &str, content: &[u8]) -> Result<()> {
        let new_name = format!(".{name}.new");
        let written = self.create_anew(&new_name).and_then(|mut file| {
            file.write_all(content)
                .and_then(|()| file.sync_all())
                .map_err(|cause| Error::system(format_args!("write {}", self.path_of(name).display()), cause))
        });
        match written {
            Ok(()) => {
                self.rename(&new_name, name)?;
                self.sync()
            }
            Err(error) => {
                // The error of the write is the one to report; the next write removes what this one cannot.
                let _ = self.remove_file(&new_name);
                Err(error)
            }
        }
    }

    /// The content of a small file; `None` if it does not exist.
    pub(crate) fn read_file(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open_with(name, OFlags::RDONLY)? else { return Ok(None) };
        let mut content = Vec::new();
        file.take(limit + 1)
            .read_to_end(&mut content)
            .map_err(|cause| self.failed_io("read", name, cause))?;
        if u64::try_from(content.len()).is_ok_and(|length| length <= limit) {
            return Ok(Some(content));
        }
        Err(unsafe_file(&self.path_of(name), &format!("it has more than {limit} bytes")))
    }

    /// Renames a file or directory below and replaces another file.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to).map_err(|cause| self.failed("rename", from, cause))
    }

    /// Renames a file or directory below; `false` if the new name exists (renameat2(2): RENAME_NOREPLACE).
    pub(crate) fn rename_to_new(&self, from: &str, to: &str) -> Result<bool> {
        match rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(cause) => Err(self.failed("rename", from, cause)),
        }
    }

    /// Removes a file; it is not an error if it does not exist.
    pub(crate) fn remove_file(&self, name: &str) -> Result<()> {
        self.remove(name, AtFlags::empty())
    }

    /// Removes an empty directory; it is not an error if it does not exist.
    pub(crate) fn remove_directory(&self, name: &str) -> Result<()> {
        self.remove(name, AtFlags::REMOVEDIR)
    }

    /// The state of a name itself, without following a link; `None` if it does not exist.
    pub(crate) fn stat(&self, name: &str) -> Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(self.failed("stat", name, cause)),
        }
    }

    /// The names in the directory that are UTF-8, in no order.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let failed = |cause| Error::system(format_args!("read directory {}", self.path.display()), cause);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }

    /// Makes created, renamed and removed names durable.
    pub(crate) fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.fd)
            .map_err(|cause| Error::system(format_args!("sync directory {}", self.path.display()), cause))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn open_with(&self, name: &str, access: OFlags) -> Result<Option<File>> {
        let path = self.path_of(name);
        let mut tries_left = MAX_TRIES;
        let (fd, stat) = loop {
            let fd = match rustix::fs::openat(&self.fd, name, access | FILE_FLAGS, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::LOOP) => return Err(unsafe_file(&path, "it is a symbolic link")),
                Err(Errno::ISDIR) => return Err(unsafe_file(&path, "it is a directory")),
                Err(Errno::NXIO) => return Err(unsafe_file(&path, "it is a FIFO, socket or device")),
                Err(cause) => return Err(Error::system(format_args!("open {}", path.display()), cause)),
            };
            let stat = rustix::fs::fstat(&fd).map_err(|cause| self.failed("stat", name, cause))?;
            tries_left -= 1;
            // Without a link it was replaced or removed since it was opened: the name has another file, or none.
            if stat.st_nlink > 0 || tries_left == 0 {
                break (fd, stat);
            }
        };
        check_file(&path, &stat, access.contains(OFlags::RDWR))?;
        Ok(Some(File::from(fd)))
    }

    fn create(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | FILE_FLAGS | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let fd = rustix::fs::openat(&self.fd, name, flags, FILE_MODE)?;
        // The umask may have removed bits.
        rustix::fs::fchmod(&fd, FILE_MODE)?;
        Ok(File::from(fd))
    }

    fn remove(&self, name: &str, flags: AtFlags) -> Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(self.failed("remove", name, cause)),
        }
    }

    fn checked(self) -> Result<Self> {
        let stat = rustix::fs::fstat(&self.fd)
            .map_err(|cause| Error::system(format_args!("stat {}", self.path.display()), cause))?;
        check_directory(&self.path, &stat)?;
        Ok(self)
    }

    fn failed(&self, operation: &str, name: &str, cause: Errno) -> Error {
        Error::system(format_args!("{operation} {}", self.path_of(name).display()), cause)
    }

    fn failed_io(&self, operation: &str, name: &str, cause: std::io::Error) -> Error {
        Error::system(format_args!("{operation} {}", self.path_of(name).display()), cause)
    }
}

/// Creates a directory with mode 0700; `false` if the name exists. The mode of a path is changed only if the umask has
/// taken bits of it: a confined server may not.
#[expect(
    clippy::disallowed_methods,
    reason = "under an umask of 0700 the new directory cannot be opened before"
)]
fn create_private(parent: impl AsFd, name: &Path) -> Result<bool, Errno> {
    match rustix::fs::mkdirat(&parent, name, DIRECTORY_MODE) {
        Ok(()) => {
            let created = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if Mode::from_raw_mode(created.st_mode).intersection(Mode::RWXU | Mode::RWXG | Mode::RWXO)
                != DIRECTORY_MODE
            {
                rustix::fs::chmodat(&parent, name, DIRECTORY_MODE, AtFlags::empty())?;
            }
            Ok(true)
        }
        Err(Errno::EXIST) => Ok(false),
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_meanwhile_is_read_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let open = || Directory::open_or_create_root(&scratch.path().join("mailbox")).unwrap();
        let (reader, writer) = (open(), open());
        reader.write_atomically("record", b"0").unwrap();
        let replaces = std::thread::spawn(move || {
            for number in 1..=2000_u32 {
                // Not by `write_atomically`, which waits for the disk.
                let mut file = writer.create_anew("record.new").unwrap();
                file.write_all(number.to_string().as_bytes()).unwrap();
                writer.rename("record.new", "record").unwrap();
            }
        });
        let mut last = 0;
        while last < 2000 {
            let content = reader.read_file("record", 16).unwrap().unwrap();
            last = std::str::from_utf8(&content).unwrap().parse::<u32>().unwrap();
        }
        replaces.join().unwrap();
    }
}
