//! The model: a [`SandboxSpec`] describes a sandbox completely, and each part names the layer that set it.

pub use super::policy::api::{ApiUpstream, KeyHeader};
pub use super::policy::cgroup_name::CgroupName;
pub use super::policy::hosts::HostRules;
pub use super::policy::names::{Protection, ProtectionStrength, SandboxProfile};
pub use super::policy::publish::PublishedPort;
pub use super::policy::resources::{CpusetList, DiskName, HugePageSize};
use saggar_sys::id::SandboxId;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// The layer that set a value, in words: `built-in`, `/etc/saggar/config.toml`, `command line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub Cow<'static, str>);

impl Origin {
    /// The built-in defaults of saggar.
    pub const BUILT_IN: Origin = Origin(Cow::Borrowed("built-in"));
    /// The options of the command line.
    pub const COMMAND_LINE: Origin = Origin(Cow::Borrowed("command line"));
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The index of a repository that git finds in an overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitIndexSpec {
    /// Its directory, in the sandbox.
    pub directory: PathBuf,
    /// Its content.
    pub content: Vec<u8>,
    /// Permission bits of the file.
    pub mode: u32,
    /// Time of the last change of the file: seconds since the Unix epoch, and nanoseconds.
    pub mtime: (i64, u32),
}

/// The complete description of one sandbox, without the programs that run in it.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// The name of the sandbox.
    pub id: SandboxId,
    /// How strictly the sandbox confines programs.
    pub profile: SandboxProfile,
    /// User and group ids of the programs, in the sandbox and on the host.
    pub identity: SandboxIdentity,
    /// The host name in its UTS namespace.
    pub hostname: String,
    /// The network of the sandbox.
    pub network: NetworkSpec,
    /// Ports of the host that are forwarded to servers in the sandbox, each with its origin.
    pub published_ports: Vec<(PublishedPort, Origin)>,
    /// The upstream of the model API, whose key stays outside the sandbox.
    pub model_api: Option<ModelApiSpec>,
    /// The mailbox of a run, whose files stay outside the sandbox.
    pub mailbox: Option<MailboxSpec>,
    /// The mounts, in mount order, on top of the private root.
    pub mounts: Vec<MountSpec>,
    /// Symbolic links of the private root: path, target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Files of the private root that saggar generates: path, content.
    pub files: Vec<(PathBuf, String)>,
    /// Paths in a mounted tree to bind over themselves.
    pub pinned_paths: Vec<PinnedPath>,
    /// Indices that git finds in an overlay in place of those of the lower layer.
    pub git_indices: Vec<GitIndexSpec>,
    /// Mounts of git directories, in which programs make no links and no devices (Landlock): git, on the host too, would
    /// write through a link.
    pub linkless_mounts: Vec<PathBuf>,
    /// Paths in a mounted tree to mask, each only if it exists: path, origin.
    pub hidden_paths: Vec<(PathBuf, Origin)>,
    /// Paths of `/proc` to mask or make read-only, each only if it exists.
    pub proc_masks: Vec<ProcMask>,
    /// Limits of setrlimit(2) for every program.
    pub rlimits: Vec<RlimitSpec>,
    /// Limits that need a cgroup.
    pub limits: LimitsSpec,
    /// Where the cgroup is made, if root starts the sandbox.
    pub cgroup: RootCgroupSpec,
    /// Whether programs get a new terminal.
    pub terminal: bool,
    /// The work tree, if the supervisor needs to see it as programs do.
    pub visible_workspace: Option<PathBuf>,
    /// Whether the standard streams are the caller's own, to be reopened by path.
    pub reopen_streams: bool,
    /// For each protection, its strength and origin.
    pub protections: Vec<(Protection, ProtectionStrength, Origin)>,
}

/// The user and group ids of the programs. There are no capabilities here: programs have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxIdentity {
    /// The user id in the sandbox.
    pub uid: u32,
    /// The group id in the sandbox.
    pub gid: u32,
    /// The mapping of sandbox ids to host ids.
    pub map: HostIdMapping,
}

impl SandboxIdentity {
    /// Whether programs have the id of root outside: saggar is root and cannot give them ids of a block.
    pub fn has_root_id(&self) -> bool {
        matches!(self.map, HostIdMapping::Caller { uid: 0, .. })
    }
}

/// The mapping of sandbox ids to host ids (user_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostIdMapping {
    /// One id, the caller's own: the mapping that an unprivileged user may create.
    Caller {
        /// The caller's user id.
        uid: u32,
        /// The caller's group id.
        gid: u32,
    },
    /// A block of 65536 ids for this sandbox alone. It never contains the host's id 0.
    Block {
        /// The first id of the block on the host.
        base: u32,
    },
}

