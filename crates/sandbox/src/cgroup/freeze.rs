//! Freezes a whole cgroup: `cgroup.freeze` of v2, the freezer controller of v1.

use super::control_files::{OpenCgroup, OpenCgroups, errno};
use crate::host::cgroups::{CgroupVersion, cgroup_path_in};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use saggar_sys::error::{Code, Error, Result};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a freeze may take until all processes are stopped.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);

/// The freezer of a container. That of v2 is a core feature, and lets a killed process die.
enum ContainerFreezer<'a> {
    V2(&'a OpenCgroup),
    V1(&'a OpenCgroup),
}

fn find_freezer(dirs: &OpenCgroups) -> Result<ContainerFreezer<'_>> {
    // `cgroup.freeze` needs Linux 5.2.
    let v2 = dirs.unified().filter(|dir| dir.read("cgroup.freeze").is_ok());
    let v1 = || dirs.directory_for("freezer").filter(|dir| dir.version == CgroupVersion::V1);
    v2.map(ContainerFreezer::V2).or_else(|| v1().map(ContainerFreezer::V1)).ok_or_else(|| {
        Error::new(Code::Unsupported, "the container cannot be frozen: it is in no cgroup with a freezer")
            .hint("mount the freezer controller, or cgroup v2, and start the container anew")
    })
}

fn freezer_error(dir: &OpenCgroup, file: &str, what: &str, errno: Errno) -> Error {
    Error::system(format_args!("{what} {}", dir.path.join(file).display()), errno.desc())
}

/// Whether all processes are frozen, or are being frozen.
pub(super) fn is_frozen(dirs: &OpenCgroups) -> Result<bool> {
    match find_freezer(dirs)? {
        ContainerFreezer::V2(dir) => {
            let text =
                dir.read("cgroup.freeze").map_err(|e| freezer_error(dir, "cgroup.freeze", "read", e))?;
            Ok(text == "1")
        }
        ContainerFreezer::V1(dir) => {
            let text =
                dir.read("freezer.state").map_err(|e| freezer_error(dir, "freezer.state", "read", e))?;
            Ok(text != "THAWED")
        }
    }
}

/// Freezes or thaws all processes, and waits for the result.
pub(super) fn set_frozen(dirs: &OpenCgroups, frozen: bool) -> Result<()> {
    let result = match find_freezer(dirs)? {
        ContainerFreezer::V2(dir) => set_v2(dir, frozen),
        ContainerFreezer::V1(dir) => set_v1(dir, frozen),
    };
    if result.is_err() && frozen {
        thaw_killed(dirs);
        if let Some(dir) = dirs.unified() {
            let _ = dir.write("cgroup.freeze", "0");
        }
    }
    result
}

/// Thaws processes in a frozen cgroup of v1's freezer, where not even SIGKILL takes effect.
pub(super) fn thaw_killed(dirs: &OpenCgroups) {
    if let Some(dir) = dirs.directory_for("freezer").filter(|dir| dir.version == CgroupVersion::V1) {
        let _ = dir.write("freezer.state", "THAWED");
    }
}

/// Moves processes of the container back from any other cgroup of v1's freezer, whether the container or another
/// process created it. That cgroup may be frozen, and the processes must die; after the move they run again.
pub(super) fn move_back(dirs: &OpenCgroups, pids: &BTreeSet<i32>) {
    let Some(home) = dirs.directory_for("freezer").filter(|dir| dir.version == CgroupVersion::V1) else {
        return;
    };
    for pid in pids {
        let text = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let is = cgroup_path_in(&text, |listed| listed.split(',').any(|one| one == "freezer"));
        let is_away = is.is_some_and(|is| !home.path.ends_with(is.strip_prefix("/").unwrap_or(&is)));
        // While the process is stopped, its pid cannot be reused.
        if is_away {
            let _ = home.write("cgroup.procs", &pid.to_string());
        }
    }
}

