//! Permanent confinement of saggar's own processes, before they read the first byte from another party (DECISIONS 33).
//! A process gives up core dumps, capabilities and every way to regain them, its ids, and all files and ports outside
//! its landlock domain. The caller loads the seccomp filter, because it knows which calls the process makes.
//!
//! Landlock is used as far as the kernel supports it. Without it the other restrictions still apply.

use super::landlock::{self, RulesetAttr};
use super::seccomp::HostProcessFilter;
use super::{Errno, SysResult, caps, file, process};
use ::landlock::{ABI, Access as _, AccessNet, BitFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The newest landlock ABI whose rights this module handles.
const NEWEST_ABI: u32 = 6;
/// Scopes of abstract sockets and of signals (ABI 6).
const SCOPES: u64 = 0b11;
/// Securebits of linux/securebits.h. NOROOT, NO_SETUID_FIXUP, KEEP_CAPS and NO_CAP_AMBIENT_RAISE are locked, and all
/// but KEEP_CAPS are set: neither an id nor a program grants a capability, and a change of ids removes none before it
/// is dropped.
const SECUREBITS: u64 = 0b1110_1111;

/// The rights that a process retains in [`drop_rights`].
#[derive(Debug, Default)]
pub struct RetainedRights {
    /// The uid and gid that the process changes to, without supplementary groups; `None` keeps its ids.
    pub ids: Option<(u32, u32)>,
    /// The capabilities to keep, as bits; those that the process does not have are ignored.
    pub capabilities: u64,
    /// The upper bound of the process's bounding set if it is known, which saves reading the set from the kernel.
    pub bounding: Option<u64>,
    /// The landlock domain that the process enters.
    pub domain: Option<LandlockDomain>,
}

/// The rights that one kind of saggar process has after it has confined itself. The module that confines the process
/// declares them, and the process uses the same value; `saggar explain` shows it.
#[derive(Debug, Clone, Copy)]
pub struct ProcessRights {
    /// The name that `ps` shows (proc_pid_comm(5)).
    pub name: &'static CStr,
    /// The capabilities that the process keeps, as bits, of those that its caller has.
    pub capabilities: u64,
    /// The seccomp filter that the process loads.
    pub filter: HostProcessFilter,
    /// The landlock domain; `None` if the process enters none on any kernel.
    pub landlock: Option<LandlockSummary>,
}

/// A description of a landlock domain.
#[derive(Debug, Clone, Copy)]
pub struct LandlockSummary {
    /// The minimum landlock ABI with which the domain exists.
    pub min_abi: u32,
    /// The accesses that the domain allows, in words.
    pub allows: &'static str,
}

/// The step that failed, and its error number.
pub type ConfineError = (&'static str, Errno);

/// Drops all rights but `kept`.
///
/// # Errors
/// The step that failed. The process must then exit.
pub fn drop_rights(kept: RetainedRights) -> Result<(), ConfineError> {
    let at = |what| move |errno| (what, errno);
    // A limit of 1 also keeps the kernel from starting a program that core_pattern names (core(5)).
    process::lower_limit(libc::RLIMIT_CORE.cast_signed(), 1, 1).map_err(at("limit core dumps"))?;
    let capabilities = kept.capabilities & caps::effective();
    if caps::has(caps::SETPCAP) {
        process::prctl(libc::PR_SET_SECUREBITS, SECUREBITS, 0, 0).map_err(at("lock its securebits"))?;
        match kept.bounding {
            Some(bounded) => caps::drop_from_bounding_set(bounded & !capabilities),
            None => caps::limit_bounding_set(capabilities),
        }
        .map_err(at("drop capabilities"))?;
    }
    if let Some((uid, gid)) = kept.ids {
        match process::become_user(uid, gid, true) {
            // The process runs in a container whose user namespace maps only root.
            Err(Errno::EINVAL | Errno::EPERM) => {}
            other => other.map_err(at("change its ids"))?,
        }
    }
    // Without CAP_SETPCAP a change of ids drops all capabilities.
    let capabilities = capabilities & caps::effective();
    caps::set(capabilities, capabilities, 0, 0).map_err(at("drop capabilities"))?;
    process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0).map_err(at("set no_new_privs"))?;
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0).map_err(at("hide its memory"))?;
    match kept.domain.and_then(|domain| domain.ruleset) {
        Some(ruleset) => landlock::restrict_self(ruleset.as_fd()).map_err(at("enter its landlock domain")),
        None => Ok(()),
    }
}

/// A landlock domain under construction. It handles every right that the kernel supports, and allows none of them yet.
#[derive(Debug)]
pub struct LandlockDomain {
    ruleset: Option<OwnedFd>,
    abi: u32,
    handled: AccessFs,
}

/// File rights of landlock.
pub type AccessFs = BitFlags<::landlock::AccessFs>;

impl LandlockDomain {
    /// A domain that allows nothing. It has no effect if the kernel has no landlock or an ABI below `least`.
    ///
    /// # Errors
    /// Those of landlock_create_ruleset(2).
    pub fn new(least: u32) -> SysResult<Self> {
        Self::handling(least, |known| known)
    }

    /// As [`LandlockDomain::new`], but TCP connections to every port are allowed; listening is not.
    ///
    /// # Errors
    /// As [`LandlockDomain::new`].
    pub fn with_tcp_connect(least: u32) -> SysResult<Self> {
        Self::handling(least, |known| known & !AccessNet::ConnectTcp)
    }

    fn handling(least: u32, ports: impl Fn(BitFlags<AccessNet>) -> BitFlags<AccessNet>) -> SysResult<Self> {
        let abi = landlock::abi().min(NEWEST_ABI);
        let known = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
        let handled = ::landlock::AccessFs::from_all(known);
        if abi == 0 || abi < least {
            return Ok(LandlockDomain { ruleset: None, abi: 0, handled });
        }
        let attr = RulesetAttr {
            access_fs: handled.bits(),
            access_net: if abi >= 4 { ports(AccessNet::from_all(known)).bits() } else { 0 },
            scoped: if abi >= 6 { SCOPES } else { 0 },
        };
        Ok(LandlockDomain { ruleset: Some(landlock::create_ruleset(&attr, abi)?), abi, handled })
    }

    /// Allows `access` beneath an open file or directory, as far as the kernel handles it.
    ///
    /// # Errors
    /// Those of landlock_add_rule(2).
    pub fn allow_beneath(&self, path: BorrowedFd<'_>, access: AccessFs) -> SysResult<()> {
        let Some(ruleset) = &self.ruleset else { return Ok(()) };
        landlock::allow_beneath(ruleset.as_fd(), path, (access & self.handled).bits())
    }

    /// As [`LandlockDomain::allow_beneath`], by a path. A path that does not exist needs no rule and is ignored.
    ///
    /// # Errors
    /// As [`LandlockDomain::allow_beneath`], and those of open(2).
    pub fn allow(&self, path: &Path, access: AccessFs) -> SysResult<()> {
        let path = file::c_path(path)?;
        match file::open(file::cwd(), &path, libc::O_PATH, 0, file::Resolve::Ordinary) {
            Ok(path) => self.allow_beneath(path.as_fd(), access),
            Err(Errno::ENOENT | Errno::EACCES) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Allows TCP connections to this port (ABI 4; older ABIs do not restrict ports).
    ///
    /// # Errors
    /// Those of landlock_add_rule(2).
    pub fn allow_connect(&self, port: u16) -> SysResult<()> {
        match &self.ruleset {
            Some(ruleset) if self.abi >= 4 => landlock::allow_connect(ruleset.as_fd(), port),
            _ => Ok(()),
        }
    }
}
