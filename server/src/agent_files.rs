//! Files in an agent folder. All access is beneath the descriptor of the folder and follows no symbolic link: an agent
//! that runs on its own folder can have created links in it.

use crate::clock;
use crate::skipped_names::{SKIPPED_NAMES, has_skipped_suffix};
use jiff::Timestamp;
use rustix::fs::{AtFlags, OFlags};
use saggar_sys::beneath::{self, FileKind, FileMeta};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Maximum number of files in a list, and of entries in one directory.
const MAX_LISTED_FILES: usize = 10_000;
/// Directories below this depth are not listed.
const MAX_LISTED_DEPTH: usize = 64;
/// The file that makes a folder an agent folder.
const PROMPT_FILE: &str = "CLAUDE.md";

/// A file in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFileEntry {
    /// The path relative to the agent folder.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change of the content, as a timestamp of [`clock`].
    pub modified_at: String,
}

/// Why a file cannot be accessed.
#[derive(Debug)]
pub enum AgentFileError {
    /// No file has this path.
    NotFound,
    /// The path is a directory or a special file.
    NotAFile,
    /// The path leads through a symbolic link or through a file.
    InvalidPath,
    /// The file is larger than the limit.
    TooLarge {
        /// The size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The folder contains more than 10000 files, or a directory of it more than 10000 entries.
    TooManyFiles,
    /// The file makes the folder an agent folder.
    Required,
    /// The file system failed.
    Io(io::Error),
}

impl fmt::Display for AgentFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentFileError::NotFound => formatter.write_str("File not found"),
            AgentFileError::NotAFile => formatter.write_str("Path is not a file"),
            AgentFileError::InvalidPath => {
                formatter.write_str("Invalid file path: it leads through a symbolic link or a file")
            }
            AgentFileError::TooLarge { size, limit } => {
                write!(formatter, "File too large: {size} bytes, the limit is {limit}")
            }
            AgentFileError::TooManyFiles => {
                write!(formatter, "The folder contains more than {MAX_LISTED_FILES} files")
            }
            AgentFileError::Required => {
                write!(
                    formatter,
                    "{PROMPT_FILE} cannot be deleted: an agent must have it; replace it instead"
                )
            }
            AgentFileError::Io(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for AgentFileError {}

impl From<io::Error> for AgentFileError {
    fn from(error: io::Error) -> Self {
        use rustix::io::Errno;
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => AgentFileError::NotFound,
            Some(Errno::ISDIR) => AgentFileError::NotAFile,
            // A socket or a device without a driver cannot be opened at all.
            Some(Errno::NXIO | Errno::NODEV) => AgentFileError::NotAFile,
            Some(Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::NAMETOOLONG) => {
                AgentFileError::InvalidPath
            }
            _ => AgentFileError::Io(error),
        }
    }
}

type FileResult<T> = Result<T, AgentFileError>;

/// An open agent folder. Paths are relative, as [`safe_path`](crate::agent_folder::safe_path) returns them.
#[derive(Debug)]
pub struct AgentDirectory {
    folder: OwnedFd,
}

impl AgentDirectory {
    /// Opens an agent folder. The operator or the server named its path.
    ///
    /// # Errors
    /// Fails if the folder does not exist or cannot be read.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Ok(AgentDirectory { folder: beneath::open_root(folder)? })
    }

    /// Lists the regular files by path, except for caches and installed packages. Symbolic links, and directories that
    /// the server cannot read, are left out.
    ///
    /// # Errors
    /// Fails if there are more than 10000 files.
    pub fn list(&self) -> FileResult<Vec<AgentFileEntry>> {
        let mut entries = Vec::new();
        list_directory(&self.folder, Path::new(""), MAX_LISTED_DEPTH, &mut entries)?;
        entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(entries)
    }

