//! The steps of a container's start, as data: the child runs them ([`crate::stage::container`]), golden tests compare
//! them without privileges, and errors name them. [`ContainerSteps::new`] rejects an order that would not protect.

use super::device::{DeviceNode, PlannedDevice};
use super::mount::PlannedMount;
use crate::plan::path::absolute;
use crate::spec::container::Namespace;
use std::ffi::CString;
use std::fmt;

/// One operation of the child. Paths are below the container's root, without a leading slash, unless stated otherwise;
/// they may contain links and `..`, and never resolve to outside of the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerStep {
    /// Waits until the parent has written the id maps and put this process into its cgroup.
    AwaitGo,
    /// Makes the process non-dumpable until execve: processes in a joined namespace cannot access its memory or
    /// descriptors.
    HideMemory,
    /// Enters a namespace that the parent opened.
    JoinNamespace {
        /// The type of the namespace.
        namespace: Namespace,
    },
    /// Becomes root of the user namespace, or the process's user where id 0 is not mapped there.
    BecomeRoot {
        /// User id inside; `None` without a map.
        uid: Option<u32>,
        /// Group id inside; `None` without a map.
        gid: Option<u32>,
    },
    /// Creates a cgroup namespace, rooted at this process's current cgroup.
    NewCgroupNamespace,
    /// Creates a time namespace; the parent writes its offsets before this process enters it.
    NewTimeNamespace,
    /// Joins an anonymous session keyring.
    NewKeyring,
    /// Brings up `lo`.
    LoopbackUp,
    /// Waits until the parent has moved the configured network devices here.
    AwaitNetDevices,
    /// Sets MS_* propagation flags on `/` of the new mount namespace.
    Propagation {
        /// The flags.
        flags: u64,
    },
    /// Receives the trees that the parent opened in this mount namespace with its own rights.
    ReceiveTrees {
        /// The number of trees.
        count: usize,
    },
    /// Bind mounts the root file system over itself. `parent_private` isolates it from the peers of the mount it lies
    /// on.
    AttachRoot {
        /// Its absolute path on the host.
        path: CString,
        /// Whether it comes as the first two received trees: the directory, and a clone of its tree.
        received: bool,
        /// Whether the mount that it lies on is made private first.
        parent_private: bool,
    },
    /// Opens a root without mounting anything on it.
    OpenRoot {
        /// Its absolute path.
        path: CString,
    },
    /// Makes one mount.
    Mount(Box<PlannedMount>),
    /// Makes a device node, or mounts one.
    Device(Box<PlannedDevice>),
    /// Makes a symbolic link; an existing file at that path is kept.
    Symlink {
        /// Its path.
        path: CString,
        /// Its target.
        target: CString,
        /// Whether it replaces an existing file.
        replace: bool,
    },
    /// Makes the working directory if it is missing.
    MakeDirectory {
        /// Its path.
        path: CString,
    },
    /// Opens a terminal on the container's devpts, sends its master to the parent, and makes it the standard streams
    /// and controlling terminal.
    Terminal {
        /// Columns and rows.
        size: Option<(u16, u16)>,
        /// The user that owns it.
        uid: u32,
        /// Whether it is bind mounted at /dev/console.
        console: bool,
    },
    /// Waits while the parent runs the hooks of `create`.
    AwaitHooks,
    /// Makes a mount read-only after it has been filled.
    Seal {
        /// Index of the kept mount.
        kept: usize,
        /// Its path, for messages.
        path: CString,
    },
    /// Masks a path, if it exists.
    Mask {
        /// The path.
        path: CString,
        /// Whether it is a path of the container's procfs.
        proc: bool,
    },
    /// Makes a path read-only, if it exists.
    ReadOnly {
        /// The path.
        path: CString,
        /// Whether it is a path of the container's procfs.
        proc: bool,
    },
    /// Makes the root read-only.
    SealRoot,
    /// Changes the root to the root file system by pivot_root(2), and unmounts the old root.
    PivotRoot,
    /// Moves the root file system over `/`, and changes the root to it.
    MoveRoot,
    /// Changes the root by chroot(2) alone: the container has no mount namespace of its own.
    EnterRoot,
    /// Sets MS_* propagation flags on the new root.
    RootPropagation {
        /// The flags.
        flags: u64,
    },
    /// Sets the host name.
    Hostname {
        /// The name.
        name: CString,
    },
    /// Sets the NIS domain name.
    Domainname {
        /// The name.
        name: CString,
    },
    /// Sets a kernel parameter.
    Sysctl {
        /// Its path below /proc/sys.
        path: CString,
        /// Its value.
        value: CString,
    },
    /// set_mempolicy(2).
    MemoryPolicy {
        /// Mode and flags.
        mode: i32,
        /// Nodes.
        nodes: Vec<u64>,
    },
    /// Starts a new session.
    NewSession,
    /// sched_setaffinity(2).
    CpuAffinity {
        /// The CPUs.
        cpus: Vec<u64>,
    },
    /// sched_setattr(2).
    Scheduler(crate::spec::container::SchedulerAttributes),
    /// ioprio_set(2).
    IoPriority {
        /// Class and priority, packed.
        value: i32,
    },
    /// personality(2).
    Personality {
        /// The domain and its flags.
        value: u64,
    },
    /// Sets one limit of setrlimit(2).
    Rlimit {
        /// Number of the resource.
        resource: i32,
        /// Soft limit.
        soft: u64,
        /// Hard limit.
        hard: u64,
    },
    /// umask(2).
    Umask {
        /// The mask.
        mask: u32,
    },
    /// Sets the LSM profile or label of the program, for execve.
    SecurityLabel {
        /// The file in /proc/thread-self/attr.
        file: CString,
        /// The text to write to it.
        value: CString,
    },
    /// Sets the bounding set.
    LimitBoundingSet {
        /// Capabilities to keep.
        keep: u64,
    },
    /// Gives pipes and terminals among the standard streams to the user, who could not open them again otherwise.
    ChownStreams {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
    /// Sets groups, group and user.
    SetUser {
        /// User id.
        uid: Option<u32>,
        /// Group id.
        gid: Option<u32>,
        /// Supplementary groups; `None` keeps the caller's.
        groups: Option<Vec<u32>>,
    },
    /// Sets the capability sets.
    SetCapabilities {
        /// Effective.
        effective: u64,
        /// Permitted.
        permitted: u64,
        /// Inheritable.
        inheritable: u64,
        /// Ambient.
        ambient: u64,
        /// Whether CAP_SYS_ADMIN is kept in addition until execve, to load the filter: execve computes the sets anew,
        /// and does not use the permitted set (capabilities(7)).
        until_exec: bool,
    },
    /// Keeps descendants below it, even when their parent exits (PR_SET_CHILD_SUBREAPER).
    BecomeSubreaper,
    /// Sets `no_new_privs`.
    NoNewPrivs,
    /// Enters the working directory, and checks that it is inside the root.
    WorkingDirectory {
        /// Absolute path inside.
        path: CString,
        /// Whether to enter it with the user's rights, if root was denied; else before switching to the user.
        as_user: bool,
    },
    /// Sets HOME from the container's passwd file, if the environment has none.
    SetHome {
        /// User id to look up.
        uid: u32,
    },
    /// Finds the program.
    FindProgram,
    /// Marks every descriptor from this one up close-on-exec.
    CloseDescriptors {
        /// The first file descriptor.
        from: u32,
    },
    /// Reports that everything is applied, is released by the parent, and waits for `start`.
    AwaitStart,
    /// Loads the seccomp filter.
    Seccomp,
    /// Executes the program.
    Execute,
}

