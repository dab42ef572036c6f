//! What a process of ours gives up for good before it reads the first byte that another side wrote (DECISIONS 33): its
//! core dumps, capabilities and every way back to them, its ids, and all files and ports but those of its landlock
//! domain. The seccomp filter, which knows what the process does, is its caller's to load.
//!
//! Landlock is what the kernel has of it: without it the rest holds.

use super::landlock::{self, RulesetAttr};
use super::{Errno, SysResult, caps, file, process};
use ::landlock::{ABI, Access as _, AccessNet, BitFlags};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The newest ABI that this module knows the rights of.
const NEWEST: u32 = 6;
/// Scopes of abstract sockets and of signals (ABI 6).
const SCOPES: u64 = 0b11;
/// NOROOT, NO_SETUID_FIXUP, KEEP_CAPS and NO_CAP_AMBIENT_RAISE of linux/securebits.h are locked; all but KEEP_CAPS are
/// on: no id and no program brings a capability, and none is lost by a change of ids before it is dropped.
const SECUREBITS: u64 = 0b1110_1111;

/// What a process keeps.
#[derive(Debug, Default)]
pub struct Kept {
    /// The user and the group that it becomes, without supplementary groups; `None` keeps its own.
    pub ids: Option<(u32, u32)>,
    /// Capabilities as bits, of those that it has.
    pub capabilities: u64,
    /// The landlock domain that it enters.
    pub domain: Option<Domain>,
}

/// A step that failed, and its error number.
pub type Failed = (&'static str, Errno);

/// Gives everything up but `kept`.
///
/// # Errors
/// The step that failed: then the process must not go on.
pub fn give_up(kept: Kept) -> Result<(), Failed> {
    let at = |what| move |errno| (what, errno);
    // 1 keeps programs that core_pattern names from being started, too (core(5)).
    process::lower_limit(libc::RLIMIT_CORE.cast_signed(), 1, 1).map_err(at("limit core dumps"))?;
    let capabilities = kept.capabilities & caps::effective();
    if caps::has(caps::SETPCAP) {
        process::prctl(libc::PR_SET_SECUREBITS, SECUREBITS, 0, 0).map_err(at("lock its securebits"))?;
        caps::bound(capabilities).map_err(at("drop capabilities"))?;
    }
    if let Some((uid, gid)) = kept.ids {
        match process::become_user(uid, gid, true) {
            // A container whose root is not mapped to more than itself.
            Err(Errno::EINVAL | Errno::EPERM) => {}
            other => other.map_err(at("change its ids"))?,
        }
    }
    // Without SETPCAP a change of ids takes them all.
    let capabilities = capabilities & caps::effective();
    caps::set(capabilities, capabilities, 0, 0).map_err(at("drop capabilities"))?;
    process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0).map_err(at("set no_new_privs"))?;
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0).map_err(at("hide its memory"))?;
    match kept.domain.and_then(|domain| domain.ruleset) {
        Some(ruleset) => landlock::restrict_self(ruleset.as_fd()).map_err(at("enter its landlock domain")),
        None => Ok(()),
    }
}

/// A landlock domain that is being made: every right that the kernel knows is handled, and allowed nowhere yet.
#[derive(Debug)]
pub struct Domain {
    ruleset: Option<OwnedFd>,
    abi: u32,
    handled: AccessFs,
}

/// File rights of landlock.
pub type AccessFs = BitFlags<::landlock::AccessFs>;

impl Domain {
    /// One that allows nothing; of no effect where the kernel has no landlock, or less than ABI `least`.
    ///
    /// # Errors
    /// Those of landlock_create_ruleset(2).
    pub fn new(least: u32) -> SysResult<Self> {
        Self::handling(least, |known| known)
    }

    /// As [`Domain::new`], but connections over TCP may go to any port; none is listened on.
    ///
    /// # Errors
    /// As [`Domain::new`].
    pub fn that_connects(least: u32) -> SysResult<Self> {
        Self::handling(least, |known| known & !AccessNet::ConnectTcp)
    }

    fn handling(least: u32, ports: impl Fn(BitFlags<AccessNet>) -> BitFlags<AccessNet>) -> SysResult<Self> {
        let abi = landlock::abi().min(NEWEST);
        let known = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
        let handled = ::landlock::AccessFs::from_all(known);
        if abi == 0 || abi < least {
            return Ok(Domain { ruleset: None, abi: 0, handled });
        }
        let attr = RulesetAttr {
            access_fs: handled.bits(),
            access_net: if abi >= 4 { ports(AccessNet::from_all(known)).bits() } else { 0 },
            scoped: if abi >= 6 { SCOPES } else { 0 },
        };
        Ok(Domain { ruleset: Some(landlock::create_ruleset(&attr, abi)?), abi, handled })
    }

    /// Allows `access` beneath an open file or directory, as far as the kernel handles it.
    ///
    /// # Errors
    /// Those of landlock_add_rule(2).
    pub fn allow_beneath(&self, path: BorrowedFd<'_>, access: AccessFs) -> SysResult<()> {
        let Some(ruleset) = &self.ruleset else { return Ok(()) };
        landlock::allow_beneath(ruleset.as_fd(), path, (access & self.handled).bits())
    }

    /// As [`Domain::allow_beneath`], by a path. What is not there needs no rule.
    ///
    /// # Errors
    /// As [`Domain::allow_beneath`], and those of open(2).
    pub fn allow(&self, path: &Path, access: AccessFs) -> SysResult<()> {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::EINVAL)?;
        match file::open(file::cwd(), &path, libc::O_PATH, 0, file::Resolve::Ordinary) {
            Ok(path) => self.allow_beneath(path.as_fd(), access),
            Err(Errno::ENOENT | Errno::EACCES) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Allows connections to this port over TCP (ABI 4; before that ports are not restricted).
    ///
    /// # Errors
    /// Those of landlock_add_rule(2).
    pub fn allow_connecting(&self, port: u16) -> SysResult<()> {
        match &self.ruleset {
            Some(ruleset) if self.abi >= 4 => landlock::allow_connecting(ruleset.as_fd(), port),
            _ => Ok(()),
        }
    }
}
