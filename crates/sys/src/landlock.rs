//! The landlock calls (landlock(7)) without allocation, for use in the child. The plan of an agent decides which
//! rights exist at which ABI, with the landlock crate.

use super::{SysResult, call, call_fd};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `struct landlock_ruleset_attr` of linux/landlock.h at ABI 6.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RulesetAttr {
    /// File rights that the domain handles.
    pub access_fs: u64,
    /// TCP rights that the domain handles.
    pub access_net: u64,
    /// Scopes: abstract sockets and signals.
    pub scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttr {
    allowed_access: u64,
    parent_fd: i32,
}

/// LANDLOCK_ACCESS_FS_WRITE_FILE
pub const WRITE_FILE: u64 = 1 << 1;
/// LANDLOCK_ACCESS_FS_EXECUTE
pub const EXECUTE: u64 = 1;
/// LANDLOCK_ACCESS_FS_READ_FILE
pub const READ_FILE: u64 = 1 << 2;
/// LANDLOCK_ACCESS_FS_TRUNCATE (ABI 3)
pub const TRUNCATE: u64 = 1 << 14;

/// `struct landlock_net_port_attr` of linux/landlock.h.
#[repr(C)]
struct NetPortAttr {
    allowed_access: u64,
    port: u64,
}

/// LANDLOCK_ACCESS_NET_BIND_TCP (ABI 4)
pub const BIND_TCP: u64 = 1;
/// LANDLOCK_ACCESS_NET_CONNECT_TCP (ABI 4)
pub const CONNECT_TCP: u64 = 1 << 1;
const RULE_PATH_BENEATH: libc::c_int = 1;
const RULE_NET_PORT: libc::c_int = 2;
const CREATE_RULESET_VERSION: libc::c_uint = 1;

/// The landlock ABI of the running kernel; 0 if landlock is not supported or disabled.
pub fn abi() -> u32 {
    let null = std::ptr::null::<RulesetAttr>();
    call!(libc::SYS_landlock_create_ruleset, null, 0usize, CREATE_RULESET_VERSION)
        .ok()
        .and_then(|abi| u32::try_from(abi).ok())
        .unwrap_or(0)
}

/// A new ruleset. It passes only as many bytes as the ABI defines: 8 for ABI 1 to 3, 16 for 4 and 5.
///
/// # Errors
/// Those of landlock_create_ruleset(2).
pub fn create_ruleset(attr: &RulesetAttr, abi: u32) -> SysResult<OwnedFd> {
    let size = match abi {
        0..=3 => 8usize,
        4..=5 => 16,
        _ => size_of::<RulesetAttr>(),
    };
    call_fd!(libc::SYS_landlock_create_ruleset, std::ptr::from_ref(attr), size, 0)
}

/// Grants `access` beneath the open `path`.
///
/// # Errors
/// Those of landlock_add_rule(2).
pub fn allow_beneath(ruleset: BorrowedFd<'_>, path: BorrowedFd<'_>, access: u64) -> SysResult<()> {
    let rule = PathBeneathAttr { allowed_access: access, parent_fd: path.as_raw_fd() };
    call!(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0)?;
    Ok(())
}

/// Grants TCP connections to this port (ABI 4).
///
/// # Errors
/// Those of landlock_add_rule(2).
pub fn allow_connect(ruleset: BorrowedFd<'_>, port: u16) -> SysResult<()> {
    let rule = NetPortAttr { allowed_access: CONNECT_TCP, port: port.into() };
    call!(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), RULE_NET_PORT, &raw const rule, 0)?;
    Ok(())
}

/// Restricts this thread, and all processes that it starts, to the domain; no_new_privs must be set.
///
/// # Errors
/// Those of landlock_restrict_self(2); E2BIG after 16 layers.
pub fn restrict_self(ruleset: BorrowedFd<'_>) -> SysResult<()> {
    call!(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0)?;
    Ok(())
}
