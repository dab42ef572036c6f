//! The location of a container's cgroups. It is chosen before anything is created, and written to the container's
//! state.

use super::systemd::name;
use crate::host::cgroups::{self, CgroupHierarchy, CgroupLayout, CgroupVersion};
use nix::unistd::{AccessFlags, access};
use saggar_sys::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The component that creates the cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupDriver {
    /// saggar creates them in cgroupfs.
    #[default]
    Cgroupfs,
    /// systemd creates them as a transient scope.
    Systemd,
    /// No cgroups are created: the container stays in the caller's cgroups.
    Disabled,
}

/// The input for choosing a location.
#[derive(Debug, Clone)]
pub struct CgroupRequest<'a> {
    /// The container's id.
    pub id: &'a str,
    /// `linux.cgroupsPath`.
    pub cgroups_path: Option<&'a Path>,
    /// The component that creates the cgroups.
    pub driver: CgroupDriver,
    /// Whether an ordinary user may do without cgroups as long as no limit is requested. It also selects the user's
    /// systemd instead of the system's.
    pub rootless: bool,
    /// The container's annotations: `org.systemd.property.NAME` are passed to the unit.
    pub annotations: &'a BTreeMap<String, String>,
}

/// The location of a container's cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupLocation {
    /// The component that creates them.
    pub driver: CgroupDriver,
    /// As in [`CgroupRequest`].
    pub rootless: bool,
    /// One directory for each hierarchy in which the container has a cgroup; empty without cgroups.
    pub directories: Vec<CgroupDirectory>,
    /// The systemd unit; `None` with another driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<SystemdUnit>,
    /// The cgroup to which the runtime itself moves first. With a process in its own cgroup, that one could not give
    /// its controllers to a child ("no internal processes", cgroups(7)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_cgroup: Option<PathBuf>,
}

/// A container's cgroup in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupDirectory {
    /// The cgroup version of the hierarchy.
    pub version: CgroupVersion,
    /// Controllers of the hierarchy, as in [`CgroupHierarchy`].
    pub controllers: Vec<String>,
    /// The mount point of the hierarchy.
    pub mount: PathBuf,
    /// The absolute path of the directory.
    pub path: PathBuf,
    /// The path of the cgroup as `/proc/PID/cgroup` shows it.
    pub cgroup: PathBuf,
    /// The directories that did not exist before, the outermost first. They are removed with the container; those above
    /// `path` only if they are empty.
    pub created: Vec<PathBuf>,
}

/// A function that stores a location. It is called before more directories are created than the location listed when it
/// was chosen.
pub(crate) type LocationWriter<'a> = dyn FnMut(&CgroupLocation) -> Result<()> + 'a;

/// A transient systemd unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemdUnit {
    /// The name of the unit, `….scope` or `….slice`.
    pub name: String,
    /// The slice of the unit.
    pub slice: String,
    /// Whether the user's systemd manages it.
    pub user: bool,
    /// Additional properties, in GVariant's text form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// The directory of the default location that all our containers share.
const PARENT_NAME: &str = "saggar";

/// The cgroup to which the runtime moves if it must leave its own.
const RUNTIME_CGROUP: &str = "saggar-runtime";

/// Prefix of annotations that are properties of the unit.
const PROPERTY_PREFIX: &str = "org.systemd.property.";

impl CgroupLocation {
    /// Chooses a location on this host; creates nothing.
    ///
    /// An absolute `cgroupsPath` is relative to the mount point of each hierarchy, a relative one to our own cgroup.
    /// The default is `/saggar/ID`, below our own cgroup for an ordinary user. The systemd driver takes
    /// `slice:prefix:name`, by default `system.slice:saggar:ID` (`user.slice` for an ordinary user).
    ///
    /// # Errors
    /// [`Code::Invalid`] for a path that does not name a cgroup; [`Code::Unsupported`] without any hierarchy.
    pub fn choose(layout: &CgroupLayout, request: &CgroupRequest<'_>) -> Result<Self> {
        let mut location = CgroupLocation {
            driver: request.driver,
            rootless: request.rootless,
            directories: Vec::new(),
            unit: None,
            runtime_cgroup: None,
        };
        match request.driver {
            CgroupDriver::Disabled => return Ok(location),
            CgroupDriver::Systemd => location.choose_unit(layout, request)?,
            CgroupDriver::Cgroupfs => location.choose_directories(layout, request)?,
        }
        if location.directories.is_empty() && !request.rootless {
            return Err(Error::new(Code::Unsupported, "no cgroup hierarchy is mounted on this host").hint(
                "mount cgroup2 on /sys/fs/cgroup, or run without cgroups (--cgroup-manager disabled)",
            ));
        }
        Ok(location)
    }

