//! The cgroups of one container: creates, enters, limits and removes them.

use super::agent::usage::SandboxUsage;
use super::control_files::OpenCgroups;
use super::device::{self, DeviceRules};
use super::limits::AppliedSettings;
use super::location::{CgroupDirectory, CgroupDriver, CgroupLocation, LocationWriter};
use super::oom::{self, OomWatch};
use super::stats::ContainerStats;
use super::{directories, freeze, limits, processes, stats, systemd};
use crate::host::cgroups::{CgroupLayout, CgroupVersion};
use nix::errno::Errno;
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxResources};
use saggar_sys::error::{Code, Error, Result};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The open cgroups of one container.
#[derive(Debug)]
pub struct CgroupHandle {
    location: CgroupLocation,
    pub(super) dirs: OpenCgroups,
    warnings: Vec<String>,
    /// With the systemd driver, the resources that the first [`CgroupHandle::enter`] sets.
    deferred_resources: Option<LinuxResources>,
}

/// The content of a mount of type `cgroup` in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupMount {
    /// cgroup v2 without any v1 controller: the mount shows this directory.
    Unified {
        /// The container's cgroup on the host.
        directory: PathBuf,
    },
    /// Several hierarchies: a tmpfs with a directory for each of them.
    Hierarchies(Vec<HierarchyMount>),
}

/// One directory below a v1 `cgroup` mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HierarchyMount {
    /// The name of the directory: the controllers separated by commas, `systemd`, or `unified`.
    pub name: String,
    /// Names of symbolic links to it, one for each controller if it has several.
    pub links: Vec<String>,
    /// The container's cgroup on the host, to bind.
    pub directory: PathBuf,
    /// File system type, `cgroup` or `cgroup2`, for a new mount in a cgroup namespace.
    pub fstype: &'static str,
    /// Options of that new mount, such as `cpu,cpuacct` or `none,name=systemd`.
    pub options: String,
}

impl CgroupHandle {
    /// Creates the cgroups and sets the limits. With the systemd driver [`CgroupHandle::enter`] does both, because a
    /// scope cannot exist without a process.
    ///
    /// Without `devices` the container may use only the default devices.
    ///
    /// # Errors
    /// If a directory cannot be created or a limit does not hold; everything created before is then removed.
    pub fn create(location: &CgroupLocation, resources: Option<&LinuxResources>) -> Result<Self> {
        CgroupHandle::create_with_writer(location, resources, &mut |_| Ok(()))
    }

    /// As [`CgroupHandle::create`]. Parent directories may have been removed with another container after the location
    /// was chosen. They are created again, and `write_location` first gets the location that lists them.
    ///
    /// # Errors
    /// As [`CgroupHandle::create`], and those of `write_location`.
    pub fn create_with_writer(
        location: &CgroupLocation,
        resources: Option<&LinuxResources>,
        write_location: &mut LocationWriter<'_>,
    ) -> Result<Self> {
        let mut group = CgroupHandle {
            location: location.clone(),
            dirs: OpenCgroups::default(),
            warnings: Vec::new(),
            deferred_resources: None,
        };
        let resources = resources.cloned().unwrap_or_default();
        location.directories.iter().try_for_each(directories::check_empty)?;
        if location.driver == CgroupDriver::Systemd && !location.directories.is_empty() {
            group.deferred_resources = Some(resources);
            return Ok(group);
        }
        let created = group.create_directories(&resources, write_location);
        match created {
            Ok(()) => Ok(group),
            Err(error) => {
                // The first error is the one that is reported.
                let _ = directories::remove(&group.location);
                Err(error)
            }
        }
    }

    fn create_directories(
        &mut self,
        resources: &LinuxResources,
        write_location: &mut LocationWriter<'_>,
    ) -> Result<()> {
        directories::enter_runtime_cgroup(&self.location)?;
        let needed = limits::controllers(resources);
        for at in 0..self.location.directories.len() {
            let dir = directories::create_directory(
                &mut self.location,
                at,
                &needed,
                &mut self.dirs.refused_controllers,
                write_location,
            )?;
            self.dirs.list.push(dir);
        }
        self.set_limits(resources)?;
        self.set_device_rules(resources.devices().as_deref().unwrap_or_default())
    }

