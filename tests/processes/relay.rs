//! The two processes that relay a network: their rights, and what becomes of a sandbox whose relay dies.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ChildStdout;

use super::account::{self, Account, family};
use super::assert_table;
use crate::isolation::wrapped::Wrap;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::process::Process;

/// A relay and its attribution.
struct Pair {
    relay: Account,
    attribution: Account,
}

impl Pair {
    fn of(supervisor: u32) -> Self {
        let relay = family(supervisor, "saggar:relay");
        let attribution = family(relay.pid, "saggar:attrib");
        Pair { relay, attribution }
    }
}

/// Says that it is up, and stays until its input ends.
pub(super) const STAYS: &str = "echo up; exec cat";

/// A sandbox with these options whose program is up, and its standard output.
pub(super) fn up(wrap: &Wrap, options: &[&str], script: &str) -> (Process, ChildStdout) {
    let mut command = wrap.place.command(Path::new("/bin/sh"));
    let saggar = wrap.place.saggar();
    command.args(["-c", "exec \"$@\" 3>events", "sh"]).arg(saggar.get_program());
    command.args(["wrap", "--status-fd", "3"]).args(options).args(["--", "/bin/sh", "-c", script]);
    let mut process = Process::start(&wrap.place, command);
    let mut stdout = process.take_stdout();
    let mut up = [0; 3];
    Deadline::usual().readable(&stdout).expect("the program says that it is up");
    stdout.read_exact(&mut up).unwrap_or_else(|error| panic!("{error}: {}", process.stderr()));
    (process, stdout)
}

as_each_caller! {
    fn relay_has_the_rights_of_the_table(caller) {
        let wrap = Wrap::new(caller);
        let (process, _stdout) = up(&wrap, &["--allow-host", "four.example", "--publish", "0:3000"], STAYS);
        assert_table(caller, process.pid());
        let Pair { relay, attribution } = Pair::of(process.pid());
        relay.assert_powerless();
        // Not of one id: see below.
        let sets = [attribution.inheritable, attribution.permitted, attribution.effective, attribution.ambient];
        assert_eq!(sets, [0; 4], "{attribution:?}");
        assert_eq!((attribution.no_new_privs, attribution.seccomp), (1, 2), "{attribution:?}");
        assert_eq!(attribution.bounding & !relay.bounding, 0, "{attribution:?}");
        if caller.is_root() {
            let supervisor = account::until(process.pid(), |account| account.seccomp == 2);
            assert_eq!((relay.uids, relay.bounding), (supervisor.uids, 0));
            assert_eq!((&attribution.uids[..3], attribution.bounding), (&[0; 3][..], 0));
            // At files it is the sandbox's.
            let init = family(process.pid(), "saggar:init");
            assert_ne!(attribution.uids[3], 0, "{attribution:?}");
            assert!(init.uids.contains(&attribution.uids[3]), "{attribution:?} and {init:?}");
        } else {
            assert!(relay.uids.iter().chain(&attribution.uids).all(|id| *id == caller.uid().as_raw()));
        }
        for (one, other) in [(process.pid(), relay.pid), (relay.pid, attribution.pid)] {
            assert!(!account::share_memory(one, other), "{one} and {other} have one memory");
        }
    }

    fn published_ports_alone_take_no_look_into_the_sandbox(caller) {
        let wrap = Wrap::new(caller);
        let (process, _stdout) = up(&wrap, &["--publish", "0:3000"], STAYS);
        let relay = family(process.pid(), "saggar:relay");
        assert!(Account::children(relay.pid).is_empty(), "{:?}", Account::children(relay.pid));
    }

    fn a_sandbox_without_a_network_has_no_relay(caller) {
        let wrap = Wrap::new(caller);
        let (process, _stdout) = up(&wrap, &[], STAYS);
        account::until(process.pid(), |account| account.seccomp == 2);
        let children = Account::children(process.pid());
        assert!(children.iter().all(|child| child.name != "saggar:relay"), "{children:?}");
    }

    /// Nothing is relayed any more, that is told, and the sandbox goes on and ends as it would have.
    fn calls_are_refused_when_the_relay_dies(caller) {
        let wrap = Wrap::new(caller);
        let call = "echo up; read go; exec python3 -c \"import socket
for host in 'four.example', '192.0.2.1':
    try: socket.create_connection((host, 443), 5)
    except TimeoutError: print('hung')
    except OSError: print('refused')\"";
        let (mut process, mut stdout) = up(&wrap, &["--allow-host", "four.example:443", "--allow-host", "192.0.2.1:443"], call);
        let Pair { relay, attribution } = Pair::of(process.pid());
        let events = || std::fs::read_to_string(wrap.work().join("events")).unwrap();
        kill(Pid::from_raw(relay.pid.cast_signed()), Signal::SIGKILL).unwrap();
        let deadline = Deadline::usual();
        while !events().contains("\"relay\"") {
            assert!(!deadline.remaining().is_zero(), "the end of the relay is not told: {}", events());
            deadline.pause();
        }
        assert!(Account::of(attribution.pid).is_some(), "programs would wait for their filter");
        process.take_stdin().write_all(b"go\n").unwrap();
        let mut said = String::new();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said, "refused\nrefused\n");
        assert_eq!(process.wait().code(), Some(0), "{}", process.stderr());
        assert!(process.stderr().contains("nothing is relayed any more"), "{}", process.stderr());
        let told: Vec<Value> = events().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(told.iter().filter(|event| event["event"] == "relay").count(), 1, "{told:?}");
        let gone = Deadline::usual();
        while Account::of(attribution.pid).is_some_and(|account| account.name == "saggar:attrib") {
            assert!(!gone.remaining().is_zero(), "the attribution outlives its sandbox");
            gone.pause();
        }
    }

    /// The mode of a directory is a call that the relay passes on: one that is underway, and later ones, end with an error.
    fn no_call_waits_for_a_relay_that_died(caller) {
        let wrap = Wrap::new(caller);
        let script = "mkdir d; echo up; read go; for i in $(seq 200); do chmod 2700 d 2>/dev/null || break; done; echo $i";
        let (mut process, mut stdout) = up(&wrap, &["--allow-host", "four.example"], script);
        let relay = family(process.pid(), "saggar:relay");
        process.take_stdin().write_all(b"go\n").unwrap();
        kill(Pid::from_raw(relay.pid.cast_signed()), Signal::SIGKILL).unwrap();
        let mut said = String::new();
        stdout.read_to_string(&mut said).unwrap();
        let calls: u32 = said.trim().parse().unwrap();
        assert!(calls < 200, "all calls went through without a relay");
        assert_eq!(process.wait().code(), Some(0), "{}", process.stderr());
    }

    /// No process of it is left, whatever kills the supervisor.
    fn nothing_relays_for_a_supervisor_that_was_killed(caller) {
        let wrap = Wrap::new(caller);
        let (process, _stdout) = up(&wrap, &["--allow-host", "four.example"], STAYS);
        let Pair { relay, attribution } = Pair::of(process.pid());
        process.signal(Signal::SIGKILL);
        let deadline = Deadline::usual();
        for known in [relay, attribution] {
            while Account::of(known.pid).is_some_and(|account| account.name == known.name) {
                assert!(!deadline.remaining().is_zero(), "{known:?} is still there");
                deadline.pause();
            }
        }
    }
}

