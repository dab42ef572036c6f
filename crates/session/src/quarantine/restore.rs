//! Restores items from quarantine, or removes them.

use super::index::{Placeholder, QuarantineIndex, QuarantinedItem};
use super::{Quarantine, bounded_copy, rename};
use crate::workspace_scan::{QuarantineAction, QuarantineFinding};
use saggar_sys::Errno;
use saggar_sys::beneath;
use saggar_sys::error::{Code, Error, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An open quarantine.
#[derive(Debug)]
pub struct QuarantineRestorer {
    path: PathBuf,
    directory: OwnedFd,
    index: QuarantineIndex,
}

impl QuarantineRestorer {
    /// Opens the quarantine `path`.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |e: io::Error| Error::system(format_args!("open {}", path.display()), e);
        let directory = beneath::open_root(path).map_err(fail)?;
        let (_, index) = QuarantineIndex::open(path)?;
        Ok(QuarantineRestorer { path: path.to_owned(), directory, index })
    }

    /// Moves `item` back to its original path. A file that exists there is kept, unless it is the unchanged
    /// placeholder; with `force` it is moved to quarantine itself.
    ///
    /// # Errors
    /// [`Code::Exists`] when a file exists there; [`Code::System`].
    pub fn restore_item(&mut self, item: &QuarantinedItem, force: bool) -> Result<()> {
        let shown = item.original_path();
        let fail = |e: io::Error| Error::system(format_args!("restore {}", shown.display()), e);
        let (path, workspace) = (item.path.as_path(), item.workspace.as_path());
        let name = path.file_name().ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
        let root = beneath::open_root(workspace).map_err(fail)?;
        let above =
            beneath::open_directory(root.as_fd(), path.parent().unwrap_or(Path::new(""))).map_err(fail)?;
        remove_placeholder(item, &above, name).map_err(fail)?;
        if force && beneath::stat_beneath(above.as_fd(), name).map_err(fail)?.is_some() {
            let directory = above.try_clone().map_err(fail)?;
            let why = format!("was in the place of {}, which was restored", item.name);
            let found = QuarantineFinding {
                directory,
                name: name.to_owned(),
                path: path.to_owned(),
                reason: why,
                action: QuarantineAction::Move,
            };
            Quarantine::new(self.path.clone()).move_in(workspace, &found)?;
        }
        let moved = match &item.workspace_name {
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
                self.index.record_removal(item.number);
                Ok(())
            }
        }
    }

    fn move_back(
        &self,
        item: &QuarantinedItem,
        above: BorrowedFd<'_>,
        name: &OsStr,
    ) -> saggar_sys::SysResult<()> {
        let (from, old) = (self.directory.as_fd(), OsStr::new(&item.name));
        match rename(from, old, above, name) {
            Err(Errno::EXDEV) => {}
            other => return other,
        }
        bounded_copy::copy_bounded(from, old, above, name, &mut bounded_copy::CopyBudget::unbounded())?;
        if nix::unistd::geteuid().is_root()
            && let Ok(meta) = beneath::stat_fd(above)
        {
            bounded_copy::set_owner_of_tree(above, name, meta.owner);
        }
        bounded_copy::remove_tree(from, old);
        Ok(())
    }

    /// Removes `item` permanently.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn remove_item(&mut self, item: &QuarantinedItem) -> Result<()> {
        let fail = |e: io::Error| Error::system(format_args!("remove {}", item.name), e);
        match &item.workspace_name {
            Some(beside) => {
                let root = beneath::open_root(item.workspace.as_path()).map_err(fail)?;
                let beside = beside.as_path();
                let above = beneath::open_directory(root.as_fd(), beside.parent().unwrap_or(Path::new("")));
                beneath::remove(above.map_err(fail)?.as_fd(), beside.file_name().unwrap_or_default())
            }
            None => beneath::remove(self.directory.as_fd(), &item.name),
        }
        .map_err(fail)?;
        self.index.record_removal(item.number);
        Ok(())
    }
}

/// Removes the placeholder of `item` if it is unchanged.
fn remove_placeholder(item: &QuarantinedItem, above: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let Some(placed) = item.placeholder else { return Ok(()) };
    let is_it = |file: &File| file.metadata().map(|meta| Placeholder::from_metadata(&meta));
    if placed.directory {
        if let Ok(directory) = beneath::open_directory(above.as_fd(), name)
            && is_it(&File::from(directory.try_clone()?))?.file == placed.file
            && beneath::is_empty(directory.as_fd())?
        {
            rustix::fs::unlinkat(above, name, rustix::fs::AtFlags::REMOVEDIR)?;
        }
    } else if let Ok((file, _)) = beneath::open_file(above.as_fd(), name)
        && is_it(&file)? == placed
        && file.metadata()?.nlink() == 1
    {
        rustix::fs::unlinkat(above, name, rustix::fs::AtFlags::empty())?;
    }
    Ok(())
}
