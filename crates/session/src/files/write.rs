//! Replaces a whole file: writes a new one next to it and renames that.

use super::{Workspace, file_error, parse_workspace_path, wrong_kind_error};
use rustix::fs::{AtFlags, Mode};
use saggar_policy::protect;
use saggar_sys::beneath::{self, FileKind};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::random;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Mode of a new file.
const DEFAULT_MODE: u32 = 0o644;

impl Workspace {
    /// Writes a file with this content at `path`, in an existing directory. An existing file keeps its mode, except for
    /// set-id bits.
    ///
    /// # Errors
    /// As [`Workspace::list`]; `Refused` also for a protected name, whether it exists or not.
    pub fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        let path = parse_workspace_path(path)?;
        if path.file_name().is_none() {
            return Err(Error::new(Code::Invalid, "write the workspace itself: it is a directory"));
        }
        let named = self.protected.iter().any(|protected| path.starts_with(protected));
        let why = protect::protection_reason(&path).or(named.then_some("the policy names it"));
        if let Some(why) = why {
            let message = format!("write {}: it is protected: {why}", crate::diff::text::show_path(&path));
            return Err(Error::new(Code::Refused, message));
        }
        self.replace(&path, content).map_err(|e| file_error("write", &path, &e))
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let (above, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
        let directory = beneath::open_directory(self.root.as_fd(), above)?;
        let mode = match beneath::stat_beneath(directory.as_fd(), name)? {
            None => DEFAULT_MODE,
            // What is hidden or has a mode of its own is mounted.
            Some(_) if beneath::is_mount_point(directory.as_fd(), Path::new(name))? => {
                return Err(io::Error::other("it is a mount of its own, which no other file replaces"));
            }
            Some(meta) if meta.kind == FileKind::File => meta.mode & 0o777,
            Some(meta) => return Err(wrong_kind_error(meta.kind)),
        };
        let mut number = [0; 8];
        random::fill(&mut number).map_err(io::Error::from)?;
        let new = format!(".saggar-{:016x}", u64::from_ne_bytes(number));
        let written = create_and_write(directory.as_fd(), &new, content, mode)
            .and_then(|()| Ok(rustix::fs::renameat(&directory, &new, &directory, name)?));
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&directory, &new, AtFlags::empty());
        }
        written
    }
}

fn create_and_write(directory: BorrowedFd<'_>, name: &str, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = beneath::create_file(directory, name, 0o600)?;
    file.write_all(content)?;
    Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    #[test]
    fn a_file_takes_the_place_of_a_file_and_of_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let workspace =
            Workspace::new(beneath::open_root(scratch.path()).unwrap(), vec![PathBuf::from("ci")]);
        fs::create_dir(path("d")).unwrap();
        fs::create_dir(path("ci")).unwrap();
        fs::write(path("run"), "old").unwrap();
        fs::set_permissions(path("run"), fs::Permissions::from_mode(0o4755)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
        std::os::unix::fs::symlink("/etc", path("etc")).unwrap();
        workspace.write("run", b"new").unwrap();
        workspace.write("d/./x", b"\xff").unwrap();
        assert_eq!(fs::read(path("run")).unwrap(), b"new");
        assert_eq!(fs::read(path("d/x")).unwrap(), b"\xff");
        let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("run"), mode("d/x")), (0o755, 0o644));
        for name in
            ["d", "link", "etc/x", "none/x", "ci/x", "ci", ".git/hooks/pre-commit", "d/.envrc", ".mcp.json"]
        {
            assert_eq!(workspace.write(name, b"x").unwrap_err().code(), Code::Refused, "{name}");
        }
        for name in ["", ".", "../x", "/x"] {
            assert_eq!(workspace.write(name, b"x").unwrap_err().code(), Code::Invalid, "{name}");
        }
        let mut left: Vec<_> =
            fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["ci", "d", "etc", "link", "run"]);
    }
}
