//! Shares of caches and memory bandwidth through the resctrl file system (Documentation/filesystems/resctrl.rst), as
//! requested by `linux.intelRdt` (config-linux.md, IntelRdt).
//!
//! A container is in a control group, which is a directory with a `schemata` and a `tasks` file. With
//! `enableMonitoring` it is also in a monitoring group below it. The control group either belongs to the container, and
//! is created and removed with it, or `closID` names it, and it is kept. A monitoring group always belongs to the
//! container.

use crate::host::mounts::own_mounts;
use oci_spec::runtime::LinuxIntelRdt;
use saggar_sys::error::{Code, Error, Result};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The mount point of resctrl on this host.
///
/// # Errors
/// [`Code::Unsupported`] if it is not mounted.
pub fn mount_point() -> Result<PathBuf> {
    let mounted = own_mounts()?.into_iter().find(|mount| mount.filesystem == "resctrl");
    mounted.map(|mount| mount.mount_point).ok_or_else(|| {
        Error::new(Code::Unsupported, "linux.intelRdt: resctrl is not mounted on this host")
            .hint("mount it, on a machine that has it: mount -t resctrl resctrl /sys/fs/resctrl")
    })
}

/// The planned groups of one container. They are not created yet, so that the plan can be stored first.
#[derive(Debug, Clone)]
pub struct ResctrlGroups {
    /// The directory of the control group, and whether it must be created.
    control: (PathBuf, bool),
    /// The directory of the monitoring group, and whether it must be created.
    monitor: Option<(PathBuf, bool)>,
    /// The lines for the `schemata` file of a new group.
    lines: Vec<String>,
}

impl ResctrlGroups {
    /// The groups for the new container `id`, in the resctrl file system mounted at `mount`.
    ///
    /// # Errors
    /// [`Code::Invalid`] if `closID` names no group and none is to be created, or a group with other shares;
    /// [`Code::Exists`] if a group with the container's name belongs to another program.
    pub fn for_new(mount: &Path, id: &str, rdt: &LinuxIntelRdt) -> Result<ResctrlGroups> {
        let (control, lines) = (control_group_path(mount, id, rdt), lines(rdt));
        let there = control.is_dir();
        let make = match rdt.clos_id() {
            None if there => return Err(already_exists(&control)),
            Some(_) if there => {
                check_same_shares(&control, &lines)?;
                false
            }
            Some(name) if lines.is_empty() => {
                let message =
                    format!("linux.intelRdt.closID: there is no group {name:?} in {}", mount.display());
                return Err(Error::new(Code::Invalid, message).hint("make it before, or give it a schema"));
            }
            _ => true,
        };
        let monitor = is_monitored(rdt).then(|| monitor_group_path(&control, id));
        if let Some(monitor) = monitor.as_ref().filter(|monitor| monitor.is_dir()) {
            return Err(already_exists(monitor));
        }
        Ok(ResctrlGroups { control: (control, make), monitor: monitor.map(|path| (path, true)), lines })
    }

    /// The groups of the running container `id`.
    pub fn for_running(mount: &Path, id: &str, rdt: &LinuxIntelRdt) -> ResctrlGroups {
        let control = control_group_path(mount, id, rdt);
        let monitor = is_monitored(rdt).then(|| monitor_group_path(&control, id));
        ResctrlGroups {
            control: (control, false),
            monitor: monitor.map(|path| (path, false)),
            lines: Vec::new(),
        }
    }

    /// The directories that belong to the container, in the order in which [`remove_groups`] takes them. A group that
    /// `closID` names is kept, even if it was created for the container (config-linux.md, IntelRdt).
    pub fn owned_directories(&self, rdt: &LinuxIntelRdt) -> Vec<PathBuf> {
        let control = rdt.clos_id().is_none().then(|| self.control.0.clone());
        self.monitor.iter().map(|(path, _)| path.clone()).chain(control).collect()
    }

    /// Creates the missing groups and moves the process `pid` into them; later children inherit them.
    ///
    /// # Errors
    /// [`Code::System`] if the kernel rejects an operation. The caller removes the created groups, except a new group
    /// that `closID` names.
    pub fn enter(&self, pid: i32) -> Result<()> {
        self.enter_with(pid, &|path| fs::create_dir(path))
    }

    fn enter_with(&self, pid: i32, make: MakeGroupFn<'_>) -> Result<()> {
        let (control, is_new) = &self.control;
        if *is_new {
            make_group(control, make)?;
            let written =
                self.lines.iter().try_for_each(|line| write(&control.join("schemata"), &format!("{line}\n")));
            written.inspect_err(|_| {
                let _ = fs::remove_dir(control);
            })?;
        }
        write(&control.join("tasks"), &pid.to_string())?;
        let Some((monitor, is_new)) = &self.monitor else { return Ok(()) };
        if *is_new {
            make_group(monitor, make)?;
        }
        write(&monitor.join("tasks"), &pid.to_string())
    }
}

