//! Device nodes of a container.

use super::rooted_path::{self, is_proc};
use crate::plan::container::device::DeviceNode;
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult, mount};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Makes the node at `path` below the root.
pub(super) fn make(root: BorrowedFd<'_>, path: &CStr, node: &DeviceNode) -> SysResult<()> {
    let (parent, name) = rooted_path::create_parent(root, path)?;
    match file::make_node(parent.as_fd(), name, node.kind | node.mode, number(node)) {
        Ok(()) => {
            let made = rooted_path::find_without_links(parent.as_fd(), name)?;
            check(node, made.as_fd())?;
            file::set_owner(made.as_fd(), node.uid, node.gid)
        }
        // The very same is there already: fine. Anything else is not what was asked for.
        Err(Errno::EEXIST) => check(node, rooted_path::find_without_links(parent.as_fd(), name)?.as_fd()),
        // A user namespace around us makes no nodes either.
        Err(Errno::EPERM) if node.kind != libc::S_IFIFO => {
            let host = file::open(file::cwd(), c"/", libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)?;
            let source = file::open(host.as_fd(), path, libc::O_PATH, 0, Resolve::Ordinary)?;
            attach(root, path, node, host_tree(node, source.as_fd())?.as_fd())
        }
        Err(errno) => Err(errno),
    }
}

/// A tree of the host's node at this absolute path.
pub(super) fn open_host(node: &DeviceNode, path: &CStr) -> SysResult<OwnedFd> {
    host_tree(node, file::open(file::cwd(), path, libc::O_PATH, 0, Resolve::Ordinary)?.as_fd())
}

fn host_tree(node: &DeviceNode, source: BorrowedFd<'_>) -> SysResult<OwnedFd> {
    check(node, source)?;
    let tree = mount::clone_tree(source, true)?;
    mount::change(tree.as_fd(), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC, 0, 0, false)?;
    Ok(tree)
}

/// Mounts the tree of a node at `path` below the root.
pub(super) fn attach(
    root: BorrowedFd<'_>,
    path: &CStr,
    node: &DeviceNode,
    tree: BorrowedFd<'_>,
) -> SysResult<()> {
    check(node, tree)?;
    // As mknod(2), which follows no link at the end.
    let at = rooted_path::create_unfollowed(root, path, false)?;
    if is_proc(at.as_fd())? {
        // As for other mounts (CVE-2019-16884).
        return Err(Errno::ELOOP);
    }
    let covered = nix::sys::stat::fstat(&at)?;
    // An empty file is what an earlier container of this root file system was mounted on.
    let is_mount_point = covered.st_mode & libc::S_IFMT == libc::S_IFREG && covered.st_size == 0;
    if !is_mount_point {
        check(node, at.as_fd())?;
    }
    mount::attach(tree, at.as_fd())
}

/// A file system for nodes that are made outside of a user namespace. It is mounted over a directory while there are
/// trees to be cloned from it, and has no other path.
pub(super) struct NodeStore {
    tmpfs: OwnedFd,
    next: u8,
}

impl NodeStore {
    /// Mounts it over `place`, in the mount namespace of this process.
    pub(super) fn new(place: &CStr) -> SysResult<Self> {
        // The mode of a node is that of its device.
        nix::sys::stat::umask(nix::sys::stat::Mode::empty());
        let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
        let tmpfs =
            mount::new_filesystem(c"tmpfs", &[(c"size", Some(c"0")), (c"mode", Some(c"0700"))], attributes)?;
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let place = file::open(file::cwd(), place, flags, 0, Resolve::Ordinary)?;
        mount::attach(tmpfs.as_fd(), place.as_fd())?;
        Ok(NodeStore { tmpfs, next: 0 })
    }

    /// A tree of a new node.
    pub(super) fn make(&mut self, node: &DeviceNode) -> SysResult<OwnedFd> {
        let bytes = [b'a' + self.next / 26, b'a' + self.next % 26, 0];
        self.next = self.next.checked_add(1).ok_or(Errno::E2BIG)?;
        let name = CStr::from_bytes_with_nul(&bytes).map_err(|_| Errno::EINVAL)?;
        file::make_node(self.tmpfs.as_fd(), name, node.kind | node.mode, number(node))?;
        let made = file::open(
            self.tmpfs.as_fd(),
            name,
            libc::O_PATH | libc::O_NOFOLLOW,
            0,
            Resolve::BeneathNoLinks,
        )?;
        file::set_owner(made.as_fd(), node.uid, node.gid)?;
        mount::clone_tree(made.as_fd(), false)
    }

    /// Unmounts it; the trees stay.
    pub(super) fn unmount(self) -> SysResult<()> {
        nix::unistd::fchdir(&self.tmpfs)?;
        mount::unmount_here()
    }
}

fn number(node: &DeviceNode) -> u64 {
    libc::makedev(node.major, node.minor)
}

/// Whether an open file is this device.
fn check(node: &DeviceNode, made: BorrowedFd<'_>) -> SysResult<()> {
    let stat = nix::sys::stat::fstat(made)?;
    let same = stat.st_mode & libc::S_IFMT == node.kind
        && (node.kind == libc::S_IFIFO || stat.st_rdev == number(node));
    if same { Ok(()) } else { Err(Errno::EEXIST) }
}
