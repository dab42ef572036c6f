//! System calls that ordinary programs do not need. Their arguments are such that the kernel refuses them for another
//! reason than a missing right, or that success has no effect.

use super::super::{Attempt, Boundary::Seccomp, No, Rule};
use super::{HERE, at, done, to};
use crate::sys::Errno;

/// -1 as an argument.
const MINUS_ONE: u64 = u64::MAX;

/// The attempts.
pub(super) const ATTEMPTS: &[Attempt] = &[
    reach("bpf", "Reach bpf(2)", |child, _| done(child.call(libc::SYS_bpf, &[0, at(&[0_u64; 16]), 128]))),
    succeed("perf-event-open", "Count a software event of its own", |child, _| {
        // perf_event_attr: type 1 (software), size 64, exclude_kernel and exclude_hv.
        let attr: [u64; 8] = [1 | 64 << 32, 0, 0, 0, 0, 0b11 << 5, 0, 0];
        done(child.call(libc::SYS_perf_event_open, &[at(&attr), 0, MINUS_ONE, MINUS_ONE, 0]))
    }),
    succeed("io-uring-setup", "Make an io_uring", |child, _| {
        let mut parameters = [0_u64; 15];
        done(child.call(libc::SYS_io_uring_setup, &[1, to(&mut parameters)]))
    }),
    succeed("userfaultfd", "Handle page faults in user space", |child, _| {
        done(child.call(libc::SYS_userfaultfd, &[1]))
    }),
    reach("keyctl", "Reach the user keyring", |child, _| {
        // KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING.
        done(child.call(libc::SYS_keyctl, &[0, MINUS_ONE - 3, 0]))
    }),
    succeed("add-key", "Add a key to its process keyring", |child, _| {
        // KEY_SPEC_PROCESS_KEYRING: it goes with the process.
        let (kind, name) = (c"user", c"saggar-probe");
        done(child.call(libc::SYS_add_key, &[at(kind), at(name), at(b"x"), 1, MINUS_ONE - 1]))
    }),
    reach("request-key", "Search its keyrings", |child, _| {
        done(child.call(libc::SYS_request_key, &[at(c"user"), at(c"saggar-probe-none"), 0, 0]))
    }),
    reach("kexec-load", "Reach kexec_load(2)", |child, _| {
        done(child.call(libc::SYS_kexec_load, &[0, 0, 0, MINUS_ONE]))
    }),
    reach("init-module", "Reach init_module(2)", |child, _| {
        done(child.call(libc::SYS_init_module, &[0, 0, at(c"")]))
    }),
    reach("finit-module", "Reach finit_module(2)", |child, _| {
        done(child.call(libc::SYS_finit_module, &[MINUS_ONE, at(c""), 0]))
    }),
    reach("delete-module", "Remove a kernel module that does not exist", |child, _| {
        done(child.call(libc::SYS_delete_module, &[at(c"saggar_none"), 0]))
    }),
    succeed("name-to-handle", "Ask for the handle of a file", |child, _| {
        let mut handle = [0_u32; 34];
        handle[0] = 128;
        let mut mount = 0_i32;
        done(
            child.call(libc::SYS_name_to_handle_at, &[HERE, at(c"/usr"), to(&mut handle), to(&mut mount), 0]),
        )
    }),
    reach("open-by-handle", "Open a file by a handle", |child, _| {
        // The root of ext4 and of most others is inode 2.
        done(child.call(libc::SYS_open_by_handle_at, &[HERE, at(&[8_u32, 1, 2, 0]), 0]))
    }),
    reach("quotactl", "Reach quotactl(2)", |child, _| done(child.call(libc::SYS_quotactl, &[0]))),
    succeed("fanotify", "Watch a whole file system", |child, _| {
        done(child.call(libc::SYS_fanotify_init, &[0x200]))
    }),
    succeed("kcmp", "Compare kernel objects of two processes", |child, _| {
        let own = u64::from(std::process::id());
        done(child.call(libc::SYS_kcmp, &[own, own, 0, 0, 0]))
    }),
    succeed("personality", "Make readable memory executable", |child, _| {
        done(child.call(libc::SYS_personality, &[0x0040_0000]))
    }),
    succeed("personality-layout", "Switch address randomisation off", |child, _| {
        done(child.call(libc::SYS_personality, &[0x0004_0000]))
    }),
    reach("reboot", "Reach reboot(2), without its magic numbers", |child, _| {
        done(child.call(libc::SYS_reboot, &[0, 0, 0, 0]))
    }),
    reach("swapon", "Swap to a file that does not exist", |child, _| {
        done(child.call(libc::SYS_swapon, &[at(c"/nonexistent/saggar"), 0]))
    }),
    reach("acct", "Account processes to a file that does not exist", |child, _| {
        done(child.call(libc::SYS_acct, &[at(c"/nonexistent/saggar")]))
    }),
    succeed("syslog", "Read the kernel's log", |child, _| {
        let mut line = [0_u8; 64];
        done(child.call(libc::SYS_syslog, &[3, to(&mut line), 64]))
    }),
    reach("adjtimex", "Set the length of the clock's tick to nothing", |child, _| {
        // ADJ_TICK: the right is asked for before the value is looked at, and 0 is no tick.
        let mut timex = [0_u64; 26];
        timex[0] = 0x4000;
        done(child.call(libc::SYS_adjtimex, &[to(&mut timex)]))
    }),
    succeed("mbind", "Place memory on nodes", |child, _| done(child.call(libc::SYS_mbind, &[0; 6]))),
    succeed("seccomp-listener", "Listen to system calls", |child, _| {
        // One instruction that allows; SECCOMP_SET_MODE_FILTER with SECCOMP_FILTER_FLAG_NEW_LISTENER.
        let allow: u64 = 6 | 0x7fff_0000 << 32;
        let program: [u64; 2] = [1, at(&allow)];
        done(child.call(libc::SYS_seccomp, &[1, 1 << 3, at(&program)]))
    }),
    reach("set-mm", "Forge what /proc shows of a process", |child, _| {
        // PR_SET_MM, PR_SET_MM_START_BRK.
        done(child.call(libc::SYS_prctl, &[35, 6, 0, 0, 0]))
    }),
    succeed("core-scheduling", "Idle the sibling of its processor", |child, _| {
        // PR_SCHED_CORE, PR_SCHED_CORE_CREATE for one thread.
        done(child.call(libc::SYS_prctl, &[62, 1, 0, 0, 0]))
    }),
    succeed("aio", "Take a context of the host's asynchronous I/O", |child, _| {
        let mut context = 0_u64;
        done(child.call(libc::SYS_io_setup, &[1, to(&mut context)]))
    }),
    succeed("clone3", "Make a process with flags that no filter can read", |child, _| {
        // clone_args: no flags, SIGCHLD.
        let mut args = [0_u64; 11];
        args[4] = libc::SIGCHLD.unsigned_abs().into();
        match child.call(libc::SYS_clone3, &[at(&args), 88])? {
            0 => crate::sys::process::exit_now(0),
            _ => Ok(()),
        }
    }),
    #[cfg(target_arch = "x86_64")]
    succeed("iopl", "Take the processor's I/O ports", |child, _| done(child.call(libc::SYS_iopl, &[3]))),
    #[cfg(target_arch = "x86_64")]
    succeed("modify-ldt", "Read its segment descriptors", |child, _| {
        let mut descriptors = [0_u8; 64];
        done(child.call(libc::SYS_modify_ldt, &[0, to(&mut descriptors), 64]))
    }),
    #[cfg(target_arch = "x86_64")]
    succeed("i386", "Make a system call of 32-bit programs", |child, _| {
        child.call_i386(20, 0).map(drop).map_err(No::from)
    }),
    #[cfg(target_arch = "x86_64")]
    succeed("i386-sockets", "Make a socket by a call of 32-bit programs", |child, _| {
        // socketcall with a null pointer: EFAULT is the call's own answer.
        child.call_i386(102, 1).map(drop).map_err(No::from)
    })
    .rule(Rule::But(&[Errno::EFAULT])),
    #[cfg(target_arch = "x86_64")]
    succeed("x32", "Make a system call of x32 programs", |child, _| {
        done(child.call(0x4000_0000 | libc::SYS_getpid, &[]))
    }),
];

/// An attempt that succeeds where nothing forbids it.
const fn succeed(name: &'static str, does: &'static str, run: Run) -> Attempt {
    Attempt::new(name, Seccomp, does, run).control()
}

/// An attempt that fails everywhere, but with another error than a denial where the call is reached.
const fn reach(name: &'static str, does: &'static str, run: Run) -> Attempt {
    Attempt::new(name, Seccomp, does, run).control().rule(Rule::Denied)
}

type Run = fn(&crate::sys::throwaway::Throwaway, &super::super::scene::Scene) -> super::super::Tried;
