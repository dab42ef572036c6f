//! keyctl(2): a new session keyring.

use super::{SysResult, call};

const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;

/// Replaces the caller's session keyring by a new, anonymous, empty one.
///
/// # Errors
/// EDQUOT if the user's key quota is used up; ENOSYS without keys in the kernel.
pub fn join_new_session() -> SysResult<()> {
    let anonymous = std::ptr::null::<libc::c_char>();
    call!(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, anonymous)?;
    Ok(())
}
