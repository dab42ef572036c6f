//! The cgroup hierarchies of this host, their mount points, and the cgroups of this process.

use super::mounts::{Mount, parse_mounts};
use super::processes::parent_of;
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs};
use saggar_sys::error::{Error, Result};
use saggar_sys::read::{kernel_file, kernel_text};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The two cgroup interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    /// One or a few controllers in each hierarchy.
    V1,
    /// All controllers in one hierarchy.
    V2,
}

/// The controllers of version 1 that limits of sandboxes use. blkio is not among them: it does not slow down what the kernel
/// writes later for a program.
pub(crate) const V1_LIMIT_CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupHierarchy {
    /// The interface version.
    pub version: CgroupVersion,
    /// V1: the controllers of the mount, or `name=…` if it has none. V2: those in the root's
    /// `cgroup.controllers`; the v1 hierarchies of a hybrid host have the others.
    pub controllers: Vec<String>,
    /// The mount point.
    pub mount_point: PathBuf,
    /// The directory of this process's own cgroup, at or below `mount_point`.
    pub own_cgroup: PathBuf,
    /// The part of the hierarchy that is mounted: `/`, except in a container without a cgroup namespace. A
    /// path in `/proc/PID/cgroup` begins with it.
    pub root: PathBuf,
}

impl CgroupHierarchy {
    /// Whether a path lookup of the mount point finds this mount: another mount may be on top of it.
    fn is_visible(&self) -> bool {
        let magic = match self.version {
            CgroupVersion::V1 => CGROUP_SUPER_MAGIC,
            CgroupVersion::V2 => CGROUP2_SUPER_MAGIC,
        };
        statfs(&self.mount_point).is_ok_and(|found| found.filesystem_type() == magic)
    }

    /// The directory of a cgroup path from `/proc/PID/cgroup`.
    pub fn directory(&self, cgroup: &Path) -> PathBuf {
        let below =
            cgroup.strip_prefix(&self.root).unwrap_or_else(|_| cgroup.strip_prefix("/").unwrap_or(cgroup));
        // `/..` means a cgroup outside of this cgroup namespace.
        let names = below.components().filter(|part| !matches!(part, Component::ParentDir));
        let mut directory = self.mount_point.clone();
        directory.extend(names);
        directory
    }
}

/// All hierarchies of this host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupLayout {
    /// In the order of `/proc/self/mountinfo`, without duplicates.
    pub hierarchies: Vec<CgroupHierarchy>,
}

impl CgroupLayout {
    /// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn discover() -> Result<Self> {
        let read = |path: &str| {
            kernel_file(path.as_ref()).map_err(|e| Error::system(format_args!("read {path}"), e))
        };
        let mut layout = Self::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        layout.hierarchies.retain(CgroupHierarchy::is_visible);
        for hierarchy in layout.hierarchies.iter_mut().filter(|one| one.version == CgroupVersion::V2) {
            let file = hierarchy.mount_point.join("cgroup.controllers");
            let controllers = kernel_text(&file).unwrap_or_default();
            hierarchy.controllers = controllers.split_whitespace().map(str::to_owned).collect();
        }
        Ok(layout)
    }

    /// Parses the hierarchies from the two texts (proc_pid_mountinfo(5), cgroups(7)).
    fn parse(mountinfo: &[u8], own_cgroup: &[u8]) -> Self {
        let mut hierarchies: Vec<CgroupHierarchy> = Vec::new();
        for Mount { root, mount_point, filesystem, super_options, .. } in parse_mounts(mountinfo) {
            let version = match filesystem.as_str() {
                "cgroup" => CgroupVersion::V1,
                "cgroup2" => CgroupVersion::V2,
                _ => continue,
            };
            let controllers = parse_controllers(version, &super_options);
            let seen = hierarchies.iter().any(|one| one.version == version && one.controllers == controllers);
            // Skips hierarchies in which no path can be looked up: those whose root is outside of this
            // cgroup namespace.
            if seen || (version == CgroupVersion::V1 && controllers.is_empty()) || root.starts_with("/..") {
                continue;
            }
            let cgroup = find_own_cgroup(own_cgroup, &controllers);
            let own_cgroup = mount_point.clone();
            let mut hierarchy = CgroupHierarchy { version, controllers, own_cgroup, mount_point, root };
            hierarchy.own_cgroup =
                cgroup.map_or_else(|| hierarchy.mount_point.clone(), |cgroup| hierarchy.directory(&cgroup));
            hierarchies.push(hierarchy);
        }
        CgroupLayout { hierarchies }
    }

    /// The hierarchy with this controller.
    pub fn hierarchy_of(&self, controller: &str) -> Option<&CgroupHierarchy> {
        self.hierarchies.iter().find(|one| one.controllers.iter().any(|name| name == controller))
    }

    /// The cgroup v2 hierarchy, even without controllers.
    pub fn v2_hierarchy(&self) -> Option<&CgroupHierarchy> {
        self.hierarchies.iter().find(|one| one.version == CgroupVersion::V2)
    }
}

/// The controllers that a sandbox below `own_cgroup`, a v2 cgroup, can use: those enabled for its children,
/// or all of its own controllers if they can be enabled.
pub(crate) fn controllers_for_children(own_cgroup: &Path) -> Vec<String> {
    let can_switch = is_hierarchy_root(own_cgroup) || own_processes(own_cgroup).is_some();
    read_words(own_cgroup, if can_switch { "cgroup.controllers" } else { "cgroup.subtree_control" })
}

