//! Capabilities: none left in any set (capabilities(7)).

use super::{Errno, SysResult, call};

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;

/// CAP_CHOWN
pub const CHOWN: u32 = 0;
/// CAP_SETPCAP
pub const SETPCAP: u32 = 8;
/// CAP_SYS_ADMIN
pub const SYS_ADMIN: u32 = 21;

/// Whether this process has the capability in its effective set.
pub fn has(capability: u32) -> bool {
    let header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data { effective: 0, permitted: 0, inheritable: 0 }; 2];
    let got = call!(libc::SYS_capget, &raw const header, data.as_mut_ptr());
    got.is_ok()
        && capability < 64
        && data[(capability / 32) as usize].effective & (1 << (capability % 32)) != 0
}

/// The effective set as bits.
pub fn effective() -> u64 {
    let header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data { effective: 0, permitted: 0, inheritable: 0 }; 2];
    match call!(libc::SYS_capget, &raw const header, data.as_mut_ptr()) {
        Ok(_) => u64::from(data[0].effective) | u64::from(data[1].effective) << 32,
        Err(_) => 0,
    }
}

/// What the kernel knows, and what is in our bounding set, as bits (PR_CAPBSET_READ).
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

/// Drops all but `keep` from the bounding set.
///
/// # Errors
/// EPERM without CAP_SETPCAP, when something is to be dropped.
pub fn bound(keep: u64) -> SysResult<()> {
    let (_, bounding) = known_and_bounding();
    for capability in (0..64u64).filter(|c| bounding & !keep & (1 << c) != 0) {
        super::process::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0)?;
    }
    Ok(())
}

/// Sets effective, permitted and inheritable exactly, then the ambient set (capabilities(7)).
///
/// # Errors
/// EPERM for what we have not.
pub fn set(effective: u64, permitted: u64, inheritable: u64, ambient: u64) -> SysResult<()> {
    let header = Header { version: VERSION_3, pid: 0 };
    let half = |set: u64, n: u32| ((set >> (32 * n)) & 0xffff_ffff) as u32;
    let data = [0, 1].map(|n| Data {
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
    // EINVAL ends the walk: the kernel's newest capability, whatever this program was built with.
    for capability in 0..64u64 {
        match super::process::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0) {
            Ok(()) => {}
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    super::process::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64, 0, 0)?;
    let header = Header { version: VERSION_3, pid: 0 };
    let none = [Data { effective: 0, permitted: 0, inheritable: 0 }; 2];
    call!(libc::SYS_capset, &raw const header, none.as_ptr())?;
    Ok(())
}