/// The phases of a start. The order of the variants is the order of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContainerPhase {
    /// Namespaces and ids.
    Namespaces,
    /// The root file system and its mounts, reached by file descriptor.
    Files,
    /// The hooks of `create`.
    Hooks,
    /// Read-only and masked paths.
    Sealing,
    /// The change of the root directory.
    Root,
    /// Steps that need the rights of the container's root.
    Inside,
    /// The process's own settings.
    Process,
    /// Drops capabilities from the bounding set.
    Bounding,
    /// The switch to the user.
    User,
    /// The capability sets.
    Capabilities,
    /// no_new_privs: no later execve can gain rights.
    NoNewPrivs,
    /// Steps that run as the user.
    AsUser,
    /// The wait for `start`.
    Wait,
    /// The seccomp filter.
    Filter,
    /// The execve of the program.
    Execute,
}

impl ContainerStep {
    /// The phase that this step belongs to.
    pub fn phase(&self) -> ContainerPhase {
        match self {
            ContainerStep::AwaitGo
            | ContainerStep::HideMemory
            | ContainerStep::JoinNamespace { .. }
            | ContainerStep::BecomeRoot { .. }
            | ContainerStep::NewCgroupNamespace
            | ContainerStep::NewTimeNamespace
            | ContainerStep::NewKeyring
            | ContainerStep::LoopbackUp
            | ContainerStep::NewSession
            | ContainerStep::BecomeSubreaper
            | ContainerStep::AwaitNetDevices => ContainerPhase::Namespaces,
            ContainerStep::Propagation { .. }
            | ContainerStep::ReceiveTrees { .. }
            | ContainerStep::AttachRoot { .. }
            | ContainerStep::OpenRoot { .. }
            | ContainerStep::Mount(_)
            | ContainerStep::Device(_)
            | ContainerStep::Symlink { .. }
            | ContainerStep::MakeDirectory { .. }
            | ContainerStep::Terminal { .. } => ContainerPhase::Files,
            ContainerStep::AwaitHooks => ContainerPhase::Hooks,
            ContainerStep::Seal { .. }
            | ContainerStep::Mask { .. }
            | ContainerStep::ReadOnly { .. }
            | ContainerStep::SealRoot => ContainerPhase::Sealing,
            ContainerStep::PivotRoot | ContainerStep::MoveRoot | ContainerStep::EnterRoot => {
                ContainerPhase::Root
            }
            ContainerStep::RootPropagation { .. }
            | ContainerStep::Hostname { .. }
            | ContainerStep::Domainname { .. }
            | ContainerStep::Sysctl { .. }
            | ContainerStep::MemoryPolicy { .. } => ContainerPhase::Inside,
            ContainerStep::CpuAffinity { .. }
            | ContainerStep::Scheduler(_)
            | ContainerStep::IoPriority { .. }
            | ContainerStep::Personality { .. }
            | ContainerStep::Rlimit { .. }
            | ContainerStep::Umask { .. }
            | ContainerStep::SecurityLabel { .. }
            | ContainerStep::ChownStreams { .. }
            | ContainerStep::WorkingDirectory { as_user: false, .. } => ContainerPhase::Process,
            ContainerStep::LimitBoundingSet { .. } => ContainerPhase::Bounding,
            ContainerStep::SetUser { .. } => ContainerPhase::User,
            ContainerStep::SetCapabilities { .. } => ContainerPhase::Capabilities,
            ContainerStep::NoNewPrivs => ContainerPhase::NoNewPrivs,
            ContainerStep::WorkingDirectory { .. }
            | ContainerStep::SetHome { .. }
            | ContainerStep::FindProgram
            | ContainerStep::CloseDescriptors { .. } => ContainerPhase::AsUser,
            ContainerStep::AwaitStart => ContainerPhase::Wait,
            ContainerStep::Seccomp => ContainerPhase::Filter,
            ContainerStep::Execute => ContainerPhase::Execute,
        }
    }
}

