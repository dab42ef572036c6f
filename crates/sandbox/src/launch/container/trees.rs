//! Opens trees for the child that it cannot open itself: below directories that the container's root may not enter, or
//! idmapped ones. A process with the runtime's rights opens them in the child's own mount namespace, so that locked
//! mounts stay locked there.

use crate::launch::idmap::IdmapNamespaces;
use crate::plan::container::device::{DeviceNode, ParentDevice};
use crate::plan::container::mount::OpenedTree;
use crate::plan::ids::UserNamespaceMaps;
use crate::plan::path::absolute;
use crate::stage::container::opener::{self, HostTree, TreeRequest};
use crate::stage::container::wire::ChildReport;
use crate::stage::wire::LEN;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::scm::socket_pair;
use saggar_sys::{Errno, scm};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Opens `trees` for the child `pid` and sends them to it over `socket`. `place` is a directory that other processes of the
/// child's mount namespace do not need meanwhile.
pub(super) fn send_trees(
    trees: &[OpenedTree],
    place: &CStr,
    pid: i32,
    pidfd: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
) -> Result<()> {
    let mut holders = IdmapNamespaces::default();
    let mut namespaces = Vec::with_capacity(trees.len());
    for tree in trees {
        let idmap = match tree {
            OpenedTree::Host(tree) => tree.idmap.as_ref(),
            OpenedTree::Device(_) => None,
        };
        namespaces.push(match idmap {
            None => None,
            Some(None) => Some(user_namespace(pid)?),
            Some(Some(maps)) => {
                let (uid, gid) = (super::maps::map_text(&maps.uid), super::maps::map_text(&maps.gid));
                let userns = holders.userns(UserNamespaceMaps { uid, gid, deny_setgroups: false })?;
                Some(
                    userns
                        .try_clone_to_owned()
                        .map_err(|e| Error::system("duplicate a user namespace", e))?,
                )
            }
        });
    }
    let orders: Vec<TreeRequest<'_>> = trees
        .iter()
        .zip(&namespaces)
        .map(|(tree, userns)| match tree {
            OpenedTree::Host(tree) => TreeRequest::Host(HostTree {
                path: &tree.path,
                path_only: tree.path_only,
                follow_link: tree.follow_link,
                recursive: tree.recursive,
                userns: userns.as_ref().map(AsFd::as_fd),
                map_recursive: tree.idmap_recursive,
            }),
            OpenedTree::Device(device) => TreeRequest::Device(device),
        })
        .collect();
    let (ours, theirs) = socket_pair()?;
    opener::open_trees_in(pidfd, &orders, place, socket, theirs)
        .map_err(|e| Error::system("open the sources of mounts", e.desc()))?;
    let mut buffer = [0; LEN];
    let received =
        scm::receive(ours.as_fd(), &mut buffer).map_err(|e| Error::system("receive the mounts", e))?;
    let Some(ChildReport::Failed { step, errno }) = ChildReport::decode(&buffer[..received.len]) else {
        return Ok(());
    };
    let tree = usize::try_from(step).ok().and_then(|index| trees.get(index));
    let errno = Errno::from_raw(errno);
    let tree = match tree {
        Some(OpenedTree::Host(tree)) => tree,
        Some(OpenedTree::Device(device)) => return Err(device_error(device, errno)),
        None => return Err(Error::system("open the sources of mounts", errno.desc())),
    };
    let error = Error::new(Code::Invalid, format!("mount {}: {}", tree.path.to_string_lossy(), errno.desc()));
    Err(match (errno, &tree.idmap) {
        (Errno::EINVAL, Some(_)) => {
            error.hint("its file system, or one mounted below it, cannot be idmapped")
        }
        _ => error,
    })
}

fn device_error(device: &ParentDevice, errno: Errno) -> Error {
    let DeviceNode { major, minor, .. } = device.node;
    let message = format!("make device {} {major}:{minor}: {}", absolute(&device.path), errno.desc());
    let error = Error::new(Code::Invalid, message);
    match errno {
        Errno::ENOENT | Errno::EEXIST => {
            error.hint("the runtime may not make it, and the host has no such device to mount")
        }
        _ => error,
    }
}

fn user_namespace(pid: i32) -> Result<OwnedFd> {
    let file = std::fs::File::open(format!("/proc/{pid}/ns/user"));
    file.map(OwnedFd::from).map_err(|e| Error::system("open the user namespace of the container", e))
}
