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

/// Puts the process `pid` of the container `id` into its groups of the resctrl mounted at `mount`. Its later children
/// are born there.
///
/// # Errors
/// [`Code::Invalid`] for a `closID` that names no group where none is to be made, or one with other shares;
/// [`Code::System`] for what the kernel refuses. Nothing that this made is left then.
pub fn enter(mount: &Path, id: &str, rdt: &LinuxIntelRdt, pid: i32) -> Result<()> {
    enter_with(mount, id, rdt, pid, &|path| fs::create_dir(path))
}

/// Removes what [`enter`] made for the container `id`. What is gone already is no error.
///
/// # Errors
/// [`Code::System`] for what cannot be removed.
pub fn remove(mount: &Path, id: &str, rdt: &LinuxIntelRdt) -> Result<()> {
    let group = group(mount, id, rdt);
    if rdt.clos_id().is_none() {
        // Its monitoring groups go with it.
        return remove_group(&group);
    }
    if is_monitored(rdt) { remove_group(&monitor(&group, id)) } else { Ok(()) }
}

/// How a group is made. The kernel fills its directory; in tests somebody else does.
type Make<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;

fn enter_with(mount: &Path, id: &str, rdt: &LinuxIntelRdt, pid: i32, make: Make<'_>) -> Result<()> {
    let group = group(mount, id, rdt);
    let lines = lines(rdt);
    let made = match rdt.clos_id() {
        None => make_group(&group, make).map(|()| true)?,
        Some(_) if group.is_dir() => {
            compare(&group, &lines)?;
            false
        }
        Some(name) if lines.is_empty() => {
            let message = format!("linux.intelRdt.closID: there is no group {name:?} in {}", mount.display());
            return Err(Error::new(Code::Invalid, message).hint("make it before, or give it a schema"));
        }
        Some(_) => make_group(&group, make).map(|()| true)?,
    };
    let entered = fill(&group, if made { &lines } else { &[] }, pid).and_then(|()| {
        if !is_monitored(rdt) {
            return Ok(());
        }
        let monitor = monitor(&group, id);
        make_group(&monitor, make)?;
        write(&monitor.join("tasks"), &pid.to_string()).inspect_err(|_| {
            let _ = remove_group(&monitor);
        })
    });
    entered.inspect_err(|_| {
        if made {
            let _ = remove_group(&group);
        }
    })
}

/// The control group's directory. `/` is the default one, the root of the file system.
fn group(mount: &Path, id: &str, rdt: &LinuxIntelRdt) -> PathBuf {
    match rdt.clos_id().as_deref() {
        None => mount.join(id),
        Some("/") => mount.to_owned(),
        Some(name) => mount.join(name),
    }
}

fn monitor(group: &Path, id: &str) -> PathBuf {
    group.join("mon_groups").join(id)
}

fn is_monitored(rdt: &LinuxIntelRdt) -> bool {
    rdt.enable_monitoring() == &Some(true)
}

/// The lines for `schemata`, in the order in which they must be written.
fn lines(rdt: &LinuxIntelRdt) -> Vec<&str> {
    let older = rdt.l3_cache_schema().iter().chain(rdt.mem_bw_schema());
    older.chain(rdt.schemata().iter().flatten()).map(String::as_str).filter(|line| !line.is_empty()).collect()
}

fn fill(group: &Path, lines: &[&str], pid: i32) -> Result<()> {
    lines.iter().try_for_each(|line| write(&group.join("schemata"), &format!("{line}\n")))?;
    write(&group.join("tasks"), &pid.to_string())
}

/// A group that is there must have the shares that are asked for: somebody else is in it.
fn compare(group: &Path, lines: &[&str]) -> Result<()> {
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
            ErrorKind::AlreadyExists => {
                error_of.hint("it belongs to somebody else: remove it, or name it as closID")
            }
            _ => error_of,
        }
    })
}

fn remove_group(path: &Path) -> Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::system(format_args!("remove the resctrl group {}", path.display()), error))
        }
        _ => Ok(()),
    }
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
            enter_with(self.0.path(), "box", rdt, 42, &make).map_err(|error| error.to_string())
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
        assert!(resctrl.enter(&rdt).unwrap_err().contains("File exists"));
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
    }

    #[test]
    fn what_fails_leaves_nothing_that_was_made() {
        let resctrl = Resctrl::new();
        let empty = |path: &Path| fs::create_dir(path);
        let rdt = rdt(serde_json::json!({ "enableMonitoring": true }));
        assert!(enter_with(resctrl.0.path(), "box", &rdt, 42, &empty).is_err());
        assert!(!resctrl.has("box"));
    }

    #[test]
    fn only_what_belongs_to_the_container_is_removed() {
        let resctrl = Resctrl::new();
        for name in ["box", "a", "mon_groups/box", "a/mon_groups"] {
            fs::create_dir_all(resctrl.0.path().join(name)).unwrap();
        }
        let mount = resctrl.0.path();
        remove(mount, "box", &rdt(serde_json::json!({ "closID": "a" }))).unwrap();
        assert!(resctrl.has("a") && resctrl.has("box") && resctrl.has("mon_groups/box"));
        remove(mount, "box", &rdt(serde_json::json!({ "closID": "/", "enableMonitoring": true }))).unwrap();
        assert!(!resctrl.has("mon_groups/box"));
        remove(mount, "box", &rdt(serde_json::json!({}))).unwrap();
        assert!(!resctrl.has("box"));
        // Once more is no error.
        remove(mount, "box", &rdt(serde_json::json!({}))).unwrap();
    }
}