/// What the relay would do first, taken over by what it parses; every one is refused.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_relay_that_was_taken_over_reaches_nothing_but_hosts() {
    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root may trace a relay")
    };
    let wrap = Wrap::new(caller);
    let (process, _stdout) = up(&wrap, &["--allow-host", "four.example"], STAYS);
    let Pair { relay, attribution } = Pair::of(process.pid());
    let taken = super::taken::Taken::over(relay.pid);
    let (parent, other) = (u64::from(process.pid()), u64::from(attribution.pid));
    let socket = |domain: i32, of_type: i32| [int(domain), int(of_type), 0, 0, 0, 0];
    assert_refused(&[
        ("read /etc/passwd", taken.call(libc::SYS_openat, opens(libc::O_RDONLY), Some((1, "/etc/passwd")))),
        ("read /etc/hosts", taken.call(libc::SYS_openat, opens(libc::O_RDONLY), Some((1, "/etc/hosts")))),
        ("read its memory", taken.call(libc::SYS_open, [0; 6], Some((0, "/proc/self/mem")))),
        ("write to /tmp", taken.call(libc::SYS_openat, opens(libc::O_CREAT), Some((1, "/tmp/saggar-taken")))),
        ("execute", taken.call(libc::SYS_execve, [0; 6], Some((0, "/bin/sh")))),
        ("fork", taken.call(libc::SYS_clone, [int(libc::SIGCHLD), 0, 0, 0, 0, 0], None)),
        ("become root", taken.call(libc::SYS_setresuid, [0; 6], None)),
        ("join a namespace", taken.call(libc::SYS_setns, [0; 6], None)),
        ("unshare", taken.call(libc::SYS_unshare, [int(libc::CLONE_NEWUSER), 0, 0, 0, 0, 0], None)),
        ("mount", taken.call(libc::SYS_mount, [0; 6], Some((2, "tmpfs")))),
        ("signal", taken.call(libc::SYS_kill, [parent, 0, 0, 0, 0, 0], None)),
        ("trace", taken.call(libc::SYS_ptrace, [16, other, 0, 0, 0, 0], None)),
        ("read memory", taken.call(libc::SYS_process_vm_readv, [other, 0, 0, 0, 0, 0], None)),
        ("netlink", taken.call(libc::SYS_socket, socket(libc::AF_NETLINK, libc::SOCK_RAW), None)),
        ("packets", taken.call(libc::SYS_socket, socket(libc::AF_PACKET, libc::SOCK_RAW), None)),
        ("raw sockets", taken.call(libc::SYS_socket, socket(libc::AF_INET, libc::SOCK_RAW), None)),
        ("unix sockets", taken.call(libc::SYS_socket, socket(libc::AF_UNIX, libc::SOCK_STREAM), None)),
        ("new code", taken.call(libc::SYS_mmap, [0, 4096, 7, 0x22, u64::MAX, 0], None)),
    ]);
}

