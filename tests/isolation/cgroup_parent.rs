//! A policy names the parent of the cgroups of root's sandboxes, and what makes them.

use std::fs;
use std::path::{Path, PathBuf};

use super::wrapped::Wrap;
use crate::support::caller::Caller;
use crate::support::process::Process;
use crate::support::wait::until_exists;

/// A parent that is taken away with what is left in it.
struct Parent(String);

impl Parent {
    fn new(wrap: &Wrap) -> Self {
        let unique = wrap.place.path().file_name().unwrap().to_str().unwrap().replace('-', "_");
        Parent(format!("test_{unique}.slice"))
    }

    /// The directories with this name at the roots of all hierarchies.
    fn directories(&self) -> Vec<PathBuf> {
        let base = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(base).unwrap().flatten().map(|entry| entry.path());
        let all = hierarchies.chain([base.to_owned()]).map(|path| path.join(&self.0));
        all.filter(|path| path.is_dir()).collect()
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        for directory in self.directories() {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// In every hierarchy that a limit needs; the parents stay when it ends.
#[test]
fn the_policy_names_the_parent_of_cgroups() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let wrap = Wrap::new(caller);
    let parent = Parent::new(&wrap);
    let policy = format!("[sandbox]\ncgroup_parent = {:?}\n", parent.0);
    let policy = wrap.place.make_file("policy.toml", &policy);
    let options = ["--policy", policy.to_str().unwrap(), "--id", "box", "--pids", "50"];
    let mut process =
        Process::start(&wrap.place, wrap.command(&options, &["/bin/sh", "-c", "touch up; read end"]));
    until_exists(&wrap.work().join("up"));
    let is_there = |controller: &str, file: &str, value: &str| {
        let found = parent.directories().iter().find_map(|directory| {
            let text = fs::read_to_string(directory.join("saggar-box").join(file)).ok()?;
            Some(text.trim().to_owned())
        });
        assert_eq!(found.as_deref(), Some(value), "{controller}");
    };
    is_there("pids", "pids.max", "50");
    drop(process.take_stdin());
    process.wait();
    assert!(!parent.directories().is_empty());
    for directory in parent.directories() {
        let left = fs::read_dir(&directory).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
        assert_eq!(left, 0, "{}", directory.display());
    }
}

/// The start does not fall back to another driver.
#[test]
fn without_systemd_its_driver_is_refused() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let wrap = Wrap::new(caller);
    let start = |policy: &str| {
        let policy = wrap.place.make_file("policy.toml", policy);
        wrap.run(&["--policy", policy.to_str().unwrap()], &["/bin/echo", "ran"])
    };
    // There is a systemd in a guest: systemd_gives_root_a_scope_where_the_policy_says_so.
    if !Path::new("/run/systemd/system").exists() {
        let hint = "set sandbox.cgroup_driver = \"cgroupfs\"";
        start("sandbox.cgroup_driver = 'systemd'\n")
            .refused(&["sandbox.cgroup_driver = \"systemd\": ", hint]);
    }
    let not_a_slice = "sandbox = { cgroup_driver = 'systemd', cgroup_parent = 'agents' }\n";
    start(not_a_slice).refused(&["sandbox.cgroup_parent = agents", "is not a slice", "ends with .slice"]);
    start("sandbox.cgroup_parent = 'a/b'\n").refused(&["sandbox.cgroup_parent", "is not a plain name"]);
}
