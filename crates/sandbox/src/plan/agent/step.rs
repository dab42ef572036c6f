//! The steps of a start, as data.
//!
//! The child runs this list ([`crate::stage`]), `explain` prints it, golden tests compare it without privileges, and
//! errors name its steps. [`AgentSteps::new`] rejects an order that would not protect: every step belongs to an
//! [`AgentPhase`], and phases only go forward.

use super::landlock::LandlockPlan;
use crate::plan::path::absolute;
use saggar_sys::seccomp::HostNetworkFilter;
use std::ffi::{CStr, CString};
use std::fmt;

/// What a process of saggar serves to the programs of a sandbox, on sockets that pid 1 creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxService {
    /// The model API.
    ModelApi,
    /// The mailbox of a run.
    Mailbox,
}

impl SandboxService {
    /// Its number in messages between processes of saggar.
    pub const fn number(self) -> u32 {
        match self {
            SandboxService::ModelApi => 0,
            SandboxService::Mailbox => 1,
        }
    }

    /// The service with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [SandboxService::ModelApi, SandboxService::Mailbox]
            .into_iter()
            .find(|service| service.number() == number)
    }
}

impl fmt::Display for SandboxService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SandboxService::ModelApi => "model API",
            SandboxService::Mailbox => "mailbox",
        })
    }
}

