//! Where the kernel put the arguments and the environment of this process, so that a forked pid 1 can
//! blank its copy: `/proc/1/cmdline` and `/proc/1/environ` of a sandbox must say nothing.

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
    // SAFETY: the kernel lays the strings of argv and then of envp out without a gap (execve(2), proc(5)
    // on arg_start to env_end); each pointer of both lists is valid until its terminating null pointer.
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
/// Nothing of this process may read `std::env::args`, `environ` or a pointer into them afterwards: call
/// it in a forked child that will not.
pub unsafe fn blank() {
    let start = START.load(Relaxed);
    if !start.is_null() {
        // SAFETY: `remember` measured this writable region of our own stack; the caller promises that
        // nobody reads it any more.
        unsafe { std::ptr::write_bytes(start, 0, LEN.load(Relaxed)) };
    }
}
