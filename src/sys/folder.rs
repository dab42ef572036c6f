//! A directory that somebody else may write: an agent's folder, a workspace, a repository. For the parent: this
//! allocates.
//!
//! It is opened once, and from then on there is no path: a name is resolved beneath the descriptor by the kernel
//! (openat2(2)), so that what a link, a FIFO or a hard link in the folder leads to is never read in the name of the
//! caller, who may be root. Four rules:
//!
//! - nothing outside of the folder is reached: no `..`, no link that leaves, no magic link;
//! - nothing is waited for, and only regular files are read (`O_NONBLOCK`);
//! - never more bytes than the reader has room for;
//! - a file that the owner of the folder could not read is not read for it (see [`Folder::open_file`]).

use super::Errno;
use super::file::{self, Resolve};
use super::read::{Unread, regular};
use std::ffi::CString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Which links of the folder are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Those that stay in the folder, as of `CLAUDE.md` to `AGENTS.md`.
    Inside,
    /// None at all.
    Refused,
}

/// An open directory with beneath-only operations.
#[derive(Debug)]
pub struct Folder {
    directory: File,
    path: PathBuf,
    owner: u32,
}

impl Folder {
    /// Opens the directory that the caller named; links on the way to it are followed.
    ///
    /// # Errors
    /// Those of open(2), ENOTDIR among them.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let directory =
            OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(path)?;
        let owner = directory.metadata()?.uid();
        // Of what was opened: the name may lead elsewhere by now.
        let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
        Ok(Folder { directory, path, owner })
    }

    /// Its path without links, for messages and for mounts.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file of the folder for reading; `None` when there is nothing of that name.
    ///
    /// A name in the folder can be a hard link to a file that only the caller can read. So what is read belongs to
    /// the owner of the folder, or can be read by all; for callers other than root a file with one name alone may be
    /// another's too, as in a tree that a group shares: no such name was made for a file that exists elsewhere.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn open_file(&self, name: &Path, links: Links) -> Result<Option<(File, Metadata)>, Unread> {
        let Some(file) = self.enter(name, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, links)? else {
            return Ok(None);
        };
        let metadata = file.metadata()?;
        regular(&metadata)?;
        self.may_read(&metadata)?;
        Ok(Some((file, metadata)))
    }

    /// The whole of a regular file of at most `limit` bytes; `None` when there is nothing of that name.
    ///
    /// # Errors
    /// [`Unread`]; the file may grow while it is read, and then counts by what was read.
    pub fn read(&self, name: &Path, limit: u64) -> Result<Option<Vec<u8>>, Unread> {
        let Some((file, metadata)) = self.open_file(name, Links::Inside)? else { return Ok(None) };
        if metadata.len() > limit {
            return Err(Unread::TooLarge(limit));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit { Err(Unread::TooLarge(limit)) } else { Ok(Some(bytes)) }
    }

    /// Whether there is a regular file of this name, by a link that stays in the folder or without one. It is not
    /// opened for reading.
    ///
    /// # Errors
    /// [`Unread`] for what is there and is something else, or leads out of the folder.
    pub fn has_file(&self, name: &Path) -> Result<bool, Unread> {
        let Some(file) = self.enter(name, libc::O_PATH, Links::Inside)? else { return Ok(false) };
        regular(&file.metadata()?)?;
        Ok(true)
    }

    /// Whether there is anything of this name; a link counts as itself.
    pub fn has(&self, name: &Path) -> bool {
        !matches!(self.enter(name, libc::O_PATH | libc::O_NOFOLLOW, Links::Inside), Ok(None))
    }

    fn enter(&self, name: &Path, flags: i32, links: Links) -> Result<Option<File>, Unread> {
        let c_name = CString::new(name.as_os_str().as_bytes()).map_err(|_| io::Error::from(Errno::EINVAL))?;
        let how = match links {
            Links::Inside => Resolve::Beneath,
            Links::Refused => Resolve::BeneathNoLinks,
        };
        match file::open(self.directory.as_fd(), &c_name, flags, 0, how) {
            Ok(opened) => Ok(Some(File::from(opened))),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(Errno::EXDEV) => Err(Unread::LeavesFolder),
            Err(Errno::ELOOP) => Err(Unread::Link),
            // A FIFO or a socket is not opened for writing here, and a lease is not waited for.
            Err(errno) => Err(Unread::Io(errno.into())),
        }
    }

    fn may_read(&self, metadata: &Metadata) -> Result<(), Unread> {
        let everybody = metadata.mode() & 0o004 != 0;
        if metadata.uid() == self.owner || everybody {
            return Ok(());
        }
        if metadata.nlink() == 1 && !nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        Err(Unread::Foreign { owner: metadata.uid(), folder: self.owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn refused(folder: &Folder, name: &str) -> String {
        match folder.read(name.as_ref(), 5) {
            Ok(Some(bytes)) => format!("read: {}", String::from_utf8_lossy(&bytes)),
            Ok(None) => "absent".to_owned(),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn only_regular_files_of_the_folder_itself_are_read() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::create_dir_all(path("folder/docs")).unwrap();
        fs::write(path("secret"), "12345").unwrap();
        fs::write(path("folder/docs/file"), "12345").unwrap();
        fs::write(path("folder/large"), "123456").unwrap();
        for (link, target) in [
            ("inside", "docs/file"),
            ("up", "../secret"),
            ("across", "docs/../../folder/docs/file"),
            ("magic", "/proc/self/root/etc/hostname"),
            ("loop", "loop"),
        ] {
            symlink(target, path("folder").join(link)).unwrap();
        }
        symlink(path("secret"), path("folder/absolute")).unwrap();
        nix::unistd::mkfifo(&path("folder/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let folder = Folder::open(&path("folder")).unwrap();
        assert_eq!(refused(&folder, "docs/file"), "read: 12345");
        assert_eq!(refused(&folder, "inside"), "read: 12345");
        assert_eq!(refused(&folder, "large"), "it is larger than 0 KiB");
        assert_eq!(refused(&folder, "fifo"), "it is a FIFO, not a regular file");
        assert_eq!(refused(&folder, "docs"), "it is a directory, not a regular file");
        assert_eq!(refused(&folder, "nothing"), "absent");
        for name in ["up", "across", "magic", "absolute", "../secret", "/etc/hostname"] {
            assert_eq!(refused(&folder, name), "it leads out of the folder", "{name}");
        }
        assert_eq!(refused(&folder, "loop"), "it is a symbolic link that cannot be followed here");
        assert!(folder.open_file("inside".as_ref(), Links::Refused).is_err());
        assert!(folder.has_file("inside".as_ref()).unwrap() && !folder.has_file("nothing".as_ref()).unwrap());
        assert!(folder.has_file("up".as_ref()).is_err() && folder.has("up".as_ref()));
        // The directory that was opened, whatever has its name now.
        fs::rename(path("folder"), path("moved")).unwrap();
        symlink("/etc", path("folder")).unwrap();
        assert_eq!(refused(&folder, "hostname"), "absent");
        assert_eq!(refused(&folder, "inside"), "read: 12345");
    }

    #[test]
    fn a_hard_link_to_what_the_owner_of_the_folder_cannot_read_is_not_read() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::create_dir(path("folder")).unwrap();
        chown(path("folder"), Some(1001), Some(1001)).unwrap();
        fs::write(path("secret"), "12345").unwrap();
        fs::set_permissions(path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(path("secret"), path("folder/file")).unwrap();
        let folder = Folder::open(&path("folder")).unwrap();
        let why = "it belongs to uid 0, and the owner of the folder (uid 1001) may not be able to read it";
        assert_eq!(refused(&folder, "file"), why);
        fs::remove_file(path("secret")).unwrap();
        assert_eq!(refused(&folder, "file"), why, "a file with one name is root's all the same");
        fs::set_permissions(path("folder/file"), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(refused(&folder, "file"), "read: 12345");
    }
}