/// One operation of the child. Paths are below the new root, without a leading slash, unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentStep {
    /// Waits until the parent has written the id maps.
    AwaitMaps,
    /// Switches to the inner ids; for root of the host it also drops supplementary groups.
    BecomeUser {
        /// User id inside.
        uid: u32,
        /// Group id inside.
        gid: u32,
        /// Whether supplementary groups can be dropped.
        clear_groups: bool,
    },
    /// Sets the parent-death signal, and checks whether the supervisor has already exited.
    DieWithParent,
    /// A tmpfs that becomes the root.
    NewRoot {
        /// `size=` option in bytes.
        size: CString,
        /// `nr_inodes=` option.
        inodes: CString,
    },
    /// Makes a directory; an existing one is not an error.
    Mkdir {
        /// Its path.
        path: CString,
        /// Its mode.
        mode: u32,
    },
    /// An empty file as the mount point of a bind mount.
    Touch {
        /// Its path.
        path: CString,
    },
    /// A symbolic link.
    Symlink {
        /// Its path.
        path: CString,
        /// Its target.
        target: CString,
    },
    /// Writes a small read-only file.
    WriteFile {
        /// Its path.
        path: CString,
        /// Its content.
        content: CString,
    },
    /// A bind mount of a host tree; always nosuid, and nodev except for devices.
    Bind {
        /// The tree.
        source: BindSource,
        /// The mount point.
        path: CString,
        /// Whether it is writable.
        writable: bool,
        /// Whether it is a device node, mounted without nodev.
        device: bool,
    },
    /// Receives the trees that the parent prepared while this process ran earlier steps.
    ReceiveTrees {
        /// The number of trees.
        count: usize,
    },
    /// A bind mount of a path of the new root over itself, so that neither it nor its parents can be renamed.
    Pin {
        /// The path.
        path: CString,
        /// Whether it becomes read-only; otherwise it is only pinned.
        read_only: bool,
    },
    /// A tmpfs.
    Tmpfs {
        /// The mount point.
        path: CString,
        /// `size=` option in bytes.
        size: CString,
        /// `nr_inodes=` option.
        inodes: CString,
        /// `mode=` option, octal.
        mode: CString,
    },
    /// An overlay on a tree that is already mounted, its lower layer. The mount on [`EMPTY_DIRECTORY`] becomes the
    /// upper layer, and is mounted nowhere else afterwards.
    Overlay {
        /// The mount point.
        path: CString,
    },
    /// Replaces a git index as git does, in an overlay. If that fails, git finds the one of the lower layer.
    ReplaceIndex {
        /// The directory of the index.
        directory: CString,
        /// The new index.
        content: Vec<u8>,
        /// Its permission bits.
        mode: u32,
        /// Its time: seconds since the Unix epoch, and nanoseconds.
        mtime: (i64, u32),
    },
    /// procfs of this pid namespace.
    Proc {
        /// The mount point.
        path: CString,
        /// Hides processes that the reader may not trace, pid 1 among them (hidepid=2).
        hide_foreign: bool,
    },
    /// The procfs of the host's tree with all that is mounted in it, read-only: a program could otherwise write to the files
    /// of processes of its user, such as `oom_score_adj`.
    OuterProc {
        /// The mount point.
        path: CString,
    },
    /// A new instance of devpts.
    Devpts {
        /// The mount point.
        path: CString,
        /// `max=` option.
        max: CString,
    },
    /// POSIX message queues.
    Mqueue {
        /// The mount point.
        path: CString,
    },
    /// Bind mounts `/dev/null` over a file.
    MaskFile {
        /// The file.
        path: CString,
    },
    /// Mounts an empty read-only file over a file, with its mode and owner.
    HideFile {
        /// The file.
        path: CString,
    },
    /// Mounts an empty read-only directory over a directory, with its mode and owner.
    HideDirectory {
        /// The directory.
        path: CString,
    },
    /// Bind mounts an empty read-only directory over a directory.
    MaskDirectory {
        /// The directory.
        path: CString,
    },
    /// Makes a mount read-only, after saggar has filled it.
    Seal {
        /// The mount point.
        path: CString,
    },
    /// Changes the root to the new root, and unmounts the old root.
    ChangeRoot,
    /// Makes the root read-only.
    SealRoot,
    /// Starts to create the network namespace, in parallel with the next steps.
    MakeNetwork,
    /// Joins the network namespace, whose only device is `lo`, which is up.
    JoinNetwork,
    /// Makes every address local to `lo`, and sends the supervisor the listeners for connections to them.
    RedirectNetwork {
        /// Ports of connections; DNS uses port 53 in any case.
        ports: Vec<u16>,
    },
    /// Makes the sockets that offer a service of saggar, and sends them to the supervisor.
    Listen {
        /// The service.
        service: SandboxService,
        /// Path of the unix socket.
        path: CString,
        /// Port on the loopback device, if the sandbox has a network namespace of its own.
        port: Option<u16>,
    },
    /// Sets the host name, unless a seccomp filter around saggar denies it: programs can then read that of the host.
    Hostname {
        /// The name.
        name: CString,
    },
    /// Sets a limit of the sandbox's own user namespace, through a procfs that is not yet read-only.
    NamespaceLimit {
        /// The file of `/proc/sys/user`.
        path: CString,
        /// The limit, in digits.
        limit: CString,
    },
    /// Lowers one limit of setrlimit(2).
    Rlimit {
        /// Number of the resource.
        resource: i32,
        /// Soft limit.
        soft: u64,
        /// Hard limit.
        hard: u64,
    },
    /// Joins an anonymous session keyring; unless `required`, a denied call is ignored.
    NewKeyring {
        /// Whether it must succeed.
        required: bool,
    },
    /// Opens the terminal of the sandbox and sends its master to the supervisor.
    OpenTerminal,
    /// Opens the workspace and sends the descriptor to the supervisor.
    SendWorkspace {
        /// Path of the workspace.
        path: CString,
    },
    /// Sets `no_new_privs`.
    NoNewPrivs,
    /// Enters the Landlock domain of [`crate::plan::agent::AgentPlan::landlock`].
    Landlock,
    /// Empties every capability set.
    DropCapabilities,
    /// Makes the process non-dumpable: no ptrace, no core dump, no `/proc/1/mem`; blanks the argument strings.
    HideMemory,
    /// Loads a seccomp filter that restricts host networking.
    RestrictHostNetwork(HostNetworkFilter),
    /// Loads the seccomp filter of pid 1.
    Seccomp,
}

/// An empty directory of the new root, bind mounted over masked directories.
pub const EMPTY_DIRECTORY: &CStr = c"var/empty";

