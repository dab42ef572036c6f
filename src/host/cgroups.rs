//! Which cgroup hierarchies this host has, where they are mounted, and where we are in them.

use super::processes::parent_of;
use crate::error::{Error, Result};
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One controller, or a few, in a hierarchy of their own.
    V1,
    /// All controllers in one hierarchy.
    V2,
}

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Which interface it has.
    pub version: Version,
    /// V1: the controllers of the mount, or `name=…` for one without. V2: those in the root's
    /// `cgroup.controllers`; the v1 hierarchies of a hybrid host have the others.
    pub controllers: Vec<String>,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Our own cgroup, as a directory at or below `mount`.
    pub own: PathBuf,
    /// What of the hierarchy is mounted, `/` but in a container without a cgroup namespace: a path of
    /// `/proc/PID/cgroup` begins with it.
    pub root: PathBuf,
}

impl Hierarchy {
    /// Whether its mount is what a path finds: another mount may lie over it.
    fn is_on_top(&self) -> bool {
        let magic = match self.version {
            Version::V1 => CGROUP_SUPER_MAGIC,
            Version::V2 => CGROUP2_SUPER_MAGIC,
        };
        statfs(&self.mount).is_ok_and(|found| found.filesystem_type() == magic)
    }

    /// The directory of a path that `/proc/PID/cgroup` names.
    pub fn directory(&self, cgroup: &Path) -> PathBuf {
        let below =
            cgroup.strip_prefix(&self.root).unwrap_or_else(|_| cgroup.strip_prefix("/").unwrap_or(cgroup));
        // `/..` stands for what is outside of our cgroup namespace.
        let names = below.components().filter(|part| !matches!(part, Component::ParentDir));
        let mut directory = self.mount.clone();
        directory.extend(names);
        directory
    }
}

/// All hierarchies of this host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// In the order of `/proc/self/mountinfo`; each only once.
    pub hierarchies: Vec<Hierarchy>,
}

impl Layout {
    /// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn discover() -> Result<Self> {
        let read = |path: &str| fs::read(path).map_err(|e| Error::system(format_args!("read {path}"), e));
        let mut layout = Self::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        layout.hierarchies.retain(Hierarchy::is_on_top);
        for hierarchy in layout.hierarchies.iter_mut().filter(|one| one.version == Version::V2) {
            let file = hierarchy.mount.join("cgroup.controllers");
            let controllers = fs::read_to_string(file).unwrap_or_default();
            hierarchy.controllers = controllers.split_whitespace().map(str::to_owned).collect();
        }
        Ok(layout)
    }

    /// The hierarchies that these texts tell of (proc_pid_mountinfo(5), cgroups(7)).
    fn parse(mountinfo: &[u8], own: &[u8]) -> Self {
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        for line in mountinfo.split(|byte| *byte == b'\n') {
            let Some((version, options, root, mount)) = mounted(line) else { continue };
            let controllers = controllers(version, &options);
            let seen = hierarchies.iter().any(|one| one.version == version && one.controllers == controllers);
            // Only what a path can be looked up in: with a root outside of our namespace nothing can.
            if seen || (version == Version::V1 && controllers.is_empty()) || root.starts_with("/..") {
                continue;
            }
            let cgroup = own_cgroup(own, &controllers);
            let mut hierarchy = Hierarchy { version, controllers, own: mount.clone(), mount, root };
            hierarchy.own =
                cgroup.map_or_else(|| hierarchy.mount.clone(), |cgroup| hierarchy.directory(&cgroup));
            hierarchies.push(hierarchy);
        }
        Layout { hierarchies }
    }

    /// The hierarchy that has this controller.
    pub fn home(&self, controller: &str) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|one| one.controllers.iter().any(|name| name == controller))
    }

    /// The cgroup v2 hierarchy, with controllers or without.
    pub fn unified(&self) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|one| one.version == Version::V2)
    }
}

/// The controllers that a sandbox below our own cgroup `own` of version 2 can have: those that are on for its
/// children, and all that it has itself where they can be switched on.
pub fn controllers_for_children(own: &Path) -> Vec<String> {
    let can_switch = is_root(own) || ours(own).is_some();
    words(own, if can_switch { "cgroup.controllers" } else { "cgroup.subtree_control" })
}

