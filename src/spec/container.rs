//! The model of a container: what a bundle's `config.json` says, checked, with every word turned into the
//! number or the flag that the kernel takes. [`crate::spec::oci`] makes it; [`crate::plan`] makes steps of it.
//!
//! It stands beside [`crate::spec::SandboxSpec`] and not inside it: a container's root, mounts and privileges are the
//! bundle's word, an agent's are saggar's, and hardly a field would mean the same in both. They meet in the plan,
//! whose steps the same child runs.

use super::sandbox::Program;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything about one container.
#[derive(Debug, Clone)]
pub struct Container {
    /// `ociVersion` as it was given.
    pub version: String,
    /// The root file system.
    pub root: Root,
    /// Namespaces that are made, and those that are joined; all others are inherited.
    pub namespaces: Namespaces,
    /// The id maps of a new user namespace.
    pub ids: Option<IdMaps>,
    /// Offsets of a new time namespace.
    pub time: TimeOffsets,
    /// The name in the UTS namespace.
    pub hostname: Option<String>,
    /// The NIS domain name.
    pub domainname: Option<String>,
    /// File systems, in the order in which they are mounted.
    pub mounts: Vec<ContainerMount>,
    /// Device nodes, the default ones among them.
    pub devices: Vec<Device>,
    /// Symbolic links that are made where nothing exists yet: absolute path inside, target. `/dev/fd` and the like.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Absolute paths inside that are covered where they exist.
    pub masked: Vec<PathBuf>,
    /// Absolute paths inside that are made read-only where they exist.
    pub read_only: Vec<PathBuf>,
    /// Names with dots, and values, for `/proc/sys`.
    pub sysctl: BTreeMap<String, String>,
    /// Network devices that move into the container: name outside, name inside.
    pub net_devices: BTreeMap<String, String>,
    /// The program, as pid 1; `start` refuses a container without one.
    pub process: Option<Process>,
    /// The six kinds of hooks.
    pub hooks: Hooks,
    /// `linux.seccomp`, lowered to a filter by the plan.
    pub seccomp: Option<oci_spec::runtime::LinuxSeccomp>,
    /// `linux.cgroupsPath`.
    pub cgroups_path: Option<PathBuf>,
    /// `linux.resources`, applied by [`crate::cgroup`].
    pub resources: Option<oci_spec::runtime::LinuxResources>,
    /// `linux.intelRdt`.
    pub intel_rdt: Option<oci_spec::runtime::LinuxIntelRdt>,
    /// mode (with flags) and nodes of set_mempolicy(2).
    pub memory_policy: Option<MemoryPolicy>,
    /// The SELinux label of mounts.
    pub mount_label: Option<String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// The root file system of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Absolute path on the host.
    pub path: PathBuf,
    /// Whether it is made read-only in the end.
    pub read_only: bool,
    /// `rootfsPropagation` as MS_* flags; without it the mounts are made slaves, and the root stays so.
    pub propagation: Option<u64>,
}

/// The kinds of namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespace {
    /// user_namespaces(7)
    User,
    /// mount_namespaces(7)
    Mount,
    /// pid_namespaces(7)
    Pid,
    /// network_namespaces(7)
    Network,
    /// ipc_namespaces(7)
    Ipc,
    /// uts_namespaces(7)
    Uts,
    /// cgroup_namespaces(7)
    Cgroup,
    /// time_namespaces(7)
    Time,
}

impl Namespace {
    /// All of them, in the order in which they are joined: the user namespace first, for its capabilities.
    pub const ALL: [Namespace; 8] = [
        Namespace::User,
        Namespace::Mount,
        Namespace::Pid,
        Namespace::Network,
        Namespace::Ipc,
        Namespace::Uts,
        Namespace::Cgroup,
        Namespace::Time,
    ];

    /// Its CLONE_NEW* flag.
    pub fn flag(self) -> u64 {
        let flag = match self {
            Namespace::User => libc::CLONE_NEWUSER,
            Namespace::Mount => libc::CLONE_NEWNS,
            Namespace::Pid => libc::CLONE_NEWPID,
            Namespace::Network => libc::CLONE_NEWNET,
            Namespace::Ipc => libc::CLONE_NEWIPC,
            Namespace::Uts => libc::CLONE_NEWUTS,
            Namespace::Cgroup => libc::CLONE_NEWCGROUP,
            Namespace::Time => libc::CLONE_NEWTIME,
        };
        u64::from(flag.cast_unsigned())
    }

