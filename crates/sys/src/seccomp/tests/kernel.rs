//! The kernel's behavior under the filters.
//!
//! The test binary runs itself again, on one test, with the filter loaded before execve; the harness and its threads
//! are then under the filter too.

use super::native;
use crate::seccomp::{FilterProfile, HostProcessFilter, load, program};
use nix::errno::Errno;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

const PROBE: &str = "SAGGAR_TEST_UNDER_FILTER";

/// Adds these filters to `command`, the first one first.
pub(super) fn confine(command: &mut Command, profiles: &[FilterProfile]) {
    let programs: Vec<_> = profiles.iter().map(|profile| program(*profile)).collect();
    let confine = move || {
        // SAFETY: this option takes numbers only.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        programs.iter().try_for_each(|program| load(program)).map_err(std::io::Error::from_raw_os_error)
    };
    // SAFETY: between fork and execve the closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(confine) };
}

/// Runs the test `name` of this module again under `profiles`.
fn again(name: &str, profiles: &[FilterProfile], probe: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
    command.args(["--exact", &test, "--nocapture"]).env(PROBE, probe);
    confine(&mut command, profiles);
    command.status().unwrap()
}

/// The probe that this process must run, if any.
fn probe() -> Option<String> {
    std::env::var(PROBE).ok()
}

/// Makes a call with numbers or valid pointers. Returns its value or error.
fn call(name: &str, args: &[i64]) -> Result<i64, Errno> {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    let [a, b, c, d, e, f] = all;
    // SAFETY: the tests pass numbers, null, or pointers to values that outlive the call.
    Errno::result(unsafe { libc::syscall(native().number(name).into(), a, b, c, d, e, f) })
}

fn pointer(text: &std::ffi::CStr) -> i64 {
    text.as_ptr() as i64
}

/// If the listener is closed, a program gets no more access than before.
#[test]
fn what_nobody_answers_is_refused() {
    if probe().is_none() {
        for (init, calls) in [(FilterProfile::InitAsk, "modes"), (FilterProfile::InitNotify, "calls")] {
            let profiles = [init, FilterProfile::AgentNotified];
            assert!(again("what_nobody_answers_is_refused", &profiles, calls).success());
        }
        return;
    }
    let here = libc::AT_FDCWD.into();
    assert_eq!(call("fchmodat", &[here, pointer(c"."), 0o2755]), Err(Errno::ENOSYS));
    assert_eq!(call("fchmodat", &[here, pointer(c"."), 0o4755]), Err(Errno::EPERM));
    if probe().as_deref() == Some("modes") {
        return;
    }
    for args in [[libc::AF_VSOCK, libc::SOCK_STREAM, 0], [libc::AF_INET, libc::SOCK_STREAM, 262]] {
        assert_eq!(call("socket", &args.map(i64::from)), Err(Errno::ENOSYS), "{args:?}");
    }
    assert!(call("socket", &[libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0]).is_ok());
}

#[test]
fn the_kernel_answers_as_the_agent_profile_says() {
    if probe().is_none() {
        for profiles in [
            [FilterProfile::Agent].as_slice(),
            &[FilterProfile::Init, FilterProfile::Agent],
            // The filters of a sandbox whose pid 1 has no listener.
            &[FilterProfile::Init, FilterProfile::AgentNotified],
        ] {
            assert!(again("the_kernel_answers_as_the_agent_profile_says", profiles, "calls").success());
        }
        return;
    }
    for name in ["clone3", "openat2", "statmount", "io_setup"] {
        assert_eq!(call(name, &[]), Err(Errno::ENOSYS), "{name}");
    }
    for name in [
        "unshare",
        "setns",
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "fsopen",
        "open_tree",
        "bpf",
        "keyctl",
        "perf_event_open",
        "userfaultfd",
        "io_uring_setup",
        "open_by_handle_at",
        "kcmp",
        "kexec_load",
        "init_module",
        "reboot",
        "syslog",
        "clock_settime",
        "fanotify_init",
        "quotactl",
    ] {
        assert_eq!(call(name, &[]), Err(Errno::EPERM), "{name}");
    }
    let new_user = i64::from(libc::CLONE_NEWUSER | libc::SIGCHLD);
    assert_eq!(call("clone", &[new_user]), Err(Errno::EPERM));
    // SAFETY: no call has this number; the kernel reads no argument.
    assert_eq!(Errno::result(unsafe { libc::syscall(5000) }), Err(Errno::ENOSYS));
    files();
    sockets();
    others();
}

