//! The model of a container: a bundle's `config.json`, validated, with every keyword converted to the
//! kernel's number or flag. [`crate::spec::oci`] creates it; [`crate::plan`] turns it into steps.
//!
//! It is separate from [`crate::spec::SandboxSpec`]: the bundle defines a container's root, mounts and
//! privileges, saggar defines those of an agent's sandbox, and hardly any field would have the same meaning
//! in both. The two meet in the plan: one kind of child process runs the steps of both.

use super::sandbox::ProgramSpec;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The complete description of one container.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// `ociVersion` as given in the document.
    pub oci_version: String,
    /// The root file system.
    pub root: RootFilesystem,
    /// Namespaces to create and to join; all others are inherited.
    pub namespaces: Namespaces,
    /// The id maps of a new user namespace.
    pub id_maps: Option<IdMaps>,
    /// Offsets of a new time namespace.
    pub time_offsets: TimeOffsets,
    /// The host name in the UTS namespace.
    pub hostname: Option<String>,
    /// The NIS domain name in the UTS namespace.
    pub domainname: Option<String>,
    /// Mounts, in mount order.
    pub mounts: Vec<ContainerMount>,
    /// Device nodes, including the default ones.
    pub devices: Vec<DeviceSpec>,
    /// Symbolic links to create where nothing exists, such as `/dev/fd`: absolute path in the container,
    /// target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Absolute paths in the container to mask, where they exist.
    pub masked_paths: Vec<PathBuf>,
    /// Absolute paths in the container to make read-only, where they exist.
    pub read_only_paths: Vec<PathBuf>,
    /// Parameters of `/proc/sys`: name with dots, value.
    pub sysctl: BTreeMap<String, String>,
    /// Network devices to move into the container: name on the host, name in the container.
    pub net_devices: BTreeMap<String, String>,
    /// The program, as pid 1; `start` refuses a container without one.
    pub process: Option<ProcessSpec>,
    /// The six kinds of hooks.
    pub hooks: Hooks,
    /// `linux.seccomp`; the plan compiles it to a filter.
    pub seccomp: Option<oci_spec::runtime::LinuxSeccomp>,
    /// `linux.cgroupsPath`.
    pub cgroups_path: Option<PathBuf>,
    /// `linux.resources`, applied by [`crate::cgroup`].
    pub resources: Option<oci_spec::runtime::LinuxResources>,
    /// `linux.intelRdt`.
    pub intel_rdt: Option<oci_spec::runtime::LinuxIntelRdt>,
    /// Mode (with flags) and nodes of set_mempolicy(2).
    pub memory_policy: Option<MemoryPolicy>,
    /// The SELinux label of mounts.
    pub mount_label: Option<String>,
    /// The annotations of the bundle, unchanged.
    pub annotations: BTreeMap<String, String>,
}

/// The root file system of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFilesystem {
    /// Absolute path on the host.
    pub path: PathBuf,
    /// Whether the root is made read-only at the end of the setup.
    pub read_only: bool,
    /// `rootfsPropagation` as MS_* flags; without it the mounts become slaves, and so does the root.
    pub propagation: Option<u64>,
}

/// The types of namespaces.
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
    /// All types, in the order in which they are joined: the user namespace first, because it grants the
    /// capabilities.
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

    /// The CLONE_NEW* flag of clone3(2).
    pub(crate) fn clone_flag(self) -> u64 {
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

    /// The file name in `/proc/PID/ns`.
    pub fn proc_name(self) -> &'static str {
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

/// The namespaces of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// Namespaces to create.
    pub new: Vec<Namespace>,
    /// Namespaces to join, with the absolute path of each; none is also in `new`.
    pub joined: BTreeMap<Namespace, PathBuf>,
}

impl Namespaces {
    /// Whether the container has a namespace of this type other than the runtime's.
    pub fn has(&self, namespace: Namespace) -> bool {
        self.new.contains(&namespace) || self.joined.contains_key(&namespace)
    }
}

/// One line of an id map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdExtent {
    /// First id in the namespace.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// The number of ids; never 0.
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