    /// Its file in `/proc/PID/ns`.
    pub fn file(self) -> &'static str {
        match self {
            Namespace::User => "user",
            Namespace::Mount => "mnt",
            Namespace::Pid => "pid",
            Namespace::Network => "net",
            Namespace::Ipc => "ipc",
            Namespace::Uts => "uts",
            Namespace::Cgroup => "cgroup",
            Namespace::Time => "time",
        }
    }
}

/// What becomes of each namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// Those that are made.
    pub new: Vec<Namespace>,
    /// Those that are joined, with the absolute path of each; never one that is also new.
    pub joined: BTreeMap<Namespace, PathBuf>,
}

impl Namespaces {
    /// Whether the container has one that is not the runtime's.
    pub fn has(&self, namespace: Namespace) -> bool {
        self.new.contains(&namespace) || self.joined.contains_key(&namespace)
    }
}

/// One line of an id map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdExtent {
    /// First id inside.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// How many; never 0.
    pub count: u32,
}

/// The id maps of a user namespace, or of an idmapped mount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdMaps {
    /// Lines of uid_map.
    pub uid: Vec<IdExtent>,
    /// Lines of gid_map; may be empty.
    pub gid: Vec<IdExtent>,
}

/// Offsets of the clocks, seconds and nanoseconds (time_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeOffsets {
    /// CLOCK_MONOTONIC.
    pub monotonic: Option<(i64, u32)>,
    /// CLOCK_BOOTTIME.
    pub boottime: Option<(i64, u32)>,
}

/// As /proc/PID/timens_offsets takes them.
impl std::fmt::Display for TimeOffsets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (clock, offset) in [("monotonic", self.monotonic), ("boottime", self.boottime)] {
            let Some((seconds, nanoseconds)) = offset else { continue };
            writeln!(f, "{clock} {seconds} {nanoseconds}")?;
        }
        Ok(())
    }
}

/// One entry of `mounts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerMount {
    /// Absolute path inside.
    pub at: PathBuf,
    /// What is mounted.
    pub kind: ContainerMountKind,
    /// MOUNT_ATTR_* bits of mount_setattr(2) that are set on the mount itself.
    pub set: u64,
    /// MOUNT_ATTR_* bits that are cleared on the mount itself (`rw`, `dev`, `suid`, `exec`).
    pub clear: u64,
    /// As `set`, on the whole tree (`rro`, `rnosuid`, …).
    pub set_recursive: u64,
    /// As `clear`, on the whole tree (`rrw`, `rsuid`, …).
    pub clear_recursive: u64,
    /// MS_* propagation flags (MS_PRIVATE, MS_SLAVE, MS_SHARED, MS_UNBINDABLE with or without MS_REC), in
    /// the order in which they are applied.
    pub propagation: Vec<u64>,
    /// Maps of owners (`uidMappings`, `idmap`, `ridmap`).
    pub idmap: Option<MountIdMap>,
}

/// What a mount of a container is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerMountKind {
    /// A tree of the host.
    Bind {
        /// Absolute path on the host.
        source: PathBuf,
        /// With what is mounted below it.
        recursive: bool,
    },
    /// A file system.
    New {
        /// Its type, as the kernel knows it; never `cgroup`.
        fstype: String,
        /// Its source, `none` when there was none.
        source: String,
        /// Options for the file system: name, and value where there is one.
        options: Vec<(String, Option<String>)>,
        /// MS_* flags of the superblock: `ro`, `sync`, `dirsync`, `lazytime`, `mand`, `silent`, `iversion`.
        superblock: u64,
        /// What lies at the path in the root is copied into it (`tmpcopyup`).
        copy_up: bool,
    },
    /// The container's own cgroups (type `cgroup`, also where only cgroup2 exists), or `cgroup2`.
    Cgroup,
    /// Only the attributes of what is mounted there change, as asked (a propagation alone).
    Change,
    /// What is mounted there gets exactly the attributes that are asked for, and loses all others (`remount` with
    /// `bind`; mount(2), MS_REMOUNT with MS_BIND).
    Remount,
    /// The same for the file system itself, too (`remount` without `bind`; mount(2), MS_REMOUNT).
    Reconfigure {
        /// Options for the file system: name, and value where there is one.
        options: Vec<(String, Option<String>)>,
        /// MS_* flags of the superblock that are set, as in `New`.
        superblock: u64,
    },
}

