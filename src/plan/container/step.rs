//! The steps of a container's start, as data: run by the child ([`crate::stage::container`]), compared in golden
//! tests that need no privilege, and named in errors. [`Steps::new`] refuses an order that would not protect.

use super::mount::Mount;
use crate::spec::container::Namespace;
use std::ffi::CString;
use std::fmt;

/// One thing that the child does. Paths are below the container's root, without a leading slash, unless said
/// otherwise; they may hold links and `..`, and never lead out of the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Waits until the parent has written the id maps and put this process into its cgroup.
    AwaitGo,
    /// Not dumpable from here to execve: whoever is in a namespace that is joined sees nothing of ours.
    Hide,
    /// Enters a namespace that the parent opened.
    Join {
        /// Of which kind.
        namespace: Namespace,
    },
    /// Becomes root of the user namespace, or this user where id 0 is not mapped there.
    BecomeRoot {
        /// User id inside; `None` without a map.
        uid: Option<u32>,
        /// Group id inside; `None` without a map.
        gid: Option<u32>,
    },
    /// A cgroup namespace, rooted where this process is by now.
    NewCgroupNamespace,
    /// A time namespace, whose offsets the parent writes before this process enters it.
    NewTimeNamespace,
    /// An anonymous session keyring.
    NewKeyring,
    /// `lo` up.
    LoopbackUp,
    /// Waits until the parent has moved the named network devices here.
    AwaitNetDevices,
    /// MS_* propagation flags on `/` of the new mount namespace.
    Propagation {
        /// The flags.
        flags: u64,
    },
    /// Takes the trees that the parent opened in this mount namespace with its own rights.
    ReceiveTrees {
        /// How many.
        count: usize,
    },
    /// The root file system, attached over itself. `parent_private` keeps that from the peers of the mount it
    /// lies on.
    Root {
        /// Its absolute path on the host.
        path: CString,
        /// Whether it is the first two of the received trees: the directory, and the tree of it.
        received: bool,
        /// Whether the mount that it lies on is made private first.
        parent_private: bool,
    },
    /// A root that nothing is mounted on.
    OpenRoot {
        /// Its absolute path.
        path: CString,
    },
    /// One mount.
    Mount(Box<Mount>),
    /// A device node, or a bind of the host's.
    Device {
        /// Where.
        path: CString,
        /// S_IFCHR, S_IFBLK or S_IFIFO.
        kind: u32,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
        /// Permission bits.
        mode: u32,
        /// Owner inside.
        uid: u32,
        /// Group inside.
        gid: u32,
        /// Whether it must be bound: a user namespace makes no nodes.
        bind: bool,
    },
    /// A symbolic link; another one at that path stays.
    Symlink {
        /// Where.
        path: CString,
        /// What it says.
        target: CString,
        /// Whether it takes the place of a file.
        replace: bool,
    },
    /// The working directory, made where it is missing.
    MakeDirectory {
        /// Where.
        path: CString,
    },
    /// Opens a terminal on the container's devpts, hands its master to the parent, and takes it as standard
    /// streams and controlling terminal.
    Terminal {
        /// Columns and rows.
        size: Option<(u16, u16)>,
        /// The user it is given to.
        uid: u32,
        /// Whether it is bound at /dev/console.
        console: bool,
    },
    /// Waits while the parent runs the hooks of `create`.
    AwaitHooks,
    /// A mount whose filling is over becomes read-only.
    Seal {
        /// Index of the kept mount.
        kept: usize,
        /// Its path, for messages.
        path: CString,
    },
    /// Covers a path, where it exists.
    Mask {
        /// Which.
        path: CString,
        /// Whether it is a path of the container's procfs.
        proc: bool,
    },
    /// Makes a path read-only, where it exists.
    ReadOnly {
        /// Which.
        path: CString,
        /// Whether it is a path of the container's procfs.
        proc: bool,
    },
    /// The root read-only.
    SealRoot,
    /// Makes the root file system the root, and lets the old root go.
    PivotRoot,
    /// Moves the root file system over `/`, and changes the root to it.
    MoveRoot,
    /// Changes the root by chroot(2) alone: the mount namespace is not the container's own.
    EnterRoot,
    /// MS_* propagation flags on the new root.
    RootPropagation {
        /// The flags.
        flags: u64,
    },
    /// The name of the machine.
    Hostname {
        /// The name.
        name: CString,
    },
    /// The NIS domain name.
    Domainname {
        /// The name.
        name: CString,
    },
    /// A kernel parameter.
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
    /// A session of its own.
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
    /// One limit of setrlimit(2).
    Rlimit {
        /// Its number.
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
    /// The profile or the label of the program, for execve.
    SecurityLabel {
        /// The file in /proc/thread-self/attr.
        file: CString,
        /// What is written to it.
        value: CString,
    },
    /// The bounding set.
    BoundingSet {
        /// What stays in it.
        keep: u64,
    },
    /// Pipes and terminals among the standard streams are the user's, who could not open them again otherwise.
    OwnStreams {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
    /// Groups, group, user.
    User {
        /// User id.
        uid: Option<u32>,
        /// Group id.
        gid: Option<u32>,
        /// Supplementary groups; `None` keeps the caller's.
        groups: Option<Vec<u32>>,
    },
    /// The capability sets.
    Capabilities {
        /// Effective.
        effective: u64,
        /// Permitted.
        permitted: u64,
        /// Inheritable.
        inheritable: u64,
        /// Ambient.
        ambient: u64,
        /// Whether CAP_SYS_ADMIN stays besides until execve, for the load of the filter: execve makes the sets
        /// anew, and the permitted set is no input of that (capabilities(7)).
        until_exec: bool,
    },
    /// What its children start stays below it, also when they end (PR_SET_CHILD_SUBREAPER).
    Subreaper,
    /// `no_new_privs`.
    NoNewPrivs,
    /// Enters the working directory, and makes sure that it is inside.
    WorkingDirectory {
        /// Absolute path inside.
        path: CString,
        /// With the user's rights, if root was refused; else before them.
        as_user: bool,
    },
    /// HOME from the container's passwd file, where the environment has none.
    Home {
        /// Whose.
        uid: u32,
    },
    /// Finds the program.
    FindProgram,
    /// Marks every descriptor from this one up close-on-exec.
    CloseDescriptors {
        /// The first.
        from: u32,
    },
    /// Says that everything is applied, is let go by the parent, and waits for `start`.
    AwaitStart,
    /// Loads the filter.
    Seccomp,
    /// Becomes the program.
    Execute,
}

/// When a step happens. The order of the variants is the order of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Namespaces and ids.
    Birth,
    /// The root file system, and all that is mounted in it, reached by descriptor.
    Files,
    /// The hooks of `create`.
    Hooks,
    /// What closes the file tree.
    Closing,
    /// The change of the root.
    Root,
    /// What needs the rights of the container's root.
    Inside,
    /// The process's own settings.
    Process,
    /// Fewer capabilities in the bounding set.
    Bounding,
    /// The user.
    User,
    /// The capability sets.
    Capabilities,
    /// No way back up.
    NoNewPrivs,
    /// What is done as the user.
    Settled,
    /// The wait for `start`.
    Wait,
    /// The filter.
    Filter,
    /// The program.
    Execute,
}