/// Removes the groups that belong to a container ([`ResctrlGroups::owned_directories`]). A group that does not exist is
/// not an error; remaining tasks move to the parent group.
///
/// # Errors
/// [`Code::System`] if a group cannot be removed.
pub fn remove_groups(own: &[PathBuf]) -> Result<()> {
    own.iter().try_for_each(|path| match fs::remove_dir(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::system(format_args!("remove the resctrl group {}", path.display()), error))
        }
        _ => Ok(()),
    })
}

/// A function that creates a group. The kernel populates the new directory; in tests the function does.
type MakeGroupFn<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;

fn already_exists(path: &Path) -> Error {
    Error::new(Code::Exists, format!("linux.intelRdt: there is a resctrl group {} already", path.display()))
        .hint("remove it, or name it as closID")
}

/// The directory of the control group. `/` is the default group, the root of the file system.
fn control_group_path(mount: &Path, id: &str, rdt: &LinuxIntelRdt) -> PathBuf {
    match rdt.clos_id().as_deref() {
        None => mount.join(id),
        Some("/") => mount.to_owned(),
        Some(name) => mount.join(name),
    }
}

fn monitor_group_path(control: &Path, id: &str) -> PathBuf {
    control.join("mon_groups").join(id)
}

fn is_monitored(rdt: &LinuxIntelRdt) -> bool {
    rdt.enable_monitoring() == &Some(true)
}

/// The lines for `schemata`, in the order of the writes.
fn lines(rdt: &LinuxIntelRdt) -> Vec<String> {
    let older = rdt.l3_cache_schema().iter().chain(rdt.mem_bw_schema());
    older.chain(rdt.schemata().iter().flatten()).filter(|line| !line.is_empty()).cloned().collect()
}

/// Checks that an existing group has the requested shares: it may have tasks of other containers.
fn check_same_shares(group: &Path, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let file = group.join("schemata");
    let text = fs::read_to_string(&file)
        .map_err(|error| Error::system(format_args!("read {}", file.display()), error))?;
    match lines
        .iter()
        .find(|line| !shares(line).all(|share| text.lines().flat_map(shares).any(|held| held == share)))
    {
        None => Ok(()),
        Some(line) => {
            let message =
                format!("linux.intelRdt: the group {} has other shares than {line}", group.display());
            Err(Error::new(Code::Invalid, message).hint("name another closID, or leave the schemata out"))
        }
    }
}

/// The shares of one line: the resource, the domain, and the share without leading zeros. `L3:0=0ff;1=f` has two.
fn shares(line: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let (resource, domains) = line.trim().split_once(':').unwrap_or((line.trim(), ""));
    domains.split(';').filter_map(move |domain| {
        let (number, share) = domain.trim().split_once('=')?;
        let share = share.trim();
        let short = share.trim_start_matches('0');
        Some((resource.trim(), number.trim(), if short.is_empty() { "0" } else { short }))
    })
}

fn make_group(path: &Path, make: MakeGroupFn<'_>) -> Result<()> {
    make(path).map_err(|error| {
        let error_of = Error::system(format_args!("make the resctrl group {}", path.display()), &error);
        match error.kind() {
            ErrorKind::StorageFull => error_of.hint("the machine has no more groups: remove one"),
            _ => error_of,
        }
    })
}