/// The maximum number of host paths that a plan names: the child has no heap for more.
pub(crate) const MAX_TREES: usize = 256;

/// The source of a bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindSource {
    /// A system path of the host, absolute, opened by the child.
    System(CString),
    /// A path from the policy or the command line: the parent opens it (slot); the child opens it again in its own
    /// mount namespace, and fails if it is a different file.
    Checked {
        /// Index in the table of opened files.
        slot: usize,
        /// The absolute path on the host.
        path: CString,
    },
    /// A detached, idmapped tree that the parent prepared.
    Tree {
        /// Index in the table of opened files.
        slot: usize,
        /// The absolute path on the host, for messages.
        path: CString,
    },
}

/// The phases of a start. The order of the variants is the order of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentPhase {
    /// Ids and the parent-death signal.
    Namespaces,
    /// The file tree, with the capabilities of the new user namespace.
    Files,
    /// The change of the root directory.
    Root,
    /// Steps inside the new root that still need capabilities.
    Inside,
    /// Sets no_new_privs: no later execve can gain rights.
    NoNewPrivs,
    /// Landlock: after the change of the root, since its rules refer to open files of the new root.
    Landlock,
    /// The last capabilities are dropped.
    Capabilities,
    /// Denies other processes access to the memory of pid 1.
    HiddenMemory,
    /// The seccomp filters, last: they deny system calls of earlier steps.
    Seccomp,
}

impl AgentStep {
    /// The phase that this step belongs to.
    pub fn phase(&self) -> AgentPhase {
        match self {
            AgentStep::AwaitMaps
            | AgentStep::BecomeUser { .. }
            | AgentStep::DieWithParent
            | AgentStep::MakeNetwork => AgentPhase::Namespaces,
            AgentStep::NewRoot { .. }
            | AgentStep::Mkdir { .. }
            | AgentStep::Touch { .. }
            | AgentStep::Symlink { .. }
            | AgentStep::WriteFile { .. }
            | AgentStep::Bind { .. }
            | AgentStep::ReceiveTrees { .. }
            | AgentStep::Pin { .. }
            | AgentStep::Tmpfs { .. }
            | AgentStep::Overlay { .. }
            | AgentStep::ReplaceIndex { .. }
            | AgentStep::Proc { .. }
            | AgentStep::OuterProc { .. }
            | AgentStep::NamespaceLimit { .. }
            | AgentStep::Devpts { .. }
            | AgentStep::Mqueue { .. }
            | AgentStep::MaskFile { .. }
            | AgentStep::HideFile { .. }
            | AgentStep::HideDirectory { .. }
            | AgentStep::MaskDirectory { .. }
            | AgentStep::Seal { .. } => AgentPhase::Files,
            AgentStep::ChangeRoot => AgentPhase::Root,
            AgentStep::SealRoot
            | AgentStep::JoinNetwork
            | AgentStep::RedirectNetwork { .. }
            | AgentStep::Listen { .. }
            | AgentStep::Hostname { .. }
            | AgentStep::Rlimit { .. }
            | AgentStep::NewKeyring { .. }
            | AgentStep::OpenTerminal
            | AgentStep::SendWorkspace { .. } => AgentPhase::Inside,
            AgentStep::NoNewPrivs => AgentPhase::NoNewPrivs,
            AgentStep::Landlock => AgentPhase::Landlock,
            AgentStep::DropCapabilities => AgentPhase::Capabilities,
            AgentStep::HideMemory => AgentPhase::HiddenMemory,
            AgentStep::RestrictHostNetwork(_) | AgentStep::Seccomp => AgentPhase::Seccomp,
        }
    }
}

/// A list of steps in a checked order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSteps(Vec<AgentStep>);

