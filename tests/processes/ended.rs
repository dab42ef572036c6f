//! A helper of a start that is killed from outside ends the start or the sandbox; nothing waits for it for ever.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::running;
use crate::isolation::wrapped::Wrap;
use crate::support::caller::Caller;
use crate::support::process::Process;

/// Every socket of a process, as descriptors of this one.
fn sockets(pid: u32) -> Vec<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap();
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let sockets = entries.filter(|entry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    });
    let numbers = sockets.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap());
    numbers
        .map(|number: i32| pidfd_getfd(process.as_fd(), number, PidfdGetfdFlags::empty()).unwrap())
        .collect()
}

as_each_caller! {
    /// A worker may have the launcher's end of its socket, so that the supervisor can still send.
    fn a_sandbox_ends_with_its_launcher(caller) {
        if !Caller::current().is_root() {
            skip!("this test needs to be started as root");
        }
        let wrap = Wrap::new(caller);
        let mut process = running(&wrap);
        let launcher = process.launcher();
        let open = sockets(launcher.pid());
        assert!(!open.is_empty());
        launcher.signal(nix::sys::signal::Signal::SIGKILL);
        assert_eq!(process.wait().code(), Some(125), "{}", process.stderr());
        assert!(process.stderr().contains("the launcher of the sandbox was killed"), "{}", process.stderr());
    }

    /// The process that makes the network namespace is killed as it begins.
    fn a_start_ends_with_the_maker_of_its_network(caller) {
        let wrap = Wrap::new(caller);
        let started = wrap.command(&[], &["/bin/true"]);
        let mut traced = wrap.place.command("/usr/bin/strace".as_ref());
        let trace = wrap.place.join("trace");
        traced.args(["-f", "-o"]).arg(&trace).args(["-e", "trace=unshare", "-e", "inject=unshare:signal=KILL"]);
        traced.arg(started.get_program()).args(started.get_args());
        let mut process = Process::start(&wrap.place, traced);
        let status = process.wait();
        let trace = fs::read_to_string(trace).unwrap();
        assert!(trace.contains("unshare(CLONE_NEWNET"), "{trace}");
        assert_eq!(status.code(), Some(125), "{}", process.stderr());
        assert!(process.stderr().contains("join the network namespace"), "{}", process.stderr());
    }
}
