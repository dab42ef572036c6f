//! What the processes of a sandbox's programs execute before they execute the program: a file of about a kilobyte, in
//! the sandbox, in the place of saggar's own (`src/stage/agent/trampoline.rs` says why).
//!
//! Who runs here: a child of pid 1 to which everything has been done already that `src/stage/agent/program.rs` does. Its
//! arguments are `PATH... "" ARGUMENT...` and its environment is the program's. It tries each path in turn, as
//! execvp(3) does: the first that is there decides. A failure goes to the gate as `GateReport::Failed` of
//! `src/stage/agent/wire.rs`; the gate closes when the program is executed.
//!
//! Freestanding: no libc, no heap, no panic. `build.rs` beside this file compiles it.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

/// The descriptor of the gate, as in `src/stage/agent/program.rs`.
const GATE: usize = 3;

const F_SETFD: usize = 2;
const FD_CLOEXEC: usize = 1;
const AT_FDCWD: usize = -100_isize as usize;
const F_OK: usize = 0;
const ENOENT: isize = 2;
const EACCES: isize = 13;
const ENOTDIR: isize = 20;

/// Numbers of system calls.
#[cfg(target_arch = "x86_64")]
mod number {
    pub const WRITE: usize = 1;
    pub const EXECVE: usize = 59;
    pub const FCNTL: usize = 72;
    pub const EXIT_GROUP: usize = 231;
    pub const FACCESSAT: usize = 269;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const FCNTL: usize = 25;
    pub const FACCESSAT: usize = 48;
    pub const WRITE: usize = 64;
    pub const EXIT_GROUP: usize = 94;
    pub const EXECVE: usize = 221;
}

// The stack holds the number of arguments, the arguments, and the environment (System V ABI, "Process initialization").
#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "mov rdi, rsp", "and rsp, -16", "call {}", sym start);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x0, sp", "bl {}", sym start);

/// How an attempt to execute the program failed.
#[derive(Clone, Copy)]
enum Failure {
    /// There is no such program.
    NotFound,
    /// There is one, and it cannot be executed.
    NotExecutable(isize),
}

/// # Safety
/// `stack` is what the kernel made.
unsafe extern "C" fn start(stack: *const usize) -> ! {
    let _ = call(number::FCNTL, GATE, F_SETFD, FD_CLOEXEC);
    // SAFETY: the arguments follow their number, and end with a null pointer.
    let (count, paths) = unsafe { (*stack, stack.add(1).cast::<*const u8>()) };
    let mut failure = Failure::NotFound;
    let mut paths_left = count_paths(paths, count);
    // SAFETY: the arguments begin after the paths and the empty string, and the environment after the null pointer.
    let (arguments, environment) = unsafe { (paths.add(paths_left + 1), paths.add(count + 1)) };
    let mut path = paths;
    while paths_left > 0 {
        // SAFETY: one of the paths, as counted.
        match execute(unsafe { *path }, arguments, environment) {
            Failure::NotFound => {}
            Failure::NotExecutable(EACCES) => failure = Failure::NotExecutable(EACCES),
            decided => {
                failure = decided;
                break;
            }
        }
        path = path.wrapping_add(1);
        paths_left -= 1;
    }
    give_up(failure)
}

/// How many of the strings come before the empty one; none where there is none: then this is not pid 1's child.
fn count_paths(strings: *const *const u8, count: usize) -> usize {
    let mut before = 0;
    while before < count {
        // SAFETY: there are that many strings, each with at least the byte that ends it.
        if unsafe { **strings.add(before) } == 0 {
            return before;
        }
        before += 1;
    }
    0
}

/// Executes one of the paths; returns only when that fails.
fn execute(path: *const u8, arguments: *const *const u8, environment: *const *const u8) -> Failure {
    match -call(number::EXECVE, path as usize, arguments as usize, environment as usize) {
        ENOENT | ENOTDIR => match call(number::FACCESSAT, AT_FDCWD, path as usize, F_OK) {
            // There, and still "no such file": its interpreter is missing.
            0 => Failure::NotExecutable(ENOENT),
            _ => Failure::NotFound,
        },
        errno => Failure::NotExecutable(errno),
    }
}

/// Reports the failure and ends, with a shell's exit status for it.
fn give_up(failure: Failure) -> ! {
    const FAILED: u32 = 2;
    let (point, errno, status) = match failure {
        Failure::NotFound => (5, ENOENT, 127),
        Failure::NotExecutable(errno) => (6, errno, 126),
    };
    let report = [FAILED, point, errno as u32, 0];
    let _ = call(number::WRITE, GATE, report.as_ptr() as usize, size_of_val(&report));
    loop {
        let _ = call(number::EXIT_GROUP, status, 0, 0);
    }
}

/// A raw system call; a negative result is an error number.
fn call(number: usize, a: usize, b: usize, c: usize) -> isize {
    let result;
    // SAFETY: none of the calls made here writes to our memory.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c,
             options(nostack));
    }
    result
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    give_up(Failure::NotExecutable(0))
}
