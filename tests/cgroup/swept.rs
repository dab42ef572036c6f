//! What `saggar gc` removes of cgroups: those of dead sandboxes, and nobody else's.

use super::rooms::{NEEDS_ROOT, id, is_root};
use saggar::cgroup::remove_stale;
use saggar::host::cgroup_parent::CgroupParent;
use saggar::id::SandboxId;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Makes `saggar-ID` in our own cgroup, with these cgroups below it.
fn made(id: &str, below: &[&str]) -> PathBuf {
    let path = CgroupParent::own().expect("a cgroup v2 hierarchy").child(id);
    fs::create_dir(&path).unwrap();
    below.iter().for_each(|name| fs::create_dir(path.join(name)).unwrap());
    path
}

#[test]
fn cgroups_of_others_stay_with_what_is_in_them() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let random = || SandboxId::random().unwrap().as_str().to_owned();
    let ours = [
        (random(), &[][..]),
        (random(), &["main"]),
        (random(), &["exec-1"]),
        (id(), &["main", "exec-1", "exec-22"]),
        (format!("{}.supervisor", id()), &[]),
    ];
    // A parent of containers, one of which is being made; and what only looks like a sandbox's.
    let others = [(id(), &["4f0c"][..]), (id(), &[]), (random(), &["main", "4f0c"]), (id(), &["exec-1"])];
    let make = |all: &[(String, &[&str])]| -> Vec<PathBuf> {
        all.iter().map(|(id, below)| made(id, below)).collect()
    };
    let (swept, stay) = (make(&ours), make(&others));
    let known = |id: &str| !ours.iter().chain(&others).any(|(one, _)| one == id);
    assert_eq!(remove_stale(Duration::from_secs(3600), known), 0, "none is old enough");
    assert_eq!(remove_stale(Duration::ZERO, known), ours.len());
    for path in swept {
        assert!(!path.exists(), "{} is left", path.display());
    }
    for (path, (_, below)) in stay.iter().zip(&others) {
        for name in *below {
            fs::remove_dir(path.join(name)).unwrap();
        }
        fs::remove_dir(path).unwrap();
    }
}
