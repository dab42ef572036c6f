//! The model: a [`SandboxSpec`] says everything about a sandbox, and each thing says which layer set it.

pub use super::policy::api::{KeyHeader, Upstream};
pub use super::policy::hosts::Rules;
pub use super::policy::names::{Profile, Protection, Strength};
pub use super::policy::publish::Publish;
pub use super::policy::resources::{Disk, NumberSet, PageSize};
use crate::id::SandboxId;
use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// Which layer set a value, in words: `built-in`, `/etc/saggar/config.toml`, `command line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub Cow<'static, str>);

impl Origin {
    /// What saggar does when nobody says otherwise.
    pub const BUILT_IN: Origin = Origin(Cow::Borrowed("built-in"));
    /// What the command line says.
    pub const COMMAND_LINE: Origin = Origin(Cow::Borrowed("command line"));
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything about one sandbox but the programs that run in it.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// Its name.
    pub id: SandboxId,
    /// How tight it is as a whole.
    pub profile: Profile,
    /// Who the programs are, inside and on the host.
    pub identity: Identity,
    /// The name in its UTS namespace.
    pub hostname: String,
    /// What of the network there is.
    pub network: Network,
    /// Ports of the host that lead to servers inside, each with who asked for it.
    pub publish: Vec<(Publish, Origin)>,
    /// The way to the model API, where its key stays outside.
    pub api: Option<Api>,
    /// The file systems, in the order in which they are mounted; the private root lies under them.
    pub mounts: Vec<Mount>,
    /// Symbolic links of the private root: path, target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Files of the private root that saggar writes: path, content.
    pub files: Vec<(PathBuf, String)>,
    /// Paths inside a mounted tree that are bound over themselves.
    pub pins: Vec<Pin>,
    /// Paths inside a mounted tree that are covered, each only where it exists: path, who asked for it.
    pub hidden: Vec<(PathBuf, Origin)>,
    /// Paths of `/proc` that are covered or made read-only, each only where it exists.
    pub proc_masks: Vec<ProcMask>,
    /// Kernel limits of every program.
    pub rlimits: Vec<Rlimit>,
    /// Limits that need a cgroup.
    pub limits: Limits,
    /// Whether the programs get a terminal of the sandbox's own.
    pub terminal: bool,
    /// The work tree, when the supervisor is to see it as the programs do.
    pub shown: Option<PathBuf>,
    /// Whether the standard streams are the caller's own, to be opened again by name.
    pub streams: bool,
    /// For each protection: must it hold, and who says so.
    pub protections: Vec<(Protection, Strength, Origin)>,
}

/// Who the programs are. Capabilities do not belong here: there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The user id inside.
    pub uid: u32,
    /// The group id inside.
    pub gid: u32,
    /// How inner ids become ids of the host.
    pub map: IdMap,
}

/// How inner ids become ids of the host (user_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdMap {
    /// One id, which is the caller's own: what an ordinary user may do.
    Own {
        /// The caller's user id.
        uid: u32,
        /// The caller's group id.
        gid: u32,
    },
    /// A block of 65536 ids that is the sandbox's alone; the host's 0 is never in it.
    Block {
        /// The first id of the block on the host.
        base: u32,
    },
}

/// How many ids a block has.
pub const BLOCK: u32 = 65536;

/// What of the network there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// A network namespace of its own with nothing but a loopback interface.
    #[default]
    None,
    /// The same, with a way out to what the rules name.
    Policy(Rules),
    /// The host's network namespace, narrowed, for want of one of its own.
    Narrow(Narrow),
    /// The host's network namespace.
    Host,
}

/// What there is of the host's network where no network namespace is to be had, and the policy prefers to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Narrow {
    /// Ports that may be called over TCP, at any host; without any there are no internet sockets.
    pub ports: Vec<u16>,
    /// Why no namespace is to be had.
    pub why: String,
    /// Whether programs are to reach unix sockets by path.
    pub sockets: bool,
    /// Whether a program is to listen on one.
    pub listens: bool,
}

impl Network {
    /// Whether the sandbox has a network namespace of its own.
    pub fn is_own(&self) -> bool {
        match self {
            Network::None | Network::Policy(_) => true,
            Network::Narrow(_) | Network::Host => false,
        }
    }
}

/// The way to the model API: a socket inside, and a port on its loopback where that is its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// Where requests go.
    pub upstream: Upstream,
    /// The header field that the key is sent in.
    pub header: KeyHeader,
    /// Where the key is.
    pub key: KeySource,
    /// What the upstream's certificate is held to, if not to what this host trusts.
    pub ca_file: Option<PathBuf>,
}

impl Api {
    /// Where the socket stands inside.
    pub const SOCKET: &str = "/run/api.sock";
    /// The port on the loopback of a sandbox with a network of its own. It is nobody's (RFC 6335, 272 to 279 are not
    /// assigned), below 1024, so that no program inside can take it, and spells API on a telephone.
    pub const PORT: u16 = 274;
    /// What stands for the key inside: agents do not start without one.
    pub const PLACEHOLDER: &str = "saggar-adds-the-key-outside";
}

/// Where a key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In this file of the host.
    File(PathBuf),
    /// On this descriptor, which the caller has opened.
    Descriptor(RawFd),
}