    fn choose_directories(&mut self, layout: &CgroupLayout, request: &CgroupRequest<'_>) -> Result<()> {
        let path = request.cgroups_path.filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = path {
            check_cgroups_path(path)?;
        }
        for hierarchy in &layout.hierarchies {
            let directory = match path {
                Some(path) if path.is_absolute() => join_below(&hierarchy.mount_point, path),
                Some(path) => join_below(&self.relative_base(hierarchy), path),
                None if request.rootless => join_below(
                    &self.relative_base(hierarchy),
                    Path::new(&format!("{PARENT_NAME}-{}", request.id)),
                ),
                None => join_below(&hierarchy.mount_point, &Path::new(PARENT_NAME).join(request.id)),
            };
            let directory = CgroupDirectory::in_hierarchy(hierarchy, directory, path.is_none());
            if !request.rootless || directory.is_creatable() {
                self.directories.push(directory);
            }
        }
        if !self.directories.iter().any(|one| one.version == CgroupVersion::V2) {
            self.runtime_cgroup = None;
        }
        Ok(())
    }

    /// The directory to which a relative path is relative. In v2 it cannot be our own cgroup while that has processes.
    /// If this process is alone there, it will move to the runtime cgroup; otherwise the base is the parent of our
    /// cgroup.
    fn relative_base(&mut self, hierarchy: &CgroupHierarchy) -> PathBuf {
        let own = &hierarchy.own_cgroup;
        let is_root = hierarchy.version == CgroupVersion::V1 || cgroups::is_hierarchy_root(own);
        if is_root || *own == hierarchy.mount_point {
            return own.clone();
        }
        let processes = fs::read_to_string(own.join("cgroup.procs")).unwrap_or_default();
        let own_pid = std::process::id().to_string();
        let may_write = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
        match own.parent() {
            // This process is already in the runtime cgroup, as a child of a process that moved there.
            Some(above) if own.file_name().is_some_and(|name| name == RUNTIME_CGROUP) => above.to_owned(),
            _ if processes.lines().all(|pid| pid == own_pid) && may_write(own) => {
                self.runtime_cgroup = Some(own.join(RUNTIME_CGROUP));
                own.clone()
            }
            Some(parent) if may_write(parent) => parent.to_owned(),
            _ => own.clone(),
        }
    }

    fn choose_unit(&mut self, layout: &CgroupLayout, request: &CgroupRequest<'_>) -> Result<()> {
        let (name, slice) = name::unit_name(request.id, request.cgroups_path, request.rootless)?;
        let properties = request.annotations.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(PROPERTY_PREFIX)?;
            Some((name.to_owned(), value.clone()))
        });
        let unit = SystemdUnit { properties: properties.collect(), user: request.rootless, name, slice };
        super::systemd::check(&unit)?;
        let manager = if request.rootless { super::systemd::user_manager(layout)? } else { PathBuf::new() };
        let below_manager = manager.join(name::slice_path(&unit.slice)?).join(&unit.name);
        for hierarchy in &layout.hierarchies {
            let mut directory = CgroupDirectory::in_hierarchy(
                hierarchy,
                join_below(&hierarchy.mount_point, &below_manager),
                false,
            );
            // systemd creates and removes the directory, except in those hierarchies of v1 that it does not use.
            if hierarchy.version == CgroupVersion::V2 || directory.created.is_empty() {
                directory.created = vec![directory.path.clone()];
            }
            // A user's systemd manages the unified hierarchy only.
            if !request.rootless || hierarchy.version == CgroupVersion::V2 {
                self.directories.push(directory);
            }
        }
        self.unit = Some(unit);
        Ok(())
    }

    /// The directory in the hierarchy that has this controller.
    pub(crate) fn directory_for(&self, controller: &str) -> Option<&CgroupDirectory> {
        self.directories.iter().find(|one| one.controllers.iter().any(|name| name == controller))
    }

    /// The directory in the cgroup v2 hierarchy.
    pub fn unified(&self) -> Option<&CgroupDirectory> {
        self.directories.iter().find(|one| one.version == CgroupVersion::V2)
    }
}

