//! Removes a file or a directory.

use super::{Workspace, file_error, parse_workspace_path};
use rustix::fs::AtFlags;
use saggar_sys::beneath::{self, FileKind};
use saggar_sys::error::{Code, Error, Result};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

impl Workspace {
    /// Removes the file, the link or the empty directory at `path`; with `recursive` also a directory with everything
    /// below it, if that has no protected name.
    ///
    /// # Errors
    /// As [`Workspace::write`](Workspace::write); `Refused` also for a directory that is not empty.
    pub fn remove(&self, path: &str, recursive: bool) -> Result<()> {
        let path = parse_workspace_path(path)?;
        if path.file_name().is_none() {
            return Err(Error::new(Code::Invalid, "remove the workspace itself: name something in it"));
        }
        self.check_unprotected("remove", &path)?;
        self.remove_below(&path, recursive).map_err(|e| file_error("remove", &path, &e))
    }

    fn remove_below(&self, path: &Path, recursive: bool) -> io::Result<()> {
        let (above, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
        let directory = beneath::open_directory(self.root.as_fd(), above)?;
        let meta = beneath::stat_beneath(directory.as_fd(), name)?;
        match meta.ok_or(io::Error::from_raw_os_error(libc::ENOENT))?.kind {
            FileKind::Directory if recursive => {
                let opened = beneath::open_directory_no_mounts(directory.as_fd(), Path::new(name))?;
                self.check_tree(opened.as_fd(), path)?;
                beneath::remove(directory.as_fd(), name)
            }
            FileKind::Directory => Ok(rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR)?),
            _ => Ok(rustix::fs::unlinkat(&directory, name, AtFlags::empty())?),
        }
    }

    /// A tree with a protected name is not removed: not even a part of it.
    fn check_tree(&self, directory: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
        for name in beneath::read_names(directory, usize::MAX)? {
            let below = path.join(&name);
            if let Some(why) = self.protection(&below) {
                let shown = crate::diff::text::show_path(&below);
                return Err(io::Error::other(format!("{shown} is protected: {why}")));
            }
            let meta = beneath::stat_beneath(directory, &name)?;
            if meta.is_some_and(|meta| meta.kind == FileKind::Directory) {
                self.check_tree(beneath::open_directory_no_mounts(directory, &name)?.as_fd(), &below)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn names_are_removed_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let workspace =
            Workspace::new(beneath::open_root(scratch.path()).unwrap(), vec!["d/ci".parse().unwrap()]);
        for directory in ["d/e", "d/ci", "g/.git/hooks", "empty", "full/a", "outside"] {
            fs::create_dir_all(path(directory)).unwrap();
        }
        for file in ["d/e/f", "d/ci/f", "full/a/f", "full/g", "outside/f"] {
            fs::write(path(file), "x").unwrap();
        }
        std::os::unix::fs::symlink(path("outside"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("outside"), path("full/link")).unwrap();
        for (name, recursive) in [
            ("full", false),
            ("d/ci", true),
            ("d", true),
            ("g", true),
            ("g/.git/hooks", true),
            ("none", true),
            ("link/f", false),
        ] {
            assert_eq!(workspace.remove(name, recursive).unwrap_err().code(), Code::Refused, "{name}");
        }
        for name in ["", ".", "../x", "/x"] {
            assert_eq!(workspace.remove(name, true).unwrap_err().code(), Code::Invalid, "{name}");
        }
        for (name, recursive) in [("d/e/f", false), ("empty", false), ("full", true), ("link", true)] {
            workspace.remove(name, recursive).unwrap();
            assert!(path(name).symlink_metadata().is_err(), "{name}");
        }
        assert!(path("outside/f").exists() && path("d/ci/f").exists() && path("g/.git/hooks").exists());
    }
}