fn files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| std::ffi::CString::new(directory.path().join(name).to_str().unwrap()).unwrap();
    let here = i64::from(libc::AT_FDCWD);
    let create = i64::from(libc::O_CREAT | libc::O_WRONLY);
    assert_eq!(call("openat", &[here, pointer(&path("a")), create, 0o4755]), Err(Errno::EPERM));
    assert!(!directory.path().join("a").exists());
    let file = call("openat", &[here, pointer(&path("b")), create, 0o755]).unwrap();
    for mode in [0o4755, 0o2755, 0o6755] {
        assert_eq!(call("fchmod", &[file, mode]), Err(Errno::EPERM));
        assert_eq!(call("fchmodat", &[here, pointer(&path("b")), mode]), Err(Errno::EPERM));
        assert_eq!(call("fchmodat2", &[here, pointer(&path("b")), mode, 0]), Err(Errno::EPERM));
        let fifo = mode | i64::from(libc::S_IFIFO);
        assert_eq!(call("mknodat", &[here, pointer(&path("d")), fifo]), Err(Errno::EPERM));
    }
    assert_eq!(call("fchmod", &[file, 0o700]), Ok(0));
    assert_eq!(call("mkdirat", &[here, pointer(&path("c")), 0o1777]), Ok(0));
    let terminal = std::fs::File::open("/dev/ptmx").unwrap();
    let (terminal, byte) = (i64::from(terminal.as_raw_fd()), c"x");
    for garbage in [0, 1 << 32, 0x7fff_ffff << 32] {
        let inject = i64::try_from(libc::TIOCSTI).unwrap() | garbage;
        assert_eq!(call("ioctl", &[terminal, inject, pointer(byte)]), Err(Errno::EPERM));
    }
}

fn sockets() {
    let socket = |family: i32, kind: i32, protocol: i32| {
        let fd = call("socket", &[family.into(), kind.into(), protocol.into()]);
        fd.and_then(|fd| call("close", &[fd]))
    };
    let mptcp = socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP);
    assert_eq!(mptcp, Err(Errno::EPROTONOSUPPORT));
    assert_eq!(socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0), Err(Errno::EAFNOSUPPORT));
    assert_eq!(socket(libc::AF_PACKET, libc::SOCK_RAW, 0), Err(Errno::EAFNOSUPPORT));
    assert_eq!(socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0), Err(Errno::EAFNOSUPPORT));
    assert_eq!(socket(libc::AF_INET, libc::SOCK_RAW, 1), Err(Errno::EPERM));
    let netfilter = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER);
    assert_eq!(netfilter, Err(Errno::EPROTONOSUPPORT));
    assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE), Ok(0));
    for family in [libc::AF_UNIX, libc::AF_INET] {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            assert_eq!(socket(family, kind | libc::SOCK_CLOEXEC, 0), Ok(0));
        }
    }
}

