//! The guarantees of the profiles, one line each.

use super::properties::native;
use crate::seccomp::{FilterProfile, HostNetworkFilter, program};
use crate::testing::machine::{SeccompData, run};
use libc::{SECCOMP_RET_ALLOW as ALLOW, SECCOMP_RET_KILL_PROCESS as KILL};

const GARBAGE: u64 = 0xdead_beef_0000_0000;

const fn errno(number: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | number.cast_unsigned()
}

const EPERM: u32 = errno(libc::EPERM);
const ENOSYS: u32 = errno(libc::ENOSYS);

fn raw(profile: FilterProfile, arch: u32, number: u32, args: [u64; 6]) -> u32 {
    run(program(profile), &SeccompData { arch, number, args }).0
}

/// The result of `profile` for a call by name; missing arguments are all ones.
fn ask(profile: FilterProfile, name: &str, given: &[u64]) -> u32 {
    let mut args = [u64::MAX; 6];
    args[..given.len()].copy_from_slice(given);
    raw(profile, native().audit, native().number(name), args)
}

fn agent(name: &str, given: &[u64]) -> u32 {
    ask(FilterProfile::Agent, name, given)
}

/// Asserts that all profiles return this result.
#[track_caller]
fn everywhere(name: &str, given: &[u64], answer: u32) {
    for profile in FilterProfile::ALL {
        assert_eq!(ask(profile, name, given), answer, "{profile:?}: {name} {given:x?}");
    }
}

#[test]
fn foreign_entries_kill() {
    for profile in FilterProfile::ALL {
        // i386, arm, and the other 64-bit machine.
        for arch in [0x4000_0003, 0x4000_0028, 0xc000_003e ^ 0xc000_00b7 ^ native().audit, 0] {
            assert_eq!(raw(profile, arch, 0, [0; 6]), KILL, "{arch:#x}");
        }
        if native().x32 {
            for number in [0, 1, 59, 102, 471, 512, 547] {
                assert_eq!(raw(profile, native().audit, 0x4000_0000 | number, [0; 6]), KILL, "x32 {number}");
            }
        }
    }
}

#[test]
fn unknown_numbers_fail_softly() {
    for profile in FilterProfile::ALL {
        for number in [472, 500, 512, 547, 0x3fff_ffff, u32::MAX] {
            assert_eq!(raw(profile, native().audit, number, [0; 6]), ENOSYS, "{number}");
        }
    }
    if cfg!(target_arch = "x86_64") {
        assert_eq!(raw(FilterProfile::Agent, native().audit, 400, [0; 6]), EPERM, "a hole in the table");
    }
    for name in ["clone3", "openat2"] {
        everywhere(name, &[], ENOSYS);
    }
}

