//! The cgroups of one container: making, entering, limiting and removing them.

use super::device::{self, Rules};
use super::limits::Done;
use super::oom::OomWatch;
use super::place::{Directory, Driver, Place};
use super::stats::Stats;
use super::tree::Dirs;
use super::{freeze, limits, make, processes, stats, systemd};
use crate::error::{Code, Error, Result};
use crate::host::cgroups::{Layout, Version};
use nix::errno::Errno;
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxResources};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The cgroups of one container, open.
#[derive(Debug)]
pub struct Group {
    place: Place,
    pub(super) dirs: Dirs,
    warnings: Vec<String>,
    /// What the first [`Group::enter`] sets, with the systemd driver.
    awaits: Option<LinuxResources>,
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

impl Group {
    /// Makes the cgroups and sets the limits. With the systemd driver both wait for [`Group::enter`], for a
    /// scope cannot be without a process.
    ///
    /// Without `devices` the container has those that every container has, and no others.
    ///
    /// # Errors
    /// What cannot be made, and any limit that does not hold; what was made is then removed again.
    pub fn create(place: &Place, resources: Option<&LinuxResources>) -> Result<Self> {
        let mut group =
            Group { place: place.clone(), dirs: Dirs::default(), warnings: Vec::new(), awaits: None };
        let resources = resources.cloned().unwrap_or_default();
        place.directories.iter().try_for_each(make::check_empty)?;
        if place.driver == Driver::Systemd && !place.directories.is_empty() {
            group.awaits = Some(resources);
            return Ok(group);
        }
        let made = group.make(&resources);
        match made {
            Ok(()) => Ok(group),
            Err(error) => {
                // The first error is the one to tell.
                let _ = make::remove(place);
                Err(error)
            }
        }
    }

    fn make(&mut self, resources: &LinuxResources) -> Result<()> {
        make::take_shelter(&self.place)?;
        let needed = limits::controllers(resources);
        for directory in &self.place.directories {
            let dir = make::make(directory, &needed, &mut self.dirs.refused)?;
            self.dirs.list.push(dir);
        }
        self.limit(resources)?;
        self.restrict(resources.devices().as_deref().unwrap_or_default())
    }

    /// Opens the cgroups of a container that runs, or ran: those that are gone are left out.
    ///
    /// # Errors
    /// When one is there and cannot be opened.
    pub fn open(place: &Place) -> Result<Self> {
        let mut dirs = Dirs::default();
        for directory in &place.directories {
            match make::open(directory) {
                Ok(dir) => dirs.list.push(dir),
                Err(Errno::ENOENT) => {}
                Err(errno) => {
                    let what = format!("open cgroup {}", directory.path.display());
                    return Err(Error::system(what, errno.desc()));
                }
            }
        }
        Ok(Group { place: place.clone(), dirs, warnings: Vec::new(), awaits: None })
    }

    /// The directory for clone3's CLONE_INTO_CGROUP, where that alone puts the new process where it belongs;
    /// `None` where [`Group::enter`] must be called instead.
    pub fn dirfd_for_clone(&self) -> Option<BorrowedFd<'_>> {
        match &self.dirs.list[..] {
            [dir] if dir.version == Version::V2 && self.awaits.is_none() => Some(dir.as_fd()),
            _ => None,
        }
    }

    /// Puts a process in every hierarchy, and reads back that it is there.
    ///
    /// # Errors
    /// When it cannot be put in one. With the systemd driver also what [`Group::create`] can fail with; the unit
    /// is then stopped again.
    pub fn enter(&mut self, pid: i32) -> Result<()> {
        if let Some(resources) = self.awaits.take() {
            let started = self.start_unit(pid, &resources);
            if started.is_err() {
                // Removing waits for the process to be gone, and whose it is knows that it failed.
                let _ = systemd::stop(&self.place);
            }
            return started;
        }
        self.dirs.list.iter().try_for_each(|dir| processes::put(dir, pid))?;
        processes::check(&self.place, pid)
    }

    fn start_unit(&mut self, pid: i32, resources: &LinuxResources) -> Result<()> {
        systemd::start(&self.place, resources, pid)?;
        // systemd has no cgroup in some of v1's hierarchies.
        let needed = limits::controllers(resources);
        for directory in &self.place.directories {
            let dir = match make::open(directory) {
                Ok(dir) => dir,
                Err(_) => make::make(directory, &needed, &mut self.dirs.refused)?,
            };
            if dir.version == Version::V1 {
                make::inherit_cpuset(directory)?;
            }
            // Into a scope systemd has put it.
            if dir.version == Version::V1 || systemd::is_slice(&self.place) {
                processes::put(&dir, pid)?;
            }
            self.dirs.list.push(dir);
        }
        processes::check(&self.place, pid)?;
        self.limit(resources)?;
        self.restrict(resources.devices().as_deref().unwrap_or_default())
    }