impl Step {
    /// The phase that this step belongs to.
    pub fn phase(&self) -> Phase {
        match self {
            Step::AwaitGo
            | Step::Hide
            | Step::Join { .. }
            | Step::BecomeRoot { .. }
            | Step::NewCgroupNamespace
            | Step::NewTimeNamespace
            | Step::NewKeyring
            | Step::LoopbackUp
            | Step::NewSession
            | Step::Subreaper
            | Step::AwaitNetDevices => Phase::Birth,
            Step::Propagation { .. }
            | Step::ReceiveTrees { .. }
            | Step::Root { .. }
            | Step::OpenRoot { .. }
            | Step::Mount(_)
            | Step::Device { .. }
            | Step::Symlink { .. }
            | Step::MakeDirectory { .. }
            | Step::Terminal { .. } => Phase::Files,
            Step::AwaitHooks => Phase::Hooks,
            Step::Seal { .. } | Step::Mask { .. } | Step::ReadOnly { .. } | Step::SealRoot => Phase::Closing,
            Step::PivotRoot | Step::MoveRoot | Step::EnterRoot => Phase::Root,
            Step::RootPropagation { .. }
            | Step::Hostname { .. }
            | Step::Domainname { .. }
            | Step::Sysctl { .. }
            | Step::MemoryPolicy { .. } => Phase::Inside,
            Step::CpuAffinity { .. }
            | Step::Scheduler(_)
            | Step::IoPriority { .. }
            | Step::Personality { .. }
            | Step::Rlimit { .. }
            | Step::Umask { .. }
            | Step::SecurityLabel { .. }
            | Step::OwnStreams { .. }
            | Step::WorkingDirectory { as_user: false, .. } => Phase::Process,
            Step::BoundingSet { .. } => Phase::Bounding,
            Step::User { .. } => Phase::User,
            Step::Capabilities { .. } => Phase::Capabilities,
            Step::NoNewPrivs => Phase::NoNewPrivs,
            Step::WorkingDirectory { .. }
            | Step::Home { .. }
            | Step::FindProgram
            | Step::CloseDescriptors { .. } => Phase::Settled,
            Step::AwaitStart => Phase::Wait,
            Step::Seccomp => Phase::Filter,
            Step::Execute => Phase::Execute,
        }
    }
}