/// One file system of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is, absolute, inside.
    pub at: PathBuf,
    /// What it is.
    pub kind: MountKind,
    /// Whether programs may write there.
    pub writable: bool,
    /// Which layer asked for it.
    pub origin: Origin,
    /// What it is for, for `explain`.
    pub why: Cow<'static, str>,
}

/// What a mount is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountKind {
    /// A file or directory of the system, where the host has it; a symbolic link stays one.
    System {
        /// Its path on the host.
        source: PathBuf,
    },
    /// A file or directory that somebody named: it must be there, is opened once by the parent, and as root
    /// of the host its owners are mapped.
    Named {
        /// Its path on the host, without links.
        source: PathBuf,
    },
    /// A file system in memory.
    Tmpfs {
        /// Bytes at most.
        size: u64,
        /// Inodes at most.
        inodes: u64,
        /// Mode of its root.
        mode: u32,
    },
    /// A directory that somebody named, as [`MountKind::Named`], under an overlay: what programs change is
    /// elsewhere, and never reaches it.
    Overlay {
        /// Its path on the host, without links.
        lower: PathBuf,
        /// Where what they change is.
        changes: Changes,
    },
    /// The processes of this pid namespace.
    Proc,
    /// Pseudo-terminals of its own.
    Devpts {
        /// How many at most.
        max: u32,
    },
    /// POSIX message queues of its own.
    Mqueue,
}

impl MountKind {
    /// The path on the host of a tree that somebody named.
    pub fn named(&self) -> Option<&PathBuf> {
        match self {
            MountKind::Named { source } | MountKind::Overlay { lower: source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Where the changes of an overlay are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// In memory: gone at the end.
    Memory {
        /// Bytes at most.
        size: u64,
        /// Inodes at most.
        inodes: u64,
    },
    /// In this directory of the host, in which `changes` and `work` are made; it stays.
    Directory(PathBuf),
}

/// A path inside a mounted tree that is bound over itself, so that it cannot be renamed away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Where it is inside, absolute.
    pub at: PathBuf,
    /// Read-only, or only held in its place.
    pub read_only: bool,
    /// Why.
    pub why: Cow<'static, str>,
    /// Which layer asked for it.
    pub origin: Origin,
}

/// What happens to a path of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcMask {
    /// The name below `/proc`.
    pub name: &'static str,
    /// How it is covered.
    pub how: Cover,
}

/// How a path is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cover {
    /// A file: `/dev/null` lies over it.
    File,
    /// A directory: an empty, read-only one lies over it.
    Directory,
    /// It can be read and not written.
    ReadOnly,
}

/// One limit of setrlimit(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rlimit {
    /// `RLIMIT_NOFILE` and the like.
    pub resource: i32,
    /// Its name in words.
    pub name: &'static str,
    /// The limit that holds.
    pub soft: u64,
    /// How far a program may raise it.
    pub hard: u64,
    /// Which layer set it.
    pub origin: Origin,
}

/// Limits that need a cgroup; `None` is no limit, and for swap the 0 that goes with memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// memory.max in bytes.
    pub memory: Option<Limit<u64>>,
    /// memory.high in bytes.
    pub memory_high: Option<Limit<u64>>,
    /// memory.swap.max in bytes.
    pub swap: Option<Limit<u64>>,
    /// hugetlb.SIZE.max in bytes, for each size of a page.
    pub hugetlb: Vec<(PageSize, Limit<u64>)>,
    /// cpu.max in thousandths of a core.
    pub cpu_milli: Option<Limit<u64>>,
    /// cpu.max.burst in microseconds.
    pub cpu_burst: Option<Limit<u64>>,
    /// cpu.weight; without a meaning while `cpu_idle` is true.
    pub cpu_weight: Option<Limit<u64>>,
    /// cpu.idle.
    pub cpu_idle: Option<Limit<bool>>,
    /// cpuset.cpus.
    pub cpuset_cpus: Option<Limit<NumberSet>>,
    /// cpuset.mems.
    pub cpuset_mems: Option<Limit<NumberSet>>,
    /// io.max: each disk, the key of a rate there (`rbps`, `wbps`, `riops`, `wiops`), and the rate.
    pub io: Vec<(Disk, &'static str, Limit<u64>)>,
    /// io.weight.
    pub io_weight: Option<Limit<u64>>,
    /// pids.max; threads count.
    pub pids: Option<Limit<u64>>,
    /// Processor time in milliseconds.
    pub cpu_time: Option<Limit<u64>>,
    /// Bytes of the workspace and the home directory.
    pub disk: Option<Limit<u64>>,
    /// Files, directories and links there.
    pub inodes: Option<Limit<u64>>,
}

/// A limit, whether it must hold, and who set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit<T> {
    /// Its value.
    pub value: T,
    /// True when a file or the command line named it, or required its protection (DECISIONS 1).
    pub named: bool,
    /// Which layer set it.
    pub origin: Origin,
}

/// A program to run in a sandbox: what `exec` and the first program have in common.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program and its arguments; never empty.
    pub argv: Vec<OsString>,
    /// The file to execute; without it the first argument is looked for on the PATH inside.
    pub file: Option<PathBuf>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory inside.
    pub cwd: PathBuf,
}