impl CgroupDirectory {
    /// `path` in `hierarchy`. `shared`: any of our containers may create the parent directory, and the last one removes
    /// it.
    pub(super) fn in_hierarchy(hierarchy: &CgroupHierarchy, path: PathBuf, shared: bool) -> Self {
        let above = path.ancestors().take_while(|above| **above != *hierarchy.mount_point);
        let is_shared = |above: &Path| shared && above.file_name().is_some_and(|name| name == PARENT_NAME);
        let mut made: Vec<_> =
            above.filter(|above| is_shared(above) || !above.exists()).map(Path::to_owned).collect();
        made.reverse();
        let relative = path.strip_prefix(&hierarchy.mount_point).unwrap_or(&path);
        CgroupDirectory {
            version: hierarchy.version,
            controllers: hierarchy.controllers.clone(),
            mount: hierarchy.mount_point.clone(),
            cgroup: hierarchy.root.join(relative),
            path,
            created: made,
        }
    }

    /// Adds parent directories that existed when the location was chosen, and were removed with another container since
    /// then, to `created`. Returns whether there are any.
    pub(super) fn refresh_created(&mut self) -> bool {
        let above = self.path.ancestors().take_while(|above| **above != *self.mount);
        let mut missing: Vec<_> = above
            .skip(1)
            .filter(|above| !above.exists() && !self.created.iter().any(|made| made == above))
            .map(Path::to_owned)
            .collect();
        let any = !missing.is_empty();
        self.created.append(&mut missing);
        // The outermost directory comes first.
        self.created.sort_by_key(|path| path.components().count());
        any
    }

    /// Whether this user may create the directory and move a process into it.
    fn is_creatable(&self) -> bool {
        let Some(there) = self.path.ancestors().find(|path| path.exists()) else { return false };
        access(there, AccessFlags::W_OK).is_ok()
            && access(&there.join("cgroup.procs"), AccessFlags::W_OK).is_ok()
    }
}

/// Joins `base` and the components of `path`.
fn join_below(base: &Path, path: &Path) -> PathBuf {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
    base.join(parts.collect::<PathBuf>())
}

