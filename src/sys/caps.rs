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
