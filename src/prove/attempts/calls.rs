//! System calls that ordinary programs do not need. Their arguments make the kernel reject them for a reason other than
//! a missing permission, or make success have no effect.

use super::super::{Attempt, AttemptFailure, Boundary::Seccomp, ContainmentRule};
use super::{AT_FDCWD, address_of, address_of_mut, discard_value};
use crate::sys::Errno;

/// -1 as an argument.
const MINUS_ONE: u64 = u64::MAX;

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    reach("bpf", "Reach bpf(2)", |child, _| {
        discard_value(child.call(libc::SYS_bpf, &[0, address_of(&[0_u64; 16]), 128]))
    }),
    succeed("perf-event-open", "Count a software event of its own", |child, _| {
        // perf_event_attr: type 1 (software), size 64, exclude_kernel and exclude_hv.
        let attr: [u64; 8] = [1 | 64 << 32, 0, 0, 0, 0, 0b11 << 5, 0, 0];
        discard_value(child.call(libc::SYS_perf_event_open, &[address_of(&attr), 0, MINUS_ONE, MINUS_ONE, 0]))
    }),
    succeed("io-uring-setup", "Make an io_uring", |child, _| {
        let mut parameters = [0_u64; 15];
        discard_value(child.call(libc::SYS_io_uring_setup, &[1, address_of_mut(&mut parameters)]))
    }),
    succeed("userfaultfd", "Handle page faults in user space", |child, _| {
        discard_value(child.call(libc::SYS_userfaultfd, &[1]))
    }),
    reach("keyctl", "Reach the user keyring", |child, _| {
        // KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING.
        discard_value(child.call(libc::SYS_keyctl, &[0, MINUS_ONE - 3, 0]))
    }),
    succeed("add-key", "Add a key to its process keyring", |child, _| {
        // KEY_SPEC_PROCESS_KEYRING: the keyring is destroyed when the process exits.
        let (kind, name) = (c"user", c"saggar-probe");
        discard_value(child.call(
            libc::SYS_add_key,
            &[address_of(kind), address_of(name), address_of(b"x"), 1, MINUS_ONE - 1],
        ))
    }),
    reach("request-key", "Search its keyrings", |child, _| {
        discard_value(
            child.call(libc::SYS_request_key, &[address_of(c"user"), address_of(c"saggar-probe-none"), 0, 0]),
        )
    }),
    reach("kexec-load", "Reach kexec_load(2)", |child, _| {
        discard_value(child.call(libc::SYS_kexec_load, &[0, 0, 0, MINUS_ONE]))
    }),
    reach("init-module", "Reach init_module(2)", |child, _| {
        discard_value(child.call(libc::SYS_init_module, &[0, 0, address_of(c"")]))
    }),
    reach("finit-module", "Reach finit_module(2)", |child, _| {
        discard_value(child.call(libc::SYS_finit_module, &[MINUS_ONE, address_of(c""), 0]))
    }),
    reach("delete-module", "Remove a kernel module that does not exist", |child, _| {
        discard_value(child.call(libc::SYS_delete_module, &[address_of(c"saggar_none"), 0]))
    }),
    succeed("name-to-handle", "Ask for the handle of a file", |child, _| {
        let mut handle = [0_u32; 34];
        handle[0] = 128;
        let mut mount = 0_i32;
        discard_value(child.call(
            libc::SYS_name_to_handle_at,
            &[AT_FDCWD, address_of(c"/usr"), address_of_mut(&mut handle), address_of_mut(&mut mount), 0],
        ))
    }),
    reach("open-by-handle", "Open a file by a handle", |child, _| {
        // The root directory of ext4 and of most other file systems has inode 2.
        discard_value(child.call(libc::SYS_open_by_handle_at, &[AT_FDCWD, address_of(&[8_u32, 1, 2, 0]), 0]))
    }),
    reach("quotactl", "Reach quotactl(2)", |child, _| discard_value(child.call(libc::SYS_quotactl, &[0]))),
    succeed("fanotify", "Watch a whole file system", |child, _| {
        discard_value(child.call(libc::SYS_fanotify_init, &[0x200]))
    }),
    succeed("kcmp", "Compare kernel objects of two processes", |child, _| {
        let own = u64::from(std::process::id());
        discard_value(child.call(libc::SYS_kcmp, &[own, own, 0, 0, 0]))
    }),
    succeed("personality", "Make readable memory executable", |child, _| {
        discard_value(child.call(libc::SYS_personality, &[0x0040_0000]))
    }),
    succeed("personality-layout", "Switch address randomisation off", |child, _| {
        discard_value(child.call(libc::SYS_personality, &[0x0004_0000]))
    }),
    reach("reboot", "Reach reboot(2), without its magic numbers", |child, _| {
        discard_value(child.call(libc::SYS_reboot, &[0, 0, 0, 0]))
    }),
    reach("swapon", "Swap to a file that does not exist", |child, _| {
        discard_value(child.call(libc::SYS_swapon, &[address_of(c"/nonexistent/saggar"), 0]))
    }),
    reach("acct", "Account processes to a file that does not exist", |child, _| {
        discard_value(child.call(libc::SYS_acct, &[address_of(c"/nonexistent/saggar")]))
    }),
    succeed("syslog", "Read the kernel's log", |child, _| {
        let mut line = [0_u8; 64];
        discard_value(child.call(libc::SYS_syslog, &[3, address_of_mut(&mut line), 64]))
    }),
    reach("adjtimex", "Set the length of the clock's tick to nothing", |child, _| {
        // ADJ_TICK: the kernel checks the permission before the value, and 0 is an invalid tick.
        let mut timex = [0_u64; 26];
        timex[0] = 0x4000;
        discard_value(child.call(libc::SYS_adjtimex, &[address_of_mut(&mut timex)]))
    }),
    succeed("mbind", "Place memory on nodes", |child, _| discard_value(child.call(libc::SYS_mbind, &[0; 6]))),
    succeed("seccomp-listener", "Listen to system calls", |child, _| {
        // One instruction that allows all calls; SECCOMP_SET_MODE_FILTER with SECCOMP_FILTER_FLAG_NEW_LISTENER.
        let allow: u64 = 6 | 0x7fff_0000 << 32;
        let program: [u64; 2] = [1, address_of(&allow)];
        discard_value(child.call(libc::SYS_seccomp, &[1, 1 << 3, address_of(&program)]))
    }),
    reach("set-mm", "Forge what /proc shows of a process", |child, _| {
        // PR_SET_MM, PR_SET_MM_START_BRK.
        discard_value(child.call(libc::SYS_prctl, &[35, 6, 0, 0, 0]))
    }),
    succeed("core-scheduling", "Idle the sibling of its processor", |child, _| {
        // PR_SCHED_CORE, PR_SCHED_CORE_CREATE for one thread.
        discard_value(child.call(libc::SYS_prctl, &[62, 1, 0, 0, 0]))
    }),
    succeed("aio", "Take a context of the host's asynchronous I/O", |child, _| {
        let mut context = 0_u64;
        discard_value(child.call(libc::SYS_io_setup, &[1, address_of_mut(&mut context)]))
    }),
    succeed("clone3", "Make a process with flags that no filter can read", |child, _| {
        // clone_args: no flags, SIGCHLD.
        let mut args = [0_u64; 11];
        args[4] = libc::SIGCHLD.unsigned_abs().into();
        match child.call(libc::SYS_clone3, &[address_of(&args), 88])? {
            0 => crate::sys::process::exit_now(0),
            _ => Ok(()),
        }
    }),
    #[cfg(target_arch = "x86_64")]
    succeed("iopl", "Take the processor's I/O ports", |child, _| {
        discard_value(child.call(libc::SYS_iopl, &[3]))
    }),
    #[cfg(target_arch = "x86_64")]
    succeed("modify-ldt", "Read its segment descriptors", |child, _| {
        let mut descriptors = [0_u8; 64];
        discard_value(child.call(libc::SYS_modify_ldt, &[0, address_of_mut(&mut descriptors), 64]))
    }),
    #[cfg(target_arch = "x86_64")]
    succeed("i386", "Make a system call of 32-bit programs", |child, _| {
        child.call_i386(20, 0).map(drop).map_err(AttemptFailure::from)
    }),
    #[cfg(target_arch = "x86_64")]
    succeed("i386-sockets", "Make a socket by a call of 32-bit programs", |child, _| {
        // socketcall with a null pointer: EFAULT comes from the call itself.
        child.call_i386(102, 1).map(drop).map_err(AttemptFailure::from)
    })
    .rule(ContainmentRule::AllExcept(&[Errno::EFAULT])),
    #[cfg(target_arch = "x86_64")]
    succeed("x32", "Make a system call of x32 programs", |child, _| {
        discard_value(child.call(0x4000_0000 | libc::SYS_getpid, &[]))
    }),
];

/// An attempt that succeeds unless a boundary denies it.
const fn succeed(name: &'static str, does: &'static str, run: CallAttemptFn) -> Attempt {
    Attempt::new(name, Seccomp, does, run).control()
}

/// An attempt that always fails, but with an error other than a denial if the call is reached.
const fn reach(name: &'static str, does: &'static str, run: CallAttemptFn) -> Attempt {
    Attempt::new(name, Seccomp, does, run).control().rule(ContainmentRule::Denied)
}

type CallAttemptFn = fn(
    &crate::sys::disposable_child::DisposableChild,
    &super::super::context::ProbeContext,
) -> super::super::AttemptResult;