/// Rejects a path that does not name one cgroup below the root.
fn check_cgroups_path(path: &Path) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A directory that plays a cgroup2 mount, with our own cgroup at `own`.
    fn layout(mount: &Path, own: &str) -> CgroupLayout {
        let own = mount.join(own);
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cgroup.procs"), "1\n2\n").unwrap();
        fs::write(own.join("cgroup.type"), "domain\n").unwrap();
        let hierarchy = CgroupHierarchy {
            version: CgroupVersion::V2,
            controllers: vec!["memory".to_owned()],
            mount_point: mount.to_owned(),
            own_cgroup: own,
            root: PathBuf::from("/"),
        };
        CgroupLayout { hierarchies: vec![hierarchy] }
    }

    fn choose(
        layout: &CgroupLayout,
        path: Option<&str>,
        driver: CgroupDriver,
        rootless: bool,
    ) -> Result<CgroupLocation> {
        let annotations = BTreeMap::from([
            ("org.systemd.property.CollectMode".to_owned(), "'inactive'".to_owned()),
            ("other".to_owned(), "x".to_owned()),
        ]);
        let cgroups_path = path.map(Path::new);
        CgroupLocation::choose(
            layout,
            &CgroupRequest { id: "web", cgroups_path, driver, rootless, annotations: &annotations },
        )
    }

    #[test]
    fn a_path_counts_from_the_mount_point_or_from_our_own_cgroup() {
        let scratch = tempfile::tempdir().unwrap();
        let (mount, layout) = (scratch.path(), layout(scratch.path(), "a/own"));
        let at = |path: Option<&str>, rootless| {
            let place = choose(&layout, path, CgroupDriver::Cgroupfs, rootless).unwrap();
            place.directories.first().map(|one| one.path.strip_prefix(mount).unwrap().to_owned())
        };
        let is = |path: &str| Some(PathBuf::from(path));
        assert_eq!(at(Some("/pods/x"), false), is("pods/x"));
        assert_eq!(at(None, false), is("saggar/web"));
        assert_eq!(at(Some(""), false), is("saggar/web"));
        // Our own cgroup has other processes: the container's cgroup is its sibling.
        assert_eq!(at(Some("x"), false), is("a/x"));
        fs::write(mount.join("a/cgroup.procs"), "").unwrap();
        assert_eq!(at(None, true), is("a/saggar-web"));
        // This process is alone in its cgroup, and moves to the runtime cgroup.
        fs::write(mount.join("a/own/cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        let place = choose(&layout, None, CgroupDriver::Cgroupfs, true).unwrap();
        assert_eq!(place.directories[0].path, mount.join("a/own/saggar-web"));
        assert_eq!(place.runtime_cgroup, Some(mount.join("a/own/saggar-runtime")));
        // The next container finds this process in the runtime cgroup.
        let sheltered = tests::layout(mount, "a/own/saggar-runtime");
        let place = choose(&sheltered, None, CgroupDriver::Cgroupfs, true).unwrap();
        assert_eq!(
            (place.directories[0].path.clone(), place.runtime_cgroup),
            (mount.join("a/own/saggar-web"), None)
        );
        // The root of the hierarchy can enable controllers for its children while it has processes.
        fs::remove_file(mount.join("a/own/cgroup.type")).unwrap();
        fs::write(mount.join("a/own/cgroup.procs"), "1\n").unwrap();
        assert_eq!(at(Some("x"), false), is("a/own/x"));
    }

    #[test]
    fn only_what_was_not_there_is_made_and_the_shared_one_goes_with_the_last() {
        let scratch = tempfile::tempdir().unwrap();
        let (mount, layout) = (scratch.path(), layout(scratch.path(), "own"));
        let made = |path| {
            choose(&layout, path, CgroupDriver::Cgroupfs, false).unwrap().directories[0].created.clone()
        };
        let below = |paths: &[&str]| paths.iter().map(|path| mount.join(path)).collect::<Vec<_>>();
        assert_eq!(made(Some("/own/a/b")), below(&["own/a", "own/a/b"]));
        assert_eq!(made(Some("/own")), below(&[]));
        assert_eq!(made(None), below(&["saggar", "saggar/web"]));
        fs::create_dir(mount.join("saggar")).unwrap();
        assert_eq!(made(None), below(&["saggar", "saggar/web"]));
    }

    #[test]
    fn what_was_there_and_is_gone_is_made_too() {
        let scratch = tempfile::tempdir().unwrap();
        let (mount, layout) = (scratch.path(), layout(scratch.path(), "own"));
        fs::create_dir_all(mount.join("own/a")).unwrap();
        let mut place = choose(&layout, Some("/own/a/b/web"), CgroupDriver::Cgroupfs, false).unwrap();
        let directory = &mut place.directories[0];
        assert!(!directory.refresh_created());
        fs::remove_dir(mount.join("own/a")).unwrap();
        assert!(directory.refresh_created());
        let below = ["own/a", "own/a/b", "own/a/b/web"].map(|path| mount.join(path));
        assert_eq!(directory.created, below);
        assert!(!directory.refresh_created());
    }

    #[test]
    fn what_names_no_cgroup_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let layout = layout(scratch.path(), "own");
        for path in ["/", "/a/../../b", "..", ".", "/a\nb"] {
            let error = choose(&layout, Some(path), CgroupDriver::Cgroupfs, false).unwrap_err();
            assert_eq!(error.code(), Code::Invalid, "{path:?}: {error}");
        }
        for path in
            ["/a/b", "a:b", "a.slice:b:", "a.slice:b:c/d", "a-.slice:b:c", "nonsense:b:c", "a.slice:b c:d"]
        {
            let error = choose(&layout, Some(path), CgroupDriver::Systemd, false).unwrap_err();
            assert!(error.to_string().starts_with("linux.cgroupsPath"), "{path:?}: {error}");
        }
        assert_eq!(
            choose(&CgroupLayout::default(), None, CgroupDriver::Cgroupfs, false).unwrap_err().code(),
            Code::Unsupported
        );
        assert!(
            choose(&CgroupLayout::default(), None, CgroupDriver::Disabled, false)
                .unwrap()
                .directories
                .is_empty()
        );
    }

    #[test]
    fn a_unit_is_named_and_found_as_systemd_does_it() {
        let scratch = tempfile::tempdir().unwrap();
        let (mount, layout) = (scratch.path(), layout(scratch.path(), "own"));
        for (path, name, below) in [
            (None, "saggar-web.scope", "system.slice"),
            (
                Some("machine-a-b.slice:cri:x1"),
                "cri-x1.scope",
                "machine.slice/machine-a.slice/machine-a-b.slice",
            ),
            (Some(":libpod:x"), "libpod-x.scope", "system.slice"),
            (Some("a.slice::x"), "x.scope", "a.slice"),
            (Some("-.slice:p:x"), "p-x.scope", ""),
            (Some("a.slice:p:a-x.slice"), "a-x.slice", "a.slice"),
        ] {
            let place = choose(&layout, path, CgroupDriver::Systemd, false).unwrap();
            let unit = place.unit.unwrap();
            assert_eq!(unit.name, name);
            assert_eq!(place.directories[0].path, mount.join(below).join(name), "{path:?}");
            assert_eq!(unit.properties.keys().collect::<Vec<_>>(), ["CollectMode"]);
        }
    }
}
