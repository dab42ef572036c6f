//! The steps of a start, as data.
//!
//! The same list is run by the child ([`crate::stage`]), printed by `explain`, compared in golden tests
//! that need no privilege, and named in an error. [`Steps::new`] refuses an order that would not protect:
//! every step belongs to a [`Phase`], and phases only go forward.

use super::landlock::Domain;
use crate::sys::seccomp::Narrowing;
use std::ffi::{CStr, CString};
use std::fmt;

/// One thing that the child does. Paths are below the new root, without a leading slash, unless said
/// otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Waits until the parent has written the id maps.
    AwaitMaps,
    /// Takes the inner ids; root of the host also drops its groups.
    BecomeUser {
        /// User id inside.
        uid: u32,
        /// Group id inside.
        gid: u32,
        /// Whether supplementary groups can be dropped.
        clear_groups: bool,
    },
    /// Dies with the supervisor: parent-death signal, and a look whether it is dead already.
    DieWithParent,
    /// A tmpfs that becomes the root.
    NewRoot {
        /// `size=` option in bytes.
        size: CString,
        /// `nr_inodes=` option.
        inodes: CString,
    },
    /// A directory; an existing one is fine.
    Mkdir {
        /// Where.
        path: CString,
        /// Its mode.
        mode: u32,
    },
    /// An empty file for a bind to lie on.
    Touch {
        /// Where.
        path: CString,
    },
    /// A symbolic link.
    Symlink {
        /// Where.
        path: CString,
        /// What it says.
        target: CString,
    },
    /// A small read-only file with this content.
    WriteFile {
        /// Where.
        path: CString,
        /// Its bytes.
        content: CString,
    },
    /// A tree of the host on a path of the new root; nosuid and nodev (but for devices) always.
    Bind {
        /// What.
        source: Source,
        /// Where.
        path: CString,
        /// Whether it can be written.
        writable: bool,
        /// A device node: without nodev.
        device: bool,
    },
    /// Takes the trees that the parent made while this process was at work on the rest.
    ReceiveTrees {
        /// How many.
        count: usize,
    },
    /// A path of the new root bound over itself, so that neither it nor its parents can be renamed.
    Pin {
        /// Where.
        path: CString,
        /// Read-only, or only held in place.
        read_only: bool,
    },
    /// A tmpfs.
    Tmpfs {
        /// Where.
        path: CString,
        /// `size=` option in bytes.
        size: CString,
        /// `nr_inodes=` option.
        inodes: CString,
        /// `mode=` option, octal.
        mode: CString,
    },
    /// An overlay on a tree that is mounted already: it is the lower layer, what is mounted on [`EMPTY`] takes the
    /// changes, and is mounted nowhere else afterwards.
    Overlay {
        /// Where.
        path: CString,
    },
    /// The processes of this pid namespace.
    Proc {
        /// Where.
        path: CString,
        /// Hides what one may not trace, pid 1 among it (hidepid=2).
        hide: bool,
    },
    /// A new instance of devpts.
    Devpts {
        /// Where.
        path: CString,
        /// `max=` option.
        max: CString,
    },
    /// POSIX message queues.
    Mqueue {
        /// Where.
        path: CString,
    },
    /// `/dev/null` over a file.
    MaskFile {
        /// Which.
        path: CString,
    },
    /// An empty read-only directory over a directory.
    MaskDirectory {
        /// Which.
        path: CString,
    },
    /// The mount at a path becomes read-only, now that saggar has filled it.
    Seal {
        /// Which.
        path: CString,
    },
    /// Makes the new root the root, and lets the old one go.
    ChangeRoot,
    /// The root itself becomes read-only.
    SealRoot,
    /// Begins to make the network namespace, which goes on beside the next steps.
    MakeNetwork,
    /// Joins the network namespace, in which nothing but `lo` is, and that is up.
    JoinNetwork,
    /// Makes every address one of `lo`'s, and hands the supervisor the sockets that hear calls to them.
    CatchNetwork {
        /// Ports of connections; names are asked for on port 53 in any case.
        ports: Vec<u16>,
    },
    /// Makes the sockets on which the model API is offered, and hands them to the supervisor.
    OfferApi {
        /// Where the unix socket stands.
        path: CString,
        /// A port of the loopback, where that is the sandbox's own.
        port: Option<u16>,
    },
    /// The name of the machine.
    Hostname {
        /// The name.
        name: CString,
    },
    /// A limit of the sandbox's own user namespace, in a proc that is not read-only yet.
    Quota {
        /// The file of `/proc/sys/user`.
        path: CString,
        /// The limit, in digits.
        most: CString,
    },
    /// One limit of setrlimit(2), lowered.
    Rlimit {
        /// Its number.
        resource: i32,
        /// Soft limit.
        soft: u64,
        /// Hard limit.
        hard: u64,
    },
    /// An anonymous session keyring; when `required` is off, a refusal is passed over.
    NewKeyring {
        /// Whether it must succeed.
        required: bool,
    },
    /// Opens the terminal of the sandbox and hands its master to the supervisor.
    OpenTerminal,
    /// Opens the work tree and hands it to the supervisor.
    ShowWorkspace {
        /// Where.
        path: CString,
    },
    /// `no_new_privs`.
    NoNewPrivs,
    /// The landlock domain of [`crate::plan::Plan::landlock`].
    Landlock,
    /// Empties every capability set.
    DropCapabilities,
    /// Not dumpable: no trace, no core, no `/proc/1/mem`; the argument strings are blanked.
    HideMemory,
    /// Loads a filter that takes of the network of the host away.
    Narrow(Narrowing),
    /// Loads pid 1's filter.
    Seccomp,
}

