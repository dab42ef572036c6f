//! What of this host can bound a file tree: project quotas where a directory is, a file system in a file, and memory
//! that can take the changes of an overlay (DECISIONS 29). All are found by asking the kernel, not by mount options.

use crate::sys::{Errno, caps, file, mount, quota};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Why no project quota can be set where `path` is, or will be; `None` when one can.
pub fn refused(path: &Path) -> Option<String> {
    if !nix::unistd::geteuid().is_root() || !caps::has(caps::SYS_ADMIN) {
        return Some("only root can set a quota".to_owned());
    }
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let shown = there.display();
    let enforced = File::open(there).map_err(|_| Errno::EACCES).and_then(|there| {
        // A file system may count and have no projects.
        quota::project(there.as_fd())?;
        quota::is_enforced(there.as_fd())
    });
    match enforced {
        Ok(true) => None,
        Ok(false) => Some(format!("the file system of {shown} counts for project quotas and enforces none")),
        Err(_) => Some(format!("the file system of {shown} has no project quotas")),
    }
}

/// Why no file can be mounted as an ext4 file system; `None` when one can.
pub fn image_refused() -> Option<String> {
    if !nix::unistd::geteuid().is_root() || !caps::has(caps::SYS_ADMIN) {
        return Some("only root can mount one".to_owned());
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/loop-control") {
        return Some(format!("open /dev/loop-control: {error}"));
    }
    mount::knows(c"ext4").err().map(|_| "this kernel has no ext4".to_owned())
}

/// Whether a tmpfs takes the attributes in which an overlay keeps its notes: since Linux 6.6.
pub fn memory_takes_changes() -> bool {
    let file = memfd_create(c"saggar", MFdFlags::MFD_CLOEXEC);
    file.is_ok_and(|file| file::set_attribute(file.as_fd(), c"user.saggar", b"").is_ok())
}

/// Whether the file system where `path` is, or will be, can be the upper layer of an overlay: no other overlay, and
/// none of the network, and one that takes its attributes.
pub fn disk_takes_changes(path: &Path) -> bool {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statfs(there).map(|found| found.f_type) {
        Ok(rustix::fs::NFS_SUPER_MAGIC) | Ok(libc::OVERLAYFS_SUPER_MAGIC) | Err(_) => false,
        Ok(libc::TMPFS_MAGIC) => memory_takes_changes(),
        Ok(_) => true,
    }
}