    /// Reads a file of at most `limit` bytes.
    ///
    /// # Errors
    /// Fails if the path is not a regular file or the file is larger.
    pub fn read(&self, path: &Path, limit: u64) -> FileResult<Vec<u8>> {
        let file = beneath::open(self.folder.as_fd(), path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
        let meta = beneath::stat_fd(file.as_fd())?;
        if meta.kind != FileKind::File {
            return Err(AgentFileError::NotAFile);
        }
        let too_large = |size| AgentFileError::TooLarge { size, limit };
        if meta.size > limit {
            return Err(too_large(meta.size));
        }
        let mut content = Vec::new();
        File::from(file).take(limit + 1).read_to_end(&mut content)?;
        // It can have grown meanwhile.
        match u64::try_from(content.len()) {
            Ok(size) if size > limit => Err(too_large(size)),
            _ => Ok(content),
        }
    }

    /// Creates or replaces a file, and creates its directories. A reader finds the former or the new content. The mode
    /// of an existing file is retained; a symbolic link is replaced.
    ///
    /// # Errors
    /// Fails if the path is a directory, or leads through a link or a file.
    pub fn write(&self, path: &Path, content: &[u8]) -> FileResult<()> {
        let (parent, name) = split(path)?;
        let parent = beneath::create_directories(self.folder.as_fd(), parent, 0o755)?;
        let existing = beneath::stat_beneath(parent.as_fd(), name)?;
        if existing.is_some_and(|meta| meta.kind == FileKind::Directory) {
            return Err(AgentFileError::NotAFile);
        }
        let is_file = |meta: &FileMeta| meta.kind == FileKind::File;
        let mode = existing.filter(is_file).map_or(0o644, |meta| meta.mode & 0o777);
        let new = PathBuf::from(format!(".{}", Uuid::new_v4()));
        let written = beneath::create_file(parent.as_fd(), &new, mode)
            .and_then(|mut file| file.write_all(content))
            .and_then(|()| Ok(rustix::fs::renameat(&parent, &new, &parent, name)?));
        if written.is_err() {
            beneath::remove(parent.as_fd(), &new)?;
        }
        Ok(written?)
    }

    /// Deletes a file or a symbolic link.
    ///
    /// # Errors
    /// Fails if there is no file at this path, or if it is the `CLAUDE.md` of the agent.
    pub fn delete(&self, path: &Path) -> FileResult<()> {
        if path == Path::new(PROMPT_FILE) {
            return Err(AgentFileError::Required);
        }
        let (parent, name) = split(path)?;
        let parent = beneath::open_directory(self.folder.as_fd(), parent)?;
        match beneath::stat_beneath(parent.as_fd(), name)? {
            None => Err(AgentFileError::NotFound),
            Some(meta) if meta.kind == FileKind::Directory => Err(AgentFileError::NotAFile),
            Some(_) => Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(io::Error::from)?),
        }
    }
}

fn split(path: &Path) -> FileResult<(&Path, &Path)> {
    let name = path.file_name().map(Path::new);
    name.zip(path.parent()).map(|(name, parent)| (parent, name)).ok_or(AgentFileError::InvalidPath)
}

