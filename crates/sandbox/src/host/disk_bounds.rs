//! The means of this host to bound a file tree: project quotas, a file system in an image file, and tmpfs
//! as the upper layer of an overlay (DECISIONS 29). All are detected by system calls, not by mount options.

use nix::sys::memfd::{MFdFlags, memfd_create};
use saggar_sys::{Errno, caps, file, mount, quota};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// The reason why no project quota can be set at `path`, which may not exist yet; `None` if one can.
pub fn project_quota_obstacle(path: &Path) -> Option<String> {
    if !caps::is_privileged_root() {
        return Some("only root can set a quota".to_owned());
    }
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let shown = there.display();
    let enforced = File::open(there).map_err(|_| Errno::EACCES).and_then(|there| {
        // A file system can count blocks without supporting projects.
        quota::project(there.as_fd())?;
        quota::is_enforced(there.as_fd())
    });
    match enforced {
        Ok(true) => None,
        Ok(false) => Some(format!("the file system of {shown} counts for project quotas and enforces none")),
        Err(_) => Some(format!("the file system of {shown} has no project quotas")),
    }
}

/// The reason why no image file can be mounted as ext4; `None` if one can.
pub fn disk_image_obstacle() -> Option<String> {
    if !caps::is_privileged_root() {
        return Some("only root can mount one".to_owned());
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/loop-control") {
        return Some(format!("open /dev/loop-control: {error}"));
    }
    mount::knows_filesystem(c"ext4").err().map(|_| "this kernel has no ext4".to_owned())
}

/// Whether a tmpfs supports the extended attributes that an overlay stores: since Linux 6.6.
pub fn tmpfs_supports_overlay() -> bool {
    let file = memfd_create(c"saggar", MFdFlags::MFD_CLOEXEC);
    file.is_ok_and(|file| file::set_xattr(file.as_fd(), c"user.saggar", b"").is_ok())
}

/// Whether the file system at `path`, which may not exist yet, can be the upper layer of an overlay. It
/// must not be an overlay or a network file system, and must support the extended attributes of overlays.
pub fn supports_overlay_upper(path: &Path) -> bool {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statfs(there).map(|found| found.f_type) {
        Ok(rustix::fs::NFS_SUPER_MAGIC) | Ok(libc::OVERLAYFS_SUPER_MAGIC) | Err(_) => false,
        Ok(libc::TMPFS_MAGIC) => tmpfs_supports_overlay(),
        Ok(_) => true,
    }
}
