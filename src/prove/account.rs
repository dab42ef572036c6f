//! The kernel's account of a sandbox: the limits of its cgroups, as the host sees them.

use std::fs;
use std::path::{Path, PathBuf};

/// A memory limit of version 1 that is none: it is rounded down to a page.
const NO_LIMIT: u64 = 1 << 62;

/// Whether the process `pid` is under a limit that `this` process is not under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Of memory.
    pub memory: bool,
    /// Of processor time.
    pub cpu: bool,
}

impl Account {
    /// The account of a process.
    pub fn of(pid: i32) -> Self {
        let groups = groups(pid);
        let any = |file: &str, limits: fn(&str) -> bool| {
            groups
                .iter()
                .any(|group| fs::read_to_string(group.join(file)).is_ok_and(|text| limits(text.trim())))
        };
        let number = |text: &str| text.parse::<u64>().is_ok_and(|bytes| bytes < NO_LIMIT);
        Account {
            memory: any("memory.max", number) || any("memory.limit_in_bytes", number),
            cpu: any("cpu.max", |text| !text.starts_with("max"))
                || any("cpu.cfs_quota_us", |text| !text.starts_with('-')),
        }
    }
}

/// The cgroups of a process that are not also this process's, in every hierarchy.
fn groups(pid: i32) -> Vec<PathBuf> {
    let read = |who: &str| fs::read_to_string(format!("/proc/{who}/cgroup")).unwrap_or_default();
    let (its, ours) = (read(&pid.to_string()), read("self"));
    let mut found = Vec::new();
    for line in its.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let own = ours.lines().find(|line| line.starts_with(&format!("{number}:")));
        let own = own.and_then(|line| line.splitn(3, ':').nth(2)).unwrap_or("/");
        let hierarchies: Vec<PathBuf> = match controllers {
            "" => ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().map(PathBuf::from).collect(),
            names => names.split(',').map(|name| Path::new("/sys/fs/cgroup").join(name)).collect(),
        };
        let above = |group: &&Path| !Path::new(own).starts_with(group);
        for group in Path::new(path).ancestors().take_while(above) {
            let below = group.strip_prefix("/").unwrap_or(group);
            found.extend(hierarchies.iter().map(|hierarchy| hierarchy.join(below)));
        }
    }
    found
}