/// The format of /proc/PID/timens_offsets.
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
    /// Absolute path in the container.
    pub destination: PathBuf,
    /// The kind of mount.
    pub kind: ContainerMountKind,
    /// MOUNT_ATTR_* bits of mount_setattr(2) to set on the mount itself.
    pub set: u64,
    /// MOUNT_ATTR_* bits to clear on the mount itself (`rw`, `dev`, `suid`, `exec`).
    pub clear: u64,
    /// As `set`, on the whole tree (`rro`, `rnosuid`, …).
    pub set_recursive: u64,
    /// As `clear`, on the whole tree (`rrw`, `rsuid`, …).
    pub clear_recursive: u64,
    /// MS_* propagation flags (MS_PRIVATE, MS_SLAVE, MS_SHARED, MS_UNBINDABLE with or without MS_REC), in
    /// the order in which they are applied.
    pub propagation: Vec<u64>,
    /// The id mapping of the mount (`uidMappings`, `idmap`, `ridmap`).
    pub idmap: Option<MountIdMap>,
    /// What is mounted if the source of a bind mount is a symbolic link.
    pub source_link: SourceLink,
    /// Whether a bind mount covers a symbolic link at the destination itself (`dest-nofollow`), and does not follow
    /// it.
    pub covers_link: bool,
}

impl ContainerMount {
    /// A mount with these MOUNT_ATTR_* bits set, and nothing else changed.
    pub fn new(destination: impl Into<PathBuf>, kind: ContainerMountKind, set: u64) -> Self {
        ContainerMount {
            destination: destination.into(),
            kind,
            set,
            clear: 0,
            set_recursive: 0,
            clear_recursive: 0,
            propagation: Vec::new(),
            idmap: None,
            source_link: SourceLink::default(),
            covers_link: false,
        }
    }
}

/// What is mounted if the source of a bind mount is a symbolic link. The options are those of crun(1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SourceLink {
    /// The file to which it leads.
    #[default]
    Target,
    /// The link itself (`src-nofollow`).
    Itself,
    /// Nothing: a link with the same target is created at the destination (`copy-symlink`).
    Copy,
}

/// The kinds of mounts of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerMountKind {
    /// A bind mount of a host tree.
    Bind {
        /// Absolute path on the host.
        source: PathBuf,
        /// Whether submounts are included.
        recursive: bool,
    },
    /// A new file system.
    Filesystem {
        /// The file system type of the kernel; never `cgroup`.
        fstype: String,
        /// The source; `none` if the document has none.
        source: String,
        /// Options of the file system: name and optional value.
        options: Vec<(String, Option<String>)>,
        /// MS_* flags of the superblock: `ro`, `sync`, `dirsync`, `lazytime`, `mand`, `silent`, `iversion`.
        superblock: u64,
        /// Whether the content at the path in the root is copied into it (`tmpcopyup`).
        copy_up: bool,
    },
    /// The container's own cgroups (type `cgroup`, even if only cgroup2 exists), or `cgroup2`.
    Cgroup,
    /// Changes only the given attributes of the existing mount (a propagation option alone).
    ChangeAttributes,
    /// Sets exactly the given attributes on the existing mount and clears all others (`remount` with
    /// `bind`; mount(2), MS_REMOUNT with MS_BIND).
    Remount,
    /// As [`ContainerMountKind::Remount`], and reconfigures the file system itself (`remount` without `bind`; mount(2),
    /// MS_REMOUNT).
    Reconfigure {
        /// Options of the file system: name and optional value.
        options: Vec<(String, Option<String>)>,
        /// MS_* flags of the superblock to set, as in [`ContainerMountKind::Filesystem`].
        superblock: u64,
    },
}

/// The id mapping of an idmapped mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountIdMap {
    /// The maps; `None` for those of the container's user namespace.
    pub maps: Option<IdMaps>,
    /// Whether submounts are included (`ridmap`).
    pub recursive: bool,
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Absolute path in the container.
    pub path: PathBuf,
    /// S_IFCHR, S_IFBLK or S_IFIFO.
    pub kind: u32,
    /// Major number; 0 for a FIFO.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner in the container.
    pub uid: u32,
    /// Group in the container.
    pub gid: u32,
}

impl DeviceSpec {
    /// Path, major and minor number of the default devices.
    const DEFAULT: [(&str, u32, u32); 6] = [
        ("/dev/null", 1, 3),
        ("/dev/zero", 1, 5),
        ("/dev/full", 1, 7),
        ("/dev/random", 1, 8),
        ("/dev/urandom", 1, 9),
        ("/dev/tty", 5, 0),
    ];

