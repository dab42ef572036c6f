//! The layout of the cgroups (cgroups(7)), and which controllers a sandbox of this user could have.
//!
//! Limits need a cgroup v2 below which we may make others: our own, when it was delegated to us. No process
//! is moved and no controller switched on here: a directory is made and removed, which is the right that
//! delegation gives.

use super::Check;
use crate::host::cgroups::{Layout, Version, controllers_for_children, is_root, ours};
use crate::host::delegation::{self, Site, UNIFY};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const LAYOUT: &str = "cgroup-layout";

/// What the default limits need.
const WANTED: [&str; 3] = ["memory", "cpu", "pids"];

/// What limits need that somebody may name; huge pages are few people's.
const NAMED: [&str; 2] = ["cpuset", "io"];

/// The layout, and what is delegated.
pub fn checks() -> Vec<Check> {
    // Without /proc there is none to be found; the probe of /proc says so.
    let layout = Layout::discover().unwrap_or_default();
    let Some(unified) = layout.unified() else {
        return vec![if layout.hierarchies.is_empty() {
            let check = Check::degraded(LAYOUT, "no cgroup is mounted: limits do not hold");
            check.cure("mount -t cgroup2 none /sys/fs/cgroup")
        } else {
            Check::degraded(LAYOUT, "version 1 alone: limits do not hold").cure(UNIFY)
        }];
    };
    let root = unified.mount.display();
    let old = controllers_of_v1(&layout);
    let check = if old.is_empty() {
        Check::ok(LAYOUT, format!("version 2, on {root}"))
    } else {
        let old = old.into_iter().collect::<Vec<_>>().join(" ");
        Check::degraded(LAYOUT, format!("hybrid: version 2 on {root}, and version 1 has {old}")).cure(UNIFY)
    };
    let mut checks = delegation(&unified.own);
    checks.insert(0, check);
    checks
}

/// Hierarchies of version 1 that have no controller, only a name, take none away from version 2.
fn controllers_of_v1(layout: &Layout) -> BTreeSet<&str> {
    let old = layout.hierarchies.iter().filter(|one| one.version == Version::V1);
    old.flat_map(|one| &one.controllers).map(String::as_str).filter(|one| !one.starts_with("name=")).collect()
}

/// Which controllers a sandbox could have below our own cgroup: those of the default limits, and those of limits
/// that somebody may name.
fn delegation(path: &Path) -> Vec<Check> {
    const NAME: &str = "cgroup-delegation";
    let shown = path.display();
    let site = Site::of_this_process(path);
    let trial = path.join(format!("saggar-doctor-{}", std::process::id()));
    match fs::create_dir(&trial) {
        Ok(()) => {}
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::PermissionDenied => "it is not ours: nothing was delegated".to_owned(),
                ErrorKind::ReadOnlyFilesystem => "it is mounted read-only".to_owned(),
                _ => error.to_string(),
            };
            let check = Check::degraded(NAME, format!("no cgroup can be made in {shown}: {why}"));
            return vec![check.cure(delegation::cure(&site, &WANTED))];
        }
    }
    let _ = fs::remove_dir(&trial);
    let controllers = controllers_for_children(path);
    // A cgroup with processes gives its children none of these (cgroups(7)), unless they can step aside.
    let others = if is_root(path) || ours(path).is_some() { "" } else { "; other processes are in it" };
    let check = |name: &'static str, wanted: &[&'static str]| {
        let (has, lacks): (Vec<&str>, Vec<&str>) =
            wanted.iter().partition(|wanted| controllers.iter().any(|one| one == **wanted));
        if lacks.is_empty() {
            return Check::ok(name, format!("{shown}: {}", has.join(" ")));
        }
        let has = if has.is_empty() { "none".to_owned() } else { has.join(" ") };
        let detail = format!("{shown}: has {has}, lacks {}{others}", lacks.join(" "));
        Check::degraded(name, detail).cure(delegation::cure(&site, &lacks))
    };
    vec![check(NAME, &WANTED), check("cgroup-cpuset-io", &NAMED)]
}