/// A list of steps whose order protects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps(Vec<Step>);

impl Steps {
    /// Takes `steps` when no phase goes backwards, the first waits for the parent, and the last executes with its
    /// descriptors closed.
    ///
    /// # Errors
    /// A sentence that names the step.
    pub fn new(steps: Vec<Step>) -> Result<Self, String> {
        if steps.first() != Some(&Step::AwaitGo) {
            return Err("the first step does not wait for the parent".to_owned());
        }
        for (index, pair) in steps.windows(2).enumerate() {
            if pair[1].phase() < pair[0].phase() {
                let (now, before) = (pair[1].phase(), pair[0].phase());
                return Err(format!("step {} ({}) of {now:?} comes after {before:?}", index + 2, pair[1]));
            }
        }
        let has = |phase| steps.iter().any(|step| step.phase() == phase);
        for phase in [Phase::Bounding, Phase::Capabilities, Phase::Execute] {
            if !has(phase) && has(Phase::Execute) {
                return Err(format!("there is no step of the phase {phase:?}"));
            }
        }
        let closes = steps.iter().any(|step| matches!(step, Step::CloseDescriptors { .. }));
        if has(Phase::Execute) && !closes {
            return Err("no step closes the descriptors".to_owned());
        }
        Ok(Steps(steps))
    }

    /// A hook keeps the rights of the runtime.
    pub(super) fn of_hook(steps: Vec<Step>) -> Self {
        Steps(steps)
    }

    /// The steps in order.
    pub fn as_slice(&self) -> &[Step] {
        &self.0
    }
}

