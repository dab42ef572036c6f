//! The cgroups of a container, as the verbs and the launcher see them.

use crate::cgroup::{Group, Mount};
use crate::error::{Code, Error, Result};
use crate::launch::container::Cgroup;
use crate::plan::container::Hierarchy;
use crate::resctrl::Groups;
use crate::state::container::Record;
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Opens the cgroups of a container.
///
/// # Errors
/// [`Code::Unsupported`] for one that has none; as [`Group::open`].
pub(super) fn open(record: &Record) -> Result<Group> {
    let place = record
        .cgroup
        .as_ref()
        .ok_or_else(|| Error::new(Code::Unsupported, format!("container {:?} has no cgroup", record.id)))?;
    Group::open(place)
}

/// For the first process of a container.
#[derive(Debug)]
pub(super) struct ForInit<'a> {
    birthplace: Option<OwnedFd>,
    group: RefCell<&'a mut Group>,
}

impl<'a> ForInit<'a> {
    /// # Errors
    /// [`Code::System`] when there are no descriptors left.
    pub(super) fn new(group: &'a mut Group) -> Result<Self> {
        let birthplace = group.dirfd_for_clone().map(|fd| fd.try_clone_to_owned()).transpose();
        let birthplace = birthplace.map_err(|e| Error::system("duplicate the descriptor of a cgroup", e))?;
        Ok(ForInit { birthplace, group: RefCell::new(group) })
    }
}

impl Cgroup for ForInit<'_> {
    fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        self.birthplace.as_ref().map(AsFd::as_fd)
    }

    fn enter(&self, pid: i32) -> Result<()> {
        self.group.borrow_mut().enter(pid)
    }

    fn hierarchies(&self) -> Vec<Hierarchy> {
        hierarchies(&self.group.borrow())
    }
}

/// For a process that joins a container whose first process is `init`.
#[derive(Debug)]
pub(super) struct ForExec<'a> {
    group: &'a Group,
    init: i32,
    birthplace: Option<OwnedFd>,
}

impl<'a> ForExec<'a> {
    /// # Errors
    /// As [`Group::dirfd_for_exec`].
    pub(super) fn new(group: &'a Group, init: i32) -> Result<Self> {
        Ok(ForExec { birthplace: group.dirfd_for_exec(init)?, group, init })
    }
}

impl Cgroup for ForExec<'_> {
    fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        self.birthplace.as_ref().map(AsFd::as_fd)
    }

    fn enter(&self, pid: i32) -> Result<()> {
        self.group.enter_exec(pid, self.init)
    }
}

/// A cgroup, and the groups of resctrl beside it.
pub(super) struct WithShares<'a> {
    pub(super) cgroup: &'a dyn Cgroup,
    pub(super) shares: Option<&'a Groups>,
}

impl Cgroup for WithShares<'_> {
    fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        self.cgroup.birthplace()
    }

    fn enter(&self, pid: i32) -> Result<()> {
        self.cgroup.enter(pid)?;
        self.shares.map_or(Ok(()), |shares| shares.enter(pid))
    }

    fn hierarchies(&self) -> Vec<Hierarchy> {
        self.cgroup.hierarchies()
    }
}

fn hierarchies(group: &Group) -> Vec<Hierarchy> {
    let one = |name: String, own: PathBuf, links| Hierarchy { name, own, links };
    match group.mount() {
        None => Vec::new(),
        Some(Mount::Unified { directory }) => vec![one(String::new(), directory, Vec::new())],
        Some(Mount::Hierarchies(all)) => {
            all.into_iter().map(|mount| one(mount.name, mount.directory, mount.links)).collect()
        }
    }
}
