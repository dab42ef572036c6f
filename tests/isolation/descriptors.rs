//! CVE-2024-21626: nothing that the caller had open is open inside.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use super::wrapped::Wrap;
use crate::support::caller::Caller;

/// Descriptors that lead out of a sandbox, open across execve, taken down when dropped.
fn fifty_ways_out() -> Vec<OwnedFd> {
    let path_only = |path| fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).unwrap();
    let mut all: Vec<OwnedFd> = Vec::new();
    for _ in 0..10 {
        all.push(File::open("/").unwrap().into());
        all.push(path_only("/etc/passwd").into());
        all.push(path_only("/").into());
        all.push(TcpListener::bind("127.0.0.1:0").unwrap().into());
        all.push(UnixDatagram::unbound().unwrap().into());
    }
    for fd in &all {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    }
    all
}

as_each_caller! {
    /// CVE-2024-21626: 50 descriptors of the caller, at whatever numbers, directories and sockets among them.
    fn none_of_the_callers_descriptors_is_open_inside(caller) {
        let wrap = Wrap::new(caller);
        let ways_out = fifty_ways_out();
        assert!(ways_out.iter().any(|fd| fd.as_raw_fd() > 40), "the test holds many");
        let open = wrap.sh("ls -l /proc/self/fd /proc/$$/fd").success();
        let targets: Vec<&str> = open.lines().filter_map(|line| line.split_once(" -> ")).map(|(_, to)| to).collect();
        let declared = |to: &&str| to.starts_with("pipe:") || to.contains("stderr-") || to.starts_with("/proc/");
        let others: Vec<&&str> = targets.iter().filter(|to| !declared(to)).collect();
        assert!(others.is_empty(), "{open}");
        // Three streams of the shell, three of ls, and what ls opens itself.
        assert!(targets.len() <= 8, "{open}");
    }

    /// CVE-2024-21626: a working directory outside of the sandbox's root would be a way out by itself.
    fn the_working_directory_is_the_workspace_inside(caller) {
        let wrap = Wrap::new(caller);
        let here = wrap.sh("/bin/pwd -P; readlink /proc/self/cwd; cat ../../../../../../etc/passwd").success();
        let work = wrap.work();
        let work = work.display();
        assert!(here.starts_with(&format!("{work}\n{work}\n")), "{here}");
        let passwd = here.lines().skip(2).map(|line| line.split(':').next().unwrap());
        assert_eq!(passwd.collect::<Vec<_>>(), ["root", "agent", "nobody"], "the made list of users");
    }

    /// DECISIONS 6: a directory or an O_PATH descriptor as a standard stream is a way to the host's files.
    fn a_directory_or_a_bare_path_as_a_standard_stream_is_refused(caller) {
        let wrap = Wrap::new(caller);
        let bare = || fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/etc/passwd").unwrap();
        let directory = || File::open("/").unwrap();
        for (name, file) in [("input", directory()), ("output", directory()), ("input", bare()), ("output", bare())] {
            let mut command = wrap.command(&[], &["/bin/true"]);
            if name == "input" { command.stdin(file) } else { command.stdout(file) };
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains(&format!("standard {name}")), "{said}");
        }
    }
}

/// What a caller closed is /dev/null: no file that saggar opens later takes its number, and goes inside by it.
#[test]
fn a_stream_that_the_caller_closed_is_dev_null() {
    let Ok(caller) = Caller::ordinary().or_else(|_| Caller::root()) else {
        skip!("nobody can be the caller")
    };
    let wrap = Wrap::new(caller);
    for closed in ["0<&-", "1>&-", "0<&- 1>&-", "2>&-", "0<&- 1>&- 2>&-"] {
        // In a copy of the shell: it would move its own streams for a redirection.
        let script =
            "all=$(for fd in 0 1 2; do stat -L -c %t:%T /proc/$$/fd/$fd; done); echo \"$all\" >streams";
        let ended = wrap.started_by_shell(&format!("exec \"$@\" {closed}"), &[], &["/bin/sh", "-c", script]);
        assert_eq!(ended.code(), 0, "{closed}");
        let streams = fs::read_to_string(wrap.work().join("streams")).unwrap();
        for (fd, kind) in streams.lines().enumerate() {
            assert!(
                !closed.contains(&format!("{fd}<")) && !closed.contains(&format!("{fd}>")) || kind == "1:3",
                "{closed}: {streams}"
            );
        }
        assert_eq!(streams.lines().count(), 3, "{closed}: {streams}");
    }
}
