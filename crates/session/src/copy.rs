//! Copies a folder into a session: regular files, directories and symbolic links. No link is followed, no other type of
//! file is copied, and set-id bits are dropped. The copied names are listed in a manifest, so that later changes of the
//! folder can be told from changes of the copy.

use super::create;
use super::manifest::{Manifest, ManifestEntry};
use rustix::fs::Mode;
use saggar_sys::beneath::{self, FileKind, FileMeta};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file_worker::{self, Confinement, FileAccess};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Limits of a folder: an agent's folder is small, and a home directory given by mistake is not.
const MAX_ENTRIES: u64 = 200_000;
const MAX_BYTES: u64 = 4 << 30;
const MAX_DEPTH: usize = 128;

/// Copies the open directory `from`, which messages call `shown`, to `to`, which must not exist, in a worker with the
/// ids of its owner; returns the owner of the copy.
///
/// # Errors
/// As [`copy_content`]; [`Code::System`].
#[expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]
pub fn copy_tree(shown: &Path, from: BorrowedFd<'_>, to: &Path) -> Result<Manifest> {
    let task = format!("copy {}", shown.display());
    let fail = |e: std::io::Error| Error::system(&task, e);
    fs::DirBuilder::new().mode(0o700).create(to).map_err(fail)?;
    let target = beneath::open_root(to).map_err(fail)?;
    let owner = file_worker::worker_owner(from).map_err(fail)?;
    create::set_owner(target.as_fd(), owner).map_err(fail)?;
    let confinement = Confinement {
        task: &task,
        owner,
        // Files that the owner of a folder cannot read are not read for the owner's agent either.
        capabilities: 0,
        directories: &[(from, FileAccess::Read), (target.as_fd(), FileAccess::Write)],
        files: &[],
        limits: file_worker::WorkerLimits::default(),
    };
    let text =
        file_worker::run_worker(&confinement, || Ok(copy_content(shown, from, target.as_fd())?.to_text()))?;
    Ok(Manifest::parse(text.as_bytes()))
}

/// Copies the content of the directory `from`, which messages call `shown`, and its mode to the empty directory `to`.
///
/// # Errors
/// [`Code::Invalid`] for a folder that is too large or too deep; [`Code::System`] naming the path.
pub fn copy_content(shown: &Path, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<Manifest> {
    let fail = |e: std::io::Error| Error::system(format_args!("copy {}", shown.display()), e);
    let mut copy = TreeCopy::new(shown);
    copy.copy_directory_content(from, to, Path::new(""), 0)?;
    let mode = beneath::stat_fd(from).map_err(fail)?.mode;
    set_mode(to, mode & 0o777 | 0o700).map_err(fail)?;
    Ok(copy.manifest)
}

/// Copies `path` of the tree `from`, whose path is `from_root`, into the tree `to`, where the name must not exist. The
/// copied names are added to `manifest`.
///
/// # Errors
/// As [`copy_content`].
pub(crate) fn copy_path(
    from_root: &Path,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    path: &Path,
    manifest: &mut Manifest,
) -> Result<()> {
    let fail = |e: std::io::Error| Error::system(format_args!("copy {}", from_root.join(path).display()), e);
    let parent = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().map(Path::new).unwrap_or(Path::new("."));
    let source = beneath::open_directory(from, parent).map_err(fail)?;
    let target = beneath::open_directory(to, parent).map_err(fail)?;
    let mut copy = TreeCopy::new(from_root);
    copy.manifest = std::mem::take(manifest);
    let depth = path.components().count();
    let done = copy.copy_entry(source.as_fd(), target.as_fd(), name, path, depth);
    *manifest = copy.manifest;
    done
}

fn set_mode(file: BorrowedFd<'_>, mode: u32) -> std::io::Result<()> {
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
}

struct TreeCopy<'a> {
    from: &'a Path,
    entries: u64,
    bytes: u64,
    manifest: Manifest,
}

impl<'a> TreeCopy<'a> {
    fn new(from: &'a Path) -> Self {
        TreeCopy { from, entries: MAX_ENTRIES, bytes: MAX_BYTES, manifest: Manifest::default() }
    }

    fn count_entry(&mut self, path: &Path, bytes: u64) -> Result<()> {
        let left = (self.entries.checked_sub(1), self.bytes.checked_sub(bytes));
        let (Some(entries), Some(bytes)) = left else {
            let shown = self.from.join(path);
            let message = format!("copy {}: the folder is larger than a workspace may be", shown.display());
            return Err(
                Error::new(Code::Invalid, message).hint("use --workspace DIR to work on the folder itself")
            );
        };
        (self.entries, self.bytes) = (entries, bytes);
        Ok(())
    }

