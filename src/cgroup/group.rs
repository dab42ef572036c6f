//! The cgroups of one container: making, entering and removing them.

use super::place::Place;
use super::stats::Stats;
use crate::cgroup::OomWatch;
use crate::error::{Code, Error, Result};
use oci_spec::runtime::LinuxResources;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The cgroups of one container, open.
#[derive(Debug)]
pub struct Group {
    place: Place,
    warnings: Vec<String>,
}

/// What a mount of type `cgroup` in the container shows, one for each hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// cgroup v2, and no v1 controller anywhere: the mount shows this directory.
    Unified {
        /// The container's cgroup on the host.
        directory: PathBuf,
    },
    /// A tmpfs with a directory for each hierarchy.
    Hierarchies(Vec<HierarchyMount>),
}

/// One directory below a v1 `cgroup` mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HierarchyMount {
    /// The name of the directory: the controllers with commas, `systemd`, or `unified`.
    pub name: String,
    /// Names of links to it, one for each of several controllers.
    pub links: Vec<String>,
    /// The container's cgroup on the host, for a bind.
    pub directory: PathBuf,
    /// File system type, `cgroup` or `cgroup2`, for a new mount in a cgroup namespace.
    pub fstype: &'static str,
    /// Options of that new mount, such as `cpu,cpuacct` or `none,name=systemd`.
    pub options: String,
}

fn not_yet<T>(what: &str) -> Result<T> {
    Err(Error::new(Code::Unsupported, format!("{what}: not yet built")))
}

impl Group {
    /// Makes the cgroups and sets the limits. With the systemd driver both wait for [`Group::enter`], for a
    /// scope cannot be without a process.
    ///
    /// # Errors
    /// What cannot be made, and any limit that does not hold; what was made is then removed again.
    pub fn create(place: &Place, resources: Option<&LinuxResources>) -> Result<Self> {
        let _ = resources;
        Ok(Group { place: place.clone(), warnings: Vec::new() })
    }

    /// Opens the cgroups of a container that runs, or ran: those that are gone are left out.
    ///
    /// # Errors
    /// When one is there and cannot be opened.
    pub fn open(place: &Place) -> Result<Self> {
        Ok(Group { place: place.clone(), warnings: Vec::new() })
    }

    /// The directory for clone3's CLONE_INTO_CGROUP, where that alone puts the new process where it belongs;
    /// `None` where [`Group::enter`] must be called instead.
    pub fn dirfd_for_clone(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Puts a process in every hierarchy, and reads back that it is there.
    ///
    /// # Errors
    /// When it cannot be put in one.
    pub fn enter(&mut self, pid: i32) -> Result<()> {
        let _ = pid;
        not_yet("enter")
    }

    /// As [`Group::dirfd_for_clone`], for a process that joins the container whose first is `init`: beside it,
    /// when the container made cgroups of its own below.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn dirfd_for_exec(&self, init: i32) -> Result<Option<OwnedFd>> {
        let _ = init;
        Ok(None)
    }

    /// As [`Group::enter`], for a process that joins the container whose first is `init`.
    ///
    /// # Errors
    /// When it cannot be put in one.
    pub fn enter_exec(&self, pid: i32, init: i32) -> Result<()> {
        let _ = (pid, init);
        not_yet("enter_exec")
    }

    /// Sets the limits that `resources` names, and leaves all others as they are.
    ///
    /// # Errors
    /// The first limit that does not hold: its file, its value, and the cure.
    pub fn apply(&mut self, resources: &LinuxResources) -> Result<()> {
        let _ = resources;
        not_yet("apply")
    }

    /// Stops every process, and waits until all are.
    ///
    /// # Errors
    /// Without a freezer; when it takes too long.
    pub fn freeze(&self) -> Result<()> {
        not_yet("freeze")
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// Without a freezer; when it takes too long.
    pub fn thaw(&self) -> Result<()> {
        not_yet("thaw")
    }

    /// Whether [`Group::freeze`] holds.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn is_frozen(&self) -> Result<bool> {
        Ok(false)
    }

    /// Every process in the cgroups and in those below, in ascending order.
    ///
    /// # Errors
    /// When a list cannot be read.
    pub fn pids(&self) -> Result<Vec<i32>> {
        Ok(Vec::new())
    }

    /// Sends a signal to every process, none that is forked meanwhile forgotten. With SIGKILL it returns when
    /// all are gone.
    ///
    /// # Errors
    /// When some outlive SIGKILL for ten seconds.
    pub fn kill_all(&self, signal: i32) -> Result<()> {
        let _ = signal;
        not_yet("kill_all")
    }

    /// What the container used, and how often it met its limits.
    ///
    /// # Errors
    /// When a file is there and cannot be read.
    pub fn stats(&self) -> Result<Stats> {
        Ok(Stats::default())
    }

    /// A descriptor to poll for the container running out of memory.
    ///
    /// # Errors
    /// Without a memory controller.
    pub fn watch_oom(&self) -> Result<OomWatch> {
        not_yet("watch_oom")
    }

    /// Removes what was made, and what the container made below it. The processes must be gone
    /// ([`Group::kill_all`]); one that is only just going is waited for. What is gone already is no error.
    ///
    /// # Errors
    /// When a cgroup stays busy.
    pub fn remove(self) -> Result<()> {
        not_yet("remove")
    }

    /// What a `cgroup` mount in the container shows; `None` without cgroups.
    pub fn mount(&self) -> Option<Mount> {
        None
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What was asked for and means nothing on this host, for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