/// Why a list of steps is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AgentStepOrderError {
    /// A step of an earlier phase after one of a later phase.
    #[error("step {index} ({step}) belongs to {phase:?} and comes after {after:?}")]
    Backwards {
        /// Index of the step.
        index: usize,
        /// Description of the step.
        step: String,
        /// Its phase.
        phase: AgentPhase,
        /// The later phase that had already begun.
        after: AgentPhase,
    },
    /// A network namespace that is created and not joined, or joined and not created; or one with a listener before the
    /// join.
    #[error("the network namespace is to be made and joined, each once, before anything listens in it")]
    Network,
    /// A mandatory phase without a step.
    #[error("there is no step of the phase {0:?}")]
    Missing(AgentPhase),
}

impl AgentSteps {
    /// Accepts `steps` if no phase goes backwards and no mandatory phase is missing. The Landlock phase is mandatory if
    /// the plan has a domain.
    ///
    /// # Errors
    /// [`AgentStepOrderError`] with the step.
    pub fn new(steps: Vec<AgentStep>, domain: Option<&LandlockPlan>) -> Result<Self, AgentStepOrderError> {
        let mut now = AgentPhase::Namespaces;
        for (index, step) in steps.iter().enumerate() {
            let phase = step.phase();
            if phase < now {
                return Err(AgentStepOrderError::Backwards {
                    index,
                    step: step.to_string(),
                    phase,
                    after: now,
                });
            }
            now = phase;
        }
        let always = [
            AgentPhase::Root,
            AgentPhase::NoNewPrivs,
            AgentPhase::Capabilities,
            AgentPhase::HiddenMemory,
            AgentPhase::Seccomp,
        ];
        for phase in always.into_iter().chain(domain.map(|_| AgentPhase::Landlock)) {
            let is_there = |step: &AgentStep| {
                step.phase() == phase && !matches!(step, AgentStep::RestrictHostNetwork(_))
            };
            if !steps.iter().any(is_there) {
                return Err(AgentStepOrderError::Missing(phase));
            }
        }
        let count = |wanted: AgentStep| steps.iter().filter(|step| **step == wanted).count();
        let joined = steps.iter().position(|step| *step == AgentStep::JoinNetwork);
        let listens = |step: &AgentStep| {
            matches!(step, AgentStep::RedirectNetwork { .. } | AgentStep::Listen { port: Some(_), .. })
        };
        let listens = steps.iter().position(listens);
        // A listener belongs in the sandbox's own network namespace, never in the host's.
        let is_own = listens.is_none_or(|listens| joined.is_some_and(|joined| joined < listens));
        match (count(AgentStep::MakeNetwork), count(AgentStep::JoinNetwork)) {
            (0, 0) | (1, 1) if is_own => Ok(AgentSteps(steps)),
            _ => Err(AgentStepOrderError::Network),
        }
    }

    /// Whether the child creates its network namespace itself.
    pub(crate) fn makes_network(&self) -> bool {
        self.0.contains(&AgentStep::MakeNetwork)
    }

    /// The steps in order.
    pub fn as_slice(&self) -> &[AgentStep] {
        &self.0
    }
}

impl fmt::Display for BindSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (BindSource::System(path) | BindSource::Checked { path, .. } | BindSource::Tree { path, .. }) =
            self;
        f.write_str(&path.to_string_lossy())
    }
}

