//! From the model of a container and what the host can do to the steps of its start. Pure: no I/O.

use crate::sys::seccomp::SockFilter;
use std::path::PathBuf;

/// A compiled filter of a container, loaded as the last thing before execve.
#[derive(Clone)]
pub struct Filter {
    /// The program.
    pub program: Vec<SockFilter>,
    /// SECCOMP_FILTER_FLAG_* of seccomp(2); never NEW_LISTENER, which [`Filter::listener`] asks for.
    pub flags: u32,
    /// Who answers SECCOMP_RET_USER_NOTIF.
    pub listener: Option<Listener>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (instructions, flags) = (self.program.len(), self.flags);
        write!(f, "Filter {{ {instructions} instructions, flags {flags:#x}, listener {:?} }}", self.listener)
    }
}

/// `listenerPath` and `listenerMetadata`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The socket that gets the descriptor.
    pub path: PathBuf,
    /// What is told beside it.
    pub metadata: Option<String>,
}

/// The cgroup of a container in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its controllers as its directory below /sys/fs/cgroup is named (`cpu,cpuacct`, `memory`, `systemd`,
    /// `unified`); empty for the one and only hierarchy of a cgroup2 host.
    pub name: String,
    /// The container's own directory on the host.
    pub own: PathBuf,
    /// Names that lead to the directory, besides its own (`cpu`, `cpuacct`).
    pub links: Vec<String>,
}