    /// Whether the user's systemd must move processes here, since the caller may not: it is in a session, and that is
    /// not the user's own.
    fn takes_systemd(&self) -> bool {
        let is_users = self.place.unit.as_ref().is_some_and(|unit| unit.user);
        is_users && self.place.unified().is_some_and(|directory| !processes::is_within_reach(directory))
    }

    /// As [`Group::dirfd_for_clone`], for a process that joins the container whose first is `init`: beside it,
    /// when the container made cgroups of its own below.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn dirfd_for_exec(&self, init: i32) -> Result<Option<OwnedFd>> {
        let [dir] = &self.dirs.list[..] else { return Ok(None) };
        if dir.version == Version::V1 || self.takes_systemd() {
            return Ok(None);
        }
        if let Some(beside) = processes::beside(&self.place, dir, init)? {
            return Ok(Some(beside.fd));
        }
        dir.fd.try_clone().map(Some).map_err(|e| Error::system("duplicate the descriptor of a cgroup", e))
    }

    /// As [`Group::enter`], for a process that joins the container whose first is `init`.
    ///
    /// # Errors
    /// When it cannot be put in one.
    pub fn enter_exec(&self, pid: i32, init: i32) -> Result<()> {
        let by_systemd = self.takes_systemd();
        for dir in &self.dirs.list {
            let beside = processes::beside(&self.place, dir, init)?;
            match beside.as_ref().unwrap_or(dir) {
                to if by_systemd => systemd::attach(&self.place, &to.path, pid)?,
                to => processes::put(to, pid)?,
            }
        }
        processes::check(&self.place, pid)
    }

    /// Sets the limits that `resources` names, all of them or none, and leaves all others as they are.
    ///
    /// # Errors
    /// The first limit that does not hold: its file, its value, and the cure.
    pub fn apply(&mut self, resources: &LinuxResources) -> Result<()> {
        if self.place.driver == Driver::Systemd {
            systemd::update(&self.place, resources)?;
        }
        let done = self.limit(resources)?;
        let restricted = resources.devices().as_deref().map_or(Ok(()), |devices| self.restrict(devices));
        restricted.map_err(|error| done.undo(error, &self.dirs))
    }

    fn limit(&mut self, resources: &LinuxResources) -> Result<Done> {
        let lowered = limits::lower(resources, &self.dirs);
        let settings = lowered.map_err(|error| match self.dirs.list.is_empty() {
            true => self.without_cgroups(&error),
            false => error,
        })?;
        self.warnings.extend(settings.warnings.iter().cloned());
        limits::carry_out(&settings, &self.dirs)
    }

    fn without_cgroups(&self, error: &Error) -> Error {
        match self.place.driver {
            Driver::Disabled => Error::new(error.code(), format!("cgroups are switched off: {error}"))
                .hint("leave the limits out, or let saggar make cgroups (--cgroup-manager cgroupfs)"),
            _ => {
                let message = format!(
                    "rootless needs no limits + no cgrouppath when no permission is granted for cgroups: {error}"
                );
                Error::new(error.code(), message).hint(
                    "have a cgroup delegated (systemd-run --user --scope -p Delegate=yes saggar …, or the systemd \
                     driver), or leave the limits out",
                )
            }
        }
    }

    /// Puts the rules for devices in force, where the container has a cgroup that can hold them.
    fn restrict(&mut self, rules: &[LinuxDeviceCgroup]) -> Result<()> {
        let rules = Rules::new(rules)?;
        let home = self.dirs.home("devices");
        let refused = match (home, self.dirs.unified()) {
            (Some(_), _) => return device::v1::put(&self.dirs, &rules),
            (None, Some(unified)) => match device::filter::put(unified.as_fd(), &rules) {
                Ok(()) => return Ok(()),
                Err(errno) => format!("bpf in {}: {}", unified.path.display(), errno.desc()),
            },
            (None, None) => "no cgroup can hold them".to_owned(),
        };
        if rules.is_everything() {
            return Ok(());
        }
        if self.place.rootless || self.place.driver == Driver::Disabled {
            // An ordinary user's container makes no nodes, and has those alone that it was given, by their owners'
            // leave: an allow-list says no more than that. Something is lost where one of them is to be refused.
            if !self.place.rootless || rules.refuse_some() {
                self.warnings.push(format!("linux.resources.devices are not in force: {refused}"));
            }
            return Ok(());
        }
        Err(Error::new(Code::Unsupported, format!("linux.resources.devices cannot hold: {refused}")).hint(
            "saggar needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN, of the host and a kernel with CONFIG_CGROUP_BPF; or \
             allow all devices: [{\"allow\": true, \"access\": \"rwm\"}]",
        ))
    }

    /// Stops every process, and waits until all are.
    ///
    /// # Errors
    /// Without a freezer; when it takes longer than five seconds: they all go on then.
    pub fn freeze(&self) -> Result<()> {
        freeze::set(&self.dirs, true)
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// Without a freezer.
    pub fn thaw(&self) -> Result<()> {
        freeze::set(&self.dirs, false)
    }

    /// Lets those die that were killed: what cgroup v1 has frozen does so only when it is thawed. A cgroup that is gone
    /// by now has let them.
    pub fn let_killed_die(&self) {
        // Beside v2's, which is ours to use, there may be v1's, and somebody may have used that.
        freeze::let_die(&self.dirs);
        if self.is_frozen().unwrap_or(false) {
            let _ = self.thaw();
        }
    }

    /// The same for all of them, wherever somebody has frozen them: they are all to die.
    pub fn let_all_die(&self) {
        let pids = processes::list(&self.dirs).unwrap_or_default();
        freeze::bring_home(&self.dirs, &pids);
        self.let_killed_die();
    }

    /// Whether [`Group::freeze`] holds; never without a freezer.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn is_frozen(&self) -> Result<bool> {
        match freeze::is_frozen(&self.dirs) {
            Err(error) if error.code() == Code::Unsupported => Ok(false),
            answer => answer,
        }
    }

    /// Every process in the cgroups and in those below, in ascending order; in the caller's pid namespace.
    ///
    /// # Errors
    /// When a list cannot be read.
    pub fn pids(&self) -> Result<Vec<i32>> {
        processes::list(&self.dirs).map(|pids| pids.into_iter().collect())
    }

    /// Sends a signal to every process, none that is forked meanwhile forgotten. With SIGKILL it returns when
    /// all are gone, frozen ones too.
    ///
    /// # Errors
    /// When some outlive SIGKILL for ten seconds.
    pub fn kill_all(&self, signal: i32) -> Result<()> {
        processes::kill_all(&self.dirs, signal)
    }

    /// What the container used, and how often it met its limits.
    ///
    /// # Errors
    /// When a file is there and cannot be read.
    pub fn stats(&self) -> Result<Stats> {
        stats::read(&self.dirs)
    }

    /// A descriptor to poll for the container running out of memory.
    ///
    /// # Errors
    /// Without a memory controller.
    pub fn watch_oom(&self) -> Result<OomWatch> {
        OomWatch::new(&self.dirs)
    }

    /// Removes what was made, and what the container made below it. The processes must be gone
    /// ([`Group::kill_all`]); one that is only just going is waited for. What is gone already is no error.
    ///
    /// # Errors
    /// When a cgroup stays busy for five seconds.
    pub fn remove(self) -> Result<()> {
        let stopped = systemd::stop(&self.place);
        make::remove(&self.place).and(stopped)
    }

    /// Removes the cgroups of a place when nothing is in them and no manager has a say in it; whether that is done.
    /// What else there is to do [`Group::remove`] does.
    pub fn remove_empty(place: &Place) -> bool {
        place.driver != Driver::Systemd && make::remove_empty(place)
    }

    /// What a `cgroup` mount in the container shows: without cgroups of its own, those that it shares with us;
    /// `None` on a host that has none.
    pub fn mount(&self) -> Option<Mount> {
        let shared = || {
            let layout = Layout::discover().unwrap_or_default();
            layout.hierarchies.iter().map(|one| Directory::at(one, one.own.clone(), false)).collect()
        };
        let directories =
            if self.place.directories.is_empty() { shared() } else { self.place.directories.clone() };
        match &directories[..] {
            [] => None,
            [one] if one.version == Version::V2 => Some(Mount::Unified { directory: one.path.clone() }),
            _ => Some(Mount::Hierarchies(directories.iter().map(HierarchyMount::of).collect())),
        }
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

impl HierarchyMount {
    fn of(directory: &Directory) -> Self {
        let name = directory.mount.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| directory.controllers.join(","));
        let v2 = directory.version == Version::V2;
        let is_named = directory.controllers.iter().any(|one| one.starts_with("name="));
        let links = if v2 || is_named { Vec::new() } else { directory.controllers.clone() };
        HierarchyMount {
            links: links.into_iter().filter(|link| *link != name).collect(),
            directory: directory.path.clone(),
            fstype: if v2 { "cgroup2" } else { "cgroup" },
            options: match (v2, is_named) {
                (true, _) => String::new(),
                (false, true) => format!("none,{}", directory.controllers.join(",")),
                (false, false) => directory.controllers.join(","),
            },
            name,
        }
    }
}