impl fmt::Display for AgentStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentStep::AwaitMaps => f.write_str("wait for the id maps"),
            AgentStep::BecomeUser { uid, gid, clear_groups } => {
                write!(f, "become user {uid} group {gid}")?;
                if *clear_groups { f.write_str(" without other groups") } else { Ok(()) }
            }
            AgentStep::DieWithParent => f.write_str("die with the supervisor"),
            AgentStep::NewRoot { size, inodes } => {
                write!(f, "new root, {} bytes, {} inodes", size.to_string_lossy(), inodes.to_string_lossy())
            }
            AgentStep::Mkdir { path, mode } => write!(f, "make directory {} mode {mode:04o}", absolute(path)),
            AgentStep::Touch { path } => write!(f, "make file {}", absolute(path)),
            AgentStep::Symlink { path, target } => {
                write!(f, "link {} to {}", absolute(path), target.to_string_lossy())
            }
            AgentStep::WriteFile { path, content } => {
                write!(f, "write {}, {} bytes", absolute(path), content.as_bytes().len())
            }
            AgentStep::Bind { source, path, writable, device } => {
                let how = if *device {
                    "device"
                } else if *writable {
                    "read-write"
                } else {
                    "read-only"
                };
                write!(f, "mount {source} on {} {how}", absolute(path))
            }
            AgentStep::ReceiveTrees { count } => write!(f, "receive {count} trees with mapped owners"),
            AgentStep::Pin { path, read_only } => {
                write!(f, "pin {}{}", absolute(path), if *read_only { " read-only" } else { "" })
            }
            AgentStep::Tmpfs { path, size, .. } => {
                write!(f, "mount tmpfs on {}, {} bytes", absolute(path), size.to_string_lossy())
            }
            AgentStep::Overlay { path } => {
                write!(
                    f,
                    "lay an overlay over {}, its changes in {}",
                    absolute(path),
                    absolute(EMPTY_DIRECTORY)
                )
            }
            AgentStep::ReplaceIndex { directory, content, .. } => {
                write!(f, "replace {}/index, {} bytes", absolute(directory), content.len())
            }
            AgentStep::Proc { path, .. } => write!(f, "mount proc on {}", absolute(path)),
            AgentStep::OuterProc { path } => {
                write!(f, "mount the /proc of the container on {}, read-only", absolute(path))
            }
            AgentStep::NamespaceLimit { path, limit: most } => {
                write!(f, "write {} to {}", most.to_string_lossy(), absolute(path))
            }
            AgentStep::Devpts { path, max } => {
                write!(f, "mount devpts on {}, {} terminals", absolute(path), max.to_string_lossy())
            }
            AgentStep::Mqueue { path } => write!(f, "mount mqueue on {}", absolute(path)),
            AgentStep::MaskFile { path } | AgentStep::MaskDirectory { path } => {
                write!(f, "mask {}", absolute(path))
            }
            AgentStep::HideFile { path } | AgentStep::HideDirectory { path } => {
                write!(f, "hide {}", absolute(path))
            }
            AgentStep::Seal { path } => write!(f, "make {} read-only", absolute(path)),
            AgentStep::ChangeRoot => f.write_str("change the root"),
            AgentStep::SealRoot => f.write_str("make the root read-only"),
            AgentStep::MakeNetwork => f.write_str("begin a network namespace"),
            AgentStep::JoinNetwork => f.write_str("join the network namespace, lo up"),
            AgentStep::RedirectNetwork { ports } => {
                f.write_str("catch what calls any address, ports")?;
                ports.iter().try_for_each(|port| write!(f, " {port}"))
            }
            AgentStep::Listen { service, path, port } => {
                write!(f, "offer the {service} on {}", absolute(path))?;
                port.map_or(Ok(()), |port| write!(f, " and 127.0.0.1:{port}"))
            }
            AgentStep::Hostname { name } => write!(f, "set the host name {}", name.to_string_lossy()),
            AgentStep::Rlimit { resource, soft, hard } => {
                write!(f, "set resource limit {resource} to {soft}:{hard}")
            }
            AgentStep::NewKeyring { .. } => f.write_str("join a new session keyring"),
            AgentStep::OpenTerminal => f.write_str("open a terminal"),
            AgentStep::SendWorkspace { path } => write!(f, "show {} to the supervisor", absolute(path)),
            AgentStep::NoNewPrivs => f.write_str("set no_new_privs"),
            AgentStep::Landlock => f.write_str("enter the landlock domain"),
            AgentStep::DropCapabilities => f.write_str("drop every capability"),
            AgentStep::HideMemory => f.write_str("hide the memory of pid 1"),
            AgentStep::RestrictHostNetwork(narrowing) => {
                write!(f, "narrow the network of the host, filter {}", narrowing.describe().name)
            }
            AgentStep::Seccomp => f.write_str("load the seccomp filter"),
        }
    }
}
