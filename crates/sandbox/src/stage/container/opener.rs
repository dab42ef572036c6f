//! A process with the runtime's own rights in the mount namespace of the child: it opens trees, maps their owners,
//! and hands them over. It lives for a moment, and touches nothing else there.

use super::device::{self, NodeStore};
use super::wire::{ChildReport, ChildRequest};
use crate::plan::container::device::ParentDevice;
use saggar_sys::file::{self, Resolve};
use saggar_sys::spawn;
use saggar_sys::{Errno, SysResult, mount, namespace, pidfd, scm};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// One tree.
#[derive(Debug)]
pub(crate) enum TreeRequest<'a> {
    /// A tree of the host.
    Host(HostTree<'a>),
    /// A new device node, or the host's where none can be made.
    Device(&'a ParentDevice),
}

/// A tree of the host.
#[derive(Debug)]
pub(crate) struct HostTree<'a> {
    /// Absolute path on the host.
    pub path: &'a CStr,
    /// The directory or file itself, not a copy of its tree.
    pub path_only: bool,
    /// A symbolic link at the end of the path is followed.
    pub follow_link: bool,
    /// With what is mounted below it.
    pub recursive: bool,
    /// Its owners are mapped through this user namespace.
    pub userns: Option<BorrowedFd<'a>>,
    /// What is mounted below it is mapped, too.
    pub map_recursive: bool,
}

/// Opens every tree in the mount namespace of the process behind `child`, sends them in order by `to`, and says on
/// `report` which one failed ([`ChildReport::Failed`] with its index), or nothing. Waits for the end. `place` is a directory
/// over which device nodes are kept meanwhile.
///
/// # Errors
/// Those of clone3(2).
pub(crate) fn open_trees_in(
    child: BorrowedFd<'_>,
    orders: &[TreeRequest<'_>],
    place: &CStr,
    to: BorrowedFd<'_>,
    report: OwnedFd,
) -> SysResult<()> {
    let (_, pidfd, ()) = spawn::spawn(0, None, (), || {
        if let Err((index, errno)) = open_all(child, orders, place, to) {
            let failed = ChildReport::Failed { step: index, errno: errno as i32 };
            let _ = scm::send(report.as_fd(), &failed.encode(), &[]);
        }
        0
    })?;
    pidfd::reap(pidfd.as_fd()).map(drop)
}

fn open_all(
    child: BorrowedFd<'_>,
    orders: &[TreeRequest<'_>],
    place: &CStr,
    to: BorrowedFd<'_>,
) -> Result<(), (u32, Errno)> {
    namespace::join(child, libc::CLONE_NEWNS).map_err(|errno| (0, errno))?;
    let mut nodes = None;
    for (index, order) in (0..).zip(orders) {
        let tree = match order {
            TreeRequest::Host(tree) => open_tree(tree),
            TreeRequest::Device(device) => make_device(device, place, &mut nodes),
        };
        let sent =
            tree.and_then(|tree| scm::send(to, &ChildRequest::Trees.encode(), &[tree.as_raw_fd()]).map(drop));
        sent.map_err(|errno| (index, errno))?;
    }
    // An index after the last one: it is the fault of no tree.
    let after = u32::try_from(orders.len()).unwrap_or(u32::MAX);
    nodes.map_or(Ok(()), NodeStore::unmount).map_err(|errno| (after, errno))
}

/// A node made with the rights of this process. In a user namespace around the runtime it may make none either: then the
/// host's is taken.
fn make_device(order: &ParentDevice, place: &CStr, nodes: &mut Option<NodeStore>) -> SysResult<OwnedFd> {
    let store = match nodes {
        Some(store) => Ok(store),
        None => NodeStore::new(place).map(|store| nodes.insert(store)),
    };
    match store.and_then(|store| store.make(&order.node)) {
        Err(Errno::EPERM) => device::open_host(&order.node, &order.host),
        made => made,
    }
}

fn open_tree(order: &HostTree<'_>) -> SysResult<OwnedFd> {
    let flags = libc::O_PATH | if order.follow_link { 0 } else { libc::O_NOFOLLOW };
    let file = file::open(file::cwd(), order.path, flags, 0, Resolve::Ordinary)?;
    if order.path_only {
        return Ok(file);
    }
    let tree = mount::clone_tree(file.as_fd(), order.recursive)?;
    if let Some(userns) = order.userns {
        mount::idmap_mount(tree.as_fd(), userns, order.map_recursive)?;
    }
    Ok(tree)
}