#[test]
fn namespaces_are_for_nesting_only() {
    let flags =
        [0x80u64, 0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
    let thread =
        u64::try_from(libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND).unwrap();
    for profile in [FilterProfile::Agent, FilterProfile::Init] {
        for flag in flags {
            for others in [0, 17, thread, GARBAGE] {
                assert_eq!(ask(profile, "clone", &[flag | others]), EPERM, "{flag:#x}");
            }
        }
        assert_eq!(ask(profile, "clone", &[17]), ALLOW);
        assert_eq!(ask(profile, "clone", &[thread | GARBAGE]), ALLOW);
    }
    for flag in flags {
        assert_eq!(ask(FilterProfile::Nesting, "clone", &[flag | 17]), ALLOW);
    }
    for name in [
        "unshare",
        "setns",
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "open_tree",
        "move_mount",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "mount_setattr",
        "open_tree_attr",
        "sethostname",
    ] {
        assert_eq!(agent(name, &[]), EPERM, "{name}");
        assert_eq!(ask(FilterProfile::Init, name, &[]), EPERM, "{name}");
        assert_eq!(ask(FilterProfile::Nesting, name, &[]), ALLOW, "{name}");
    }
}

#[test]
fn what_kernels_keep_finding_holes_in_is_absent() {
    let names = [
        "bpf",
        "perf_event_open",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "userfaultfd",
        "keyctl",
        "add_key",
        "request_key",
        "kexec_load",
        "kexec_file_load",
        "init_module",
        "finit_module",
        "delete_module",
        "quotactl",
        "quotactl_fd",
        "fanotify_init",
        "fanotify_mark",
        "kcmp",
        "open_by_handle_at",
        "name_to_handle_at",
        "reboot",
        "swapon",
        "swapoff",
        "acct",
        "settimeofday",
        "clock_settime",
        "syslog",
        "vhangup",
        "nfsservctl",
        "lookup_dcookie",
        "pidfd_getfd",
        "migrate_pages",
        "move_pages",
    ];
    let x86 = ["iopl", "ioperm", "modify_ldt", "uselib", "create_module"];
    for name in names.iter().chain(x86.iter().filter(|_| cfg!(target_arch = "x86_64"))) {
        everywhere(name, &[], EPERM);
    }
}

#[test]
fn set_id_modes_are_refused_in_every_call_that_takes_one() {
    let creating = u64::try_from(libc::O_CREAT | libc::O_WRONLY).unwrap();
    let unnamed = u64::try_from(libc::O_TMPFILE | libc::O_RDWR).unwrap();
    let mut calls: Vec<(&str, Vec<u64>)> = vec![
        ("fchmod", vec![0]),
        ("fchmodat", vec![0, 0]),
        ("fchmodat2", vec![0, 0]),
        ("mknodat", vec![0, 0]),
        ("openat", vec![0, 0, creating]),
        ("openat", vec![0, 0, unnamed]),
        ("openat", vec![0, 0, creating | GARBAGE]),
        ("mq_open", vec![0, creating]),
    ];
    if cfg!(target_arch = "x86_64") {
        let old = ["chmod", "creat", "mknod"].map(|name| (name, vec![0]));
        calls.extend(old.into_iter().chain([("open", vec![0, creating]), ("open", vec![0, unnamed])]));
    }
    for profile in FilterProfile::ALL {
        for (name, before) in &calls {
            let with = |mode: u64| ask(profile, name, &[before.as_slice(), &[mode]].concat());
            for mode in [0o4755, 0o2755, 0o6000, 0o104_755, 0o7777, 0o4000 | GARBAGE] {
                assert_eq!(with(mode), EPERM, "{name} {mode:o}");
            }
            for mode in [0, 0o755, 0o1777, 0o10_600, 0o755 | GARBAGE] {
                assert_eq!(with(mode), ALLOW, "{name} {mode:o}");
            }
        }
        // Without O_CREAT the mode register may hold any value.
        assert_eq!(ask(profile, "openat", &[0, 0, 0, 0o7777]), ALLOW);
        let directory = u64::try_from(libc::O_DIRECTORY).unwrap();
        assert_eq!(ask(profile, "openat", &[0, 0, directory, 0o7777]), ALLOW);
    }
}

/// The kernel takes neither bit for a directory.
#[test]
fn directories_are_made_with_any_mode() {
    for mode in [0o755, 0o2755, 0o6777, 0o1777] {
        assert_eq!(agent("mkdirat", &[0, 0, mode]), ALLOW, "{mode:o}");
    }
}

#[test]
fn terminal_injection_is_refused_whatever_the_high_half() {
    for request in [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD] {
        for high in [0, GARBAGE, 1 << 32, u64::MAX << 32] {
            everywhere("ioctl", &[0, request | high], EPERM);
        }
    }
    for request in
        [libc::TCGETS, libc::TIOCSCTTY, libc::TIOCGWINSZ, libc::TIOCSWINSZ, libc::FIONBIO, libc::FIOCLEX]
    {
        assert_eq!(agent("ioctl", &[0, request]), ALLOW);
    }
}

#[test]
fn leases_that_hold_up_other_openers_are_refused_and_locks_are_not() {
    for (command, answer) in [
        (libc::F_SETLEASE, EPERM),
        (libc::F_NOTIFY, EPERM),
        (1040, EPERM),
        (libc::F_GETLEASE, ALLOW),
        (libc::F_DUPFD_CLOEXEC, ALLOW),
        (libc::F_SETFL, ALLOW),
        (libc::F_SETLKW, ALLOW),
        (libc::F_OFD_SETLKW, ALLOW),
        (libc::F_ADD_SEALS, ALLOW),
    ] {
        for high in [0, GARBAGE, u64::MAX << 32] {
            let args = [3, u64::try_from(command).unwrap() | high];
            everywhere("fcntl", &args, answer);
        }
    }
}

#[test]
fn sockets_are_unix_tcp_udp_and_route() {
    let [unsupported, refused] = [libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT].map(errno);
    let flags = u64::try_from(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK).unwrap();
    for family in [2, 10] {
        for (kind, protocol, answer) in [
            (1, 0, ALLOW),
            (1, 6, ALLOW),
            (2, 0, ALLOW),
            (2, 17, ALLOW),
            (1, 262, unsupported),
            (2, 262, unsupported),
            (1, 132, unsupported),
            (1, 256, unsupported),
            (1, 17, unsupported),
            (2, 6, unsupported),
            (2, 1, unsupported),
            (2, 136, unsupported),
            (5, 132, unsupported),
            (6, 33, unsupported),
            (3, 1, EPERM),
            (3, 255, EPERM),
            (10, 768, EPERM),
        ] {
            let args = [family | GARBAGE, kind | flags | GARBAGE, protocol | GARBAGE];
            everywhere("socket", &args, answer);
        }
    }
    for kind in [1, 2, 5] {
        assert_eq!(agent("socket", &[1, kind, 0]), ALLOW);
    }
    assert_eq!(agent("socket", &[16, 3 | flags, 0]), ALLOW);
    // Audit, sock_diag, netfilter, kobject_uevent, generic.
    for protocol in [4, 9, 12, 15, 16] {
        assert_eq!(agent("socket", &[16, 3, protocol]), unsupported);
    }
    // Packet, alg, vsock, can, bluetooth, tipc, xdp, rds, smc, key, and out of range.
    for family in [17, 38, 40, 29, 31, 30, 44, 21, 43, 15, 0, 99] {
        for kind in 1..=5 {
            assert_eq!(agent("socket", &[family, kind, 0]), refused, "{family}");
        }
    }
    assert_eq!(agent("socketpair", &[1, 1, 0]), ALLOW);
    assert_eq!(agent("socketpair", &[30, 1, 0]), refused);
    assert_eq!(agent("setsockopt", &[3, 6, 31]), errno(libc::ENOPROTOOPT));
    assert_eq!(agent("setsockopt", &[3, 6, 1]), ALLOW);
    assert_eq!(agent("setsockopt", &[3, 1, 31]), ALLOW);
}

/// With a limit of 0 the host's core handler would run at a crash.
#[test]
fn the_limit_of_cores_stays() {
    let (core, nofile, new, old) = (4, 7, 0x7fff_0000_1000, 0x7fff_0000_2000);
    let done = errno(0);
    for profile in [agent as fn(&str, &[u64]) -> u32, |name, args| ask(FilterProfile::Nesting, name, args)] {
        assert_eq!(profile("setrlimit", &[core | GARBAGE, new]), done);
        assert_eq!(profile("setrlimit", &[nofile, new]), ALLOW);
        assert_eq!(profile("prlimit64", &[0, core | GARBAGE, new, 0]), done);
        assert_eq!(profile("prlimit64", &[0, core, 1 << 32, 0]), done);
        assert_eq!(profile("prlimit64", &[0, core, new, old]), EPERM);
        assert_eq!(profile("prlimit64", &[0, core, 0, old]), ALLOW);
        assert_eq!(profile("prlimit64", &[0, nofile, new, old]), ALLOW);
    }
}

#[test]
fn limits_and_priorities_are_for_all_but_pid_1() {
    for name in ["prlimit64", "sched_setparam", "sched_setscheduler", "sched_setattr", "sched_setaffinity"] {
        for (pid, answer) in [(0, ALLOW), (GARBAGE, ALLOW), (1, EPERM), (1 | GARBAGE, EPERM), (1234, ALLOW)] {
            assert_eq!(agent(name, &[pid]), answer, "{name} {pid}");
            assert_eq!(ask(FilterProfile::Init, name, &[pid]), ALLOW, "{name} {pid}");
        }
    }
    let all = [
        (0, 0, ALLOW),
        (0, 7, ALLOW),
        (0, 1, EPERM),
        (1, 0, ALLOW),
        (1, 7, ALLOW),
        (1, 1, EPERM),
        (2, 0, EPERM),
    ];
    for (which, who, answer) in all {
        assert_eq!(agent("setpriority", &[which, who]), answer);
        assert_eq!(agent("ioprio_set", &[which + 1, who]), answer);
    }
}

#[test]
fn attributes_of_processes() {
    let prctl = |option: i32| agent("prctl", &[u64::from(option.cast_unsigned())]);
    for option in [
        libc::PR_SET_NAME,
        libc::PR_SET_PDEATHSIG,
        libc::PR_SET_DUMPABLE,
        libc::PR_SET_NO_NEW_PRIVS,
        libc::PR_SET_SECCOMP,
        libc::PR_SET_VMA,
        libc::PR_SET_PTRACER,
        libc::PR_SET_CHILD_SUBREAPER,
        libc::PR_CAPBSET_READ,
        libc::PR_SET_MDWE,
    ] {
        assert_eq!(prctl(option), ALLOW, "{option}");
    }
    assert_eq!(prctl(libc::PR_SET_MM), EPERM);
    assert_eq!(prctl(libc::PR_SCHED_CORE), EPERM);
    assert_eq!(prctl(79), errno(libc::EINVAL));
    assert_eq!(prctl(i32::MAX), errno(libc::EINVAL));
    for (persona, answer) in
        [(0, ALLOW), (0xffff_ffff, ALLOW), (u64::MAX, ALLOW), (8, EPERM), (0x40_0000, EPERM)]
    {
        assert_eq!(agent("personality", &[persona]), answer);
    }
    assert_eq!(agent("seccomp", &[1, 0]), ALLOW);
    assert_eq!(agent("seccomp", &[1, libc::SECCOMP_FILTER_FLAG_TSYNC]), ALLOW);
    assert_eq!(agent("seccomp", &[1, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER]), errno(libc::EINVAL));
}

#[test]
fn what_agents_and_their_tools_call_is_there() {
    let names = [
        // The calls of one turn of Claude Code.
        "futex",
        "read",
        "epoll_pwait2",
        "madvise",
        "wait4",
        "statx",
        "newfstatat",
        "write",
        "close",
        "fstat",
        "getdents64",
        "fcntl",
        "execve",
        "mprotect",
        "rt_sigaction",
        "rt_sigprocmask",
        "unlinkat",
        "epoll_ctl",
        "pread64",
        "recvfrom",
        "utimensat",
        "munmap",
        "getrusage",
        "inotify_init1",
        "inotify_add_watch",
        "set_robust_list",
        "sched_getaffinity",
        "pwrite64",
        "rseq",
        "ftruncate",
        "getcwd",
        "getrandom",
        "bind",
        "pidfd_open",
        "brk",
        "eventfd2",
        "connect",
        "listen",
        "setsid",
        "sigaltstack",
        "close_range",
        "kill",
        "copy_file_range",
        "faccessat2",
        "fadvise64",
        "statfs",
        "sysinfo",
        "uname",
        // Further calls that programs may make.
        "ptrace",
        "process_vm_readv",
        "memfd_create",
        "signalfd4",
        "timerfd_create",
        "pidfd_send_signal",
        "membarrier",
        "splice",
        "landlock_create_ruleset",
        "landlock_restrict_self",
        "futex_waitv",
        "futex_wake",
        "shmget",
        "mq_unlink",
        "mremap",
        "mlock",
        "capset",
        "setresuid",
        "restart_syscall",
        "rt_sigreturn",
        "exit_group",
        "clock_nanosleep",
    ];
    let x86 = [
        "vfork",
        "fork",
        "rename",
        "unlink",
        "readlink",
        "rmdir",
        "dup2",
        "access",
        "stat",
        "arch_prctl",
        "time",
    ];
    for name in names.iter().chain(x86.iter().filter(|_| cfg!(target_arch = "x86_64"))) {
        everywhere(name, &[], ALLOW);
    }
}

#[test]
fn a_narrowed_network_is_tcp_or_nothing() {
    let ask = |narrowing: HostNetworkFilter, name: &str, given: &[i32]| {
        let mut args = [u64::MAX; 6];
        args.iter_mut().zip(given).for_each(|(arg, given)| *arg = u64::from(given.cast_unsigned()));
        run(narrowing.program(), &SeccompData { arch: native().audit, number: native().number(name), args }).0
    };
    let (stream, datagram) = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::SOCK_DGRAM);
    let refused = errno(libc::EACCES);
    for family in [libc::AF_INET, libc::AF_INET6] {
        assert_eq!(ask(HostNetworkFilter::Tcp, "socket", &[family, stream, 0]), ALLOW);
        assert_eq!(ask(HostNetworkFilter::Tcp, "socket", &[family, stream, libc::IPPROTO_TCP]), ALLOW);
        for (kind, protocol) in
            [(stream, libc::IPPROTO_MPTCP), (stream, libc::IPPROTO_SCTP), (datagram, 0), (libc::SOCK_RAW, 6)]
        {
            assert_eq!(
                ask(HostNetworkFilter::Tcp, "socket", &[family, kind, protocol]),
                refused,
                "{kind} {protocol}"
            );
        }
        assert_eq!(ask(HostNetworkFilter::Offline, "socket", &[family, stream, 0]), refused);
        assert_eq!(ask(HostNetworkFilter::Pairs, "socket", &[family, stream, 0]), ALLOW);
    }
    for narrowing in [HostNetworkFilter::Tcp, HostNetworkFilter::Offline] {
        assert_eq!(ask(narrowing, "socket", &[libc::AF_UNIX, stream, 0]), ALLOW);
    }
    assert_eq!(ask(HostNetworkFilter::Pairs, "socket", &[libc::AF_UNIX, stream, 0]), refused);
    assert_eq!(ask(HostNetworkFilter::Pairs, "socketpair", &[libc::AF_UNIX, stream, 0]), ALLOW);
    let early = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
    for (name, before) in [("sendto", 3), ("sendmmsg", 3), ("sendmsg", 2)] {
        let with = |flags: i32| ask(HostNetworkFilter::Tcp, name, &[vec![0; before], vec![flags]].concat());
        assert_eq!((with(early), with(libc::MSG_NOSIGNAL)), (errno(libc::EOPNOTSUPP), ALLOW), "{name}");
    }
    assert_eq!(ask(HostNetworkFilter::Tcp, "listen", &[]), refused);
    assert_eq!(ask(HostNetworkFilter::Offline, "listen", &[]), ALLOW);
    for narrowing in [HostNetworkFilter::Tcp, HostNetworkFilter::Offline, HostNetworkFilter::Pairs] {
        // The other filters decide the rest, and calls that are newer than the table.
        for name in ["connect", "mount", "bpf", "clone3"] {
            assert_eq!(ask(narrowing, name, &[]), ALLOW, "{name}");
        }
        let foreign = SeccompData { arch: 0x4000_0003, number: 359, args: [0; 6] };
        assert_eq!(run(narrowing.program(), &foreign).0, KILL);
    }
}
