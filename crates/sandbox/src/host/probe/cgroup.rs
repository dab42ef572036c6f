//! Probes the cgroup layout (cgroups(7)) and the controllers of optional limits that a sandbox of this user could use. Whether
//! the limits of every sandbox hold is tried by [`crate::cgroup::agent::trial`].
//!
//! This probe moves no process, makes nothing, and enables no controller.

use super::HostCheck;
use crate::host::cgroup_parent::CgroupParent;
use crate::host::cgroups::{CgroupLayout, CgroupVersion, V1_LIMIT_CONTROLLERS};
use crate::host::delegation::{self, DelegationContext, V1_REMEDY};
use crate::spec::RootCgroupSpec;
use nix::unistd::geteuid;
use std::collections::BTreeSet;

const LAYOUT: &str = "cgroup-layout";

/// The controllers of optional limits, except huge pages, which are rarely used.
const OPTIONAL_CONTROLLERS: [&str; 2] = ["cpuset", "io"];

/// Checks the layout and the delegation of optional controllers.
pub(crate) fn cgroup_checks() -> Vec<HostCheck> {
    // Without /proc no layout is found; the probe of /proc reports that.
    let layout = CgroupLayout::discover().unwrap_or_default();
    let mut checks = vec![layout_check(&layout)];
    if layout.v2_hierarchy().is_some() {
        checks.extend(
            CgroupParent::choose(&OPTIONAL_CONTROLLERS, &RootCgroupSpec::default())
                .map(|parent| optional_check(&parent, &layout)),
        );
    }
    checks
}

/// Only root can use version 1.
fn layout_check(layout: &CgroupLayout) -> HostCheck {
    if layout.hierarchies.is_empty() {
        let check = HostCheck::degraded(LAYOUT, "no cgroup is mounted: limits do not hold");
        return check.with_remedy("mount -t cgroup2 none /sys/fs/cgroup");
    }
    let old = controllers_of_v1(layout).into_iter().collect::<Vec<_>>().join(" ");
    let detail = match layout.v2_hierarchy().map(|unified| unified.mount_point.display()) {
        Some(root) if old.is_empty() => return HostCheck::ok(LAYOUT, format!("version 2, on {root}")),
        Some(root) => format!("hybrid: version 2 on {root}, and version 1 has {old}"),
        None => format!("version 1 alone: {old}"),
    };
    match geteuid().is_root() {
        true => HostCheck::ok(LAYOUT, detail),
        false => HostCheck::degraded(LAYOUT, detail).with_remedy(V1_REMEDY),
    }
}

/// The controllers in version 1. A hierarchy with only a name has none and takes none away from version 2.
fn controllers_of_v1(layout: &CgroupLayout) -> BTreeSet<&str> {
    let old = layout.hierarchies.iter().filter(|one| one.version == CgroupVersion::V1);
    old.flat_map(|one| &one.controllers).map(String::as_str).filter(|one| !one.starts_with("name=")).collect()
}

/// Which controllers of optional limits a sandbox could use.
fn optional_check(parent: &CgroupParent, layout: &CgroupLayout) -> HostCheck {
    const NAME: &str = "cgroup-cpuset-io";
    let mut controllers = parent.controllers();
    let of_v1 = controllers_of_v1(layout);
    if geteuid().is_root() {
        let usable = of_v1.iter().filter(|one| V1_LIMIT_CONTROLLERS.contains(one));
        controllers.extend(usable.map(|one| (*one).to_owned()));
    }
    let (has, lacks): (Vec<&str>, Vec<&str>) =
        OPTIONAL_CONTROLLERS.iter().partition(|wanted| controllers.iter().any(|one| one == **wanted));
    if lacks.is_empty() && parent.check_writable().is_ok() {
        return HostCheck::ok(NAME, format!("{parent}: {}", has.join(" ")));
    }
    let has = if has.is_empty() { "none".to_owned() } else { has.join(" ") };
    let detail = format!("{parent}: has {has}, lacks {}", lacks.join(" "));
    let is_old = |one: &&&str| of_v1.contains(if **one == "io" { "blkio" } else { **one });
    let remedy = match lacks.iter().find(is_old) {
        Some(old) => delegation::diagnose_controller(Some(parent.source()), old, &lacks).remedy,
        None => delegation::delegation_remedy(&DelegationContext::of_this_process(parent.source()), &lacks),
    };
    HostCheck::degraded(NAME, detail).with_remedy(remedy)
}
