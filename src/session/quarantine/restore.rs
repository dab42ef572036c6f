//! The way back out of quarantine, and the end of what is in it.

use super::index::{Index, Item, Placed};
use super::{Quarantine, across, rename};
use crate::error::{Code, Error, Result};
use crate::host::appeared::{Found, Remedy};
use crate::session::beneath;
use crate::sys::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A quarantine whose things are restored or removed.
#[derive(Debug)]
pub struct Release {
    path: PathBuf,
    directory: OwnedFd,
    index: Index,
}

impl Release {
    /// Opens the quarantine `path`.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |e: io::Error| Error::system(format_args!("open {}", path.display()), e);
        let directory = beneath::root(path).map_err(fail)?;
        let (_, index) = Index::open(path)?;
        Ok(Release { path: path.to_owned(), directory, index })
    }

    /// Puts `item` back where it was. What is there by now stays, unless it is exactly what took its place; with `force`
    /// it goes to quarantine itself.
    ///
    /// # Errors
    /// [`Code::Exists`] when something is there; [`Code::System`].
    pub fn restore(&mut self, item: &Item, force: bool) -> Result<()> {
        let shown = item.origin();
        let fail = |e: io::Error| Error::system(format_args!("restore {}", shown.display()), e);
        let (path, workspace) = (item.path.as_path(), item.workspace.as_path());
        let name = path.file_name().ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        let root = beneath::root(workspace).map_err(fail)?;
        let above = beneath::directory(root.as_fd(), path.parent().unwrap_or(Path::new(""))).map_err(fail)?;
        make_room(item, &above, name).map_err(fail)?;
        if force && beneath::look(above.as_fd(), name).map_err(fail)?.is_some() {
            let directory = above.try_clone().map_err(fail)?;
            let why = format!("was in the place of {}, which was restored", item.name);
            let found =
                Found { directory, name: name.to_owned(), path: path.to_owned(), why, remedy: Remedy::Move };
            Quarantine::new(self.path.clone(), workspace.to_owned()).take(&found)?;
        }
        let moved = match &item.aside {
            Some(beside) => {
                let from = beside.as_path().file_name().unwrap_or_default();
                rename(above.as_fd(), from, above.as_fd(), name)
            }
            None => self.move_back(item, above.as_fd(), name),
        };
        match moved {
            Err(Errno::EEXIST) => Err(Error::new(
                Code::Exists,
                format!("restore {}: something else is there by now", shown.display()),
            )
            .hint("--force moves that to quarantine first")),
            Err(e) => Err(fail(e.into())),
            Ok(()) => {
                self.index.gone(item.number);
                Ok(())
            }
        }
    }

    fn move_back(&self, item: &Item, above: BorrowedFd<'_>, name: &OsStr) -> crate::sys::SysResult<()> {
        let (from, old) = (self.directory.as_fd(), OsStr::new(&item.name));
        match rename(from, old, above, name) {
            Err(Errno::EXDEV) => {}
            other => return other,
        }
        across::copy(from, old, above, name, &mut across::Budget::unbounded())?;
        if nix::unistd::geteuid().is_root()
            && let Ok(meta) = beneath::itself(above)
        {
            across::give(above, name, meta.owner);
        }
        across::remove(from, old);
        Ok(())
    }

    /// Removes `item` for good.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn remove(&mut self, item: &Item) -> Result<()> {
        let fail = |e: io::Error| Error::system(format_args!("remove {}", item.name), e);
        match &item.aside {
            Some(beside) => {
                let root = beneath::root(item.workspace.as_path()).map_err(fail)?;
                let beside = beside.as_path();
                let above = beneath::directory(root.as_fd(), beside.parent().unwrap_or(Path::new("")));
                beneath::remove(above.map_err(fail)?.as_fd(), beside.file_name().unwrap_or_default())
            }
            None => beneath::remove(self.directory.as_fd(), &item.name),
        }
        .map_err(fail)?;
        self.index.gone(item.number);
        Ok(())
    }
}

/// Removes what took the place of `item`, when it is what it was.
fn make_room(item: &Item, above: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let Some(placed) = item.placed else { return Ok(()) };
    let is_it = |file: &File| file.metadata().map(|meta| Placed::of(&meta));
    if placed.directory {
        if let Ok(directory) = beneath::directory(above.as_fd(), name)
            && is_it(&File::from(directory.try_clone()?))?.is == placed.is
            && beneath::is_empty(directory.as_fd())?
        {
            rustix::fs::unlinkat(above, name, rustix::fs::AtFlags::REMOVEDIR)?;
        }
    } else if let Ok((file, _)) = beneath::file(above.as_fd(), name)
        && is_it(&file)? == placed
        && file.metadata()?.nlink() == 1
    {
        rustix::fs::unlinkat(above, name, rustix::fs::AtFlags::empty())?;
    }
    Ok(())
}
