//! Where a container's cgroups are: chosen before anything is made, and written to the container's state.

use super::layout::{Hierarchy, Layout, Version};
use super::systemd::name;
use crate::error::{Code, Error, Result};
use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Who makes the cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// We do, in cgroupfs.
    #[default]
    Cgroupfs,
    /// systemd does, as a transient scope.
    Systemd,
    /// Nobody: the container stays in the caller's cgroups.
    Disabled,
}

/// What a place is chosen for.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The container's id.
    pub id: &'a str,
    /// `linux.cgroupsPath`.
    pub cgroups_path: Option<&'a Path>,
    /// Who makes the cgroups.
    pub driver: Driver,
    /// Whether an ordinary user is content without cgroups as long as no limit is asked for. It also makes the
    /// user's systemd the one that is asked.
    pub rootless: bool,
    /// The container's annotations: `org.systemd.property.NAME` go to the unit.
    pub annotations: &'a BTreeMap<String, String>,
}

/// Where a container's cgroups are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Who makes them.
    pub driver: Driver,
    /// As in [`Wanted`].
    pub rootless: bool,
    /// One for each hierarchy that the container has a cgroup in; empty without cgroups.
    pub directories: Vec<Directory>,
    /// The systemd unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// Where the runtime itself goes first, out of its own cgroup: with a process in it, that one could not
    /// give its controllers to a child ("no internal processes", cgroups(7)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shelter: Option<PathBuf>,
}

/// A container's cgroup in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// The interface of the hierarchy.
    pub version: Version,
    /// Controllers of the hierarchy, as in [`Hierarchy`].
    pub controllers: Vec<String>,
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    /// The directory.
    pub path: PathBuf,
    /// The same as `/proc/PID/cgroup` shows it.
    pub cgroup: PathBuf,
    /// The directories that were not there before, outermost first; they go with the container, those above
    /// `path` only when they are empty.
    pub made: Vec<PathBuf>,
}

/// A transient unit of systemd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its name, `….scope` or `….slice`.
    pub name: String,
    /// The slice that it is in.
    pub slice: String,
    /// Whether it is the user's systemd.
    pub user: bool,
    /// Further properties, in GVariant's text form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// What of the default place all our containers share.
const OURS: &str = "saggar";

/// Annotations that begin with this are properties of the unit.
const PROPERTY: &str = "org.systemd.property.";

impl Place {
    /// Chooses a place on this host; makes nothing.
    ///
    /// An absolute `cgroupsPath` counts from the mount point of each hierarchy, a relative one from our own
    /// cgroup; without one it is `/saggar/ID`, below our own cgroup for an ordinary user. The systemd driver
    /// takes `slice:prefix:name`, by default `system.slice:saggar:ID` (`user.slice` for an ordinary user).
    ///
    /// # Errors
    /// [`Code::Invalid`] for a path that is no cgroup's; [`Code::Unsupported`] without any hierarchy.
    pub fn choose(layout: &Layout, wanted: &Wanted<'_>) -> Result<Self> {
        let mut place = Place {
            driver: wanted.driver,
            rootless: wanted.rootless,
            directories: Vec::new(),
            unit: None,
            shelter: None,
        };
        match wanted.driver {
            Driver::Disabled => return Ok(place),
            Driver::Systemd => place.choose_unit(layout, wanted)?,
            Driver::Cgroupfs => place.choose_directories(layout, wanted)?,
        }
        if place.directories.is_empty() && !wanted.rootless {
            return Err(Error::new(Code::Unsupported, "no cgroup hierarchy is mounted on this host").hint(
                "mount cgroup2 on /sys/fs/cgroup, or run without cgroups (--cgroup-manager disabled)",
            ));
        }
        Ok(place)
    }

    fn choose_directories(&mut self, layout: &Layout, wanted: &Wanted<'_>) -> Result<()> {
        let path = wanted.cgroups_path.filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = path {
            check(path)?;
        }
        for hierarchy in &layout.hierarchies {
            let directory = match path {
                Some(path) if path.is_absolute() => below(&hierarchy.mount, path),
                Some(path) => below(&self.base(hierarchy), path),
                None if wanted.rootless => {
                    below(&self.base(hierarchy), Path::new(&format!("{OURS}-{}", wanted.id)))
                }
                None => below(&hierarchy.mount, &Path::new(OURS).join(wanted.id)),
            };
            let directory = Directory::at(hierarchy, directory, path.is_none());
            if !wanted.rootless || directory.may_be_made() {
                self.directories.push(directory);
            }
        }
        if !self.directories.iter().any(|one| one.version == Version::V2) {
            self.shelter = None;
        }
        Ok(())
    }