    /// Opens the cgroups of a running or stopped container; those that no longer exist are omitted.
    ///
    /// # Errors
    /// If a cgroup exists and cannot be opened.
    pub fn open(location: &CgroupLocation) -> Result<Self> {
        let mut dirs = OpenCgroups::default();
        for directory in &location.directories {
            match directories::open_directory(directory) {
                Ok(dir) => dirs.list.push(dir),
                Err(Errno::ENOENT) => {}
                Err(errno) => {
                    let what = format!("open cgroup {}", directory.path.display());
                    return Err(Error::system(what, errno.desc()));
                }
            }
        }
        Ok(CgroupHandle { location: location.clone(), dirs, warnings: Vec::new(), deferred_resources: None })
    }

    /// The directory for clone3's CLONE_INTO_CGROUP, if that alone puts a new process into all its cgroups; otherwise
    /// `None`, and [`CgroupHandle::enter`] must be called.
    pub fn dirfd_for_clone(&self) -> Option<BorrowedFd<'_>> {
        match &self.dirs.list[..] {
            [dir] if dir.version == CgroupVersion::V2 && self.deferred_resources.is_none() => {
                Some(dir.as_fd())
            }
            _ => None,
        }
    }

    /// Moves a process into every hierarchy, and reads back that it is there.
    ///
    /// # Errors
    /// If it cannot be moved into one. With the systemd driver also the errors of [`CgroupHandle::create`]; the unit is
    /// then stopped again.
    pub fn enter(&mut self, pid: i32) -> Result<()> {
        if let Some(resources) = self.deferred_resources.take() {
            let started = self.start_unit(pid, &resources);
            if started.is_err() {
                // Removal waits for the process to exit, and its owner gets this error.
                let _ = systemd::stop(&self.location);
            }
            return started;
        }
        self.dirs.list.iter().try_for_each(|dir| processes::move_into(dir, pid))?;
        processes::check_membership(&self.location, pid)
    }

    fn start_unit(&mut self, pid: i32, resources: &LinuxResources) -> Result<()> {
        systemd::start(&self.location, resources, pid)?;
        // systemd creates no cgroup in some of v1's hierarchies.
        let needed = limits::controllers(resources);
        for at in 0..self.location.directories.len() {
            let dir = match directories::open_directory(&self.location.directories[at]) {
                Ok(dir) => dir,
                Err(_) => directories::create_directory(
                    &mut self.location,
                    at,
                    &needed,
                    &mut self.dirs.refused_controllers,
                    &mut |_| Ok(()),
                )?,
            };
            if dir.version == CgroupVersion::V1 {
                let CgroupDirectory { mount, path, controllers, .. } = &self.location.directories[at];
                directories::inherit_cpuset(mount, path, controllers)?;
            }
            // systemd has already moved it into a scope.
            if dir.version == CgroupVersion::V1 || systemd::is_slice(&self.location) {
                processes::move_into(&dir, pid)?;
            }
            self.dirs.list.push(dir);
        }
        processes::check_membership(&self.location, pid)?;
        self.set_limits(resources)?;
        self.set_device_rules(resources.devices().as_deref().unwrap_or_default())
    }

    /// Whether the user's systemd must move processes here, because the caller may not: the caller runs in a session
    /// scope, which the user does not own.
    fn needs_systemd_move(&self) -> bool {
        let is_users = self.location.unit.as_ref().is_some_and(|unit| unit.user);
        is_users && self.location.unified().is_some_and(|directory| !processes::can_move_into(directory))
    }

    /// As [`CgroupHandle::dirfd_for_clone`], for a process that joins a running container. If the container has created
    /// cgroups below its own, it is the cgroup of `init`, the container's first process.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub fn dirfd_for_exec(&self, init: i32) -> Result<Option<OwnedFd>> {
        let [dir] = &self.dirs.list[..] else { return Ok(None) };
        if dir.version == CgroupVersion::V1 || self.needs_systemd_move() {
            return Ok(None);
        }
        if let Some(joined) = processes::find_joined_cgroup(&self.location, dir, init)? {
            return Ok(Some(joined.fd));
        }
        Ok(Some(dir.duplicate()?.fd))
    }

    /// As [`CgroupHandle::enter`], for a process that joins the container whose first process is `init`.
    ///
    /// # Errors
    /// If it cannot be moved into one.
    pub fn enter_exec(&self, pid: i32, init: i32) -> Result<()> {
        let by_systemd = self.needs_systemd_move();
        for dir in &self.dirs.list {
            let joined = processes::find_joined_cgroup(&self.location, dir, init)?;
            match joined.as_ref().unwrap_or(dir) {
                to if by_systemd => systemd::attach(&self.location, &to.path, pid)?,
                to => processes::move_into(to, pid)?,
            }
        }
        processes::check_membership(&self.location, pid)
    }

    /// Sets the limits that `resources` names, all of them or none, and leaves all others unchanged.
    ///
    /// # Errors
    /// The first limit that does not hold: its file, its value, and a hint.
    pub fn apply(&mut self, resources: &LinuxResources) -> Result<()> {
        if self.location.driver == CgroupDriver::Systemd {
            systemd::update(&self.location, resources)?;
        }
        let done = self.set_limits(resources)?;
        let restricted =
            resources.devices().as_deref().map_or(Ok(()), |devices| self.set_device_rules(devices));
        restricted.map_err(|error| done.undo(error, &self.dirs))
    }

    fn set_limits(&mut self, resources: &LinuxResources) -> Result<AppliedSettings> {
        let lowered = limits::lower(resources, &self.dirs);
        let settings = lowered.map_err(|error| match self.dirs.list.is_empty() {
            true => self.no_cgroups_error(&error),
            false => error,
        })?;
        self.warnings.extend(settings.warnings.iter().cloned());
        limits::apply(&settings, &self.dirs)
    }

    fn no_cgroups_error(&self, error: &Error) -> Error {
        match self.location.driver {
            CgroupDriver::Disabled => Error::new(error.code(), format!("cgroups are switched off: {error}"))
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

    /// Applies the device rules if the container has a cgroup that supports them.
    fn set_device_rules(&mut self, rules: &[LinuxDeviceCgroup]) -> Result<()> {
        let rules = DeviceRules::new(rules)?;
        let devices_v1 = self.dirs.directory_for("devices");
        let refused = match (devices_v1, self.dirs.unified()) {
            (Some(_), _) => return device::v1::apply(&self.dirs, &rules),
            (None, Some(unified)) => match device::filter::attach(unified.as_fd(), &rules) {
                Ok(()) => return Ok(()),
                Err(errno) => format!("bpf in {}: {}", unified.path.display(), errno.desc()),
            },
            (None, None) => "no cgroup can hold them".to_owned(),
        };
        if rules.allows_everything() {
            return Ok(());
        }
        if self.location.rootless || self.location.driver == CgroupDriver::Disabled {
            // The container of an ordinary user cannot make device nodes; it has only the devices that it was given and
            // whose owners permit access. An allow-list restricts nothing further. Protection is lost only if a rule
            // denies one of those devices.
            if !self.location.rootless || rules.denies_by_number() {
                self.warnings.push(format!("linux.resources.devices are not in force: {refused}"));
            }
            return Ok(());
        }
        Err(Error::new(Code::Unsupported, format!("linux.resources.devices cannot hold: {refused}")).hint(
            "saggar needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN, of the host and a kernel with CONFIG_CGROUP_BPF; or \
             allow all devices: [{\"allow\": true, \"access\": \"rwm\"}]",
        ))
    }

    /// Freezes every process, and waits until all are frozen.
    ///
    /// # Errors
    /// Without a freezer; if it takes longer than five seconds, all processes are thawed.
    pub fn freeze(&self) -> Result<()> {
        freeze::set_frozen(&self.dirs, true)
    }

    /// Thaws all processes.
    ///
    /// # Errors
    /// Without a freezer.
    pub fn thaw(&self) -> Result<()> {
        freeze::set_frozen(&self.dirs, false)
    }

    /// Thaws killed processes: in cgroup v1 a frozen process dies only when it is thawed. A cgroup that no longer
    /// exists is ignored.
    pub fn thaw_killed(&self) {
        // Next to the freezer of v2, which we use, v1's may be mounted, and another program may have frozen the
        // container with it.
        freeze::thaw_killed(&self.dirs);
        if self.is_frozen().unwrap_or(false) {
            let _ = self.thaw();
        }
    }

    /// As [`CgroupHandle::thaw_killed`], for all processes of the container, in whichever cgroup they were frozen.
    pub fn thaw_killed_everywhere(&self) {
        let pids = processes::list(&self.dirs).unwrap_or_default();
        freeze::move_back(&self.dirs, &pids);
        self.thaw_killed();
    }

    /// Whether the container is frozen; always false without a freezer.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn is_frozen(&self) -> Result<bool> {
        match freeze::is_frozen(&self.dirs) {
            Err(error) if error.code() == Code::Unsupported => Ok(false),
            answer => answer,
        }
    }

    /// Every process in the cgroups and in those below, in ascending order, as pids of the caller's pid namespace.
    ///
    /// # Errors
    /// If a list cannot be read.
    pub fn pids(&self) -> Result<Vec<i32>> {
        processes::list(&self.dirs).map(|pids| pids.into_iter().collect())
    }

    /// Sends a signal to every process, including those that are forked meanwhile. With SIGKILL it returns when all
    /// have exited, frozen ones too.
    ///
    /// # Errors
    /// If processes survive SIGKILL for ten seconds.
    pub fn kill_all(&self, signal: i32) -> Result<()> {
        processes::kill_all(&self.dirs, signal)
    }

    /// Usage of the container, and the number of times each limit was exceeded.
    ///
    /// # Errors
    /// If a file exists and cannot be read.
    pub fn stats(&self) -> Result<ContainerStats> {
        stats::read(&self.dirs)
    }

    /// Limit and peak of memory, and the number of processes that the kernel killed because it ran out; the other values
    /// are not read.
    pub fn memory_usage(&self) -> SandboxUsage {
        oom::memory_usage(&self.dirs)
    }

    /// The directory of the memory controller has this name; `None` without the controller.
    pub fn memory_cgroup_name(&self) -> Option<&str> {
        self.dirs.directory_for("memory")?.path.file_name()?.to_str()
    }

    /// A descriptor to poll for out-of-memory events of the container.
    ///
    /// # Errors
    /// Without a memory controller.
    pub fn watch_oom(&self) -> Result<OomWatch> {
        OomWatch::new(&self.dirs)
    }

    /// Removes the directories that were created, and those that the container created below. The processes must have
    /// been killed ([`CgroupHandle::kill_all`]); it waits for processes that are still exiting. A directory that no
    /// longer exists is not an error.
    ///
    /// # Errors
    /// If a cgroup stays busy for five seconds.
    pub fn remove(self) -> Result<()> {
        let stopped = systemd::stop(&self.location);
        directories::remove(&self.location).and(stopped)
    }

    /// Removes the cgroups of a location if they are empty and not managed by systemd. Returns whether it did;
    /// otherwise [`CgroupHandle::remove`] must be called.
    pub fn remove_empty(location: &CgroupLocation) -> bool {
        location.driver != CgroupDriver::Systemd && directories::remove_empty(location)
    }

    /// The content of a `cgroup` mount in the container. Without cgroups of its own it shows those that the container
    /// shares with this process. `None` on a host without cgroups.
    pub fn mount(&self) -> Option<CgroupMount> {
        let shared = || {
            let layout = CgroupLayout::discover().unwrap_or_default();
            layout
                .hierarchies
                .iter()
                .map(|one| CgroupDirectory::in_hierarchy(one, one.own_cgroup.clone(), false))
                .collect()
        };
        let directories =
            if self.location.directories.is_empty() { shared() } else { self.location.directories.clone() };
        match &directories[..] {
            [] => None,
            [one] if one.version == CgroupVersion::V2 => {
                Some(CgroupMount::Unified { directory: one.path.clone() })
            }
            _ => Some(CgroupMount::Hierarchies(
                directories.iter().map(HierarchyMount::for_directory).collect(),
            )),
        }
    }

    /// The location of the cgroups.
    pub fn location(&self) -> &CgroupLocation {
        &self.location
    }

    /// Requested settings that have no effect on this host, for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl HierarchyMount {
    fn for_directory(directory: &CgroupDirectory) -> Self {
        let name = directory.mount.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| directory.controllers.join(","));
        let v2 = directory.version == CgroupVersion::V2;
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
