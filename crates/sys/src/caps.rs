//! Capabilities: reads, limits and drops the capability sets of this process (capabilities(7)).

use super::{Errno, SysResult, call};

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;

/// CAP_CHOWN
pub const CHOWN: u32 = 0;
/// CAP_DAC_OVERRIDE
pub const DAC_OVERRIDE: u32 = 1;
/// CAP_DAC_READ_SEARCH
pub const DAC_READ_SEARCH: u32 = 2;
/// CAP_KILL
pub const KILL: u32 = 5;
/// CAP_SETGID
pub const SETGID: u32 = 6;
/// CAP_SETUID
pub const SETUID: u32 = 7;
/// CAP_SETPCAP
pub const SETPCAP: u32 = 8;
/// CAP_SYS_CHROOT
pub const SYS_CHROOT: u32 = 18;
/// CAP_SYS_PTRACE
pub const SYS_PTRACE: u32 = 19;
/// CAP_SYS_ADMIN
pub const SYS_ADMIN: u32 = 21;
/// CAP_SYS_NICE
pub const SYS_NICE: u32 = 23;
/// CAP_SYS_RESOURCE
pub const SYS_RESOURCE: u32 = 24;

/// Whether this process has the capability in its effective set.
pub fn has(capability: u32) -> bool {
    let header = CapHeader { version: VERSION_3, pid: 0 };
    let mut data = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    let got = call!(libc::SYS_capget, &raw const header, data.as_mut_ptr());
    got.is_ok()
        && capability < 64
        && data[(capability / 32) as usize].effective & (1 << (capability % 32)) != 0
}

/// Whether this process is root with CAP_SYS_ADMIN. Only then sandboxes have ids of a block, quotas and disk images.
pub fn is_privileged_root() -> bool {
    nix::unistd::geteuid().is_root() && has(SYS_ADMIN)
}

/// The effective capability set as bits.
pub fn effective() -> u64 {
    let header = CapHeader { version: VERSION_3, pid: 0 };
    let mut data = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    match call!(libc::SYS_capget, &raw const header, data.as_mut_ptr()) {
        Ok(_) => u64::from(data[0].effective) | u64::from(data[1].effective) << 32,
        Err(_) => 0,
    }
}

/// The capabilities that the kernel supports, and those in the bounding set of this process, as bits (PR_CAPBSET_READ).
pub fn known_and_bounding() -> (u64, u64) {
    let (mut known, mut bounding) = (0, 0);
    for capability in 0..64u64 {
        match call!(libc::SYS_prctl, libc::PR_CAPBSET_READ, capability, 0u64, 0u64, 0u64) {
            Ok(inside) => {
                known |= 1 << capability;
                bounding |= u64::from(inside == 1) << capability;
            }
            Err(_) => break,
        }
    }
    (known, bounding)
}

/// Drops all capabilities but `keep` from the bounding set.
///
/// # Errors
/// EPERM without CAP_SETPCAP, if the set holds a capability that is not in `keep`.
pub fn limit_bounding_set(keep: u64) -> SysResult<()> {
    let (_, bounding) = known_and_bounding();
    for capability in (0..64u64).filter(|c| bounding & !keep & (1 << c) != 0) {
        super::process::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0)?;
    }
    Ok(())
}

/// Drops the capabilities of `set` from the bounding set, whether the set holds them or not. It makes one system call
/// for each of them; [`limit_bounding_set`] first makes one for each capability that the kernel supports.
///
/// # Errors
/// EPERM without CAP_SETPCAP.
pub fn drop_from_bounding_set(set: u64) -> SysResult<()> {
    for capability in (0..64u64).filter(|c| set & (1 << c) != 0) {
        match super::process::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0) {
            Ok(()) => {}
            // The kernel supports neither this capability nor those after it.
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Sets the effective, permitted and inheritable sets exactly, then the ambient set (capabilities(7)).
///
/// # Errors
/// EPERM for a capability that this process does not have.
pub fn set(effective: u64, permitted: u64, inheritable: u64, ambient: u64) -> SysResult<()> {
    let header = CapHeader { version: VERSION_3, pid: 0 };
    let half = |set: u64, n: u32| ((set >> (32 * n)) & 0xffff_ffff) as u32;
    let data = [0, 1].map(|n| CapData {
        effective: half(effective, n),
        permitted: half(permitted, n),
        inheritable: half(inheritable, n),
    });
    call!(libc::SYS_capset, &raw const header, data.as_ptr())?;
    super::process::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0, 0)?;
    for capability in (0..64u64).filter(|c| ambient & (1 << c) != 0) {
        super::process::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as u64, capability, 0)?;
    }
    Ok(())
}

/// Empties the bounding set, the ambient set, and then effective, permitted and inheritable.
///
/// # Errors
/// Those of prctl(2) and capset(2).
pub fn drop_all() -> SysResult<()> {
    // EINVAL ends the loop at the newest capability of the running kernel, whatever kernel headers this program was
    // built with.
    for capability in 0..64u64 {
        match super::process::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0) {
            Ok(()) => {}
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    super::process::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0, 0)?;
    let header = CapHeader { version: VERSION_3, pid: 0 };
    let none = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    call!(libc::SYS_capset, &raw const header, none.as_ptr())?;
    Ok(())
}
