//! A directory that another user may write: an agent's directory, a workspace, a repository. For the parent only: these
//! functions allocate.
//!
//! The directory is opened once. After that the kernel resolves each name beneath the descriptor (openat2(2)); no
//! absolute path is used. A link, a FIFO or a hard link in the directory therefore cannot make the caller, who may be
//! root, read another file. Four rules:
//!
//! - no file outside the directory is reached: no `..`, no link that leaves, no magic link;
//! - no operation waits, and only regular files are read (`O_NONBLOCK`);
//! - no more bytes are read than the caller's limit;
//! - a file that the owner of the directory could not read is not read (see [`UntrustedDirectory::open_file`]).

use super::Errno;
use super::file::{self, Resolve};
use super::read::{ReadFileError, check_regular};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Policy for symbolic links in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkPolicy {
    /// Follow links that stay in the directory, such as `CLAUDE.md` to `AGENTS.md`.
    Inside,
    /// Follow no links.
    Refused,
}

/// An open directory with beneath-only operations.
#[derive(Debug)]
pub struct UntrustedDirectory {
    directory: File,
    path: PathBuf,
    owner: u32,
}

impl UntrustedDirectory {
    /// Opens the directory at `path`. Links in the path are followed.
    ///
    /// # Errors
    /// Those of open(2), ENOTDIR among them.
    pub fn open(path: &Path) -> io::Result<UntrustedDirectory> {
        let directory =
            OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(path)?;
        let owner = directory.metadata()?.uid();
        // The path of the open directory: the name may lead to another one by now.
        let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
        Ok(UntrustedDirectory { directory, path, owner })
    }

    /// The directory's path without links, for messages and for mounts.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file of the directory for reading; `None` if the name does not exist.
    ///
    /// A name in the directory can be a hard link to a file that only the caller can read. The file must therefore
    /// belong to the owner of the directory or be readable by all. For callers other than root, a file with a single
    /// name may also belong to another user, as in a tree that a group shares: it cannot be a hard link to a file
    /// elsewhere.
    ///
    /// # Errors
    /// [`ReadFileError`].
    pub fn open_file(
        &self,
        name: &Path,
        links: LinkPolicy,
    ) -> Result<Option<(File, Metadata)>, ReadFileError> {
        let Some(file) = self.open_entry(name, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, links)?
        else {
            return Ok(None);
        };
        let metadata = file.metadata()?;
        check_regular(&metadata)?;
        self.check_readable(&metadata)?;
        Ok(Some((file, metadata)))
    }

    /// Reads a whole regular file of at most `limit` bytes; `None` if the name does not exist.
    ///
    /// # Errors
    /// [`ReadFileError`]. If the file grows while it is read, the bytes read count against the limit.
    pub fn read(&self, name: &Path, limit: u64) -> Result<Option<Vec<u8>>, ReadFileError> {
        let Some((file, metadata)) = self.open_file(name, LinkPolicy::Inside)? else { return Ok(None) };
        if metadata.len() > limit {
            return Err(ReadFileError::TooLarge(limit));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit { Err(ReadFileError::TooLarge(limit)) } else { Ok(Some(bytes)) }
    }

    /// Whether a regular file of this name exists, directly or by a link that stays in the directory. It is not opened
    /// for reading.
    ///
    /// # Errors
    /// [`ReadFileError`] for a name that is not a regular file, or that leads out of the directory.
    pub fn has_file(&self, name: &Path) -> Result<bool, ReadFileError> {
        let Some(file) = self.open_entry(name, libc::O_PATH, LinkPolicy::Inside)? else { return Ok(false) };
        check_regular(&file.metadata()?)?;
        Ok(true)
    }

    /// Whether an entry of this name exists; links are not followed.
    pub fn has(&self, name: &Path) -> bool {
        !matches!(self.open_entry(name, libc::O_PATH | libc::O_NOFOLLOW, LinkPolicy::Inside), Ok(None))
    }

    fn open_entry(&self, name: &Path, flags: i32, links: LinkPolicy) -> Result<Option<File>, ReadFileError> {
        let c_name = file::c_path(name).map_err(io::Error::from)?;
        let how = match links {
            LinkPolicy::Inside => Resolve::Beneath,
            LinkPolicy::Refused => Resolve::BeneathNoLinks,
        };
        match file::open(self.directory.as_fd(), &c_name, flags, 0, how) {
            Ok(opened) => Ok(Some(File::from(opened))),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(Errno::EXDEV) => Err(ReadFileError::LeavesFolder),
            Err(Errno::ELOOP) => Err(ReadFileError::Link),
            // A FIFO or a socket is not opened for writing here, and the open does not wait for a lease.
            Err(errno) => Err(ReadFileError::Io(errno.into())),
        }
    }

    fn check_readable(&self, metadata: &Metadata) -> Result<(), ReadFileError> {
        let everybody = metadata.mode() & 0o004 != 0;
        if metadata.uid() == self.owner || everybody {
            return Ok(());
        }
        if metadata.nlink() == 1 && !nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        Err(ReadFileError::ForeignOwner { owner: metadata.uid(), folder: self.owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn refused(folder: &UntrustedDirectory, name: &str) -> String {
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
        let folder = UntrustedDirectory::open(&path("folder")).unwrap();
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
        assert!(folder.open_file("inside".as_ref(), LinkPolicy::Refused).is_err());
        assert!(folder.has_file("inside".as_ref()).unwrap() && !folder.has_file("nothing".as_ref()).unwrap());
        assert!(folder.has_file("up".as_ref()).is_err() && folder.has("up".as_ref()));
        // The operations use the directory that was opened, not the one that has its name now.
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
        let folder = UntrustedDirectory::open(&path("folder")).unwrap();
        let why = "it belongs to uid 0, and the owner of the folder (uid 1001) may not be able to read it";
        assert_eq!(refused(&folder, "file"), why);
        fs::remove_file(path("secret")).unwrap();
        assert_eq!(refused(&folder, "file"), why, "a file with one name is root's all the same");
        fs::set_permissions(path("folder/file"), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(refused(&folder, "file"), "read: 12345");
    }
}
