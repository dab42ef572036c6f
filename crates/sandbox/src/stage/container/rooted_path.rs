//! Paths of the container, never resolved outside of its root: openat2(2) with RESOLVE_IN_ROOT. Somebody may
//! exchange parts of a path while it is walked (CVE-2021-30465): whatever the walk finds is inside, and nothing
//! but the descriptor that it ends with is used.

use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const PATH_MAX: usize = libc::PATH_MAX as usize;

/// As the kernel's own limit.
const MAX_LINKS: usize = 40;

/// What is at `path`; the root itself for an empty one.
pub(super) fn find(root: BorrowedFd<'_>, path: &CStr) -> SysResult<OwnedFd> {
    if path.is_empty() {
        return file::duplicate(root.as_raw_fd());
    }
    file::open(root, path, libc::O_PATH, 0, Resolve::InRoot)
}

/// What is at `path`, without any link on the way or at the end.
pub(super) fn find_without_links(root: BorrowedFd<'_>, path: &CStr) -> SysResult<OwnedFd> {
    let found = file::open(root, path, libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::BeneathNoLinks)?;
    // With O_PATH a link at the end is opened itself (openat2(2), RESOLVE_NO_SYMLINKS).
    let is_link = nix::sys::stat::fstat(&found)?.st_mode & libc::S_IFMT == libc::S_IFLNK;
    if is_link { Err(Errno::ELOOP) } else { Ok(found) }
}

/// What is at `path`, made where it is missing: directories of mode 0755, and at the end a directory or an empty
/// file. A link to nowhere is made whole, inside the root. Other containers of the same root file system may make
/// the same at the same time.
pub(super) fn create(root: BorrowedFd<'_>, path: &CStr, directory: bool) -> SysResult<OwnedFd> {
    match find(root, path) {
        Err(Errno::ENOENT) => {}
        other => return other,
    }
    let mut text = PathBuffer::new(path)?;
    for _ in 0..MAX_LINKS {
        if let Some(file) = walk(root, &mut text, directory)? {
            return Ok(file);
        }
    }
    Err(Errno::ELOOP)
}

/// As [`create`], but a link at the end of `path` is taken as it is.
pub(super) fn create_unfollowed(root: BorrowedFd<'_>, path: &CStr, directory: bool) -> SysResult<OwnedFd> {
    if path.is_empty() {
        return find(root, path);
    }
    let (parent, name) = create_parent(root, path)?;
    let look =
        || file::open(parent.as_fd(), name, libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::BeneathNoLinks);
    match look() {
        Err(Errno::ENOENT) => {}
        other => return other,
    }
    match create_one(parent.as_fd(), name, directory) {
        // Another container of the same root file system made it meanwhile.
        Err(Errno::EEXIST) => look(),
        other => other,
    }
}

/// The directory of `path`, made where it is missing, and the last name.
pub(super) fn create_parent<'a>(root: BorrowedFd<'_>, path: &'a CStr) -> SysResult<(OwnedFd, &'a CStr)> {
    let bytes = path.to_bytes_with_nul();
    let Some(slash) = path.to_bytes().iter().rposition(|b| *b == b'/') else {
        return Ok((find(root, c"")?, path));
    };
    let name = CStr::from_bytes_with_nul(&bytes[slash + 1..]).map_err(|_| Errno::EINVAL)?;
    if name.is_empty() || name == c".." {
        return Err(Errno::EINVAL);
    }
    let mut text = [0; PATH_MAX];
    text.get_mut(..slash).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(&bytes[..slash]);
    let parent = CStr::from_bytes_until_nul(&text).map_err(|_| Errno::ENAMETOOLONG)?;
    Ok((create(root, parent, true)?, name))
}

/// Whether an open file is of procfs.
pub(super) fn is_proc(file: BorrowedFd<'_>) -> SysResult<bool> {
    Ok(fstatfs(file)?.filesystem_type() == PROC_SUPER_MAGIC)
}

/// A path that changes while it is walked.
struct PathBuffer {
    bytes: [u8; PATH_MAX],
    len: usize,
}

impl PathBuffer {
    fn new(path: &CStr) -> SysResult<Self> {
        let mut text = PathBuffer { bytes: [0; PATH_MAX], len: 0 };
        text.push(path.to_bytes())?;
        Ok(text)
    }

    fn push(&mut self, more: &[u8]) -> SysResult<()> {
        // One byte stays for the end.
        let end = self.len + more.len();
        self.bytes
            .get_mut(self.len..end)
            .filter(|_| end < PATH_MAX)
            .ok_or(Errno::ENAMETOOLONG)?
            .copy_from_slice(more);
        self.len = end;
        Ok(())
    }

    /// `from..to` as a C string.
    fn part<T>(&mut self, from: usize, to: usize, then: impl FnOnce(&CStr) -> T) -> SysResult<T> {
        let kept = std::mem::replace(self.bytes.get_mut(to).ok_or(Errno::ENAMETOOLONG)?, 0);
        let result = CStr::from_bytes_until_nul(&self.bytes[from..]).map(then).map_err(|_| Errno::EINVAL);
        self.bytes[to] = kept;
        result
    }