/// The attribution reads, and does nothing else.
#[cfg(target_arch = "x86_64")]
#[test]
fn an_attribution_that_was_taken_over_changes_nothing() {
    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root may trace an attribution")
    };
    let wrap = Wrap::new(caller);
    let (process, _stdout) = up(&wrap, &["--allow-host", "four.example"], STAYS);
    let Pair { attribution, .. } = Pair::of(process.pid());
    let taken = super::taken::Taken::over(attribution.pid);
    let parent = u64::from(process.pid());
    let add_descriptor = [4, 0x4018_2103, 0, 0, 0, 0];
    assert_refused(&[
        ("write to /tmp", taken.call(libc::SYS_openat, opens(libc::O_CREAT), Some((1, "/tmp/saggar-taken")))),
        ("write", taken.call(libc::SYS_openat, opens(libc::O_WRONLY), Some((1, "/etc/hosts")))),
        ("write by openat2", taken.call(libc::SYS_openat2, opens(0), Some((1, "/etc/hosts")))),
        ("remove", taken.call(libc::SYS_unlink, [0; 6], Some((0, "/tmp/saggar-taken")))),
        (
            "change a mode",
            taken.call(libc::SYS_chmod, [0, 0o777, 0, 0, 0, 0], Some((0, "/tmp/saggar-taken"))),
        ),
        ("call a host", taken.call(libc::SYS_socket, [int(libc::AF_INET), 1, 0, 0, 0, 0], None)),
        ("execute", taken.call(libc::SYS_execve, [0; 6], Some((0, "/bin/sh")))),
        ("fork", taken.call(libc::SYS_clone, [int(libc::SIGCHLD), 0, 0, 0, 0, 0], None)),
        ("signal", taken.call(libc::SYS_kill, [parent, 0, 0, 0, 0, 0], None)),
        ("trace", taken.call(libc::SYS_ptrace, [16, parent, 0, 0, 0, 0], None)),
        ("write memory", taken.call(libc::SYS_process_vm_writev, [parent, 0, 0, 0, 0, 0], None)),
        ("give a program a descriptor", taken.call(libc::SYS_ioctl, add_descriptor, None)),
        ("join a namespace", taken.call(libc::SYS_setns, [0; 6], None)),
        ("mount", taken.call(libc::SYS_mount, [0; 6], Some((2, "tmpfs")))),
        ("new code", taken.call(libc::SYS_mmap, [0, 4096, 7, 0x22, u64::MAX, 0], None)),
    ]);
}

#[cfg(target_arch = "x86_64")]
pub(super) fn int(value: i32) -> u64 {
    i64::from(value).cast_unsigned()
}

/// The arguments of openat(2), and nearly those of openat2(2).
#[cfg(target_arch = "x86_64")]
pub(super) fn opens(flags: i32) -> [u64; 6] {
    [int(libc::AT_FDCWD), 0, int(flags), 0o600, 0, 0]
}

#[cfg(target_arch = "x86_64")]
pub(super) fn assert_refused(calls: &[(&str, i32)]) {
    let refusals = [libc::EPERM, libc::EACCES, libc::EAFNOSUPPORT];
    let others: Vec<_> = calls.iter().filter(|(_, errno)| !refusals.contains(errno)).collect();
    assert!(others.is_empty(), "not refused, but: {others:?}");
}
