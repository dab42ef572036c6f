//! System call filters: the profiles of `seccomp/*.json`, compiled at build time, and how one is loaded.
//!
//! Filters are inherited and stack up, and the kernel takes the strictest answer of all. So a process's own
//! filter bounds every program it starts. That gives the order in a sandbox:
//!
//! ```text
//!               profile strict          its network by policy          profile nesting
//! pid 1         Init                    Telling (asks: listener)        Nesting
//!   program     Init + Agent = Agent    Telling + Told = Agent, told    Nesting (inherited)
//! ```
//!
//! An error stands over a question, so that programs whose refusals are told get `Told`, which has none for sockets. Over
//! `Init` it is `Agent` too: where no listener is to be had, nothing but the telling is missing.
//!
//! Without a network namespace one or two of [`Narrowing`] lie under all of these.

#![allow(unsafe_code)]

pub mod listener;
#[allow(dead_code, reason = "what two filters make together is described as one")]
mod tables;
#[cfg(test)]
pub(crate) mod tests;

use libc::{SECCOMP_FILTER_FLAG_NEW_LISTENER as LISTENER, SECCOMP_FILTER_FLAG_TSYNC as TSYNC};
use std::os::fd::{FromRawFd, OwnedFd};

/// One instruction of a filter: `struct sock_filter` of linux/filter.h.
pub use libc::sock_filter as SockFilter;

/// The profiles that are built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Programs in a sandbox (`seccomp/agent.json`).
    Agent,
    /// Programs that make sandboxes of their own (`seccomp/nesting.json`).
    Nesting,
    /// Our pid 1 and its children up to execve (`seccomp/init.json`).
    Init,
    /// Programs in a sandbox whose pid 1 has `Telling` (`seccomp/told.json`).
    Told,
    /// As `Init`, with a question in the place of each error for a socket (`seccomp/telling.json`).
    Telling,
}

impl Profile {
    /// Those that answer by themselves.
    pub const ALL: [Profile; 3] = [Profile::Agent, Profile::Nesting, Profile::Init];

    /// The profile that pid 1 loads where programs get this one. When it is the same, programs have it by
    /// inheritance and load nothing.
    #[must_use]
    pub const fn for_init(self) -> Profile {
        match self {
            Profile::Agent | Profile::Init => Profile::Init,
            Profile::Nesting => Profile::Nesting,
            Profile::Told | Profile::Telling => Profile::Telling,
        }
    }
}

/// What takes the network away where it is the host's, and leaves all else to the profiles: pid 1 loads it before its
/// own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Narrowing {
    /// Of internet sockets connections over TCP alone, which landlock looks at (`seccomp/tcp.json`).
    Tcp,
    /// No internet sockets (`seccomp/offline.json`).
    Offline,
    /// No unix sockets but pairs, where landlock does not keep abstract names apart (`seccomp/pairs.json`).
    Pairs,
}

impl Narrowing {
    /// Its program, as [`load`] takes it.
    #[must_use]
    pub fn program(self) -> &'static [SockFilter] {
        match self {
            Narrowing::Tcp => &tables::TCP_PROGRAM,
            Narrowing::Offline => &tables::OFFLINE_PROGRAM,
            Narrowing::Pairs => &tables::PAIRS_PROGRAM,
        }
    }

    /// What it refuses.
    #[must_use]
    pub fn describe(self) -> &'static Description {
        match self {
            Narrowing::Tcp => &tables::TCP,
            Narrowing::Offline => &tables::OFFLINE,
            Narrowing::Pairs => &tables::PAIRS,
        }
    }
}

/// The filters of our own processes outside of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outside {
    /// The loop that supervises it (`seccomp/supervisor.json`).
    Supervisor,
    /// What keeps privileges, and its workers (`seccomp/launcher.json`).
    Launcher,
    /// A worker that does file work (`seccomp/files.json`).
    FileWorker,
    /// What relays its network (`seccomp/relay.json`).
    Relay,
    /// What finds the programs of its sockets (`seccomp/attribution.json`).
    Attribution,
}

impl Outside {
    /// Its program, as [`load`] takes it.
    #[must_use]
    pub fn program(self) -> &'static [SockFilter] {
        match self {
            Outside::Supervisor => &tables::SUPERVISOR_PROGRAM,
            Outside::Launcher => &tables::LAUNCHER_PROGRAM,
            Outside::FileWorker => &tables::FILES_PROGRAM,
            Outside::Relay => &tables::RELAY_PROGRAM,
            Outside::Attribution => &tables::ATTRIBUTION_PROGRAM,
        }
    }
}