    /// The link at `start..end` replaced by what it says.
    fn splice(&mut self, start: usize, end: usize, target: &[u8]) -> SysResult<()> {
        let mut new = PathBuffer { bytes: [0; PATH_MAX], len: 0 };
        if target.first() != Some(&b'/') {
            new.push(&self.bytes[..start])?;
        }
        new.push(target)?;
        new.push(&self.bytes[end..self.len])?;
        *self = new;
        Ok(())
    }
}

/// Goes along the names of `text` and makes what is missing. Nothing when it is to be gone again: a link to nowhere
/// was replaced in `text`, or somebody else made or removed a part of the way meanwhile.
fn walk(root: BorrowedFd<'_>, text: &mut PathBuffer, directory: bool) -> SysResult<Option<OwnedFd>> {
    let mut here = find(root, c"")?;
    let mut at = 0;
    loop {
        while at < text.len && text.bytes[at] == b'/' {
            at += 1;
        }
        if at == text.len {
            return Ok(Some(here));
        }
        let start = at;
        while at < text.len && text.bytes[at] != b'/' {
            at += 1;
        }
        let last = text.bytes[at..text.len].iter().all(|b| *b == b'/');
        match text.part(0, at, |prefix| find(root, prefix))? {
            Ok(there) => {
                here = there;
                continue;
            }
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        let made = text.part(start, at, |name| create_one(here.as_fd(), name, directory || !last))?;
        match made {
            Ok(there) => here = there,
            Err(Errno::EEXIST) => {
                let mut target = [0; PATH_MAX];
                match text.part(start, at, |name| file::read_link(here.as_fd(), name, &mut target))? {
                    Ok(len) => text.splice(start, at, &target[..len])?,
                    // No link: it was made after the look (EINVAL), or is gone again.
                    Err(Errno::EINVAL | Errno::ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
                return Ok(None);
            }
            Err(errno) => return Err(errno),
        }
    }
}

fn create_one(parent: BorrowedFd<'_>, name: &CStr, directory: bool) -> SysResult<OwnedFd> {
    if directory {
        nix::sys::stat::mkdirat(parent, name, nix::sys::stat::Mode::from_bits_truncate(0o755))?;
    } else {
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
        file::open(parent, name, flags, 0o644, Resolve::BeneathNoLinks)?;
    }
    find_without_links(parent, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn root(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    #[test]
    fn what_is_missing_is_made_inside_whatever_links_and_dots_say() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("root");
        fs::create_dir_all(path.join("var")).unwrap();
        symlink("/run", path.join("var/run")).unwrap();
        symlink("../../../../escape", path.join("up")).unwrap();
        symlink("chain/b", path.join("chain")).unwrap();
        let root = root(&path);
        for (name, directory, made) in [
            (c"a/b/c", true, "a/b/c"),
            (c"a/file", false, "a/file"),
            (c"var/run/secrets/x", true, "run/secrets/x"),
            (c"up/there", false, "escape/there"),
            (c"../../a/../d", true, "d"),
        ] {
            let file = create(root.as_fd(), name, directory).unwrap();
            let found = fs::symlink_metadata(path.join(made)).unwrap();
            assert_eq!(found.is_dir(), directory, "{name:?}");
            assert_eq!(
                nix::sys::stat::fstat(&file).unwrap().st_mode & libc::S_IFMT == libc::S_IFDIR,
                directory
            );
        }
        assert_eq!(create(root.as_fd(), c"chain/x", true).unwrap_err(), Errno::ELOOP);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing beside the root");
    }

    #[test]
    fn what_others_make_at_the_same_time_is_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let root = root(scratch.path());
        let start = std::sync::Barrier::new(8);
        let makes = || -> Vec<_> {
            let made = |round| {
                let path = std::ffi::CString::new(format!("{round}/dev/full")).unwrap();
                start.wait();
                create(root.as_fd(), &path, false).map(drop)
            };
            (0..200).map(made).collect()
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(makes)).collect();
            let made = all.into_iter().flat_map(|one| one.join().unwrap());
            made.for_each(Result::unwrap);
        });
    }

    #[test]
    fn a_way_up_is_found_while_things_are_moved_elsewhere() {
        let scratch = tempfile::tempdir().unwrap();
        let root = root(scratch.path());
        create(root.as_fd(), c"var/lib", true).unwrap();
        create(root.as_fd(), c"run", true).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (here, there) = (scratch.path().join("here"), scratch.path().join("there"));
                fs::create_dir(&here).unwrap();
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    fs::rename(&here, &there).unwrap();
                    fs::rename(&there, &here).unwrap();
                }
            });
            let found = (0..20_000).try_for_each(|_| find(root.as_fd(), c"var/lib/../../run").map(drop));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            found.unwrap();
        });
    }

    #[test]
    fn a_parent_is_made_and_its_name_is_the_last_one() {
        let scratch = tempfile::tempdir().unwrap();
        let root = root(scratch.path());
        let (parent, name) = create_parent(root.as_fd(), c"dev/net/tun").unwrap();
        assert_eq!(name, c"tun");
        let stat = fs::metadata(scratch.path().join("dev/net")).unwrap();
        assert_eq!(file::identity(parent.as_fd()).unwrap().inode, std::os::unix::fs::MetadataExt::ino(&stat));
        assert!(create_parent(root.as_fd(), c"dev/..").is_err());
    }
}
