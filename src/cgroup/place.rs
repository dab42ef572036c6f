//! Where a container's cgroups are: chosen before anything is made, and written to the container's state.

use super::systemd::name;
use crate::error::{Code, Error, Result};
use crate::host::cgroups::{self, Hierarchy, Layout, Version};
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

/// The cgroup that the runtime itself goes to where it must leave its own.
const SHELTER: &str = "saggar-runtime";

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
        let is_root = hierarchy.version == Version::V1 || cgroups::is_root(own);
        if is_root || *own == hierarchy.mount {
            return own.clone();
        }
        let processes = fs::read_to_string(own.join("cgroup.procs")).unwrap_or_default();
        let we = std::process::id().to_string();
        let may_write = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
        match own.parent() {
            // We are in the shelter already, as the children of one who went there.
            Some(above) if own.file_name().is_some_and(|name| name == SHELTER) => above.to_owned(),
            _ if processes.lines().all(|pid| pid == we) && may_write(own) => {
                self.shelter = Some(own.join(SHELTER));
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
            // systemd makes and removes it, but for those hierarchies of v1 that it does not use.
            if hierarchy.version == Version::V2 || directory.made.is_empty() {
                directory.made = vec![directory.path.clone()];
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A directory that stands for a cgroup2 mount, with our own cgroup at `own`.
    fn layout(mount: &Path, own: &str) -> Layout {
        let own = mount.join(own);
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cgroup.procs"), "1\n2\n").unwrap();
        fs::write(own.join("cgroup.type"), "domain\n").unwrap();
        let hierarchy = Hierarchy {
            version: Version::V2,
            controllers: vec!["memory".to_owned()],
            mount: mount.to_owned(),
            own,
            root: PathBuf::from("/"),
        };
        Layout { hierarchies: vec![hierarchy] }
    }

    fn choose(layout: &Layout, path: Option<&str>, driver: Driver, rootless: bool) -> Result<Place> {
        let annotations = BTreeMap::from([
            ("org.systemd.property.CollectMode".to_owned(), "'inactive'".to_owned()),
            ("other".to_owned(), "x".to_owned()),
        ]);
        let cgroups_path = path.map(Path::new);
        Place::choose(
            layout,
            &Wanted { id: "web", cgroups_path, driver, rootless, annotations: &annotations },
        )
    }

    #[test]
    fn a_path_counts_from_the_mount_point_or_from_our_own_cgroup() {
        let scratch = tempfile::tempdir().unwrap();
        let (mount, layout) = (scratch.path(), layout(scratch.path(), "a/own"));
        let at = |path: Option<&str>, rootless| {
            let place = choose(&layout, path, Driver::Cgroupfs, rootless).unwrap();
            place.directories.first().map(|one| one.path.strip_prefix(mount).unwrap().to_owned())
        };
        let is = |path: &str| Some(PathBuf::from(path));
        assert_eq!(at(Some("/pods/x"), false), is("pods/x"));
        assert_eq!(at(None, false), is("saggar/web"));
        assert_eq!(at(Some(""), false), is("saggar/web"));
        // Our own cgroup has processes of others: beside it.
        assert_eq!(at(Some("x"), false), is("a/x"));
        fs::write(mount.join("a/cgroup.procs"), "").unwrap();
        assert_eq!(at(None, true), is("a/saggar-web"));
        // We are alone in it, and go to a shelter.
        fs::write(mount.join("a/own/cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        let place = choose(&layout, None, Driver::Cgroupfs, true).unwrap();
        assert_eq!(place.directories[0].path, mount.join("a/own/saggar-web"));
        assert_eq!(place.shelter, Some(mount.join("a/own/saggar-runtime")));
        // And are in it already the next time.
        let sheltered = tests::layout(mount, "a/own/saggar-runtime");
        let place = choose(&sheltered, None, Driver::Cgroupfs, true).unwrap();
        assert_eq!(
            (place.directories[0].path.clone(), place.shelter),
            (mount.join("a/own/saggar-web"), None)
        );
        // The root of the hierarchy gives controllers away with processes in it.
        fs::remove_file(mount.join("a/own/cgroup.type")).unwrap();
        fs::write(mount.join("a/own/cgroup.procs"), "1\n").unwrap();
        assert_eq!(at(Some("x"), false), is("a/own/x"));
    }

    #[test]
    fn only_what_was_not_there_is_made_and_the_shared_one_goes_with_the_last() {
        let scratch = tempfile::tempdir().unwrap();
        let (mount, layout) = (scratch.path(), layout(scratch.path(), "own"));
        let made = |path| choose(&layout, path, Driver::Cgroupfs, false).unwrap().directories[0].made.clone();
        let below = |paths: &[&str]| paths.iter().map(|path| mount.join(path)).collect::<Vec<_>>();
        assert_eq!(made(Some("/own/a/b")), below(&["own/a", "own/a/b"]));
        assert_eq!(made(Some("/own")), below(&[]));
        assert_eq!(made(None), below(&["saggar", "saggar/web"]));
        fs::create_dir(mount.join("saggar")).unwrap();
        assert_eq!(made(None), below(&["saggar", "saggar/web"]));
    }

    #[test]
    fn what_names_no_cgroup_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let layout = layout(scratch.path(), "own");
        for path in ["/", "/a/../../b", "..", ".", "/a\nb"] {
            let error = choose(&layout, Some(path), Driver::Cgroupfs, false).unwrap_err();
            assert_eq!(error.code(), Code::Invalid, "{path:?}: {error}");
        }
        for path in
            ["/a/b", "a:b", "a.slice:b:", "a.slice:b:c/d", "a-.slice:b:c", "nonsense:b:c", "a.slice:b c:d"]
        {
            let error = choose(&layout, Some(path), Driver::Systemd, false).unwrap_err();
            assert!(error.to_string().starts_with("linux.cgroupsPath"), "{path:?}: {error}");
        }
        assert_eq!(
            choose(&Layout::default(), None, Driver::Cgroupfs, false).unwrap_err().code(),
            Code::Unsupported
        );
        assert!(choose(&Layout::default(), None, Driver::Disabled, false).unwrap().directories.is_empty());
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
            let place = choose(&layout, path, Driver::Systemd, false).unwrap();
            let unit = place.unit.unwrap();
            assert_eq!(unit.name, name);
            assert_eq!(place.directories[0].path, mount.join(below).join(name), "{path:?}");
            assert_eq!(unit.properties.keys().collect::<Vec<_>>(), ["CollectMode"]);
        }
    }
}