/// Writes with one write(2), which the kernel handles as a whole.
fn write(path: &Path, text: &str) -> Result<()> {
    let written =
        fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        Error::system(format_args!("write {:?} to {}", text.trim_end(), path.display()), error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that imitates resctrl: each write replaces the content of a file.
    struct Resctrl(tempfile::TempDir);

    impl Resctrl {
        fn new() -> Resctrl {
            let resctrl = Resctrl(tempfile::tempdir().unwrap());
            furnish(resctrl.0.path()).unwrap();
            resctrl
        }

        fn text(&self, path: &str) -> String {
            fs::read_to_string(self.0.path().join(path)).unwrap()
        }

        fn group(&self, name: &str, schemata: &str) {
            make(&self.0.path().join(name)).unwrap();
            fs::write(self.0.path().join(name).join("schemata"), schemata).unwrap();
        }

        fn has(&self, path: &str) -> bool {
            self.0.path().join(path).exists()
        }

        fn enter(&self, rdt: &LinuxIntelRdt) -> Result<(), String> {
            let groups =
                ResctrlGroups::for_new(self.0.path(), "box", rdt).map_err(|error| error.to_string())?;
            groups.enter_with(42, &make).map_err(|error| error.to_string())
        }
    }

    fn furnish(group: &Path) -> std::io::Result<()> {
        fs::create_dir(group.join("mon_groups"))?;
        fs::write(group.join("tasks"), "")?;
        fs::write(group.join("schemata"), "")
    }

    fn make(path: &Path) -> std::io::Result<()> {
        fs::create_dir(path)?;
        furnish(path)
    }

    fn rdt(json: serde_json::Value) -> LinuxIntelRdt {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn without_a_clos_id_the_group_is_the_containers_own() {
        let resctrl = Resctrl::new();
        let rdt = rdt(serde_json::json!({ "schemata": ["L3:0=f"] }));
        resctrl.enter(&rdt).unwrap();
        assert_eq!(
            (resctrl.text("box/tasks"), resctrl.text("box/schemata")),
            ("42".to_owned(), "L3:0=f\n".to_owned())
        );
        // A group of that name that belongs to another program is neither used nor removed.
        assert!(resctrl.enter(&rdt).unwrap_err().contains("there is a resctrl group"));
        assert!(resctrl.has("box/tasks"));
    }

    #[test]
    fn the_schemata_are_written_last_and_only_where_they_are_given() {
        let all = rdt(serde_json::json!({
            "schemata": ["L2:0=1", "MB:0=20"], "memBwSchema": "MB:0=70", "l3CacheSchema": "L3:0=1",
        }));
        assert_eq!(lines(&all), ["L3:0=1", "MB:0=70", "L2:0=1", "MB:0=20"]);
        let resctrl = Resctrl::new();
        resctrl.group("given", "L3:0=7\n");
        resctrl.enter(&rdt(serde_json::json!({ "closID": "given" }))).unwrap();
        assert_eq!(
            (resctrl.text("given/tasks"), resctrl.text("given/schemata")),
            ("42".to_owned(), "L3:0=7\n".to_owned())
        );
    }

    #[test]
    fn a_named_group_that_is_missing_is_made_only_for_a_schema() {
        let resctrl = Resctrl::new();
        let error = resctrl.enter(&rdt(serde_json::json!({ "closID": "a" }))).unwrap_err();
        assert!(error.contains("closID: there is no group \"a\""), "{error}");
        assert!(!resctrl.has("a"));
        resctrl.enter(&rdt(serde_json::json!({ "closID": "a", "memBwSchema": "MB:0=20" }))).unwrap();
        assert_eq!(resctrl.text("a/schemata"), "MB:0=20\n");
    }

    #[test]
    fn a_named_group_that_is_there_must_have_these_shares() {
        let resctrl = Resctrl::new();
        resctrl.group("a", "    L3:0=0ff;1=00f\n    MB:0= 20;1=100\n");
        let asked =
            |line: &str| resctrl.enter(&rdt(serde_json::json!({ "closID": "a", "schemata": [line] })));
        for line in ["L3:0=ff", "L3:1=f;0=ff", "MB:0=20;1=100"] {
            asked(line).unwrap();
        }
        for line in ["L3:0=f", "L2:0=ff", "L3:2=ff", "MB:0=21"] {
            assert!(asked(line).unwrap_err().contains("has other shares than"), "{line}");
        }
    }

    #[test]
    fn the_default_group_is_the_root() {
        let resctrl = Resctrl::new();
        resctrl.enter(&rdt(serde_json::json!({ "closID": "/" }))).unwrap();
        assert_eq!(resctrl.text("tasks"), "42");
    }

    #[test]
    fn a_monitoring_group_is_the_containers_own() {
        let resctrl = Resctrl::new();
        resctrl.enter(&rdt(serde_json::json!({ "closID": "/", "enableMonitoring": true }))).unwrap();
        assert_eq!(resctrl.text("mon_groups/box/tasks"), "42");
        // A second process joins it.
        let asked = rdt(serde_json::json!({ "closID": "/", "enableMonitoring": true }));
        ResctrlGroups::for_running(resctrl.0.path(), "box", &asked).enter(43).unwrap();
        assert_eq!(
            (resctrl.text("tasks"), resctrl.text("mon_groups/box/tasks")),
            ("43".to_owned(), "43".to_owned())
        );
    }

    #[test]
    fn a_group_whose_shares_are_refused_is_not_left() {
        let resctrl = Resctrl::new();
        let asked = rdt(serde_json::json!({ "closID": "a", "schemata": ["L3:0=f"] }));
        let groups = ResctrlGroups::for_new(resctrl.0.path(), "box", &asked).unwrap();
        assert!(groups.enter_with(42, &|path| fs::create_dir(path)).is_err());
        assert!(!resctrl.has("a"));
    }

    #[test]
    fn only_what_belongs_to_the_container_is_removed() {
        let resctrl = Resctrl::new();
        let own = |value: serde_json::Value| {
            let asked = rdt(value);
            let groups = ResctrlGroups::for_new(resctrl.0.path(), "box", &asked).unwrap();
            let own = groups.owned_directories(&asked).into_iter();
            own.map(|path| path.strip_prefix(resctrl.0.path()).unwrap().to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(own(serde_json::json!({ "closID": "a", "schemata": ["L3:0=f"] })), [""; 0]);
        assert_eq!(own(serde_json::json!({ "closID": "/", "enableMonitoring": true })), ["mon_groups/box"]);
        assert_eq!(own(serde_json::json!({ "enableMonitoring": true })), ["box/mon_groups/box", "box"]);
        let path = resctrl.0.path().join("box");
        fs::create_dir(&path).unwrap();
        for _ in 0..2 {
            remove_groups(std::slice::from_ref(&path)).unwrap();
            assert!(!path.exists());
        }
    }
}
