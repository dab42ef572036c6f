//! The rights of a confined process. The test binary executes itself for one test, which confines its thread.

use super::*;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Command;

/// The environment variable with the pid of the supervisor.
const PROBE: &str = "SAGGAR_TEST_CONFINED_FOR";

#[test]
fn little_is_left() {
    let Some(supervisor) = std::env::var_os(PROBE) else {
        let test = format!("{}::little_is_left", module_path!().split_once("::").unwrap().1);
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", &test, "--nocapture"]).env(PROBE, std::process::id().to_string());
        assert!(again.status().unwrap().success());
        return;
    };
    let (upstream, other) = (hears(), hears());
    let name = SocketAddr::from_abstract_name(format!("saggar-confined-{}", std::process::id())).unwrap();
    let _abstract = UnixListener::bind_addr(&name).unwrap();
    let (was_root, abi) = (getuid().is_root(), saggar_sys::landlock::abi());
    let before = File::open("/usr/bin/env").expect("a file that anybody can read");

    let port = upstream.local_addr().unwrap().port();
    confine(port, supervisor.to_str().unwrap().parse().unwrap()).unwrap();

    if was_root {
        assert_eq!(getuid().as_raw(), NOBODY);
        assert_eq!(caps::known_and_bounding().1, 0);
    }
    assert_eq!(caps::effective(), 0);
    assert_eq!(prctl::get_no_new_privs(), Ok(true));
    assert_eq!(prctl::get_dumpable(), Ok(false));
    assert_eq!(prctl::get_pdeathsig(), Ok(Some(Signal::SIGKILL)));
    // The filter of agents denies this call, with or without capabilities.
    assert_eq!(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER), Err(Errno::EPERM));

    if abi == 0 {
        return;
    }
    assert!(File::open("/etc/hosts").is_ok(), "what looking names up takes");
    let denied = |what: std::io::Result<()>| what.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
    assert!(denied(File::open("/usr/bin/env").map(drop)));
    assert!(denied(File::open("/proc/self/status").map(drop)));
    assert!(denied(std::fs::read_dir("/usr").map(drop)));
    assert!(denied(File::create("/tmp/saggar-confined").map(drop)));
    assert!(denied(Command::new("/bin/true").status().map(drop)));
    // Open descriptors stay usable.
    assert!((&before).read_exact(&mut [0]).is_ok());
    if abi >= 4 {
        assert!(TcpStream::connect(upstream.local_addr().unwrap()).is_ok());
        assert!(denied(TcpStream::connect(other.local_addr().unwrap()).map(drop)));
        assert!(denied(TcpListener::bind("127.0.0.1:0").map(drop)));
    }
    if abi >= 6 {
        assert!(denied(UnixStream::connect_addr(&name).map(drop)));
        assert_eq!(kill(Pid::parent(), None), Err(Errno::EPERM));
    }
}

fn hears() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}
