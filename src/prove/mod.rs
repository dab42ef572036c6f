//! Verifies a sandbox by harmless attempts from inside, and the kernel's response to each.
//!
//! [`probe`] is a separate program within saggar ([`ENTRY`]). It runs in any sandbox, makes each attempt in a
//! disposable child process, and prints one JSON object for each line. [`harness`] starts the command that creates a
//! sandbox, runs the probe in it, and judges the results. [`attempts`] has one file for each class of attempts.
//! [`expectation`] determines the access that a policy grants by design. `saggar doctor --prove` runs the probe in the
//! sandbox of `saggar wrap`; `benches/compare/run` runs it in other programs' sandboxes.
//!
//! A successful attempt does no harm, even without a sandbox and as root: it opens without writing, mounts on its own
//! directory, sends signal 0, and passes arguments that the kernel rejects *after* the permission check.

pub mod attempts;
pub mod cgroup_limits;
pub mod context;
pub mod expectation;
pub mod harness;
pub mod probe;
pub mod quotas;
pub mod report;

use crate::sys::Errno;
use crate::sys::disposable_child::DisposableChild;
use context::ProbeContext;
use serde::{Deserialize, Serialize};

/// The first argument with which saggar runs as the probe.
pub const ENTRY: &str = "__probe";
/// The first argument with which saggar runs the probe in the sandbox of a given command.
pub const PROVE_OTHER: &str = "__probe-in";

/// The class of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptClass {
    /// Access to files of the host and of the kernel.
    Files,
    /// Changes of the mount tree.
    Mounts,
    /// Creating and joining namespaces.
    Namespaces,
    /// System calls that ordinary programs do not need.
    Calls,
    /// Access to other processes, pid 1 among them.
    Processes,
    /// Capabilities, ids and set-id files.
    Privileges,
    /// Socket families, and services of the host.
    Sockets,
    /// Access to device nodes.
    Devices,
    /// Injection of input into terminals.
    Terminal,
    /// Use of more resources than the limits allow.
    Limits,
    /// Files that git on the host evaluates later.
    Git,
    /// Per-user kernel quotas that the caller of the sandbox shares.
    Quotas,
    /// Variables and descriptors of the caller.
    Inherited,
}

/// The boundary that must stop an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Boundary {
    /// A mount namespace with its own root.
    MountNamespace,
    /// Read-only mounts, and mounts that mask parts of /proc.
    Mount,
    /// A user namespace, or a user other than root.
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
    /// The limit of bytes on disk.
    Disk,
    /// Resource limits of each process and of the user namespace.
    Rlimit,
    /// Processes that are not dumpable, and so cannot be traced.
    Undumpable,
    /// A restricted environment.
    Environment,
    /// Closed descriptors.
    Descriptors,
    /// Protected paths in the workspace.
    Protect,
}

/// The part of a policy that may grant an attempt's access by design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyGrant {
    /// No policy grants it.
    Never,
    /// The profile `nesting` grants it.
    Nesting,
    /// The profile `container` grants it, where the kernel mounts no new `/proc`.
    Container,
    /// The host's network grants it.
    HostNetwork,
}

/// The errors that count as contained.
#[derive(Debug, Clone, Copy)]
pub enum ContainmentRule {
    /// Every error: only success is an escape.
    Any,
    /// A denial (EPERM, EACCES, ENOSYS). After any other error the call itself was reached.
    Denied,
    /// Every error except these.
    AllExcept(&'static [Errno]),
}

/// The reason why an attempt did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFailure {
    /// The kernel returned this error.
    Error(Errno),
    /// The call succeeded, but its target does not exist or did not change.
    NoEffect,
    /// The attempt cannot be made here.
    NotTried,
}

impl From<Errno> for AttemptFailure {
    fn from(errno: Errno) -> Self {
        AttemptFailure::Error(errno)
    }
}

/// The result of an attempt; success means that the boundary failed.
pub type AttemptResult = Result<(), AttemptFailure>;

/// One attempt.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// The unique name of the attempt.
    pub name: &'static str,
    /// A description of the action, in the imperative.
    pub action: &'static str,
    /// The boundary that must stop it.
    pub boundary: Boundary,
    /// The errors that count as contained.
    pub rule: ContainmentRule,
    /// The part of a policy that may grant the access by design.
    pub grant: PolicyGrant,
    /// Whether the attempt is also made outside the sandbox, to find out whether the kernel supports the operation.
    pub control: bool,
    /// Makes the attempt. Runs in a disposable child process.
    pub run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
}

impl Attempt {
    /// An attempt that is contained by any error, never granted, and without a control.
    pub const fn new(
        name: &'static str,
        boundary: Boundary,
        does: &'static str,
        run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
    ) -> Self {
        Attempt {
            name,
            action: does,
            boundary,
            rule: ContainmentRule::Any,
            grant: PolicyGrant::Never,
            control: false,
            run,
        }
    }

    /// Sets the rule.
    pub const fn rule(self, rule: ContainmentRule) -> Self {
        Attempt { rule, ..self }
    }

    /// Sets the part of a policy that grants the access by design.
    pub const fn grant(self, gift: PolicyGrant) -> Self {
        Attempt { grant: gift, ..self }
    }

    /// Makes the attempt also outside the sandbox, to find out whether the kernel supports the operation.
    pub const fn control(self) -> Self {
        Attempt { control: true, ..self }
    }
}

/// One result from the probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeAnswer {
    /// The name of the attempt.
    pub attempt: String,
    /// The result: `ok`, the name of an error or of a signal, `nothing` or `untried`.
    pub answer: String,
    /// Whether the attempt was contained; `None` if it could not be made.
    pub held: Option<bool>,
}
