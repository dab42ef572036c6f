//! Proving a sandbox: harmless attempts from inside, and what the kernel answered.
//!
//! [`inside`] is the probe, a program of its own within this one ([`ENTRY`]): it runs in any sandbox, makes each attempt
//! in a child process that is thrown away, and prints one JSON object a line. [`outside`] starts the command that makes
//! a sandbox, has the probe run in it, and judges. [`attempts`] has the attempts, one file for each class. [`expect`]
//! says what a policy allows by design. `saggar doctor --prove` puts the sandbox of `saggar wrap` around the probe;
//! `benches/compare/run` puts other programs' sandboxes around it.
//!
//! An attempt does no harm where it succeeds, unconfined and as root too: it opens without writing, mounts on its own
//! directory, signals with number 0, and gives calls arguments that the kernel refuses *after* it has asked for the
//! right to make them.

pub mod account;
pub mod attempts;
pub mod expect;
pub mod inside;
pub mod outside;
pub mod quotas;
pub mod report;
pub mod scene;

use crate::sys::Errno;
use crate::sys::throwaway::Throwaway;
use scene::Scene;
use serde::{Deserialize, Serialize};

/// The first argument with which saggar is the probe.
pub const ENTRY: &str = "__probe";
/// The first argument with which it puts a command's sandbox around the probe.
pub const AROUND: &str = "__probe-in";

/// What attempts have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Files of the host, and of the kernel.
    Files,
    /// Changing the tree of mounts.
    Mounts,
    /// Making and entering namespaces.
    Namespaces,
    /// System calls that ordinary programs do not need.
    Calls,
    /// Other processes, pid 1 among them.
    Processes,
    /// Capabilities, ids, set-id files.
    Privileges,
    /// Families of sockets, and services of the host.
    Sockets,
    /// Device nodes.
    Devices,
    /// Injecting input into terminals.
    Terminal,
    /// Taking more of the machine than is given.
    Limits,
    /// What git on the host obeys later.
    Git,
    /// Kernel quotas that the user who started the sandbox needs as well.
    Quotas,
    /// Variables and descriptors of the caller.
    Inherited,
}

/// What is to answer an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// A mount namespace with a root of its own.
    MountNamespace,
    /// Read-only mounts, and what covers parts of /proc.
    Mount,
    /// A user namespace, or a user who is not root.
    UserNamespace,
    /// A pid namespace.
    PidNamespace,
    /// An ipc namespace.
    IpcNamespace,
    /// A uts namespace.
    UtsNamespace,
    /// A cgroup namespace.
    CgroupNamespace,
    /// A network namespace.
    NetworkNamespace,
    /// The system call filter.
    Seccomp,
    /// A landlock domain.
    Landlock,
    /// The scopes of a landlock domain.
    LandlockScope,
    /// Empty capability sets.
    Capabilities,
    /// The no_new_privs attribute.
    NoNewPrivs,
    /// The limit on processes of a cgroup, or of a user namespace.
    Pids,
    /// The memory limit of a cgroup.
    Memory,
    /// The CPU limit of a cgroup.
    Cpu,
    /// What bounds bytes on disk.
    Disk,
    /// Limits of each process, and of the user namespace.
    Rlimit,
    /// A process that cannot be traced.
    Undumpable,
    /// The environment that is given.
    Environment,
    /// The descriptors that are closed.
    Descriptors,
    /// What is protected in the workspace.
    Protect,
}

/// What a policy may give by design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gift {
    /// Nothing gives it.
    Never,
    /// The profile `nesting`.
    Nesting,
    /// The host's network.
    HostNetwork,
}

/// Which errors mean that it held.
#[derive(Debug, Clone, Copy)]
pub enum Rule {
    /// Every one: only success is a way through.
    Any,
    /// A denial (EPERM, EACCES, ENOSYS). With any other error the call itself was reached.
    Denied,
    /// Every one but these.
    But(&'static [Errno]),
}

/// Why an attempt did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum No {
    /// The kernel said so.
    Error(Errno),
    /// It was done, and what it aims at is not there or has not come of it.
    Nothing,
    /// It cannot be tried here.
    Untried,
}

impl From<Errno> for No {
    fn from(errno: Errno) -> Self {
        No::Error(errno)
    }
}

/// What came of an attempt: success is a way through.
pub type Tried = Result<(), No>;

/// One attempt.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// Its name, unique among all.
    pub name: &'static str,
    /// What it does, as an imperative.
    pub does: &'static str,
    /// What is to answer it.
    pub boundary: Boundary,
    /// Which errors mean that it held.
    pub rule: Rule,
    /// What a policy may give by design.
    pub gift: Gift,
    /// Whether the same attempt outside of the sandbox says that the kernel lacks what is tried.
    pub control: bool,
    /// Makes it. Runs in a child of its own.
    pub run: fn(&Throwaway, &Scene) -> Tried,
}

impl Attempt {
    /// An attempt that holds with any error.
    pub const fn new(
        name: &'static str,
        boundary: Boundary,
        does: &'static str,
        run: fn(&Throwaway, &Scene) -> Tried,
    ) -> Self {
        Attempt { name, does, boundary, rule: Rule::Any, gift: Gift::Never, control: false, run }
    }

    /// With this rule.
    pub const fn rule(self, rule: Rule) -> Self {
        Attempt { rule, ..self }
    }

    /// By design given by `gift`.
    pub const fn gift(self, gift: Gift) -> Self {
        Attempt { gift, ..self }
    }

    /// Also made outside, to know what this kernel lacks.
    pub const fn control(self) -> Self {
        Attempt { control: true, ..self }
    }
}

/// One answer of the probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The attempt's name.
    pub attempt: String,
    /// `ok`, the name of an error or of a signal, `nothing` or `untried`.
    pub answer: String,
    /// Whether it held; `None` when it could not be tried.
    pub held: Option<bool>,
}
