//! Probes the cgroup layout (cgroups(7)) and the controllers that a sandbox of this user could use.
//!
//! Limits need a cgroup v2 in which this user may create others: the own one, if it was delegated. This
//! probe moves no process and enables no controller. It creates and removes a directory, which is the right
//! that delegation grants.

use super::HostCheck;
use crate::host::cgroups::{
    CgroupLayout, CgroupVersion, controllers_for_children, is_hierarchy_root, own_processes,
};
use crate::host::delegation::{self, DelegationContext, UNIFIED_HIERARCHY_REMEDY};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const LAYOUT: &str = "cgroup-layout";

/// The controllers that the default limits need.
const DEFAULT_CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// The controllers of optional limits, except huge pages, which are rarely used.
const OPTIONAL_CONTROLLERS: [&str; 2] = ["cpuset", "io"];

/// Checks the layout and the delegation.
pub fn cgroup_checks() -> Vec<HostCheck> {
    // Without /proc no layout is found; the probe of /proc reports that.
    let layout = CgroupLayout::discover().unwrap_or_default();
    let Some(unified) = layout.v2_hierarchy() else {
        return vec![if layout.hierarchies.is_empty() {
            let check = HostCheck::degraded(LAYOUT, "no cgroup is mounted: limits do not hold");
            check.with_remedy("mount -t cgroup2 none /sys/fs/cgroup")
        } else {
            HostCheck::degraded(LAYOUT, "version 1 alone: limits do not hold")
                .with_remedy(UNIFIED_HIERARCHY_REMEDY)
        }];
    };
    let root = unified.mount_point.display();
    let old = controllers_of_v1(&layout);
    let check = if old.is_empty() {
        HostCheck::ok(LAYOUT, format!("version 2, on {root}"))
    } else {
        let old = old.into_iter().collect::<Vec<_>>().join(" ");
        HostCheck::degraded(LAYOUT, format!("hybrid: version 2 on {root}, and version 1 has {old}"))
            .with_remedy(UNIFIED_HIERARCHY_REMEDY)
    };
    let mut checks = delegation_checks(&unified.own_cgroup);
    checks.insert(0, check);
    checks
}

/// The controllers in version 1. A hierarchy with only a name has none and takes none away from version 2.
fn controllers_of_v1(layout: &CgroupLayout) -> BTreeSet<&str> {
    let old = layout.hierarchies.iter().filter(|one| one.version == CgroupVersion::V1);
    old.flat_map(|one| &one.controllers).map(String::as_str).filter(|one| !one.starts_with("name=")).collect()
}

/// Checks which controllers a sandbox could use below the own cgroup: those of the default limits and those
/// of optional limits.
fn delegation_checks(path: &Path) -> Vec<HostCheck> {
    const NAME: &str = "cgroup-delegation";
    let shown = path.display();
    let site = DelegationContext::of_this_process(path);
    let trial = path.join(format!("saggar-doctor-{}", std::process::id()));
    match fs::create_dir(&trial) {
        Ok(()) => {}
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::PermissionDenied => "it is not ours: nothing was delegated".to_owned(),
                ErrorKind::ReadOnlyFilesystem => "it is mounted read-only".to_owned(),
                _ => error.to_string(),
            };
            let check = HostCheck::degraded(NAME, format!("no cgroup can be made in {shown}: {why}"));
            return vec![check.with_remedy(delegation::delegation_remedy(&site, &DEFAULT_CONTROLLERS))];
        }
    }
    let _ = fs::remove_dir(&trial);
    let controllers = controllers_for_children(path);
    // A cgroup with processes cannot enable controllers for its children (cgroups(7)), unless the processes
    // can be moved.
    let others = if is_hierarchy_root(path) || own_processes(path).is_some() {
        ""
    } else {
        "; other processes are in it"
    };
    let check = |name: &'static str, wanted: &[&'static str]| {
        let (has, lacks): (Vec<&str>, Vec<&str>) =
            wanted.iter().partition(|wanted| controllers.iter().any(|one| one == **wanted));
        if lacks.is_empty() {
            return HostCheck::ok(name, format!("{shown}: {}", has.join(" ")));
        }
        let has = if has.is_empty() { "none".to_owned() } else { has.join(" ") };
        let detail = format!("{shown}: has {has}, lacks {}{others}", lacks.join(" "));
        HostCheck::degraded(name, detail).with_remedy(delegation::delegation_remedy(&site, &lacks))
    };
    vec![check(NAME, &DEFAULT_CONTROLLERS), check("cgroup-cpuset-io", &OPTIONAL_CONTROLLERS)]
}