/// Whether this is the root of the hierarchy, which may have both processes and enabled controllers. Only
/// the root has no cgroup.type (cgroups(7)).
pub(crate) fn is_hierarchy_root(own_cgroup: &Path) -> bool {
    !own_cgroup.join("cgroup.type").exists()
}

/// Whether processes are in this cgroup itself.
pub(crate) fn has_processes(cgroup: &Path) -> bool {
    !read_words(cgroup, "cgroup.procs").is_empty()
}

/// The pids in the own cgroup, if they are only this process and its children, which can be moved to
/// another cgroup; else `None`.
pub fn own_processes(own_cgroup: &Path) -> Option<Vec<String>> {
    let us = std::process::id().cast_signed();
    let pids = read_words(own_cgroup, "cgroup.procs");
    let is_ours = |pid: &String| pid.parse().is_ok_and(|pid| pid == us || parent_of(pid) == Some(us));
    (!pids.is_empty() && pids.iter().all(is_ours)).then_some(pids)
}

/// The words of a control file; empty if it cannot be read.
pub(crate) fn read_words(cgroup: &Path, file: &str) -> Vec<String> {
    let text = kernel_text(&cgroup.join(file)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The controllers in the options of a v1 superblock.
fn parse_controllers(version: CgroupVersion, options: &str) -> Vec<String> {
    const KNOWN: [&str; 14] = [
        "cpu",
        "cpuacct",
        "cpuset",
        "memory",
        "devices",
        "freezer",
        "blkio",
        "pids",
        "net_cls",
        "net_prio",
        "perf_event",
        "hugetlb",
        "rdma",
        "misc",
    ];
    let is_one = |option: &&str| KNOWN.contains(option) || option.starts_with("name=");
    match version {
        CgroupVersion::V1 => options.split(',').filter(is_one).map(str::to_owned).collect(),
        CgroupVersion::V2 => Vec::new(),
    }
}

/// The path of this process in the hierarchy of these controllers; an empty list means v2.
fn find_own_cgroup(own_cgroup: &[u8], controllers: &[String]) -> Option<PathBuf> {
    cgroup_path_in(own_cgroup, |listed| match controllers.first() {
        None => listed.is_empty(),
        Some(first) => listed.split(',').any(|one| one == first),
    })
}

/// The path in the first line of a `/proc/PID/cgroup` whose controllers satisfy `is_it`.
pub(crate) fn cgroup_path_in(text: &[u8], is_it: impl Fn(&str) -> bool) -> Option<PathBuf> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let listed = std::str::from_utf8(fields.nth(1)?).ok()?;
        let path = fields.next()?;
        is_it(listed).then(|| PathBuf::from(OsString::from_vec(path.to_vec())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime - cgroup2 cgroup2 rw,nsdelegate
42 31 0:32 / /mnt/memory rw,relatime - cgroup cgroup rw,memory
";
    const OWN: &str = "9:name=systemd:/user.slice\n4:memory:/a:b/c\n1:cpuacct,cpu:/\n0::/x\n";

    #[test]
    fn a_hybrid_host_has_several_hierarchies_each_once() {
        let layout = CgroupLayout::parse(HYBRID.as_bytes(), OWN.as_bytes());
        let list: Vec<_> = layout
            .hierarchies
            .iter()
            .map(|one| (one.version, one.controllers.join(","), one.own_cgroup.to_str().unwrap()))
            .collect();
        assert_eq!(
            list,
            [
                (CgroupVersion::V1, "cpu,cpuacct".into(), "/sys/fs/cgroup/cpu,cpuacct"),
                (CgroupVersion::V1, "memory".into(), "/sys/fs/cgroup/memory/a:b/c"),
                (CgroupVersion::V1, "name=systemd".into(), "/sys/fs/cgroup/systemd/user.slice"),
                (CgroupVersion::V2, String::new(), "/sys/fs/cgroup/uni fied/x"),
            ]
        );
        assert_eq!(
            layout.hierarchy_of("cpuacct").unwrap().mount_point,
            Path::new("/sys/fs/cgroup/cpu,cpuacct")
        );
        assert_eq!(layout.hierarchy_of("pids"), None);
    }

    #[test]
    fn in_a_container_without_a_cgroup_namespace_paths_begin_at_the_mount() {
        let mounts = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let layout = CgroupLayout::parse(mounts.as_bytes(), b"0::/docker/abc/inner\n");
        assert_eq!(layout.v2_hierarchy().unwrap().own_cgroup, Path::new("/sys/fs/cgroup/inner"));
        let outside = "30 23 0:26 /.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(CgroupLayout::parse(outside.as_bytes(), b"0::/\n"), CgroupLayout::default());
    }

    #[test]
    fn what_is_no_mount_is_no_hierarchy() {
        for text in ["", "a b c", "30 23 0:26 / /x rw -", "1 2 3:4 / /proc rw - proc proc rw"] {
            assert_eq!(CgroupLayout::parse(text.as_bytes(), b""), CgroupLayout::default(), "{text}");
        }
    }
}