/// An empty directory of the new root that lies over masked ones.
pub const EMPTY: &CStr = c"var/empty";

/// The most paths of the host that a plan names: the child has no heap to keep more.
pub const MAX_TREES: usize = 256;

/// Where a bind comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A system path of the host, absolute, opened by the child.
    System(CString),
    /// A path that somebody named: the parent opened it (slot), the child opens it again in its own mount
    /// namespace and refuses when it is not the same file.
    Checked {
        /// Index in the table of opened files.
        slot: usize,
        /// The absolute path on the host.
        path: CString,
    },
    /// A detached tree that the parent made, its owners mapped.
    Tree {
        /// Index in the table of opened files.
        slot: usize,
        /// The absolute path on the host, for messages.
        path: CString,
    },
}

/// When a step happens. The order of the variants is the order of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Ids and the bond to the supervisor.
    Birth,
    /// The file tree, with the capabilities of the new user namespace.
    Files,
    /// The change of the root.
    Root,
    /// What still needs capabilities, inside the new root.
    Inside,
    /// No way back up.
    NoNewPrivs,
    /// Landlock: after the root change, since its rules are about open files of the new root.
    Landlock,
    /// No capability is left after this.
    Capabilities,
    /// Nobody looks into pid 1.
    Hidden,
    /// The filter, last: it forbids what the steps before it did.
    Seccomp,
}