/// The number of ids in a block.
pub const ID_BLOCK_SIZE: u32 = 65536;

/// The network of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkSpec {
    /// A new network namespace with only a loopback interface.
    #[default]
    None,
    /// A new network namespace, from which programs can reach the hosts that the rules allow.
    Policy(HostRules),
    /// The host's network namespace, restricted, because a new one is not available.
    RestrictedHost(RestrictedHostNetwork),
    /// The host's network namespace.
    Host,
}

/// The part of the host's network that is available if the host does not support network namespaces and the
/// policy only prefers one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestrictedHostNetwork {
    /// TCP ports that programs can connect to, at any host; if empty, internet sockets are denied.
    pub ports: Vec<u16>,
    /// The reason why a network namespace is not available.
    pub reason: String,
    /// Whether programs may connect to unix sockets by path.
    pub unix_sockets: bool,
    /// Whether programs may listen on unix sockets.
    pub unix_listeners: bool,
}

impl NetworkSpec {
    /// Whether the sandbox has its own network namespace.
    pub fn has_own_namespace(&self) -> bool {
        match self {
            NetworkSpec::None | NetworkSpec::Policy(_) => true,
            NetworkSpec::RestrictedHost(_) | NetworkSpec::Host => false,
        }
    }
}

/// The proxy to the model API: a unix socket in the sandbox, and a port on its loopback interface if that
/// is its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelApiSpec {
    /// The upstream that requests are forwarded to.
    pub upstream: ApiUpstream,
    /// The header field that carries the key.
    pub header: KeyHeader,
    /// The source of the key.
    pub key: ApiKeySource,
    /// Certificates (PEM) to verify the upstream with; without it, those that this host trusts.
    pub ca_file: Option<PathBuf>,
}

impl ModelApiSpec {
    /// The path of the socket in the sandbox.
    pub const SOCKET_PATH: &str = "/run/api.sock";
}

/// The source of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKeySource {
    /// A file of the host.
    File(PathBuf),
    /// A descriptor that the caller opened.
    Descriptor(RawFd),
}

/// The mailbox of a run, which programs reach through a unix socket in the sandbox (saggar-mailbox(7)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailboxSpec {
    /// The directory of all runs.
    #[serde(with = "saggar_sys::exact_name")]
    pub root: PathBuf,
    /// The resolved path of the repository that the run belongs to.
    #[serde(with = "saggar_sys::exact_name")]
    pub repo: PathBuf,
    /// The number of the run.
    pub run: u64,
    /// The name of the sandbox in the run: the sender of its messages.
    pub name: String,
}

impl MailboxSpec {
    /// The path of the socket in the sandbox.
    pub const SOCKET_PATH: &str = "/run/mailbox.sock";
}

/// One file system of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSpec {
    /// Absolute path in the sandbox.
    pub destination: PathBuf,
    /// The kind of mount.
    pub kind: MountKind,
    /// Whether programs may write to it.
    pub writable: bool,
    /// The layer that requested it.
    pub origin: Origin,
    /// Its purpose, for `explain`.
    pub purpose: Cow<'static, str>,
}

/// The kinds of mounts of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountKind {
    /// A file or directory of the system, if the host has it. A symbolic link is copied as a link.
    System {
        /// Its path on the host.
        source: PathBuf,
    },
    /// A file or directory that a layer named. It must exist and is opened once by the parent. If root of
    /// the host starts the sandbox, its owners are mapped.
    Named {
        /// Its path on the host, canonicalized.
        source: PathBuf,
    },
    /// A tmpfs.
    Tmpfs {
        /// Maximum size in bytes.
        size: u64,
        /// Maximum number of inodes.
        inodes: u64,
        /// File mode of its root directory.
        mode: u32,
    },
    /// A directory as in [`MountKind::Named`], mounted under an overlay: changes by programs are stored
    /// elsewhere and never reach it.
    Overlay {
        /// Its path on the host, canonicalized.
        lower: PathBuf,
        /// The storage of the changes.
        changes: OverlayUpper,
    },
    /// The proc file system of the sandbox's pid namespace.
    Proc,
    /// The `/proc` of the container around saggar, read-only, in which programs see the processes of the container.
    OuterProc,
    /// A new instance of devpts, for pseudo-terminals.
    Devpts {
        /// Maximum number of pseudo-terminals.
        max: u32,
    },
    /// A new instance of mqueue, for POSIX message queues.
    Mqueue,
}

impl MountKind {
    /// The host path of a tree of the host, whichever layer named it.
    pub fn host_source(&self) -> Option<&PathBuf> {
        match self {
            MountKind::System { source } => Some(source),
            kind => kind.named_source(),
        }
    }

