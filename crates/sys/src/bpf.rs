//! bpf(2): the commands that device filters of cgroup v2 need.

use super::{Errno, SysResult, call, call_fd};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// One instruction: `struct bpf_insn` of linux/bpf.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BpfInsn {
    /// Operation.
    pub code: u8,
    /// Destination register in the low four bits, source register in the high ones.
    pub registers: u8,
    /// Offset of a jump or of memory.
    pub offset: i16,
    /// Constant.
    pub constant: i32,
}

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const PROG_QUERY: libc::c_int = 16;
const PROG_DETACH: libc::c_int = 9;

/// BPF_PROG_TYPE_CGROUP_DEVICE
const TYPE_DEVICE: u32 = 15;
/// BPF_CGROUP_DEVICE
const ATTACH_DEVICE: u32 = 6;
/// BPF_F_ALLOW_MULTI: the program is attached next to other programs; all of them must allow an access.
const ALLOW_MULTI: u32 = 2;
/// BPF_F_REPLACE (Linux 5.6): atomically replaces an attached program.
const REPLACE: u32 = 4;

/// Maximum number of programs that [`find_attached`] inspects; the kernel allows 64 for each cgroup.
const MAX_PROGRAMS: usize = 64;

#[repr(C)]
#[derive(Default)]
struct ProgLoadAttr {
    kind: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct ProgAttachAttr {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
    replaced: u32,
}

#[repr(C)]
#[derive(Default)]
struct ProgQueryAttr {
    target: u32,
    kind: u32,
    flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct ProgByIdAttr {
    id: u32,
    next: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct InfoByFdAttr {
    fd: u32,
    len: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    lengths: [u32; 2],
    programs: [u64; 2],
    load_time: u64,
    uid: u32,
    maps: u32,
    map_ids: u64,
    name: [u8; 16],
}

const _: () = {
    assert!(size_of::<BpfInsn>() == 8);
    assert!(std::mem::offset_of!(ProgLoadAttr, name) == 48);
    assert!(std::mem::offset_of!(ProgQueryAttr, count) == 24);
    assert!(std::mem::offset_of!(ProgInfo, name) == 64);
};

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

fn name_of(name: &CStr) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(name.to_bytes()) {
        *to = *from;
    }
    bytes
}

/// Loads a device filter. [`find_attached`] finds the program by `name`: at most 15 letters, digits and underscores.
///
/// # Errors
/// Those of bpf(2): EPERM without CAP_BPF or CAP_SYS_ADMIN in the initial user namespace, EACCES or EINVAL if the
/// verifier rejects the program.
pub fn load_device_filter(program: &[BpfInsn], name: &CStr) -> SysResult<OwnedFd> {
    let mut load = ProgLoadAttr {
        kind: TYPE_DEVICE,
        insn_cnt: u32::try_from(program.len()).map_err(|_| Errno::E2BIG)?,
        insns: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        name: name_of(name),
        ..ProgLoadAttr::default()
    };
    call_fd!(libc::SYS_bpf, PROG_LOAD, &raw mut load, size_of::<ProgLoadAttr>())
}

/// Attaches a device filter to a cgroup. It replaces the program `replaced` if one is given.
///
/// # Errors
/// Those of bpf(2).
pub fn attach(
    cgroup: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    replaced: Option<BorrowedFd<'_>>,
) -> SysResult<()> {
    let mut attach = ProgAttachAttr {
        target: number(cgroup),
        program: number(program),
        kind: ATTACH_DEVICE,
        flags: if replaced.is_some() { ALLOW_MULTI | REPLACE } else { ALLOW_MULTI },
        replaced: replaced.map_or(0, number),
    };
    call!(libc::SYS_bpf, PROG_ATTACH, &raw mut attach, size_of::<ProgAttachAttr>())?;
    Ok(())
}

/// Detaches a device filter from a cgroup.
///
/// # Errors
/// Those of bpf(2).
pub fn detach(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> SysResult<()> {
    let mut attach = ProgAttachAttr {
        target: number(cgroup),
        program: number(program),
        kind: ATTACH_DEVICE,
        ..ProgAttachAttr::default()
    };
    call!(libc::SYS_bpf, PROG_DETACH, &raw mut attach, size_of::<ProgAttachAttr>())?;
    Ok(())
}

/// The device filter with this name that is attached to the cgroup itself.
///
/// # Errors
/// Those of bpf(2).
pub fn find_attached(cgroup: BorrowedFd<'_>, name: &CStr) -> SysResult<Option<OwnedFd>> {
    let mut ids = [0u32; MAX_PROGRAMS];
    let mut query = ProgQueryAttr {
        target: number(cgroup),
        kind: ATTACH_DEVICE,
        ids: ids.as_mut_ptr() as u64,
        count: u32::try_from(MAX_PROGRAMS).map_err(|_| Errno::EINVAL)?,
        ..ProgQueryAttr::default()
    };
    call!(libc::SYS_bpf, PROG_QUERY, &raw mut query, size_of::<ProgQueryAttr>())?;
    for id in ids.iter().take(query.count as usize) {
        let mut by_id = ProgByIdAttr { id: *id, ..ProgByIdAttr::default() };
        // The program was detached after the query. Only saggar detaches its own programs, so it was another one.
        let Ok(program) =
            call_fd!(libc::SYS_bpf, PROG_GET_FD_BY_ID, &raw mut by_id, size_of::<ProgByIdAttr>())
        else {
            continue;
        };
        let mut info = ProgInfo::default();
        let mut by_fd = InfoByFdAttr {
            fd: number(program.as_fd()),
            len: u32::try_from(size_of::<ProgInfo>()).map_err(|_| Errno::EINVAL)?,
            info: (&raw mut info) as u64,
        };
        call!(libc::SYS_bpf, OBJ_GET_INFO_BY_FD, &raw mut by_fd, size_of::<InfoByFdAttr>())?;
        if info.name == name_of(name) {
            return Ok(Some(program));
        }
    }
    Ok(None)
}