impl Step {
    /// The phase that this step belongs to.
    pub fn phase(&self) -> Phase {
        match self {
            Step::AwaitMaps | Step::BecomeUser { .. } | Step::DieWithParent | Step::MakeNetwork => {
                Phase::Birth
            }
            Step::NewRoot { .. }
            | Step::Mkdir { .. }
            | Step::Touch { .. }
            | Step::Symlink { .. }
            | Step::WriteFile { .. }
            | Step::Bind { .. }
            | Step::ReceiveTrees { .. }
            | Step::Pin { .. }
            | Step::Tmpfs { .. }
            | Step::Overlay { .. }
            | Step::Proc { .. }
            | Step::Quota { .. }
            | Step::Devpts { .. }
            | Step::Mqueue { .. }
            | Step::MaskFile { .. }
            | Step::MaskDirectory { .. }
            | Step::Seal { .. } => Phase::Files,
            Step::ChangeRoot => Phase::Root,
            Step::SealRoot
            | Step::JoinNetwork
            | Step::CatchNetwork { .. }
            | Step::OfferApi { .. }
            | Step::Hostname { .. }
            | Step::Rlimit { .. }
            | Step::NewKeyring { .. }
            | Step::OpenTerminal
            | Step::ShowWorkspace { .. } => Phase::Inside,
            Step::NoNewPrivs => Phase::NoNewPrivs,
            Step::Landlock => Phase::Landlock,
            Step::DropCapabilities => Phase::Capabilities,
            Step::HideMemory => Phase::Hidden,
            Step::Narrow(_) | Step::Seccomp => Phase::Seccomp,
        }
    }
}

/// A list of steps whose order protects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps(Vec<Step>);

/// Why a list of steps is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OrderError {
    /// A step of an earlier phase after one of a later phase.
    #[error("step {index} ({step}) belongs to {phase:?} and comes after {after:?}")]
    Backwards {
        /// Index of the step.
        index: usize,
        /// The step in words.
        step: String,
        /// Its phase.
        phase: Phase,
        /// The phase that had begun.
        after: Phase,
    },
    /// A network namespace that is made and not joined, or the other way round; or one that is listened in before.
    #[error("the network namespace is to be made and joined, each once, before anything listens in it")]
    Network,
    /// A step that no start may lack.
    #[error("there is no step of the phase {0:?}")]
    Missing(Phase),
}

impl Steps {
    /// Takes `steps` when no phase goes backwards and no indispensable phase is missing. The landlock domain is
    /// indispensable when the plan has one.
    ///
    /// # Errors
    /// [`OrderError`], naming the step.
    pub fn new(steps: Vec<Step>, domain: Option<&Domain>) -> Result<Self, OrderError> {
        let mut now = Phase::Birth;
        for (index, step) in steps.iter().enumerate() {
            let phase = step.phase();
            if phase < now {
                return Err(OrderError::Backwards { index, step: step.to_string(), phase, after: now });
            }
            now = phase;
        }
        let always = [Phase::Root, Phase::NoNewPrivs, Phase::Capabilities, Phase::Hidden, Phase::Seccomp];
        for phase in always.into_iter().chain(domain.map(|_| Phase::Landlock)) {
            let is_there = |step: &Step| step.phase() == phase && !matches!(step, Step::Narrow(_));
            if !steps.iter().any(is_there) {
                return Err(OrderError::Missing(phase));
            }
        }
        let count = |wanted: Step| steps.iter().filter(|step| **step == wanted).count();
        let joined = steps.iter().position(|step| *step == Step::JoinNetwork);
        let listens =
            |step: &Step| matches!(step, Step::CatchNetwork { .. } | Step::OfferApi { port: Some(_), .. });
        let listens = steps.iter().position(listens);
        // What is listened in is the sandbox's own network, never the host's.
        let is_own = listens.is_none_or(|listens| joined.is_some_and(|joined| joined < listens));
        match (count(Step::MakeNetwork), count(Step::JoinNetwork)) {
            (0, 0) | (1, 1) if is_own => Ok(Steps(steps)),
            _ => Err(OrderError::Network),
        }
    }

    /// Whether the child makes its network namespace itself.
    pub fn make_network(&self) -> bool {
        self.0.contains(&Step::MakeNetwork)
    }

    /// The steps in order.
    pub fn as_slice(&self) -> &[Step] {
        &self.0
    }
}

