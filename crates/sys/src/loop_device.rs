//! Loop devices: a file as a block device (loop(4)); LOOP_CONFIGURE, Linux 5.8.

use super::{SysResult, call};
use crate::file::FileId;
use std::os::fd::{AsRawFd, BorrowedFd};

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64` (linux/loop.h).
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

impl LoopInfo {
    fn new(flags: u32) -> Self {
        LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

/// The number of an unused loop device; `control` is /dev/loop-control. Another process may take the device first.
///
/// # Errors
/// Those of the ioctl.
pub fn free_number(control: BorrowedFd<'_>) -> SysResult<u32> {
    let number = call!(libc::SYS_ioctl, control.as_raw_fd(), LOOP_CTL_GET_FREE)?;
    u32::try_from(number).map_err(|_| super::Errno::ERANGE)
}

/// Binds a file to the device, in blocks of `block_size` bytes; with direct I/O where the file system supports it. The
/// kernel releases the file when the device is neither open nor mounted.
///
/// # Errors
/// EBUSY if the device already has a file.
pub fn configure(device: BorrowedFd<'_>, file: BorrowedFd<'_>, block_size: u32) -> SysResult<()> {
    let fd = u32::try_from(file.as_raw_fd()).map_err(|_| super::Errno::EBADF)?;
    let info = LoopInfo::new(LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO);
    let config = LoopConfig { fd, block_size, info, reserved: [0; 8] };
    call!(libc::SYS_ioctl, device.as_raw_fd(), LOOP_CONFIGURE, &raw const config)?;
    Ok(())
}

/// The identity of the file bound to a device.
///
/// # Errors
/// ENXIO if the device has no file.
pub fn file_of(device: BorrowedFd<'_>) -> SysResult<FileId> {
    let mut info = LoopInfo::new(0);
    call!(libc::SYS_ioctl, device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info)?;
    // Encoded as stat(2) does it (huge_encode_dev in linux/kdev_t.h).
    Ok(FileId { device: info.device, inode: info.inode })
}

/// Unbinds the file from a device.
///
/// # Errors
/// Those of the ioctl.
pub fn clear(device: BorrowedFd<'_>) -> SysResult<()> {
    call!(libc::SYS_ioctl, device.as_raw_fd(), LOOP_CLR_FD)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernel_layout() {
        assert_eq!((size_of::<LoopInfo>(), size_of::<LoopConfig>()), (232, 304));
        assert_eq!(std::mem::offset_of!(LoopInfo, flags), 52);
    }
}