    /// The host path of a tree that a layer named.
    pub fn named_source(&self) -> Option<&PathBuf> {
        match self {
            MountKind::Named { source } | MountKind::Overlay { lower: source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The storage of the changes of an overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverlayUpper {
    /// A tmpfs, discarded at the end.
    Memory {
        /// Maximum size in bytes.
        size: u64,
        /// Maximum number of inodes.
        inodes: u64,
    },
    /// A directory of the host, in which `changes` and `work` are created. It is kept.
    Directory(PathBuf),
}

/// A path in a mounted tree that is bound over itself, so that it cannot be renamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedPath {
    /// Absolute path in the sandbox.
    pub path: PathBuf,
    /// Whether it is also read-only.
    pub read_only: bool,
    /// The reason for the protection.
    pub reason: Cow<'static, str>,
    /// The layer that requested it.
    pub origin: Origin,
}

/// A masked path of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcMask {
    /// The name below `/proc`.
    pub name: &'static str,
    /// The kind of mask.
    pub kind: MaskKind,
}

/// The kinds of masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskKind {
    /// A file: `/dev/null` is bound over it.
    File,
    /// A directory: an empty, read-only directory is mounted over it.
    Directory,
    /// Bound over itself read-only.
    ReadOnly,
}

/// One limit of setrlimit(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RlimitSpec {
    /// The resource, such as `RLIMIT_NOFILE`.
    pub resource: i32,
    /// The name for messages.
    pub name: &'static str,
    /// The soft limit.
    pub soft: u64,
    /// The hard limit, up to which a program may raise the soft limit.
    pub hard: u64,
    /// Which layer set it.
    pub origin: Origin,
}

/// Where the cgroups of sandboxes that root starts are made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RootCgroupSpec {
    /// The cgroup that has them, at the root of each hierarchy.
    pub parent: CgroupName,
    /// Whether systemd is asked for a scope in it, which is then a slice.
    pub uses_systemd: bool,
}

/// Limits that need a cgroup. `None` is unlimited, except for swap: with a memory limit it is 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LimitsSpec {
    /// memory.max in bytes.
    pub memory: Option<LimitSpec<u64>>,
    /// memory.high in bytes.
    pub memory_high: Option<LimitSpec<u64>>,
    /// memory.swap.max in bytes.
    pub swap: Option<LimitSpec<u64>>,
    /// hugetlb.SIZE.max in bytes, for each page size.
    pub hugetlb: Vec<(HugePageSize, LimitSpec<u64>)>,
    /// cpu.max in thousandths of a core.
    pub cpu_milli: Option<LimitSpec<u64>>,
    /// cpu.max.burst in microseconds.
    pub cpu_burst: Option<LimitSpec<u64>>,
    /// cpu.weight; ignored while `cpu_idle` is true.
    pub cpu_weight: Option<LimitSpec<u64>>,
    /// cpu.idle.
    pub cpu_idle: Option<LimitSpec<bool>>,
    /// cpuset.cpus: the CPUs that programs can run on.
    pub cpuset_cpus: Option<LimitSpec<CpusetList>>,
    /// cpuset.mems: the memory nodes that programs can use.
    pub cpuset_mems: Option<LimitSpec<CpusetList>>,
    /// io.max: disk, key of the rate (`rbps`, `wbps`, `riops`, `wiops`), rate per second.
    pub io: Vec<(DiskName, &'static str, LimitSpec<u64>)>,
    /// io.weight; the default is 100.
    pub io_weight: Option<LimitSpec<u64>>,
    /// pids.max; threads count.
    pub pids: Option<LimitSpec<u64>>,
    /// CPU time in milliseconds.
    pub cpu_time: Option<LimitSpec<u64>>,
    /// Bytes in the workspace and the home directory.
    pub disk: Option<LimitSpec<u64>>,
    /// Number of files, directories and links in the workspace and the home directory.
    pub inodes: Option<LimitSpec<u64>>,
}

/// A limit, its strength and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSpec<T> {
    /// Its value.
    pub value: T,
    /// Whether the limit is required: a file or the command line set it, or requires its protection
    /// (DECISIONS 1).
    pub required: bool,
    /// Which layer set it.
    pub origin: Origin,
}

/// A program to run in a sandbox: the first program, or one of `exec`.
#[derive(Debug, Clone)]
pub struct ProgramSpec {
    /// The program and its arguments; never empty.
    pub argv: Vec<OsString>,
    /// The file to execute; if `None`, the first argument is looked up on the PATH of the sandbox.
    pub file: Option<PathBuf>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory in the sandbox.
    pub cwd: PathBuf,
}