fn list_directory(
    directory: &OwnedFd,
    path: &Path,
    depth: usize,
    entries: &mut Vec<AgentFileEntry>,
) -> FileResult<()> {
    let names = beneath::read_names(directory.as_fd(), MAX_LISTED_FILES);
    for name in names.map_err(|_| AgentFileError::TooManyFiles)? {
        // A path that is not UTF-8 cannot be in a URL.
        let Some(text) = name.to_str().filter(|name| !is_skipped(name)) else { continue };
        let Some(meta) = beneath::stat_beneath(directory.as_fd(), &name)? else { continue };
        let path = path.join(text);
        match meta.kind {
            FileKind::File if entries.len() == MAX_LISTED_FILES => return Err(AgentFileError::TooManyFiles),
            FileKind::File => entries.push(entry(&path, &meta)),
            FileKind::Directory if depth > 0 => {
                if let Ok(below) = beneath::open_directory(directory.as_fd(), &name) {
                    list_directory(&below, &path, depth - 1, entries)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_skipped(name: &str) -> bool {
    SKIPPED_NAMES.contains(&name) || has_skipped_suffix(name)
}

fn entry(path: &Path, meta: &FileMeta) -> AgentFileEntry {
    let (seconds, nanoseconds) = meta.mtime_parts();
    let time = Timestamp::new(seconds, i32::try_from(nanoseconds).unwrap_or_default());
    AgentFileEntry {
        path: path.to_string_lossy().into_owned(),
        size: meta.size,
        modified_at: clock::format(time.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    fn folder() -> (TempDir, AgentDirectory) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(PROMPT_FILE), "prompt").unwrap();
        let files = AgentDirectory::open(directory.path()).unwrap();
        (directory, files)
    }

    #[test]
    fn list_contains_regular_files_without_caches_and_links() {
        let (directory, files) = folder();
        for path in ["a/b/c", "z", "node_modules/x", "a/.git/x", "a/x.lock", "venv/x", "vendor/x"] {
            files.write(Path::new(path), b"12345").unwrap();
        }
        symlink("/etc/passwd", directory.path().join("link")).unwrap();
        symlink("/etc", directory.path().join("a/etc")).unwrap();
        let listed = files.list().unwrap();
        let paths: Vec<&str> = listed.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["CLAUDE.md", "a/b/c", "vendor/x", "z"]);
        assert_eq!(listed[1].size, 5);
        assert!(listed[1].modified_at.starts_with("20") && listed[1].modified_at.ends_with('Z'));
    }

    #[test]
    fn links_are_never_followed() {
        let (directory, files) = folder();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        symlink(outside.path(), directory.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), directory.path().join("link")).unwrap();
        for path in ["out/secret", "link"] {
            let refused = files.read(Path::new(path), 100);
            assert!(matches!(refused, Err(AgentFileError::InvalidPath)), "{path}: {refused:?}");
        }
        for path in ["out/new", "out/secret", "out/a/b"] {
            let refused = files.write(Path::new(path), b"x");
            assert!(matches!(refused, Err(AgentFileError::InvalidPath)), "{path}: {refused:?}");
        }
        assert!(matches!(files.delete(Path::new("out/secret")), Err(AgentFileError::InvalidPath)));
        // The link itself is replaced or deleted.
        files.write(Path::new("link"), b"own").unwrap();
        files.delete(Path::new("out")).unwrap();
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(outside.path().join("secret")).unwrap(), "secret");
        assert_eq!(files.read(Path::new("link"), 100).unwrap(), b"own");
    }

    #[test]
    fn only_regular_files_up_to_limit_are_read() {
        let (directory, files) = folder();
        files.write(Path::new("d/f"), b"1234").unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.path().join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
        for path in ["d", "fifo", "socket"] {
            let refused = files.read(Path::new(path), 100);
            assert!(matches!(refused, Err(AgentFileError::NotAFile)), "{path}: {refused:?}");
        }
        assert_eq!(files.read(Path::new("d/f"), 4).unwrap(), b"1234");
        let refused = files.read(Path::new("d/f"), 3);
        assert!(matches!(refused, Err(AgentFileError::TooLarge { size: 4, limit: 3 })), "{refused:?}");
        assert!(matches!(files.read(Path::new("none"), 4), Err(AgentFileError::NotFound)));
        assert!(matches!(files.read(Path::new("d/f/g"), 4), Err(AgentFileError::InvalidPath)));
    }

    #[test]
    fn replaced_file_retains_its_mode_and_failures_leave_no_file() {
        let (directory, files) = folder();
        let script = directory.path().join("install.sh");
        files.write(Path::new("install.sh"), b"1").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        files.write(Path::new("install.sh"), b"2").unwrap();
        assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read(&script).unwrap(), b"2");
        files.write(Path::new("d/f"), b"1").unwrap();
        for path in ["d", "d/f/g"] {
            assert!(files.write(Path::new(path), b"x").is_err(), "{path}");
        }
        assert!(files.write(Path::new(&"x".repeat(256)), b"x").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
        assert_eq!(fs::read_dir(directory.path().join("d")).unwrap().count(), 1);
    }

    #[test]
    fn prompt_and_directories_are_not_deleted() {
        let (_directory, files) = folder();
        files.write(Path::new("d/CLAUDE.md"), b"1").unwrap();
        assert!(matches!(files.delete(Path::new(PROMPT_FILE)), Err(AgentFileError::Required)));
        assert!(matches!(files.delete(Path::new("d")), Err(AgentFileError::NotAFile)));
        assert!(matches!(files.delete(Path::new("d/none")), Err(AgentFileError::NotFound)));
        assert!(matches!(files.delete(Path::new("none/none")), Err(AgentFileError::NotFound)));
        files.delete(Path::new("d/CLAUDE.md")).unwrap();
        assert_eq!(files.list().unwrap().len(), 1);
    }
}