    /// The devices of every container (config-linux.md, Default Devices), which every user can read and write.
    pub fn default_devices() -> impl Iterator<Item = Self> {
        DeviceSpec::DEFAULT.iter().map(|(path, major, minor)| DeviceSpec {
            path: path.into(),
            kind: libc::S_IFCHR,
            major: *major,
            minor: *minor,
            mode: 0o666,
            uid: 0,
            gid: 0,
        })
    }

    /// Whether it is one of [`DeviceSpec::default_devices`], with their owner and mode.
    pub fn is_default(&self) -> bool {
        DeviceSpec::default_devices().any(|device| device == *self)
    }
}

/// The first program of a container, or one that `exec` adds.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// Program, environment and working directory.
    pub program: ProgramSpec,
    /// Whether the program gets a new terminal.
    pub terminal: bool,
    /// Columns and rows of the terminal.
    pub console_size: Option<(u16, u16)>,
    /// User id in the container.
    pub uid: u32,
    /// Group id in the container.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Whether the caller's supplementary groups are kept instead (`run.oci.keep_original_groups`).
    pub keep_groups: bool,
    /// The umask(2); inherited if `None`.
    pub umask: Option<u32>,
    /// The capability sets; all empty if the document has none.
    pub capabilities: Capabilities,
    /// Limits for setrlimit(2): number, soft, hard.
    pub rlimits: Vec<(i32, u64, u64)>,
    /// Whether no_new_privs is set.
    pub no_new_privs: bool,
    /// The AppArmor profile to change to at execve.
    pub apparmor_profile: Option<String>,
    /// The SELinux label to run with.
    pub selinux_label: Option<String>,
    /// oom_score_adj; unchanged if `None`.
    pub oom_score_adj: Option<i32>,
    /// Class and priority, packed as for ioprio_set(2).
    pub io_priority: Option<i32>,
    /// Attributes of sched_setattr(2).
    pub scheduler: Option<SchedulerAttributes>,
    /// CPU masks: before and after the process joins its cgroup.
    pub cpu_affinity: CpuAffinity,
    /// The argument of personality(2).
    pub personality: Option<u64>,
}

/// Capability sets as bit masks (capabilities(7)). Capabilities unknown to the running kernel are dropped
/// with a warning.
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

/// `execCPUAffinity`: CPU masks in 64-bit words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuAffinity {
    /// Before the process joins its cgroup.
    pub initial: Option<Vec<u64>>,
    /// Just before execve.
    pub at_exec: Option<Vec<u64>>,
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
    /// Nanoseconds, for SCHED_DEADLINE.
    pub runtime: u64,
    /// Nanoseconds, for SCHED_DEADLINE.
    pub deadline: u64,
    /// Nanoseconds, for SCHED_DEADLINE.
    pub period: u64,
}

/// Arguments of set_mempolicy(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// MPOL_* combined with MPOL_F_* flags.
    pub mode: i32,
    /// The mask of nodes, in 64-bit words.
    pub nodes: Vec<u64>,
}

/// One program of `hooks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Absolute path.
    pub path: PathBuf,
    /// Arguments; the first is the program's name. If empty, the path is used.
    pub args: Vec<String>,
    /// The whole environment, `NAME=value`; `None` for the runtime's own, as in runc and crun.
    pub env: Option<Vec<String>>,
    /// Timeout in seconds. The hook is then killed and has failed.
    pub timeout: Option<u64>,
}

/// The six kinds of hooks, each in execution order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hooks {
    /// Run by `create` in the runtime's namespaces (deprecated by the specification, still called).
    pub prestart: Vec<Hook>,
    /// Run by `create` in the runtime's namespaces.
    pub create_runtime: Vec<Hook>,
    /// Run by `create` in the container's namespaces, before its root changes.
    pub create_container: Vec<Hook>,
    /// Run by `start` in the container, before its program.
    pub start_container: Vec<Hook>,
    /// Run by `start` in the runtime's namespaces, after its program has started.
    pub poststart: Vec<Hook>,
    /// Run by `delete` in the runtime's namespaces.
    pub poststop: Vec<Hook>,
}