fn timeout_error(dir: &OpenCgroup) -> Error {
    let message =
        format!("the processes of cgroup {} do not stop within {FREEZE_TIMEOUT:?}", dir.path.display());
    Error::new(Code::System, message).hint(
        "one waits in the kernel for a device or a network file system; all of them were thawed: try again",
    )
}

/// The freezer of a cgroup of version 2 (cgroup.freeze, Linux 5.2). A request returns at once; cgroup.events reports when it
/// is complete.
#[derive(Debug)]
pub struct UnifiedFreezer {
    dir: OpenCgroup,
    events: File,
}

impl UnifiedFreezer {
    /// Opens the freezer of the cgroup at `path`.
    ///
    /// # Errors
    /// [`Code::System`] if the cgroup does not exist.
    pub fn open(path: &Path) -> Result<Self> {
        let opened = OpenCgroup::open(path, CgroupVersion::V2, &[]);
        Self::of_cgroup(
            opened.map_err(|e| Error::system(format_args!("open cgroup {}", path.display()), e.desc()))?,
        )
    }

    fn of_cgroup(dir: OpenCgroup) -> Result<Self> {
        let events = dir.file("cgroup.events", libc::O_RDONLY);
        let events = File::from(events.map_err(|e| freezer_error(&dir, "cgroup.events", "open", e))?);
        Ok(UnifiedFreezer { dir, events })
    }

    /// Requests that all processes be frozen or thawed.
    ///
    /// # Errors
    /// [`Code::System`] if the file cannot be written.
    pub fn set_frozen(&self, frozen: bool) -> Result<()> {
        write_freeze(&self.dir, frozen)
    }

    /// Whether all processes are frozen. After this call, [`UnifiedFreezer::events`] signals the next change.
    ///
    /// # Errors
    /// [`Code::System`] if the file cannot be read.
    pub fn is_frozen(&mut self) -> Result<bool> {
        let mut text = String::new();
        let read = self.events.rewind().and_then(|()| self.events.read_to_string(&mut text));
        read.map_err(|e| freezer_error(&self.dir, "cgroup.events", "read", errno(&e)))?;
        Ok(text.lines().any(|line| line == "frozen 1"))
    }

    /// A descriptor with an exceptional condition (EPOLLPRI) if cgroup.events changed since it was read.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn write_freeze(dir: &OpenCgroup, frozen: bool) -> Result<()> {
    let value = if frozen { "1" } else { "0" };
    dir.write("cgroup.freeze", value).map_err(|e| freezer_error(dir, "cgroup.freeze", "write", e))
}

fn set_v2(dir: &OpenCgroup, frozen: bool) -> Result<()> {
    write_freeze(dir, frozen)?;
    if !frozen {
        // A cgroup above may be frozen too, so that the processes need not run.
        return Ok(());
    }
    let mut freezer = UnifiedFreezer::of_cgroup(dir.duplicate()?)?;
    let end = Instant::now() + FREEZE_TIMEOUT;
    while !freezer.is_frozen()? {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timeout_error(dir));
        }
        let mut fds = [PollFd::new(freezer.events(), PollFlags::POLLPRI)];
        match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(freezer_error(dir, "cgroup.events", "wait for", e)),
        }
    }
    Ok(())
}

/// Freezing in v1 sends no event, and the kernel gives up on a process that forks at the wrong moment. So the value is
/// written repeatedly (Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst).
fn set_v1(dir: &OpenCgroup, frozen: bool) -> Result<()> {
    let value = if frozen { "FROZEN" } else { "THAWED" };
    let end = Instant::now() + FREEZE_TIMEOUT;
    let mut pause = Duration::from_micros(20);
    loop {
        dir.write("freezer.state", value).map_err(|e| freezer_error(dir, "freezer.state", "write", e))?;
        let state = dir.read("freezer.state").map_err(|e| freezer_error(dir, "freezer.state", "read", e))?;
        // A parent cgroup may be frozen too.
        if state == value || !frozen {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(timeout_error(dir));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}
