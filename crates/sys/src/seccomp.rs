//! System call filters: the profiles of `seccomp/*.json`, compiled at build time, and functions that load them.
//!
//! Filters are inherited and stack, and the kernel takes the strictest result of all. A process's own filter therefore
//! bounds every program that it starts. The order of the filters in a sandbox follows from this:
//!
//! ```text
//!               profile strict                        network by policy                   profile nesting
//! pid 1         InitAsk (notifies the listener)       InitNotify (notifies it of more)    Nesting
//!   program     InitAsk + AgentNotified               InitNotify + AgentNotified          Nesting (inherited)
//!               = Agent with notifications            = Agent with notifications
//! ```
//!
//! An error takes precedence over a notification. Programs therefore get `AgentNotified`, which returns no error where
//! a filter of pid 1 notifies. On top of `Init` it also equals `Agent`: where no listener is available, the reports are
//! missing, and so is the set-group-ID bit of directories.
//!
//! Without a network namespace, one or two of [`HostNetworkFilter`] are loaded before all of these.

pub mod listener;
#[allow(dead_code, reason = "what two filters make together is described as one")]
mod tables;
#[cfg(test)]
mod tests;

use libc::{SECCOMP_FILTER_FLAG_NEW_LISTENER as LISTENER, SECCOMP_FILTER_FLAG_TSYNC as TSYNC};
use std::os::fd::{FromRawFd, OwnedFd};

/// One instruction of a filter: `struct sock_filter` of linux/filter.h.
pub use libc::sock_filter as SockFilter;

/// The profiles that are compiled into saggar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterProfile {
    /// Programs in a sandbox (`seccomp/agent.json`).
    Agent,
    /// Programs that create sandboxes themselves (`seccomp/nesting.json`).
    Nesting,
    /// pid 1 of a sandbox and its children up to execve (`seccomp/init.json`).
    Init,
    /// Programs in a sandbox whose pid 1 has `InitAsk` or `InitNotify` (`seccomp/told.json`).
    AgentNotified,
    /// As `Init`, but with a notification where a mode has the set-group-ID bit, which a directory may have
    /// (`seccomp/asking.json`).
    InitAsk,
    /// As `InitAsk`, but also with a notification in place of each error for a socket (`seccomp/telling.json`).
    InitNotify,
}

impl FilterProfile {
    /// The profiles that need no listener.
    pub const ALL: [FilterProfile; 3] = [FilterProfile::Agent, FilterProfile::Nesting, FilterProfile::Init];

    /// Whether the filter of pid 1 notifies a listener.
    #[must_use]
    pub const fn has_listener(self) -> bool {
        matches!(self, FilterProfile::InitAsk | FilterProfile::InitNotify)
    }
}

/// Filters that restrict the network if a sandbox uses the host's, and leave all other calls to the profiles. pid 1
/// loads them before its own filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostNetworkFilter {
    /// Of internet sockets only TCP connections, which landlock restricts further (`seccomp/tcp.json`).
    Tcp,
    /// No internet sockets (`seccomp/offline.json`).
    Offline,
    /// No unix sockets but socket pairs, for kernels whose landlock does not scope abstract sockets
    /// (`seccomp/pairs.json`).
    Pairs,
}

impl HostNetworkFilter {
    /// The compiled program, for [`load`].
    #[must_use]
    pub fn program(self) -> &'static [SockFilter] {
        match self {
            HostNetworkFilter::Tcp => &tables::TCP_PROGRAM,
            HostNetworkFilter::Offline => &tables::OFFLINE_PROGRAM,
            HostNetworkFilter::Pairs => &tables::PAIRS_PROGRAM,
        }
    }

    /// The calls that it denies.
    #[must_use]
    pub fn describe(self) -> &'static Description {
        match self {
            HostNetworkFilter::Tcp => &tables::TCP,
            HostNetworkFilter::Offline => &tables::OFFLINE,
            HostNetworkFilter::Pairs => &tables::PAIRS,
        }
    }
}

/// The filters of saggar's own processes outside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostProcessFilter {
    /// The supervisor's event loop (`seccomp/supervisor.json`).
    Supervisor,
    /// The launcher, which keeps privileges, and its workers (`seccomp/launcher.json`).
    Launcher,
    /// The process that keeps the rights over a container with a bridge (`seccomp/keeper.json`).
    Keeper,
    /// A worker that does file work (`seccomp/files.json`).
    FileWorker,
    /// The network relay (`seccomp/relay.json`).
    Relay,
    /// The process that attributes sockets to programs (`seccomp/attribution.json`).
    Attribution,
    /// The model API process, with the profile of agents (`seccomp/agent.json`).
    Api,
    /// A server of the Model Context Protocol (`seccomp/mcp.json`).
    Mcp,
    /// The server of a mailbox (`seccomp/mailbox.json`).
    Mailbox,
}

