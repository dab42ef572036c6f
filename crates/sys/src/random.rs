//! Random bytes (getrandom(2)).

use super::{Errno, SysResult, call};

/// Fills `bytes`. Waits until the kernel's generator has been seeded.
///
/// # Errors
/// The error number of getrandom(2).
pub fn fill(mut bytes: &mut [u8]) -> SysResult<()> {
    while !bytes.is_empty() {
        let got = match call!(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) {
            Err(Errno::EINTR) => continue,
            other => usize::try_from(other?).map_err(|_| Errno::EIO)?,
        };
        bytes = bytes.get_mut(got..).ok_or(Errno::EIO)?;
    }
    Ok(())
}

/// An unpredictable 16-bit number.
///
/// # Errors
/// As [`fill`].
pub fn number() -> SysResult<u16> {
    let mut bytes = [0; 2];
    fill(&mut bytes)?;
    Ok(u16::from_ne_bytes(bytes))
}