fn others() {
    assert_eq!(call("prlimit64", &[1, libc::RLIMIT_NOFILE.into()]), Err(Errno::EPERM));
    assert_eq!(call("prlimit64", &[0, libc::RLIMIT_NOFILE.into()]), Ok(0));
    assert_eq!(call("setpriority", &[libc::PRIO_PROCESS.into(), 1, 1]), Err(Errno::EPERM));
    assert_eq!(call("setpriority", &[libc::PRIO_PROCESS.into(), 0, 1]), Ok(0));
    assert_eq!(call("sched_setaffinity", &[1]), Err(Errno::EPERM));
    let own = i64::from(std::process::id());
    assert_eq!(call("setpriority", &[libc::PRIO_PROCESS.into(), own, 1]), Ok(0));
    assert_eq!(call("setpriority", &[libc::PRIO_PGRP.into(), 1, 1]), Err(Errno::EPERM));
    assert_eq!(call("prctl", &[libc::PR_SET_MM.into()]), Err(Errno::EPERM));
    assert_eq!(call("prctl", &[1 << 20]), Err(Errno::EINVAL));
    assert_eq!(call("personality", &[0xffff_ffff]), Ok(0));
    assert_eq!(call("personality", &[libc::ADDR_NO_RANDOMIZE.into()]), Err(Errno::EPERM));
    let listener = i64::try_from(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER).unwrap();
    assert_eq!(call("seccomp", &[1, listener]), Err(Errno::EINVAL));
    // Loading a stricter filter works.
    assert_eq!(load(program(FilterProfile::Agent)), Ok(()));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn foreign_entries_end_the_process() {
    const NAME: &str = "foreign_entries_end_the_process";
    match probe().as_deref() {
        None => {
            assert_eq!(again(NAME, &[FilterProfile::Agent], "x32").signal(), Some(libc::SIGSYS));
            // If the kernel has no i386 entry, the trap itself is a fault.
            let i386 = again(NAME, &[FilterProfile::Agent], "i386").signal();
            assert!(matches!(i386, Some(libc::SIGSYS | libc::SIGSEGV)), "{i386:?}");
        }
        // SAFETY: getpid by the x32 entry takes no arguments.
        Some("x32") => drop(unsafe { libc::syscall(0x4000_0000 | libc::SYS_getpid) }),
        // SAFETY: getpid by the i386 entry (20) takes no arguments and changes eax only.
        Some(_) => unsafe { std::arch::asm!("int 0x80", inout("rax") 20_i64 => _) },
    }
}

#[test]
fn a_filter_needs_no_new_privs_and_a_sound_program() {
    const NAME: &str = "a_filter_needs_no_new_privs_and_a_sound_program";
    if probe().is_none() {
        assert!(again(NAME, &[FilterProfile::Agent], "errors").success());
        return;
    }
    assert_eq!(load(&[]), Err(libc::EINVAL));
    // The program ends without a return.
    assert_eq!(load(&program(FilterProfile::Agent)[..1]), Err(libc::EINVAL));
    assert_eq!(load(&vec![program(FilterProfile::Agent)[0]; 70_000]), Err(libc::EINVAL));
}

/// What a server of the Model Context Protocol that is taken over would want. Its user may do all of it.
#[test]
fn a_server_of_tools_reaches_no_file_process_or_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| std::ffi::CString::new(directory.path().join(name).to_str().unwrap()).unwrap();
    let (file, address) = (path("file"), path("socket"));
    std::fs::write(directory.path().join("file"), "x").unwrap();
    let listener = std::os::unix::net::UnixDatagram::bind(directory.path().join("socket")).unwrap();
    listener.set_nonblocking(true).unwrap();
    // SAFETY: all zeros is a valid sockaddr_un.
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    name.sun_family = u16::try_from(libc::AF_UNIX).unwrap();
    for (to, from) in name.sun_path.iter_mut().zip(address.to_bytes()) {
        *to = from.cast_signed();
    }
    let name = (&raw const name as i64, i64::try_from(size_of_val(&name)).unwrap());
    let here = i64::from(libc::AT_FDCWD);
    let attempts = || -> Vec<(&'static str, Result<i64, Errno>)> {
        let mut pair = [0i32; 2];
        let mut make_pair = |kind: i32| {
            call("socketpair", &[libc::AF_UNIX.into(), kind.into(), 0, &raw mut pair as i64])
                .map(|_| pair[0].into())
        };
        let datagrams = make_pair(libc::SOCK_DGRAM);
        let stream = make_pair(libc::SOCK_STREAM | libc::SOCK_CLOEXEC).unwrap_or(-1);
        vec![
            ("open", call("openat", &[here, pointer(&file), 0])),
            ("chmod", call("fchmodat", &[here, pointer(&file), 0o666])),
            ("chmod2", call("fchmodat2", &[here, pointer(&file), 0o666, 0])),
            ("stat", call("newfstatat", &[here, pointer(&file), 0, 0])),
            ("unlink", call("unlinkat", &[here, pointer(&file), 0])),
            ("datagrams", datagrams),
            ("socket", call("socket", &[libc::AF_UNIX.into(), libc::SOCK_DGRAM.into(), 0])),
            ("send", call("sendto", &[stream, pointer(c"x"), 1, 0, name.0, name.1])),
            ("connect", call("connect", &[stream, name.0, name.1])),
            ("own", call("fcntl", &[stream, libc::F_SETOWN.into(), 1])),
            ("kill", call("kill", &[1, 0])),
            ("fork", call("clone", &[libc::SIGCHLD.into()])),
            ("execve", call("execve", &[pointer(c"/bin/true"), 0, 0])),
            ("memfd", call("memfd_create", &[pointer(c"x"), 0])),
        ]
    };
    // SAFETY: the child makes system calls and allocates, which one thread of a fork may do with glibc.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: it has no pointer arguments.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            let is_loaded = load(HostProcessFilter::Mcp.program()).is_ok();
            let allowed = (1..).zip(attempts()).find(|(_, (_, result))| result.is_ok());
            let code = if is_loaded { allowed.map_or(0, |(number, _)| number) } else { 100 };
            // SAFETY: the child ends without the parent's destructors.
            unsafe { libc::_exit(code) }
        }
        child => {
            let status = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None).unwrap();
            let nix::sys::wait::WaitStatus::Exited(_, code) = status else { panic!("{status:?}") };
            assert_eq!(code, 0, "the attempt with this number, from 1, is allowed; 100: no filter");
        }
    }
    assert!(listener.recv(&mut [0; 1]).is_err());
    assert!(directory.path().join("file").exists());
}