impl HostProcessFilter {
    /// The compiled program, for [`load`].
    #[must_use]
    pub fn program(self) -> &'static [SockFilter] {
        match self {
            HostProcessFilter::Supervisor => &tables::SUPERVISOR_PROGRAM,
            HostProcessFilter::Launcher => &tables::LAUNCHER_PROGRAM,
            HostProcessFilter::Keeper => &tables::KEEPER_PROGRAM,
            HostProcessFilter::FileWorker => &tables::FILES_PROGRAM,
            HostProcessFilter::Relay => &tables::RELAY_PROGRAM,
            HostProcessFilter::Attribution => &tables::ATTRIBUTION_PROGRAM,
            HostProcessFilter::Api => &tables::AGENT_PROGRAM,
            HostProcessFilter::Mcp => &tables::MCP_PROGRAM,
            HostProcessFilter::Mailbox => &tables::MAILBOX_PROGRAM,
        }
    }

    /// Its purpose and the calls that it denies.
    #[must_use]
    pub fn describe(self) -> &'static Description {
        match self {
            HostProcessFilter::Supervisor => &tables::SUPERVISOR,
            HostProcessFilter::Launcher => &tables::LAUNCHER,
            HostProcessFilter::Keeper => &tables::KEEPER,
            HostProcessFilter::FileWorker => &tables::FILES,
            HostProcessFilter::Relay => &tables::RELAY,
            HostProcessFilter::Attribution => &tables::ATTRIBUTION,
            HostProcessFilter::Api => &tables::AGENT,
            HostProcessFilter::Mcp => &tables::MCP,
            HostProcessFilter::Mailbox => &tables::MAILBOX,
        }
    }
}

/// A description of a profile, for `explain`.
#[derive(Debug)]
pub struct Description {
    /// The name of the profile, as in its file name.
    pub name: &'static str,
    /// The purpose of the profile.
    pub comment: &'static str,
    /// Number of calls that are allowed on this architecture, at least with some arguments.
    pub allowed: usize,
    /// The calls that are denied, entirely or for some arguments.
    pub refusals: &'static [Refusal],
}

/// Calls that a profile denies for one reason.
#[derive(Debug)]
pub struct Refusal {
    /// A short name of the group.
    pub group: &'static str,
    /// The reason, and the error that the caller gets.
    pub comment: &'static str,
    /// The names of the calls, on all architectures.
    pub calls: &'static [&'static str],
    /// Whether the denial depends on the arguments.
    pub in_part: bool,
}

/// The compiled program of `profile`, for [`load`].
#[must_use]
pub fn program(profile: FilterProfile) -> &'static [SockFilter] {
    match profile {
        FilterProfile::Agent => &tables::AGENT_PROGRAM,
        FilterProfile::Nesting => &tables::NESTING_PROGRAM,
        FilterProfile::Init => &tables::INIT_PROGRAM,
        FilterProfile::AgentNotified => &tables::TOLD_PROGRAM,
        FilterProfile::InitAsk => &tables::ASKING_PROGRAM,
        FilterProfile::InitNotify => &tables::TELLING_PROGRAM,
    }
}

/// The calls that `profile` allows and denies.
#[must_use]
pub fn describe(profile: FilterProfile) -> &'static Description {
    match profile {
        FilterProfile::Agent | FilterProfile::AgentNotified => &tables::AGENT,
        FilterProfile::Nesting => &tables::NESTING,
        FilterProfile::Init | FilterProfile::InitAsk | FilterProfile::InitNotify => &tables::INIT,
    }
}

/// Loads `program` permanently on the calling thread and for every process that it starts (seccomp(2),
/// SECCOMP_SET_MODE_FILTER, Linux 3.17). Makes one system call and allocates nothing.
///
/// The caller must have set no_new_privs, or have CAP_SYS_ADMIN in its user namespace. No flag is given: a single
/// thread needs no TSYNC, and SPEC_ALLOW would disable mitigations of speculative execution.
///
/// # Errors
/// The error number: EACCES without no_new_privs, EINVAL for a program that the kernel rejects, ENOMEM if the filters
/// of the thread together are too long, ENOSYS without CONFIG_SECCOMP_FILTER.
pub fn load(program: &[SockFilter]) -> Result<(), i32> {
    load_with(program, 0).map(drop)
}

/// Loads `program` as [`load`] does, with `flags`: SECCOMP_FILTER_FLAG_* of seccomp(2). With
/// SECCOMP_FILTER_FLAG_NEW_LISTENER (Linux 5.0) it returns the descriptor of the listener, close-on-exec.
///
/// # Errors
/// As [`load`]; also EINVAL for a flag that the kernel does not support, EBUSY if a filter of the thread already has a
/// listener, ESRCH if a thread of the process cannot be brought to the same filter (TSYNC).
pub fn load_with(program: &[SockFilter], flags: u64) -> Result<Option<OwnedFd>, i32> {
    let Ok(len) = u16::try_from(program.len()) else { return Err(libc::EINVAL) };
    // The kernel only reads the program; the C structure has no const.
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // TSYNC and NEW_LISTENER both return a number, so the kernel needs a third flag (Linux 5.7) that selects the
    // listener.
    let both = flags & (TSYNC | LISTENER) == TSYNC | LISTENER;
    let flags = if both { flags | libc::SECCOMP_FILTER_FLAG_TSYNC_ESRCH } else { flags };
    // SAFETY: `filter` describes `program`, which outlives the call; the kernel copies it and keeps no pointer.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    match i32::try_from(result) {
        // SAFETY: with this flag the call returns a new descriptor that has no other owner.
        Ok(fd @ 0..) if flags & LISTENER != 0 => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Ok(0) => Ok(None),
        // The value is the id of the thread that could not be brought to the same filter.
        Ok(1..) => Err(libc::ESRCH),
        _ => Err(nix::errno::Errno::last_raw()),
    }
}

/// Whether this kernel supports `flag`, one of SECCOMP_FILTER_FLAG_*. No filter is loaded: the kernel checks flags
/// before it reads the program, and the program pointer is null.
pub fn knows_flag(flag: u64) -> bool {
    // This flag is valid only with a listener.
    let with = if flag == libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV { LISTENER } else { 0 };
    let none = std::ptr::null::<libc::sock_fprog>();
    // SAFETY: the kernel finds no program at the null pointer, and fails.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flag | with, none) };
    result == -1 && nix::errno::Errno::last_raw() == libc::EFAULT
}
