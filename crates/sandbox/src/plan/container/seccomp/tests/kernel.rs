//! Tests the results of system calls under filters of containers, in the kernel.
//!
//! A child with one thread loads the filter, makes calls, and returns the result as its exit status. It is forked from
//! a program with several threads, so it makes system calls only.

#![allow(unsafe_code, reason = "a child between fork and exit, and calls that nobody wraps")]

use super::{docker, filter};
use crate::plan::container::seccomp::CompiledFilter;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use saggar_sys::seccomp::{knows_flag, load, load_with};
use serde_json::{Value, json};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Forks; the child loads the filter, runs `probe`, which gets the listener, and exits with its result.
fn child(filter: &CompiledFilter, probe: impl Fn(Option<OwnedFd>) -> i32) -> nix::unistd::Pid {
    // SAFETY: the child makes system calls only, and ends in `_exit`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            // SAFETY: numbers only.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            let status = load_with(&filter.instructions, filter.flags).map_or(255, &probe);
            // SAFETY: never returns; no code of the parent runs.
            unsafe { libc::_exit(status) }
        }
    }
}

/// Returns how the child ended.
fn end(filter: &CompiledFilter, probe: impl Fn() -> i32) -> WaitStatus {
    waitpid(child(filter, |_| probe()), None).unwrap()
}

/// Returns the exit status of the child.
#[track_caller]
fn status(filter: &CompiledFilter, probe: impl Fn() -> i32) -> i32 {
    match end(filter, probe) {
        WaitStatus::Exited(_, status) => status,
        other => panic!("{other:?}"),
    }
}

/// Returns the error number of a call without arguments, 0 on success.
fn errno(number: libc::c_long) -> i32 {
    // SAFETY: the tests make calls that take no pointers.
    if unsafe { libc::syscall(number, 0, 0, 0) } < 0 { Errno::last_raw() } else { 0 }
}

fn with(action: &str, rest: Value) -> CompiledFilter {
    let mut rule = json!({"names": ["getppid"], "action": format!("SCMP_ACT_{action}")});
    rule.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    filter(&json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule], "listenerPath": "/run/agent.sock"}))
}

#[test]
fn calls_are_answered_as_the_rule_says() {
    let getppid = || errno(libc::SYS_getppid);
    assert_eq!(status(&with("ERRNO", json!({})), getppid), libc::EPERM);
    assert_eq!(status(&with("ERRNO", json!({"errnoRet": 38})), getppid), libc::ENOSYS);
    assert_eq!(status(&with("LOG", json!({})), getppid), 0);
    // Without a tracer.
    assert_eq!(status(&with("TRACE", json!({})), getppid), libc::ENOSYS);
    for action in ["KILL", "KILL_THREAD", "KILL_PROCESS", "TRAP"] {
        let end = end(&with(action, json!({})), getppid);
        assert!(matches!(end, WaitStatus::Signaled(_, Signal::SIGSYS, _)), "{action}: {end:?}");
    }
}

#[test]
fn a_trap_can_be_caught() {
    extern "C" fn caught(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid siginfo.
        let code = unsafe { (*info).si_code };
        // SAFETY: never returns, and is allowed in a handler; 1 is SYS_SECCOMP.
        unsafe { libc::_exit(if code == 1 { 77 } else { 1 }) }
    }
    let probe = || {
        // SAFETY: all zeroes is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = caught as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: `action` is valid, and nothing is written back.
        unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
        errno(libc::SYS_getppid)
    };
    assert_eq!(status(&with("TRAP", json!({})), probe), 77);
}

#[test]
fn whole_arguments_count() {
    let rule = |op: &str, value: u64, two: u64| json!({"args": [{"index": 2, "op": format!("SCMP_CMP_{op}"), "value": value, "valueTwo": two}]});
    let big = 1_u64 << 40;
    for (op, value, two, matches, others) in [
        ("EQ", big, 0, vec![big], vec![0, big + 1, big << 1]),
        ("NE", big, 0, vec![0, big + 1], vec![big]),
        ("LT", big, 0, vec![0, big - 1], vec![big, u64::MAX]),
        ("LE", big, 0, vec![0, big], vec![big + 1, u64::MAX]),
        ("GT", big, 0, vec![big + 1, u64::MAX], vec![0, big]),
        ("GE", big, 0, vec![big, u64::MAX], vec![0, big - 1]),
        ("MASKED_EQ", big | 1, big, vec![big, big | 2], vec![0, big | 1]),
    ] {
        let filter = with("ERRNO", rule(op, value, two));
        let ask = |argument: u64| {
            status(&filter, || {
                // SAFETY: getppid ignores its arguments.
                if unsafe { libc::syscall(libc::SYS_getppid, 0, 0, argument) } < 0 {
                    Errno::last_raw()
                } else {
                    0
                }
            })
        };
        assert!(matches.iter().all(|argument| ask(*argument) == libc::EPERM), "{op}");
        assert!(others.iter().all(|argument| ask(*argument) == 0), "{op}");
    }
}

#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    rest: [u32; 15],
}

