//! The cgroups of a container, for the commands and the launcher.

use crate::cgroup::{CgroupHandle, CgroupMount};
use crate::error::{Code, Error, Result};
use crate::launch::container::ContainerCgroup;
use crate::plan::container::ContainerHierarchy;
use crate::resctrl::ResctrlGroups;
use crate::state::container::ContainerRecord;
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Opens the cgroups of a container.
///
/// # Errors
/// [`Code::Unsupported`] if the container has none; as [`CgroupHandle::open`].
pub(super) fn open(record: &ContainerRecord) -> Result<CgroupHandle> {
    let location = record
        .cgroup
        .as_ref()
        .ok_or_else(|| Error::new(Code::Unsupported, format!("container {:?} has no cgroup", record.id)))?;
    CgroupHandle::open(location)
}

/// The cgroup of the first process of a container.
#[derive(Debug)]
pub(super) struct InitCgroup<'a> {
    clone_target: Option<OwnedFd>,
    group: RefCell<&'a mut CgroupHandle>,
}

impl<'a> InitCgroup<'a> {
    /// # Errors
    /// [`Code::System`] if no descriptor is available.
    pub(super) fn new(group: &'a mut CgroupHandle) -> Result<Self> {
        let birthplace = group.dirfd_for_clone().map(|fd| fd.try_clone_to_owned()).transpose();
        let birthplace = birthplace.map_err(|e| Error::system("duplicate the descriptor of a cgroup", e))?;
        Ok(InitCgroup { clone_target: birthplace, group: RefCell::new(group) })
    }
}

impl ContainerCgroup for InitCgroup<'_> {
    fn clone_target(&self) -> Option<BorrowedFd<'_>> {
        self.clone_target.as_ref().map(AsFd::as_fd)
    }

    fn enter(&self, pid: i32) -> Result<()> {
        self.group.borrow_mut().enter(pid)
    }

    fn hierarchies(&self) -> Vec<ContainerHierarchy> {
        hierarchies(&self.group.borrow())
    }
}

/// The cgroup of a process that joins a container with the first process `init`.
#[derive(Debug)]
pub(super) struct JoinedCgroup<'a> {
    group: &'a CgroupHandle,
    init: i32,
    clone_target: Option<OwnedFd>,
}

impl<'a> JoinedCgroup<'a> {
    /// # Errors
    /// As `CgroupHandle::dirfd_for_exec`.
    pub(super) fn new(group: &'a CgroupHandle, init: i32) -> Result<Self> {
        Ok(JoinedCgroup { clone_target: group.dirfd_for_exec(init)?, group, init })
    }
}

impl ContainerCgroup for JoinedCgroup<'_> {
    fn clone_target(&self) -> Option<BorrowedFd<'_>> {
        self.clone_target.as_ref().map(AsFd::as_fd)
    }

    fn enter(&self, pid: i32) -> Result<()> {
        self.group.enter_exec(pid, self.init)
    }
}

/// A cgroup, together with the resctrl groups.
pub(super) struct CgroupWithResctrl<'a> {
    pub(super) cgroup: &'a dyn ContainerCgroup,
    pub(super) shares: Option<&'a ResctrlGroups>,
}

impl ContainerCgroup for CgroupWithResctrl<'_> {
    fn clone_target(&self) -> Option<BorrowedFd<'_>> {
        self.cgroup.clone_target()
    }

    fn enter(&self, pid: i32) -> Result<()> {
        self.cgroup.enter(pid)?;
        self.shares.map_or(Ok(()), |shares| shares.enter(pid))
    }

    fn hierarchies(&self) -> Vec<ContainerHierarchy> {
        self.cgroup.hierarchies()
    }
}

fn hierarchies(group: &CgroupHandle) -> Vec<ContainerHierarchy> {
    let one = |name: String, own: PathBuf, links| ContainerHierarchy { name, directory: own, links };
    match group.mount() {
        None => Vec::new(),
        Some(CgroupMount::Unified { directory }) => vec![one(String::new(), directory, Vec::new())],
        Some(CgroupMount::Hierarchies(all)) => {
            all.into_iter().map(|mount| one(mount.name, mount.directory, mount.links)).collect()
        }
    }
}