/// A path of the new root as programs will see it.
fn inside(path: &CStr) -> String {
    format!("/{}", path.to_string_lossy())
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Source::System(path) | Source::Checked { path, .. } | Source::Tree { path, .. }) = self;
        f.write_str(&path.to_string_lossy())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::AwaitMaps => f.write_str("wait for the id maps"),
            Step::BecomeUser { uid, gid, clear_groups } => {
                write!(f, "become user {uid} group {gid}")?;
                if *clear_groups { f.write_str(" without other groups") } else { Ok(()) }
            }
            Step::DieWithParent => f.write_str("die with the supervisor"),
            Step::NewRoot { size, inodes } => {
                write!(f, "new root, {} bytes, {} inodes", size.to_string_lossy(), inodes.to_string_lossy())
            }
            Step::Mkdir { path, mode } => write!(f, "make directory {} mode {mode:04o}", inside(path)),
            Step::Touch { path } => write!(f, "make file {}", inside(path)),
            Step::Symlink { path, target } => {
                write!(f, "link {} to {}", inside(path), target.to_string_lossy())
            }
            Step::WriteFile { path, content } => {
                write!(f, "write {}, {} bytes", inside(path), content.as_bytes().len())
            }
            Step::Bind { source, path, writable, device } => {
                let how = if *device {
                    "device"
                } else if *writable {
                    "read-write"
                } else {
                    "read-only"
                };
                write!(f, "mount {source} on {} {how}", inside(path))
            }
            Step::ReceiveTrees { count } => write!(f, "receive {count} trees with mapped owners"),
            Step::Pin { path, read_only } => {
                write!(f, "pin {}{}", inside(path), if *read_only { " read-only" } else { "" })
            }
            Step::Tmpfs { path, size, .. } => {
                write!(f, "mount tmpfs on {}, {} bytes", inside(path), size.to_string_lossy())
            }
            Step::Overlay { path } => {
                write!(f, "lay an overlay over {}, its changes in {}", inside(path), inside(EMPTY))
            }
            Step::Proc { path, .. } => write!(f, "mount proc on {}", inside(path)),
            Step::Quota { path, most } => write!(f, "write {} to {}", most.to_string_lossy(), inside(path)),
            Step::Devpts { path, max } => {
                write!(f, "mount devpts on {}, {} terminals", inside(path), max.to_string_lossy())
            }
            Step::Mqueue { path } => write!(f, "mount mqueue on {}", inside(path)),
            Step::MaskFile { path } | Step::MaskDirectory { path } => write!(f, "mask {}", inside(path)),
            Step::Seal { path } => write!(f, "make {} read-only", inside(path)),
            Step::ChangeRoot => f.write_str("change the root"),
            Step::SealRoot => f.write_str("make the root read-only"),
            Step::MakeNetwork => f.write_str("begin a network namespace"),
            Step::JoinNetwork => f.write_str("join the network namespace, lo up"),
            Step::CatchNetwork { ports } => {
                f.write_str("catch what calls any address, ports")?;
                ports.iter().try_for_each(|port| write!(f, " {port}"))
            }
            Step::OfferApi { path, port } => {
                write!(f, "offer the model API on {}", inside(path))?;
                port.map_or(Ok(()), |port| write!(f, " and 127.0.0.1:{port}"))
            }
            Step::Hostname { name } => write!(f, "set the host name {}", name.to_string_lossy()),
            Step::Rlimit { resource, soft, hard } => {
                write!(f, "set resource limit {resource} to {soft}:{hard}")
            }
            Step::NewKeyring { .. } => f.write_str("join a new session keyring"),
            Step::OpenTerminal => f.write_str("open a terminal"),
            Step::ShowWorkspace { path } => write!(f, "show {} to the supervisor", inside(path)),
            Step::NoNewPrivs => f.write_str("set no_new_privs"),
            Step::Landlock => f.write_str("enter the landlock domain"),
            Step::DropCapabilities => f.write_str("drop every capability"),
            Step::HideMemory => f.write_str("hide the memory of pid 1"),
            Step::Narrow(narrowing) => {
                write!(f, "narrow the network of the host, filter {}", narrowing.describe().name)
            }
            Step::Seccomp => f.write_str("load the seccomp filter"),
        }
    }
}