#[repr(C)]
struct Response {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

nix::ioctl_readwrite!(receive, b'!', 0, Notification);
nix::ioctl_readwrite!(respond, b'!', 1, Response);

#[test]
fn a_listener_decides_on_calls() {
    let mut profile = json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/run/agent.sock",
        "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_NOTIFY"}]});
    for flags in [json!([]), json!(["SECCOMP_FILTER_FLAG_TSYNC", "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"])] {
        profile["flags"] = flags;
        let filter = filter(&profile);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = child(&filter, |listener| {
            let Some(listener) = listener else { return 254 };
            if send(&theirs, listener.as_raw_fd()).is_err() {
                return 253;
            }
            // SAFETY: it takes no arguments.
            i32::from(unsafe { libc::syscall(libc::SYS_getppid) } != 4242)
        });
        drop(theirs);
        let listener = take(&ours);
        let mut call = Notification::default();
        // SAFETY: the structures are the kernel's (linux/seccomp.h).
        unsafe { receive(listener.as_raw_fd(), &raw mut call) }.unwrap();
        assert_eq!(i64::from(call.nr), libc::SYS_getppid);
        let mut answer = Response { id: call.id, val: 4242, error: 0, flags: 0 };
        // SAFETY: as above.
        unsafe { respond(listener.as_raw_fd(), &raw mut answer) }.unwrap();
        assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
    }
}

fn send(socket: &UnixStream, fd: RawFd) -> nix::Result<usize> {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    let rights = [fd];
    let data = [std::io::IoSlice::new(b"x")];
    sendmsg::<()>(socket.as_raw_fd(), &data, &[ControlMessage::ScmRights(&rights)], MsgFlags::empty(), None)
}

fn take(socket: &UnixStream) -> OwnedFd {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let (mut byte, mut space) = ([0], nix::cmsg_space!(RawFd));
    let mut data = [IoSliceMut::new(&mut byte)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), MsgFlags::empty()).unwrap();
    match message.cmsgs().unwrap().next() {
        // SAFETY: the kernel made this descriptor for us.
        Some(ControlMessageOwned::ScmRights(fds)) => unsafe { OwnedFd::from_raw_fd(fds[0]) },
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_kernel_is_asked_for_flags() {
    for (flag, ..) in crate::plan::container::seccomp::action::FLAGS {
        assert!(knows_flag(flag), "{flag:#x}");
    }
    assert!(!knows_flag(1 << 30));
    let filter = with("ERRNO", json!({"flags": []}));
    assert!(filter.check(knows_flag).is_ok());
    let error = filter.check(|_| false).unwrap_err().to_string();
    assert!(error.contains("SECCOMP_FILTER_FLAG_SPEC_ALLOW") && error.contains("4.17"), "{error}");
    for flags in [vec!["LOG"], vec!["TSYNC"], vec!["SPEC_ALLOW"], vec!["LOG", "TSYNC", "SPEC_ALLOW"]] {
        let flags: Vec<_> = flags.iter().map(|flag| format!("SECCOMP_FILTER_FLAG_{flag}")).collect();
        let filter = super::filter(&json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": flags}));
        assert_eq!(status(&filter, || 0), 0, "{flags:?}");
    }
}

#[test]
fn programs_run_under_dockers_profile() {
    let filter = filter(&docker::profile());
    let run = |script: &str| {
        let (program, flags) = (filter.instructions.clone(), filter.flags);
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let confine = move || {
            // SAFETY: this option takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            load_with(&program, flags).map(drop).map_err(std::io::Error::from_raw_os_error)
        };
        // SAFETY: between fork and execve the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(confine) };
        command.output().unwrap()
    };
    assert_eq!(run("echo through | cat; (exit 3); echo $?").stdout, b"through\n3\n");
    assert!(!run("unshare -U true").status.success());
    assert_eq!(status(&filter, || errno(libc::SYS_clone3)), libc::ENOSYS);
    assert_eq!(status(&filter, || errno(479)), libc::ENOSYS);
    assert_eq!(status(&filter, || errno(libc::SYS_unshare)), libc::EPERM);
    // A container may load its own filter in addition.
    assert_eq!(status(&filter, || load(&filter.instructions).err().unwrap_or(0)), 0);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn programs_of_other_architectures_follow_their_rules() {
    let mut profile = json!({"defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["getppid"], "action": "SCMP_ACT_ERRNO", "errnoRet": 7}]});
    let i386 = || {
        let mut result = 64_i64;
        // SAFETY: getppid by the i386 entry (64) takes no arguments and changes eax only.
        unsafe { std::arch::asm!("int 0x80", inout("rax") result) };
        i32::try_from(-result).unwrap_or(0)
    };
    let unlisted = filter(&profile);
    // A kernel without this entry raises a fault for the trap.
    let faults = matches!(
        end(&with("LOG", json!({})), || {
            i386();
            0
        }),
        WaitStatus::Signaled(_, Signal::SIGSEGV, _)
    );
    let killed = |end: WaitStatus| matches!(end, WaitStatus::Signaled(_, Signal::SIGSYS, _));
    assert!(faults || killed(end(&unlisted, i386)));
    assert!(killed(end(&unlisted, || errno(0x4000_0000 | libc::SYS_getppid))));
    profile["architectures"] = json!(["SCMP_ARCH_X86", "SCMP_ARCH_X32"]);
    let listed = filter(&profile);
    assert!(faults || status(&listed, i386) == 7);
    assert_eq!(status(&listed, || errno(0x4000_0000 | libc::SYS_getppid)), 7);
}
