//! The layout of the cgroups (cgroups(7)), and which controllers a sandbox of this user could have.
//!
//! Limits need a cgroup v2 below which we may make others: our own, when it was delegated to us. No process
//! is moved and no controller switched on here: a directory is made and removed, which is the right that
//! delegation gives.

use super::Check;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What limits need.
const WANTED: [&str; 3] = ["memory", "cpu", "pids"];

/// How the hierarchies are mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Layout {
    /// Version 2 alone, here.
    Unified(PathBuf),
    /// Version 2 here, and version 1 with these controllers.
    Hybrid(PathBuf, BTreeSet<String>),
    /// Version 1 alone.
    Legacy,
    /// None at all.
    None,
}

/// The layout, and what is delegated.
pub fn checks() -> Vec<Check> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let layout = layout(&read("/proc/self/mounts"));
    let (root, layout_check) = match &layout {
        Layout::Unified(root) => {
            (root, Check::ok("cgroup-layout", format!("version 2, on {}", root.display())))
        }
        Layout::Hybrid(root, old) => {
            let old = old.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
            let detail = format!("hybrid: version 2 on {}, and version 1 has {old}", root.display());
            (root, Check::degraded("cgroup-layout", detail).cure(UNIFY))
        }
        Layout::Legacy => {
            return vec![Check::degraded("cgroup-layout", "version 1 alone: limits do not hold").cure(UNIFY)];
        }
        Layout::None => {
            let check = Check::degraded("cgroup-layout", "no cgroup is mounted: limits do not hold");
            return vec![check.cure("mount -t cgroup2 none /sys/fs/cgroup")];
        }
    };
    vec![layout_check, delegation(root, &read("/proc/self/cgroup"))]
}

const UNIFY: &str = "add systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all to GRUB_CMDLINE_LINUX in \
                     /etc/default/grub, run update-grub, and boot";

fn layout(mounts: &str) -> Layout {
    let (mut unified, mut old) = (None, BTreeSet::new());
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(at), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        match kind {
            "cgroup2" => drop(unified.get_or_insert_with(|| PathBuf::from(at))),
            "cgroup" => old.extend(options.split(',').filter(|o| is_controller(o)).map(str::to_owned)),
            _ => {}
        }
    }
    match (unified, old.is_empty()) {
        (Some(root), true) => Layout::Unified(root),
        (Some(root), false) => Layout::Hybrid(root, old),
        (None, false) => Layout::Legacy,
        (None, true) => Layout::None,
    }
}

/// Options of a version 1 mount that are no controllers: those of every mount, and `name=`, `xattr` and so on.
fn is_controller(option: &str) -> bool {
    const CONTROLLERS: [&str; 13] = [
        "cpu",
        "cpuacct",
        "cpuset",
        "memory",
        "devices",
        "freezer",
        "net_cls",
        "net_prio",
        "blkio",
        "perf_event",
        "hugetlb",
        "pids",
        "rdma",
    ];
    CONTROLLERS.contains(&option)
}

/// Which of the wanted controllers a sandbox could have below our own cgroup.
fn delegation(root: &Path, own: &str) -> Check {
    const NAME: &str = "cgroup-delegation";
    let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Check::degraded(NAME, "this process is in no cgroup of version 2").cure(SYSTEMD);
    };
    let path: PathBuf = root.join(own.trim_start_matches('/')).components().collect();
    let shown = path.display();
    let cure = if nix::unistd::geteuid().is_root() { OPERATOR } else { SYSTEMD };
    let trial = path.join(format!("saggar-doctor-{}", std::process::id()));
    match fs::create_dir(&trial) {
        Ok(()) => {}
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::PermissionDenied => "it is not ours: nothing was delegated".to_owned(),
                ErrorKind::ReadOnlyFilesystem => "it is mounted read-only".to_owned(),
                _ => error.to_string(),
            };
            return Check::degraded(NAME, format!("no cgroup can be made in {shown}: {why}")).cure(cure);
        }
    }
    let _ = fs::remove_dir(&trial);
    let controllers = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
    let (has, lacks): (Vec<&str>, Vec<&str>) =
        WANTED.iter().partition(|wanted| controllers.split_whitespace().any(|one| one == **wanted));
    if lacks.is_empty() {
        return Check::ok(NAME, format!("{shown}: {}", has.join(" ")));
    }
    let has = if has.is_empty() { "none".to_owned() } else { has.join(" ") };
    Check::degraded(NAME, format!("{shown}: has {has}, lacks {}", lacks.join(" "))).cure(cure)
}

const SYSTEMD: &str = "systemd-run --user --scope -p Delegate=yes saggar …, with Delegate=cpu cpuset io memory pids \
                       below [Service] in /etc/systemd/system/user@.service.d/delegate.conf; without systemd \
                       let the operator give a cgroup: chown -R it to this user and start saggar in it";

const OPERATOR: &str = "start saggar in a service or scope with Delegate=yes (systemd-run --scope -p Delegate=yes \
                        saggar …), on a host whose controllers are on version 2";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_told_apart() {
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n";
        let v1 = "cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0\n\
                  cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0\n";
        let unified = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(layout(v2), Layout::Unified("/sys/fs/cgroup".into()));
        assert_eq!(
            layout(&format!("{v1}{unified}")),
            Layout::Hybrid("/sys/fs/cgroup/unified".into(), BTreeSet::from(["memory".to_owned()]))
        );
        assert_eq!(layout(v1), Layout::Legacy);
        assert_eq!(layout("tmpfs /tmp tmpfs rw 0 0\n"), Layout::None);
    }
}