/// The maps of an idmapped mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountIdMap {
    /// The maps; without them those of the container's user namespace.
    pub maps: Option<IdMaps>,
    /// With what is mounted below it (`ridmap`).
    pub recursive: bool,
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Absolute path inside.
    pub path: PathBuf,
    /// S_IFCHR, S_IFBLK or S_IFIFO.
    pub kind: u32,
    /// Major number; 0 for a FIFO.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner inside.
    pub uid: u32,
    /// Group inside.
    pub gid: u32,
}

/// The program of a container, or one that `exec` adds.
#[derive(Debug, Clone)]
pub struct Process {
    /// Program, environment and working directory.
    pub program: Program,
    /// Whether it has a terminal of its own.
    pub terminal: bool,
    /// Columns and rows of the terminal.
    pub console_size: Option<(u16, u16)>,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The caller's supplementary groups are kept instead (`run.oci.keep_original_groups`).
    pub keep_groups: bool,
    /// The mask of modes.
    pub umask: Option<u32>,
    /// The capability sets; without them none.
    pub capabilities: Capabilities,
    /// setrlimit(2): number, soft, hard.
    pub rlimits: Vec<(i32, u64, u64)>,
    /// Whether no_new_privs is set.
    pub no_new_privs: bool,
    /// The AppArmor profile to change to at execve.
    pub apparmor_profile: Option<String>,
    /// The SELinux label to run under.
    pub selinux_label: Option<String>,
    /// oom_score_adj; left alone when not given.
    pub oom_score_adj: Option<i32>,
    /// Class and priority of ioprio_set(2), packed.
    pub io_priority: Option<i32>,
    /// Attributes of sched_setattr(2).
    pub scheduler: Option<SchedulerAttributes>,
    /// CPUs as bit masks: those while the process joins its cgroup, those after.
    pub cpu_affinity: CpuAffinity,
    /// personality(2).
    pub personality: Option<u64>,
}

/// Capability sets as bit masks (capabilities(7)): what the running kernel does not know is dropped with a
/// warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// The bounding set.
    pub bounding: u64,
    /// The effective set.
    pub effective: u64,
    /// The inheritable set.
    pub inheritable: u64,
    /// The permitted set.
    pub permitted: u64,
    /// The ambient set.
    pub ambient: u64,
}

/// `execCPUAffinity`: CPU masks, word by word.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuAffinity {
    /// Before the process is in its cgroup.
    pub initial: Option<Vec<u64>>,
    /// Just before execve.
    pub last: Option<Vec<u64>>,
}

/// `struct sched_attr` of sched_setattr(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedulerAttributes {
    /// SCHED_*.
    pub policy: u32,
    /// SCHED_FLAG_*.
    pub flags: u64,
    /// Nice value.
    pub nice: i32,
    /// Priority of a real-time policy.
    pub priority: u32,
    /// Nanoseconds, of SCHED_DEADLINE.
    pub runtime: u64,
    /// Nanoseconds, of SCHED_DEADLINE.
    pub deadline: u64,
    /// Nanoseconds, of SCHED_DEADLINE.
    pub period: u64,
}

/// Arguments of set_mempolicy(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// MPOL_* with MPOL_F_* flags.
    pub mode: i32,
    /// The nodes, word by word.
    pub nodes: Vec<u64>,
}

/// One program of `hooks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Absolute path.
    pub path: PathBuf,
    /// Arguments, the first is the program's name; without any, the path.
    pub args: Vec<String>,
    /// The whole environment, `NAME=value`; `None` is the runtime's own, as callers of runc and crun know it.
    pub env: Option<Vec<String>>,
    /// Seconds after which it is killed and has failed.
    pub timeout: Option<u64>,
}

/// The six kinds of hooks, each in the order in which it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hooks {
    /// In `create`, in the runtime's namespaces (deprecated by the specification, still called).
    pub prestart: Vec<Hook>,
    /// In `create`, in the runtime's namespaces.
    pub create_runtime: Vec<Hook>,
    /// In `create`, in the container's namespaces, before its root changes.
    pub create_container: Vec<Hook>,
    /// In `start`, in the container, before its program.
    pub start_container: Vec<Hook>,
    /// In `start`, in the runtime's namespaces, after its program began.
    pub poststart: Vec<Hook>,
    /// In `delete`, in the runtime's namespaces.
    pub poststop: Vec<Hook>,
}
