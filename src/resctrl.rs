//! Shares of caches and memory bandwidth: the resctrl file system (Documentation/filesystems/resctrl.rst), as
//! `linux.intelRdt` asks for them (config-linux.md, IntelRdt).
//!
//! A container is in a control group, which is a directory with a `schemata` and a `tasks` file, and with
//! `enableMonitoring` in a monitoring group below it. A control group is the container's own, made and removed with
//! it, or one that `closID` names, which is left behind; a monitoring group is always the container's own.

use crate::error::{Code, Error, Result};
use oci_spec::runtime::LinuxIntelRdt;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Where resctrl is mounted on this host.
///
/// # Errors
/// [`Code::Unsupported`] where it is not.
pub fn mount_point() -> Result<PathBuf> {
    let mounts = procfs::process::Process::myself().and_then(|process| process.mountinfo());
    let mounts = mounts.map_err(|error| Error::system("read /proc/self/mountinfo", error))?;
    mounts.into_iter().find(|mount| mount.fs_type == "resctrl").map(|mount| mount.mount_point).ok_or_else(
        || {
            Error::new(Code::Unsupported, "linux.intelRdt: resctrl is not mounted on this host")
                .hint("mount it, on a machine that has it: mount -t resctrl resctrl /sys/fs/resctrl")
        },
    )
}

/// The groups of one container, decided on and not yet made: what is to be made can be written down before.
#[derive(Debug, Clone)]
pub struct Groups {
    /// The control group, and whether it is to be made.
    control: (PathBuf, bool),
    /// The monitoring group, and whether it is to be made.
    monitor: Option<(PathBuf, bool)>,
    /// What is written to the `schemata` of a new group.
    lines: Vec<String>,
}

impl Groups {
    /// The groups that the container `id` is to be in, in the resctrl mounted at `mount`.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a `closID` that names no group where none is to be made, or one with other shares;
    /// [`Code::Exists`] for a group of the container's name that is somebody else's.
    pub fn of(mount: &Path, id: &str, rdt: &LinuxIntelRdt) -> Result<Groups> {
        let (control, lines) = (group(mount, id, rdt), lines(rdt));
        let there = control.is_dir();
        let make = match rdt.clos_id() {
            None if there => return Err(taken(&control)),
            Some(_) if there => {
                compare(&control, &lines)?;
                false
            }
            Some(name) if lines.is_empty() => {
                let message =
                    format!("linux.intelRdt.closID: there is no group {name:?} in {}", mount.display());
                return Err(Error::new(Code::Invalid, message).hint("make it before, or give it a schema"));
            }
            _ => true,
        };
        let monitor = is_monitored(rdt).then(|| monitor(&control, id));
        if let Some(monitor) = monitor.as_ref().filter(|monitor| monitor.is_dir()) {
            return Err(taken(monitor));
        }
        Ok(Groups { control: (control, make), monitor: monitor.map(|path| (path, true)), lines })
    }

    /// The groups of the container `id` while it runs.
    pub fn of_running(mount: &Path, id: &str, rdt: &LinuxIntelRdt) -> Groups {
        let control = group(mount, id, rdt);
        let monitor = is_monitored(rdt).then(|| monitor(&control, id));
        Groups { control: (control, false), monitor: monitor.map(|path| (path, false)), lines: Vec::new() }
    }

    /// The directories that are the container's own, in the order in which [`remove`] takes them. A group that
    /// `closID` names stays, even one that is made for the container (config-linux.md, IntelRdt).
    pub fn own(&self, rdt: &LinuxIntelRdt) -> Vec<PathBuf> {
        let control = rdt.clos_id().is_none().then(|| self.control.0.clone());
        self.monitor.iter().map(|(path, _)| path.clone()).chain(control).collect()
    }

    /// Makes what is to be made and puts the process `pid` in; its later children are born there.
    ///
    /// # Errors
    /// [`Code::System`] for what the kernel refuses. What was made is removed by its caller, but for a group that
    /// `closID` names and that was made here.
    pub fn enter(&self, pid: i32) -> Result<()> {
        self.enter_with(pid, &|path| fs::create_dir(path))
    }

    fn enter_with(&self, pid: i32, make: Make<'_>) -> Result<()> {
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

/// Removes the groups that are a container's own ([`Groups::own`]). What is gone already, or was never made, is no
/// error; what is left in them moves to the groups above.
///
/// # Errors
/// [`Code::System`] for what cannot be removed.
pub fn remove(own: &[PathBuf]) -> Result<()> {
    own.iter().try_for_each(|path| match fs::remove_dir(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::system(format_args!("remove the resctrl group {}", path.display()), error))
        }
        _ => Ok(()),
    })
}