/// A list of steps in a checked order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSteps(Vec<ContainerStep>);

impl ContainerSteps {
    /// Accepts `steps` if no phase goes backwards, the first step waits for the parent, and the last one executes the
    /// program with its descriptors closed.
    ///
    /// # Errors
    /// A message with the step.
    pub fn new(steps: Vec<ContainerStep>) -> Result<Self, String> {
        if steps.first() != Some(&ContainerStep::AwaitGo) {
            return Err("the first step does not wait for the parent".to_owned());
        }
        for (index, pair) in steps.windows(2).enumerate() {
            if pair[1].phase() < pair[0].phase() {
                let (now, before) = (pair[1].phase(), pair[0].phase());
                return Err(format!("step {} ({}) of {now:?} comes after {before:?}", index + 2, pair[1]));
            }
        }
        let has = |phase| steps.iter().any(|step| step.phase() == phase);
        for phase in [ContainerPhase::Bounding, ContainerPhase::Capabilities, ContainerPhase::Execute] {
            if !has(phase) && has(ContainerPhase::Execute) {
                return Err(format!("there is no step of the phase {phase:?}"));
            }
        }
        let closes = steps.iter().any(|step| matches!(step, ContainerStep::CloseDescriptors { .. }));
        if has(ContainerPhase::Execute) && !closes {
            return Err("no step closes the descriptors".to_owned());
        }
        Ok(ContainerSteps(steps))
    }