/// What a profile is, for `explain`.
#[derive(Debug)]
pub struct Description {
    /// Its name, as in its file's.
    pub name: &'static str,
    /// What it is for.
    pub comment: &'static str,
    /// How many calls are allowed on this architecture, at least with some arguments.
    pub allowed: usize,
    /// What is refused, wholly or for some arguments.
    pub refusals: &'static [Refusal],
}

/// Calls that a profile refuses for one reason.
#[derive(Debug)]
pub struct Refusal {
    /// A few words.
    pub group: &'static str,
    /// Why, and what the caller sees.
    pub comment: &'static str,
    /// The calls, of all architectures.
    pub calls: &'static [&'static str],
    /// Whether it depends on the arguments.
    pub in_part: bool,
}

/// The program of `profile`, as [`load`] takes it.
#[must_use]
pub fn program(profile: Profile) -> &'static [SockFilter] {
    match profile {
        Profile::Agent => &tables::AGENT_PROGRAM,
        Profile::Nesting => &tables::NESTING_PROGRAM,
        Profile::Init => &tables::INIT_PROGRAM,
        Profile::Told => &tables::TOLD_PROGRAM,
        Profile::Telling => &tables::TELLING_PROGRAM,
    }
}

/// What `profile` allows and refuses.
#[must_use]
pub fn describe(profile: Profile) -> &'static Description {
    match profile {
        Profile::Agent | Profile::Told => &tables::AGENT,
        Profile::Nesting => &tables::NESTING,
        Profile::Init | Profile::Telling => &tables::INIT,
    }
}

/// Loads `program` on the calling thread, for good, and for everything it starts (seccomp(2),
/// SECCOMP_SET_MODE_FILTER, Linux 3.17). Makes one system call and allocates nothing.
///
/// The caller has set no_new_privs, or has CAP_SYS_ADMIN in its user namespace. No flag is given: a single
/// thread needs no TSYNC, and SPEC_ALLOW would give up mitigations of speculative execution.
///
/// # Errors
/// The error number: EACCES without no_new_privs, EINVAL for a program that the kernel does not take,
/// ENOMEM when the filters of the thread together are too long, ENOSYS without CONFIG_SECCOMP_FILTER.
pub fn load(program: &[SockFilter]) -> Result<(), i32> {
    load_with(program, 0).map(drop)
}

/// Loads `program` as [`load`] does, with `flags`: SECCOMP_FILTER_FLAG_* of seccomp(2). With
/// SECCOMP_FILTER_FLAG_NEW_LISTENER (Linux 5.0) the descriptor of the listener comes back, close-on-exec.
///
/// # Errors
/// As [`load`]; also EINVAL for a flag that the kernel does not know, EBUSY when a filter of the thread has a
/// listener already, ESRCH when a thread of the process cannot be brought to the same filter (TSYNC).
pub fn load_with(program: &[SockFilter], flags: u64) -> Result<Option<OwnedFd>, i32> {
    let Ok(len) = u16::try_from(program.len()) else { return Err(libc::EINVAL) };
    // The kernel only reads the program; the C structure has no const.
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // Both of them return a number, so the kernel wants to be told (Linux 5.7) that the listener's is meant.
    let both = flags & (TSYNC | LISTENER) == TSYNC | LISTENER;
    let flags = if both { flags | libc::SECCOMP_FILTER_FLAG_TSYNC_ESRCH } else { flags };
    // SAFETY: `filter` describes `program`, which outlives the call; the kernel copies it and keeps no pointer.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    match i32::try_from(result) {
        // SAFETY: with this flag the call returns a descriptor that is new and nobody else's.
        Ok(fd @ 0..) if flags & LISTENER != 0 => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Ok(0) => Ok(None),
        // The thread that could not be brought to the same filter.
        Ok(1..) => Err(libc::ESRCH),
        _ => Err(nix::errno::Errno::last_raw()),
    }
}

/// Whether this kernel knows `flag`, one of SECCOMP_FILTER_FLAG_*. Nothing is loaded: the kernel looks at flags
/// before it looks for a program, and there is none.
pub fn knows_flag(flag: u64) -> bool {
    // It comes with a listener only.
    let with = if flag == libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV { LISTENER } else { 0 };
    let none = std::ptr::null::<libc::sock_fprog>();
    // SAFETY: the kernel finds no program at the null pointer, and fails.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flag | with, none) };
    result == -1 && nix::errno::Errno::last_raw() == libc::EFAULT
}