/// Whether this is the root of the hierarchy, which may have processes and give controllers too: only the root has
/// no cgroup.type (cgroups(7)).
pub fn is_root(own: &Path) -> bool {
    !own.join("cgroup.type").exists()
}

/// The processes in our own cgroup, when there are none but this one and children of it: then they can step aside.
pub fn ours(own: &Path) -> Option<Vec<String>> {
    let us = std::process::id().cast_signed();
    let pids = words(own, "cgroup.procs");
    let is_ours = |pid: &String| pid.parse().is_ok_and(|pid| pid == us || parent_of(pid) == Some(us));
    (!pids.is_empty() && pids.iter().all(is_ours)).then_some(pids)
}

/// The words of a control file; none when it cannot be read.
pub fn words(cgroup: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(cgroup.join(file)).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Version, superblock options, root and mount point of a line of mountinfo that is a cgroup mount.
fn mounted(line: &[u8]) -> Option<(Version, String, PathBuf, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = unescape(fields.nth(3)?);
    let mount = unescape(fields.next()?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let version = match rest.next()? {
        b"cgroup" => Version::V1,
        b"cgroup2" => Version::V2,
        _ => return None,
    };
    Some((version, String::from_utf8_lossy(rest.nth(1)?).into_owned(), root, mount))
}

/// The controllers among the options of a v1 superblock.
fn controllers(version: Version, options: &str) -> Vec<String> {
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
        Version::V1 => options.split(',').filter(is_one).map(str::to_owned).collect(),
        Version::V2 => Vec::new(),
    }
}

/// Our path in the hierarchy of these controllers; none means v2.
fn own_cgroup(own: &[u8], controllers: &[String]) -> Option<PathBuf> {
    path_in(own, |listed| match controllers.first() {
        None => listed.is_empty(),
        Some(first) => listed.split(',').any(|one| one == first),
    })
}

/// The path in the first line of a `/proc/PID/cgroup` whose controllers are the right ones.
pub(crate) fn path_in(text: &[u8], is_it: impl Fn(&str) -> bool) -> Option<PathBuf> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let listed = std::str::from_utf8(fields.nth(1)?).ok()?;
        let path = fields.next()?;
        is_it(listed).then(|| PathBuf::from(OsString::from_vec(path.to_vec())))
    })
}

/// Undoes the kernel's `\ooo` for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits {
            Some(digits) if byte == b'\\' => {
                bytes.push(
                    digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                rest = &tail[3..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
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
        let layout = Layout::parse(HYBRID.as_bytes(), OWN.as_bytes());
        let list: Vec<_> = layout
            .hierarchies
            .iter()
            .map(|one| (one.version, one.controllers.join(","), one.own.to_str().unwrap()))
            .collect();
        assert_eq!(
            list,
            [
                (Version::V1, "cpu,cpuacct".into(), "/sys/fs/cgroup/cpu,cpuacct"),
                (Version::V1, "memory".into(), "/sys/fs/cgroup/memory/a:b/c"),
                (Version::V1, "name=systemd".into(), "/sys/fs/cgroup/systemd/user.slice"),
                (Version::V2, String::new(), "/sys/fs/cgroup/uni fied/x"),
            ]
        );
        assert_eq!(layout.home("cpuacct").unwrap().mount, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(layout.home("pids"), None);
    }

    #[test]
    fn in_a_container_without_a_cgroup_namespace_paths_begin_at_the_mount() {
        let mounts = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let layout = Layout::parse(mounts.as_bytes(), b"0::/docker/abc/inner\n");
        assert_eq!(layout.unified().unwrap().own, Path::new("/sys/fs/cgroup/inner"));
        let outside = "30 23 0:26 /.. /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(Layout::parse(outside.as_bytes(), b"0::/\n"), Layout::default());
    }

    #[test]
    fn what_is_no_mount_is_no_hierarchy() {
        for text in ["", "a b c", "30 23 0:26 / /x rw -", "1 2 3:4 / /proc rw - proc proc rw"] {
            assert_eq!(Layout::parse(text.as_bytes(), b""), Layout::default(), "{text}");
        }
    }
}