    /// Accepts the steps of a hook, which keeps the rights of the runtime.
    pub(super) fn for_hook(steps: Vec<ContainerStep>) -> Self {
        ContainerSteps(steps)
    }

    /// The steps in order.
    pub fn as_slice(&self) -> &[ContainerStep] {
        &self.0
    }
}

impl fmt::Display for ContainerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContainerStep::AwaitGo => f.write_str("wait for the runtime"),
            ContainerStep::HideMemory => f.write_str("hide the memory"),
            ContainerStep::JoinNamespace { namespace } => {
                write!(f, "join the {} namespace", namespace.proc_name())
            }
            ContainerStep::BecomeRoot { .. } => f.write_str("become root of the user namespace"),
            ContainerStep::NewCgroupNamespace => f.write_str("make a cgroup namespace"),
            ContainerStep::NewTimeNamespace => f.write_str("make a time namespace"),
            ContainerStep::NewKeyring => f.write_str("join a new session keyring"),
            ContainerStep::LoopbackUp => f.write_str("set lo up"),
            ContainerStep::AwaitNetDevices => f.write_str("wait for the network devices"),
            ContainerStep::Propagation { flags } => write!(f, "set the propagation of / to {flags:#x}"),
            ContainerStep::ReceiveTrees { count } => write!(f, "receive {count} trees"),
            ContainerStep::AttachRoot { path, .. } => write!(f, "attach the root {}", path.to_string_lossy()),
            ContainerStep::OpenRoot { path } => write!(f, "open the root {}", path.to_string_lossy()),
            ContainerStep::Mount(mount) => mount.fmt(f),
            ContainerStep::Device(device) => {
                let DeviceNode { kind, major, minor, .. } = device.node;
                let letter = match kind {
                    libc::S_IFBLK => 'b',
                    libc::S_IFIFO => 'p',
                    _ => 'c',
                };
                write!(f, "make device {} {letter} {major}:{minor}", absolute(&device.path))
            }
            ContainerStep::Symlink { path, target, .. } => {
                write!(f, "link {} to {}", absolute(path), target.to_string_lossy())
            }
            ContainerStep::MakeDirectory { path } => write!(f, "make directory {}", absolute(path)),
            ContainerStep::Terminal { .. } => f.write_str("open a terminal"),
            ContainerStep::AwaitHooks => f.write_str("wait for the hooks"),
            ContainerStep::Seal { path, .. } => write!(f, "make {} read-only", absolute(path)),
            ContainerStep::Mask { path, .. } => write!(f, "mask {}", absolute(path)),
            ContainerStep::ReadOnly { path, .. } => write!(f, "make {} read-only", absolute(path)),
            ContainerStep::SealRoot => f.write_str("make the root read-only"),
            ContainerStep::PivotRoot => f.write_str("change the root (pivot_root)"),
            ContainerStep::MoveRoot => f.write_str("change the root (move and chroot)"),
            ContainerStep::EnterRoot => f.write_str("change the root (chroot)"),
            ContainerStep::RootPropagation { flags } => {
                write!(f, "set the propagation of the new root to {flags:#x}")
            }
            ContainerStep::Hostname { name } => write!(f, "set the host name {}", name.to_string_lossy()),
            ContainerStep::Domainname { name } => write!(f, "set the domain name {}", name.to_string_lossy()),
            ContainerStep::Sysctl { path, value } => {
                write!(f, "write {:?} to /proc/sys/{}", value.to_string_lossy(), path.to_string_lossy())
            }
            ContainerStep::MemoryPolicy { mode, .. } => write!(f, "set the memory policy {mode:#x}"),
            ContainerStep::NewSession => f.write_str("make a session"),
            ContainerStep::CpuAffinity { cpus } => write!(f, "set the CPU affinity {cpus:x?}"),
            ContainerStep::Scheduler(attributes) => {
                write!(f, "set the scheduling policy {}", attributes.policy)
            }
            ContainerStep::IoPriority { value } => write!(f, "set the I/O priority {value:#x}"),
            ContainerStep::Personality { value } => write!(f, "set the personality {value:#x}"),
            ContainerStep::Rlimit { resource, soft, hard } => {
                write!(f, "set resource limit {resource} to {soft}:{hard}")
            }
            ContainerStep::Umask { mask } => write!(f, "set the umask {mask:04o}"),
            ContainerStep::SecurityLabel { file, value } => {
                write!(f, "write {:?} to attr/{}", value.to_string_lossy(), file.to_string_lossy())
            }
            ContainerStep::LimitBoundingSet { keep } => {
                write!(f, "drop all but {keep:#x} from the bounding set")
            }
            ContainerStep::ChownStreams { uid, gid } => {
                write!(f, "give the standard streams to user {uid} group {gid}")
            }
            ContainerStep::SetUser { uid, gid, groups } => {
                write!(f, "become user {} group {}", id_or_unchanged(*uid), id_or_unchanged(*gid))?;
                match groups.as_deref() {
                    None => f.write_str(" with the groups of the caller"),
                    Some([]) => Ok(()),
                    Some(groups) => write!(f, " groups {groups:?}"),
                }
            }
            ContainerStep::SetCapabilities { effective, permitted, inheritable, ambient, until_exec } => {
                write!(
                    f,
                    "set capabilities e={effective:#x} p={permitted:#x} i={inheritable:#x} a={ambient:#x}"
                )?;
                if *until_exec { f.write_str(", and CAP_SYS_ADMIN until execve") } else { Ok(()) }
            }
            ContainerStep::BecomeSubreaper => f.write_str("become a subreaper"),
            ContainerStep::NoNewPrivs => f.write_str("set no_new_privs"),
            ContainerStep::WorkingDirectory { path, .. } => write!(f, "enter {}", path.to_string_lossy()),
            ContainerStep::SetHome { uid } => write!(f, "find the home of user {uid}"),
            ContainerStep::FindProgram => f.write_str("find the program"),
            ContainerStep::CloseDescriptors { from } => write!(f, "close descriptors from {from} at execve"),
            ContainerStep::AwaitStart => f.write_str("wait for start"),
            ContainerStep::Seccomp => f.write_str("load the seccomp filter"),
            ContainerStep::Execute => f.write_str("execute the program"),
        }
    }
}

fn id_or_unchanged(id: Option<u32>) -> String {
    id.map_or_else(|| "as it is".to_owned(), |id| id.to_string())
}
