//! Stopping a whole cgroup: `cgroup.freeze` of v2, the freezer of v1.

use super::tree::{Dir, Dirs};
use crate::error::{Code, Error, Result};
use crate::host::cgroups::{Version, path_in};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long it may take until all processes have stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which freezer there is: that of v2 is core, and wakes who must die.
enum Freezer<'a> {
    V2(&'a Dir),
    V1(&'a Dir),
}

fn find(dirs: &Dirs) -> Result<Freezer<'_>> {
    // Linux 5.2.
    let v2 = dirs.unified().filter(|dir| dir.read("cgroup.freeze").is_ok());
    let v1 = || dirs.home("freezer").filter(|dir| dir.version == Version::V1);
    v2.map(Freezer::V2).or_else(|| v1().map(Freezer::V1)).ok_or_else(|| {
        Error::new(Code::Unsupported, "the container cannot be frozen: it is in no cgroup with a freezer")
            .hint("mount the freezer controller, or cgroup v2, and start the container anew")
    })
}

fn failed(dir: &Dir, file: &str, what: &str, errno: Errno) -> Error {
    Error::system(format_args!("{what} {}", dir.path.join(file).display()), errno.desc())
}

/// Whether all are stopped, or are being stopped.
pub(super) fn is_frozen(dirs: &Dirs) -> Result<bool> {
    match find(dirs)? {
        Freezer::V2(dir) => {
            let text = dir.read("cgroup.freeze").map_err(|e| failed(dir, "cgroup.freeze", "read", e))?;
            Ok(text == "1")
        }
        Freezer::V1(dir) => {
            let text = dir.read("freezer.state").map_err(|e| failed(dir, "freezer.state", "read", e))?;
            Ok(text != "THAWED")
        }
    }
}

/// Stops all, or lets them go on, and waits for it.
pub(super) fn set(dirs: &Dirs, frozen: bool) -> Result<()> {
    let result = match find(dirs)? {
        Freezer::V2(dir) => set_v2(dir, frozen),
        Freezer::V1(dir) => set_v1(dir, frozen),
    };
    if result.is_err() && frozen {
        let_die(dirs);
        if let Some(dir) = dirs.unified() {
            let _ = dir.write("cgroup.freeze", "0");
        }
    }
    result
}

/// Lets go on whom the freezer of v1 holds: not even SIGKILL reaches them there.
pub(super) fn let_die(dirs: &Dirs) {
    if let Some(dir) = dirs.home("freezer").filter(|dir| dir.version == Version::V1) {
        let _ = dir.write("freezer.state", "THAWED");
    }
}

/// Takes processes of the container out of whatever other cgroup of v1's freezer they are in, one of their own or one
/// of somebody else: it may be frozen, and they are to die. Moved here, they go on.
pub(super) fn bring_home(dirs: &Dirs, pids: &BTreeSet<i32>) {
    let Some(home) = dirs.home("freezer").filter(|dir| dir.version == Version::V1) else { return };
    for pid in pids {
        let text = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let is = path_in(&text, |listed| listed.split(',').any(|one| one == "freezer"));
        let is_away = is.is_some_and(|is| !home.path.ends_with(is.strip_prefix("/").unwrap_or(&is)));
        // While it is stopped, its number is surely still its own.
        if is_away {
            let _ = home.write("cgroup.procs", &pid.to_string());
        }
    }
}

fn late(dir: &Dir) -> Error {
    let message = format!("the processes of cgroup {} do not stop within {PATIENCE:?}", dir.path.display());
    Error::new(Code::System, message)
        .hint("one waits in the kernel for a device or a network file system; they all go on: try again")
}

/// `cgroup.events` tells, and poll(2) wakes, when the last one has stopped.
fn set_v2(dir: &Dir, frozen: bool) -> Result<()> {
    let (value, done) = if frozen { ("1", "frozen 1") } else { ("0", "frozen 0") };
    dir.write("cgroup.freeze", value).map_err(|e| failed(dir, "cgroup.freeze", "write", e))?;
    let events = |errno| failed(dir, "cgroup.events", "read", errno);
    let mut file = File::from(dir.file("cgroup.events", libc::O_RDONLY).map_err(events)?);
    let end = Instant::now() + PATIENCE;
    let mut text = String::new();
    loop {
        text.clear();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        read.map_err(|e| events(super::tree::errno(&e)))?;
        // A cgroup above may be frozen, too: thawing is done when our own file says so.
        if text.lines().any(|line| line == done) || !frozen {
            return Ok(());
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(dir));
        }
        let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(events(errno)),
        }
    }
}

/// The freezer of v1 cannot be waited for, and gives up on a process that forks at the wrong moment: it is told
/// again (Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst).
fn set_v1(dir: &Dir, frozen: bool) -> Result<()> {
    let value = if frozen { "FROZEN" } else { "THAWED" };
    let end = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(20);
    loop {
        dir.write("freezer.state", value).map_err(|e| failed(dir, "freezer.state", "write", e))?;
        let state = dir.read("freezer.state").map_err(|e| failed(dir, "freezer.state", "read", e))?;
        // A cgroup above may be frozen, too.
        if state == value || !frozen {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(late(dir));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}
