//! Locates the argument and environment strings that the kernel placed on the stack of this process. A forked pid 1
//! overwrites its copy with NUL bytes, so that `/proc/1/cmdline` and `/proc/1/environ` of a sandbox are empty.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

static START: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);

/// glibc and the kernel hand `argc, argv, envp` to the functions of `.init_array`.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn(libc::c_int, *mut *mut libc::c_char, *mut *mut libc::c_char) = remember;

extern "C" fn remember(argc: libc::c_int, argv: *mut *mut libc::c_char, envp: *mut *mut libc::c_char) {
    let Ok(argc) = usize::try_from(argc) else { return };
    if argc == 0 {
        return;
    }
    // SAFETY: the kernel lays out the strings of argv and then of envp without a gap (execve(2), proc(5) on arg_start
    // to env_end); each pointer of both lists is valid until its terminating null pointer.
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    unsafe {
        let first = *argv;
        let mut last = *argv.add(argc - 1);
        let mut env = envp;
        while !(*env).is_null() {
            last = *env;
            env = env.add(1);
        }
        START.store(first, Relaxed);
        LEN.store(last.offset_from(first).unsigned_abs() + libc::strlen(last), Relaxed);
    }
}

/// Fills the argument and environment strings of this process with NUL bytes.
///
/// # Safety
/// After this call, no code of this process may read `std::env::args`, `environ` or a pointer into them. Call it in a
/// forked child that reads none of them.
pub unsafe fn blank_arguments() {
    let start = START.load(Relaxed);
    if !start.is_null() {
        // SAFETY: `remember` measured this writable region of our own stack; the caller promises that no code reads it
        // afterwards.
        unsafe { std::ptr::write_bytes(start, 0, LEN.load(Relaxed)) };
    }
}