/// How a group is made. The kernel fills its directory; in tests somebody else does.
type Make<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;

fn taken(path: &Path) -> Error {
    Error::new(Code::Exists, format!("linux.intelRdt: there is a resctrl group {} already", path.display()))
        .hint("remove it, or name it as closID")
}

/// The control group's directory. `/` is the default one, the root of the file system.
fn group(mount: &Path, id: &str, rdt: &LinuxIntelRdt) -> PathBuf {
    match rdt.clos_id().as_deref() {
        None => mount.join(id),
        Some("/") => mount.to_owned(),
        Some(name) => mount.join(name),
    }
}

fn monitor(control: &Path, id: &str) -> PathBuf {
    control.join("mon_groups").join(id)
}

fn is_monitored(rdt: &LinuxIntelRdt) -> bool {
    rdt.enable_monitoring() == &Some(true)
}

/// The lines for `schemata`, in the order in which they must be written.
fn lines(rdt: &LinuxIntelRdt) -> Vec<String> {
    let older = rdt.l3_cache_schema().iter().chain(rdt.mem_bw_schema());
    older.chain(rdt.schemata().iter().flatten()).filter(|line| !line.is_empty()).cloned().collect()
}

/// A group that is there must have the shares that are asked for: somebody else is in it.
fn compare(group: &Path, lines: &[String]) -> Result<()> {
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

/// The shares of one line: the resource, the domain, and its share without leading zeros. `L3:0=0ff;1=f` has two.
fn shares(line: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let (resource, domains) = line.trim().split_once(':').unwrap_or((line.trim(), ""));
    domains.split(';').filter_map(move |domain| {
        let (number, share) = domain.trim().split_once('=')?;
        let share = share.trim();
        let short = share.trim_start_matches('0');
        Some((resource.trim(), number.trim(), if short.is_empty() { "0" } else { short }))
    })
}

fn make_group(path: &Path, make: Make<'_>) -> Result<()> {
    make(path).map_err(|error| {
        let error_of = Error::system(format_args!("make the resctrl group {}", path.display()), &error);
        match error.kind() {
            ErrorKind::StorageFull => error_of.hint("the machine has no more groups: remove one"),
            _ => error_of,
        }
    })
}

/// One write(2): the kernel takes each as a whole.
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

    /// A directory that looks like resctrl: what is written to a file is all that it holds.
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
            let groups = Groups::of(self.0.path(), "box", rdt).map_err(|error| error.to_string())?;
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
        // Somebody else's group of that name is not taken, nor removed.
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
        Groups::of_running(resctrl.0.path(), "box", &asked).enter(43).unwrap();
        assert_eq!(
            (resctrl.text("tasks"), resctrl.text("mon_groups/box/tasks")),
            ("43".to_owned(), "43".to_owned())
        );
    }

    #[test]
    fn a_group_whose_shares_are_refused_is_not_left() {
        let resctrl = Resctrl::new();
        let asked = rdt(serde_json::json!({ "closID": "a", "schemata": ["L3:0=f"] }));
        let groups = Groups::of(resctrl.0.path(), "box", &asked).unwrap();
        assert!(groups.enter_with(42, &|path| fs::create_dir(path)).is_err());
        assert!(!resctrl.has("a"));
    }

    #[test]
    fn only_what_belongs_to_the_container_is_removed() {
        let resctrl = Resctrl::new();
        let own = |value: serde_json::Value| {
            let asked = rdt(value);
            let groups = Groups::of(resctrl.0.path(), "box", &asked).unwrap();
            let own = groups.own(&asked).into_iter();
            own.map(|path| path.strip_prefix(resctrl.0.path()).unwrap().to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(own(serde_json::json!({ "closID": "a", "schemata": ["L3:0=f"] })), [""; 0]);
        assert_eq!(own(serde_json::json!({ "closID": "/", "enableMonitoring": true })), ["mon_groups/box"]);
        assert_eq!(own(serde_json::json!({ "enableMonitoring": true })), ["box/mon_groups/box", "box"]);
        let path = resctrl.0.path().join("box");
        fs::create_dir(&path).unwrap();
        for _ in 0..2 {
            remove(std::slice::from_ref(&path)).unwrap();
            assert!(!path.exists());
        }
    }
}