    /// What a relative path counts from. In v2 it cannot be our own cgroup as long as there are processes in
    /// it: when we are alone there, we shall go to a shelter; else it is the cgroup above.
    fn base(&mut self, hierarchy: &Hierarchy) -> PathBuf {
        let own = &hierarchy.own;
        let is_root = hierarchy.version == Version::V1 || !own.join("cgroup.type").exists();
        if is_root || *own == hierarchy.mount {
            return own.clone();
        }
        let processes = fs::read_to_string(own.join("cgroup.procs")).unwrap_or_default();
        let we = std::process::id().to_string();
        let may_write = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
        match own.parent() {
            _ if processes.lines().all(|pid| pid == we) && may_write(own) => {
                self.shelter = Some(own.join("saggar-runtime"));
                own.clone()
            }
            Some(parent) if may_write(parent) => parent.to_owned(),
            _ => own.clone(),
        }
    }

    fn choose_unit(&mut self, layout: &Layout, wanted: &Wanted<'_>) -> Result<()> {
        let (name, slice) = name::unit(wanted.id, wanted.cgroups_path, wanted.rootless)?;
        let properties = wanted.annotations.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(PROPERTY)?;
            Some((name.to_owned(), value.clone()))
        });
        let unit = Unit { properties: properties.collect(), user: wanted.rootless, name, slice };
        super::systemd::check(&unit)?;
        let manager = if wanted.rootless { super::systemd::user_manager(layout)? } else { PathBuf::new() };
        let below_manager = manager.join(name::expand(&unit.slice)?).join(&unit.name);
        for hierarchy in &layout.hierarchies {
            let mut directory = Directory::at(hierarchy, below(&hierarchy.mount, &below_manager), false);
            directory.made = vec![directory.path.clone()];
            // A user's systemd has the unified hierarchy only.
            if !wanted.rootless || hierarchy.version == Version::V2 {
                self.directories.push(directory);
            }
        }
        self.unit = Some(unit);
        Ok(())
    }

    /// The directory in the hierarchy that has this controller.
    pub fn home(&self, controller: &str) -> Option<&Directory> {
        self.directories.iter().find(|one| one.controllers.iter().any(|name| name == controller))
    }

    /// The directory in the cgroup v2 hierarchy.
    pub fn unified(&self) -> Option<&Directory> {
        self.directories.iter().find(|one| one.version == Version::V2)
    }
}

impl Directory {
    /// `path` in `hierarchy`. `shared`: the directory above is made by any of our containers and goes with the last.
    pub(super) fn at(hierarchy: &Hierarchy, path: PathBuf, shared: bool) -> Self {
        let above = path.ancestors().take_while(|above| **above != *hierarchy.mount);
        let is_shared = |above: &Path| shared && above.file_name().is_some_and(|name| name == OURS);
        let mut made: Vec<_> =
            above.filter(|above| is_shared(above) || !above.exists()).map(Path::to_owned).collect();
        made.reverse();
        let relative = path.strip_prefix(&hierarchy.mount).unwrap_or(&path);
        Directory {
            version: hierarchy.version,
            controllers: hierarchy.controllers.clone(),
            mount: hierarchy.mount.clone(),
            cgroup: hierarchy.root.join(relative),
            path,
            made,
        }
    }

    /// Whether this user may make it, and put a process in it.
    fn may_be_made(&self) -> bool {
        let Some(there) = self.path.ancestors().find(|path| path.exists()) else { return false };
        access(there, AccessFlags::W_OK).is_ok()
            && access(&there.join("cgroup.procs"), AccessFlags::W_OK).is_ok()
    }
}

/// `base` and what of `path` comes below it.
fn below(base: &Path, path: &Path) -> PathBuf {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
    base.join(parts.collect::<PathBuf>())
}

/// Refuses what does not name one cgroup below the root.
fn check(path: &Path) -> Result<()> {
    let refuse = |why: &str| {
        Error::new(Code::Invalid, format!("linux.cgroupsPath: {} {why}", path.display()))
            .hint("give a path such as /pods/web, or leave it out; with the systemd driver slice:prefix:name")
    };
    let mut names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(refuse("has a .. in it"));
    }
    if names.next().is_none() {
        return Err(refuse("is the root of the hierarchy"));
    }
    if path.as_os_str().as_encoded_bytes().iter().any(|byte| *byte == b'\n' || *byte == 0) {
        return Err(refuse("has a newline or a NUL in it"));
    }
    Ok(())
}