/// A path below the root as the container sees it.
fn inside(path: &CString) -> String {
    format!("/{}", path.to_string_lossy())
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::AwaitGo => f.write_str("wait for the runtime"),
            Step::Hide => f.write_str("hide the memory"),
            Step::Join { namespace } => write!(f, "join the {} namespace", namespace.file()),
            Step::BecomeRoot { .. } => f.write_str("become root of the user namespace"),
            Step::NewCgroupNamespace => f.write_str("make a cgroup namespace"),
            Step::NewTimeNamespace => f.write_str("make a time namespace"),
            Step::NewKeyring => f.write_str("join a new session keyring"),
            Step::LoopbackUp => f.write_str("set lo up"),
            Step::AwaitNetDevices => f.write_str("wait for the network devices"),
            Step::Propagation { flags } => write!(f, "set the propagation of / to {flags:#x}"),
            Step::ReceiveTrees { count } => write!(f, "receive {count} trees"),
            Step::Root { path, .. } => write!(f, "attach the root {}", path.to_string_lossy()),
            Step::OpenRoot { path } => write!(f, "open the root {}", path.to_string_lossy()),
            Step::Mount(mount) => mount.fmt(f),
            Step::Device { path, kind, major, minor, .. } => {
                let letter = match *kind {
                    libc::S_IFBLK => 'b',
                    libc::S_IFIFO => 'p',
                    _ => 'c',
                };
                write!(f, "make device {} {letter} {major}:{minor}", inside(path))
            }
            Step::Symlink { path, target, .. } => {
                write!(f, "link {} to {}", inside(path), target.to_string_lossy())
            }
            Step::MakeDirectory { path } => write!(f, "make directory {}", inside(path)),
            Step::Terminal { .. } => f.write_str("open a terminal"),
            Step::AwaitHooks => f.write_str("wait for the hooks"),
            Step::Seal { path, .. } => write!(f, "make {} read-only", inside(path)),
            Step::Mask { path, .. } => write!(f, "mask {}", inside(path)),
            Step::ReadOnly { path, .. } => write!(f, "make {} read-only", inside(path)),
            Step::SealRoot => f.write_str("make the root read-only"),
            Step::PivotRoot => f.write_str("change the root (pivot_root)"),
            Step::MoveRoot => f.write_str("change the root (move and chroot)"),
            Step::EnterRoot => f.write_str("change the root (chroot)"),
            Step::RootPropagation { flags } => write!(f, "set the propagation of the new root to {flags:#x}"),
            Step::Hostname { name } => write!(f, "set the host name {}", name.to_string_lossy()),
            Step::Domainname { name } => write!(f, "set the domain name {}", name.to_string_lossy()),
            Step::Sysctl { path, value } => {
                write!(f, "write {:?} to /proc/sys/{}", value.to_string_lossy(), path.to_string_lossy())
            }
            Step::MemoryPolicy { mode, .. } => write!(f, "set the memory policy {mode:#x}"),
            Step::NewSession => f.write_str("make a session"),
            Step::CpuAffinity { cpus } => write!(f, "set the CPU affinity {cpus:x?}"),
            Step::Scheduler(attributes) => write!(f, "set the scheduling policy {}", attributes.policy),
            Step::IoPriority { value } => write!(f, "set the I/O priority {value:#x}"),
            Step::Personality { value } => write!(f, "set the personality {value:#x}"),
            Step::Rlimit { resource, soft, hard } => {
                write!(f, "set resource limit {resource} to {soft}:{hard}")
            }
            Step::Umask { mask } => write!(f, "set the umask {mask:04o}"),
            Step::SecurityLabel { file, value } => {
                write!(f, "write {:?} to attr/{}", value.to_string_lossy(), file.to_string_lossy())
            }
            Step::BoundingSet { keep } => write!(f, "drop all but {keep:#x} from the bounding set"),
            Step::OwnStreams { uid, gid } => write!(f, "give the standard streams to user {uid} group {gid}"),
            Step::User { uid, gid, groups } => {
                write!(f, "become user {} group {}", shown(*uid), shown(*gid))?;
                match groups.as_deref() {
                    None => f.write_str(" with the groups of the caller"),
                    Some([]) => Ok(()),
                    Some(groups) => write!(f, " groups {groups:?}"),
                }
            }
            Step::Capabilities { effective, permitted, inheritable, ambient, until_exec } => {
                write!(
                    f,
                    "set capabilities e={effective:#x} p={permitted:#x} i={inheritable:#x} a={ambient:#x}"
                )?;
                if *until_exec { f.write_str(", and CAP_SYS_ADMIN until execve") } else { Ok(()) }
            }
            Step::Subreaper => f.write_str("become a subreaper"),
            Step::NoNewPrivs => f.write_str("set no_new_privs"),
            Step::WorkingDirectory { path, .. } => write!(f, "enter {}", path.to_string_lossy()),
            Step::Home { uid } => write!(f, "find the home of user {uid}"),
            Step::FindProgram => f.write_str("find the program"),
            Step::CloseDescriptors { from } => write!(f, "close descriptors from {from} at execve"),
            Step::AwaitStart => f.write_str("wait for start"),
            Step::Seccomp => f.write_str("load the seccomp filter"),
            Step::Execute => f.write_str("execute the program"),
        }
    }
}

fn shown(id: Option<u32>) -> String {
    id.map_or_else(|| "as it is".to_owned(), |id| id.to_string())
}
