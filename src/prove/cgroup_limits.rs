//! The cgroup limits of a sandbox, as the host sees them.

use std::fs;
use std::path::{Path, PathBuf};

/// The value of an unlimited memory limit in version 1: it is rounded down to a page.
const NO_LIMIT: u64 = 1 << 62;

/// The limits that apply to the process `pid` and not to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Whether memory is limited.
    pub memory: bool,
    /// Whether CPU time is limited.
    pub cpu: bool,
}

impl CgroupLimits {
    /// Reads the limits of a process.
    pub fn read(pid: i32) -> Self {
        let groups = private_cgroups(pid);
        let any = |file: &str, limits: fn(&str) -> bool| {
            groups
                .iter()
                .any(|group| fs::read_to_string(group.join(file)).is_ok_and(|text| limits(text.trim())))
        };
        let number = |text: &str| text.parse::<u64>().is_ok_and(|bytes| bytes < NO_LIMIT);
        CgroupLimits {
            memory: any("memory.max", number) || any("memory.limit_in_bytes", number),
            cpu: any("cpu.max", |text| !text.starts_with("max"))
                || any("cpu.cfs_quota_us", |text| !text.starts_with('-')),
        }
    }
}

/// The cgroups of a process that this process is not in, in every hierarchy.
fn private_cgroups(pid: i32) -> Vec<PathBuf> {
    let read = |who: &str| fs::read_to_string(format!("/proc/{who}/cgroup")).unwrap_or_default();
    let (theirs, own) = (read(&pid.to_string()), read("self"));
    let mut found = Vec::new();
    for line in theirs.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let own = own.lines().find(|line| line.starts_with(&format!("{number}:")));
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
