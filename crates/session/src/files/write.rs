//! Replaces a whole file: writes a new one next to it and renames that.

use super::{Workspace, file_error, parse_workspace_path, wrong_kind_error};
use rustix::fs::{AtFlags, Mode, OFlags};
use saggar_bridge::control::files::FilePart;
use saggar_sys::beneath::{self, FileKind};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::random;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Mode of a new file.
const DEFAULT_MODE: u32 = 0o644;
/// Mode of a new directory.
const DIRECTORY_MODE: u32 = 0o755;

impl Workspace {
    /// Writes a file with this content at `path`. With `parents`, missing directories above it are created. An existing
    /// file keeps its mode, except for set-id bits. A part is written to a file beside it, which replaces it with the last
    /// part.
    ///
    /// # Errors
    /// As [`Workspace::list`]; `Refused` also for a protected name, whether it exists or not.
    pub fn write(&self, path: &str, content: &[u8], parents: bool, part: Option<&FilePart>) -> Result<()> {
        let path = parse_workspace_path(path)?;
        if path.file_name().is_none() {
            return Err(Error::new(Code::Invalid, "write the workspace itself: it is a directory"));
        }
        self.check_unprotected("write", &path)?;
        self.replace(&path, content, parents, part).map_err(|e| file_error("write", &path, &e))
    }

    fn replace(&self, path: &Path, content: &[u8], parents: bool, part: Option<&FilePart>) -> io::Result<()> {
        let (above, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
        let directory = match parents {
            true => beneath::create_directories(self.root.as_fd(), above, DIRECTORY_MODE)?,
            false => beneath::open_directory(self.root.as_fd(), above)?,
        };
        let mode = match beneath::stat_beneath(directory.as_fd(), name)? {
            None => DEFAULT_MODE,
            // What is hidden or has a mode of its own is mounted.
            Some(_) if beneath::is_mount_point(directory.as_fd(), Path::new(name))? => {
                return Err(io::Error::other("it is a mount of its own, which no other file replaces"));
            }
            Some(meta) if meta.kind == FileKind::File => meta.mode & 0o777,
            Some(meta) => return Err(wrong_kind_error(meta.kind)),
        };
        let new = temporary_name(part)?;
        let file = match part {
            Some(FilePart { offset: 1.., .. }) => open_part(directory.as_fd(), &new),
            part => {
                if part.is_some() {
                    // Of a transfer that begins again.
                    let _ = rustix::fs::unlinkat(&directory, &new, AtFlags::empty());
                }
                beneath::create_file(directory.as_fd(), &new, 0o600)
            }
        }?;
        let written = file.write_all_at(content, part.map_or(0, |part| part.offset)).and_then(|()| {
            if part.is_none_or(|part| part.is_last) {
                rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
                rustix::fs::renameat(&directory, &new, &directory, name)?;
            }
            Ok(())
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&directory, &new, AtFlags::empty());
        }
        written
    }
}

/// The name of the new file until it replaces the old one.
fn temporary_name(part: Option<&FilePart>) -> io::Result<String> {
    if let Some(part) = part {
        return Ok(format!(".saggar-{}", part.upload));
    }
    let mut number = [0; 8];
    random::fill(&mut number).map_err(io::Error::from)?;
    Ok(format!(".saggar-{:016x}", u64::from_ne_bytes(number)))
}

/// Opens the file of a transfer. A program may have replaced it: only a regular file with one name is written.
fn open_part(directory: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let file = File::from(beneath::open(directory, Path::new(name), OFlags::WRONLY | OFlags::NONBLOCK, 0)?);
    let meta = beneath::stat_fd(file.as_fd())?;
    if meta.kind != FileKind::File || meta.links != 1 {
        return Err(io::Error::other(format!("the file {name} of the transfer was replaced")));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_takes_the_place_of_a_file_and_of_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let workspace =
            Workspace::new(beneath::open_root(scratch.path()).unwrap(), vec!["ci".parse().unwrap()]);
        fs::create_dir(path("d")).unwrap();
        fs::create_dir(path("ci")).unwrap();
        fs::write(path("run"), "old").unwrap();
        fs::set_permissions(path("run"), fs::Permissions::from_mode(0o4755)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
        std::os::unix::fs::symlink("/etc", path("etc")).unwrap();
        workspace.write("run", b"new", false, None).unwrap();
        workspace.write("d/./x", b"\xff", false, None).unwrap();
        workspace.write("new/e/x", b"new", true, None).unwrap();
        assert_eq!(fs::read(path("new/e/x")).unwrap(), b"new");
        assert_eq!(fs::read(path("run")).unwrap(), b"new");
        assert_eq!(fs::read(path("d/x")).unwrap(), b"\xff");
        let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("run"), mode("d/x")), (0o755, 0o644));
        for name in
            ["d", "link", "etc/x", "none/x", "ci/x", "ci", ".git/hooks/pre-commit", "d/.envrc", ".mcp.json"]
        {
            assert_eq!(workspace.write(name, b"x", false, None).unwrap_err().code(), Code::Refused, "{name}");
        }
        for name in ["", ".", "../x", "/x"] {
            assert_eq!(workspace.write(name, b"x", true, None).unwrap_err().code(), Code::Invalid, "{name}");
        }
        for name in ["etc/new/x", "ci/new/x", "run/x", "d/.git/hooks/x"] {
            assert_eq!(workspace.write(name, b"x", true, None).unwrap_err().code(), Code::Refused, "{name}");
        }
        let mut left: Vec<_> =
            fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["ci", "d", "etc", "link", "new", "run"]);
    }

    #[test]
    fn parts_replace_a_file_with_the_last_one() {
        let scratch = tempfile::tempdir().unwrap();
        let workspace = Workspace::new(beneath::open_root(scratch.path()).unwrap(), Vec::new());
        let write = |content: &[u8], offset, is_last| {
            let part = FilePart { upload: "u1".into(), offset, is_last };
            workspace.write("f", content, false, Some(&part))
        };
        fs::write(scratch.path().join("f"), "old").unwrap();
        write(b"abandoned, and longer than the next one", 0, false).unwrap();
        write(b"ab", 0, false).unwrap();
        write(b"cd", 2, false).unwrap();
        assert_eq!(fs::read(scratch.path().join("f")).unwrap(), b"old");
        write(b"e", 4, true).unwrap();
        assert_eq!(fs::read(scratch.path().join("f")).unwrap(), b"abcde");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
        // The file of a transfer that a program replaces is not written.
        let other = scratch.path().join("other");
        fs::write(&other, "other").unwrap();
        for is_link in [true, false] {
            write(b"ab", 0, false).unwrap();
            let part = scratch.path().join(".saggar-u1");
            fs::remove_file(&part).unwrap();
            match is_link {
                true => std::os::unix::fs::symlink(&other, &part).unwrap(),
                false => fs::hard_link(&other, &part).unwrap(),
            }
            assert_eq!(write(b"cd", 2, true).unwrap_err().code(), Code::Refused);
            fs::remove_file(&part).unwrap();
        }
        assert_eq!(fs::read(&other).unwrap(), b"other");
    }
}