    fn copy_directory_content(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        path: &Path,
        depth: usize,
    ) -> Result<()> {
        let shown = self.from.join(path);
        if depth > MAX_DEPTH {
            return Err(Error::new(Code::Invalid, format!("copy {}: it is too deep", shown.display())));
        }
        let most = usize::try_from(self.entries).unwrap_or(usize::MAX).saturating_add(1);
        let names = match beneath::read_names(from, most) {
            Err(e) if e.raw_os_error().is_none() => return self.count_entry(path, u64::MAX),
            names => names.map_err(|e| Error::system(format_args!("copy {}", shown.display()), e))?,
        };
        for name in names {
            self.copy_entry(from, to, Path::new(&name), &path.join(&name), depth)?;
        }
        Ok(())
    }

    fn copy_entry(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &Path,
        path: &Path,
        depth: usize,
    ) -> Result<()> {
        let shown = self.from.join(path);
        let fail = |e: std::io::Error| Error::system(format_args!("copy {}", shown.display()), e);
        // A name that was removed meanwhile is skipped.
        let Some(meta) = beneath::stat_beneath(from, name).map_err(fail)? else { return Ok(()) };
        match meta.kind {
            FileKind::Other(_) => return Ok(()),
            FileKind::Directory => {
                self.count_entry(path, 0)?;
                let source = beneath::open_directory(from, name).map_err(fail)?;
                rustix::fs::mkdirat(to, name, Mode::RWXU).map_err(|e| fail(e.into()))?;
                let target = beneath::open_directory(to, name).map_err(fail)?;
                self.copy_directory_content(source.as_fd(), target.as_fd(), path, depth + 1)?;
                set_mode(target.as_fd(), meta.mode & 0o777 | 0o700).map_err(fail)?;
                self.add_to_manifest(path, &meta, &beneath::stat_fd(target.as_fd()).map_err(fail)?);
            }
            FileKind::Symlink => {
                self.count_entry(path, 0)?;
                let target = beneath::read_link(from, name).map_err(fail)?;
                rustix::fs::symlinkat(&target, to, name).map_err(|e| fail(e.into()))?;
                if let Some(copied) = beneath::stat_beneath(to, name).map_err(fail)? {
                    self.add_to_manifest(path, &meta, &copied);
                }
            }
            FileKind::File => {
                let (mut source, meta) = match beneath::open_file(from, name) {
                    // The name has changed its type since the directory was read.
                    Err(e) if e.raw_os_error().is_none() => return Ok(()),
                    Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                        return Err(fail(e).hint(
                            "the owner of the folder cannot read it: give the file to that user (chown), let all read \
                             it (chmod o+r), or use --workspace DIR to work on the folder itself",
                        ));
                    }
                    opened => opened.map_err(fail)?,
                };
                self.count_entry(path, meta.size)?;
                let mode = meta.mode & 0o777;
                let mut target = beneath::create_file(to, name, mode).map_err(fail)?;
                std::io::copy(&mut source, &mut target).map_err(fail)?;
                target.set_permissions(fs::Permissions::from_mode(mode)).map_err(fail)?;
                self.add_to_manifest(path, &meta, &beneath::stat_fd(target.as_fd()).map_err(fail)?);
            }
        }
        Ok(())
    }

    fn add_to_manifest(&mut self, path: &Path, source: &FileMeta, copy: &FileMeta) {
        self.manifest.set(path, Some(ManifestEntry::from_metas(source, copy)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(from: &Path, to: &Path) -> Result<Manifest> {
        fs::create_dir_all(to).unwrap();
        let (source, target) = (beneath::open_root(from).unwrap(), beneath::open_root(to).unwrap());
        copy_content(from, source.as_fd(), target.as_fd())
    }

    #[test]
    fn links_stay_links_and_odd_files_stay_out() {
        let scratch = tempfile::tempdir().unwrap();
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/f"), "text").unwrap();
        fs::set_permissions(from.join("a/b/f"), fs::Permissions::from_mode(0o4755)).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", from.join("link")).unwrap();
        nix::unistd::mkfifo(&from.join("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let listed = copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("a/b/f")).unwrap(), "text");
        assert_eq!(fs::metadata(to.join("a/b/f")).unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/etc/shadow"));
        assert!(!to.join("fifo").exists());
        assert!(listed.get(Path::new("a/b/f")).is_some() && listed.get(Path::new("fifo")).is_none());
        assert!(copy(&from, &to).is_err(), "what is there is never written over");
    }

    #[test]
    fn a_file_without_end_is_refused_before_it_is_copied() {
        let scratch = tempfile::tempdir().unwrap();
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::File::create(from.join("large")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(copy(&from, &to).unwrap_err().code(), Code::Invalid);
    }
}
