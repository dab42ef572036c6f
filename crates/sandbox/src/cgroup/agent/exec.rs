//! Cgroups for commands that run in addition to the main program. Each gets a leaf below the sandbox's cgroup, so that
//! the command and all its descendants can be killed at once, and the kernel counts its out-of-memory kills separately.
//!
//! ```text
//! <own>/saggar-<id>          the limits; memory is counted for each child if the host supports it
//! <own>/saggar-<id>/main     pid 1 and the first program, created there
//! <own>/saggar-<id>/exec-N   one command of a server: memory.oom.group is 1, so it is killed as a whole
//! ```
//! A program is moved into its leaf while it waits at its barrier, before execve: all its descendants are created
//! inside. Both ends of that move are below a directory that saggar owns, so it needs no right over any other cgroup
//! (cgroups(7), cgroup v2 delegation). It is not created there (CLONE_INTO_CGROUP): pid 1 would need a right that all
//! programs would then have too (DECISIONS 10).

use super::path::{EXEC_PREFIX, MAIN};
use super::usage::read_field;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Enables memory accounting for each child of a sandbox's cgroup. Call it before a process is in any of them: later
/// the change blocks every fork on the host (cgroup_threadgroup_rwsem). Without the controller a leaf still groups its
/// processes.
pub fn enable_memory_accounting(sandbox: &Path) {
    let _ = fs::write(sandbox.join("cgroup.subtree_control"), "+memory");
}

/// The exec cgroups of one sandbox.
#[derive(Debug)]
pub struct ExecCgroups {
    sandbox: PathBuf,
    next: u64,
    /// A leaf created in advance, so that a command at its barrier does not wait for mkdir(2).
    spare: Option<ExecCgroup>,
    /// Leaves that were killed and still have processes.
    killed: Vec<ExecCgroup>,
    /// Leaves whose program has exited but left processes running.
    released: Vec<ExecCgroup>,
}

/// The cgroup of one program and all its descendants.
#[derive(Debug)]
pub struct ExecCgroup {
    path: PathBuf,
}

impl ExecCgroups {
    /// The exec cgroups of the sandbox with this cgroup; `None` if it has no cgroup.
    pub fn open(sandbox: &Path) -> Option<Self> {
        let exists = sandbox.join(MAIN).is_dir();
        exists.then(|| ExecCgroups {
            sandbox: sandbox.to_owned(),
            next: 1,
            spare: None,
            killed: Vec::new(),
            released: Vec::new(),
        })
    }

    /// An empty leaf.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn acquire(&mut self) -> io::Result<ExecCgroup> {
        match self.spare.take() {
            Some(spare) => Ok(spare),
            None => self.create(),
        }
    }

    /// Creates the next leaf in advance. Call it when the process is idle.
    pub fn create_spare(&mut self) {
        if self.spare.is_none() {
            self.spare = self.create().ok();
        }
    }

    fn create(&mut self) -> io::Result<ExecCgroup> {
        let path = self.sandbox.join(format!("{EXEC_PREFIX}{}", self.next));
        self.next += 1;
        fs::create_dir(&path)?;
        let leaf = ExecCgroup { path };
        leaf.enable_group_kill();
        Ok(leaf)
    }

    /// Releases the leaf of a program that has exited. It is removed now if it is empty, otherwise when its last
    /// process has exited and another program exits.
    pub fn release(&mut self, leaf: ExecCgroup) {
        self.released.push(leaf);
        self.released.retain(|leaf| !leaf.remove());
    }

    /// Kills the remaining processes of a leaf, and removes it: now, or in a later [`ExecCgroups::remove_killed`].
    pub fn kill_and_remove(&mut self, leaf: ExecCgroup) {
        leaf.kill();
        if !leaf.remove() {
            self.killed.push(leaf);
        }
    }

    /// Removes the killed leaves that are empty by now. Returns whether some still have processes. The sandbox's
    /// watcher removes the rest at the end of the sandbox.
    pub fn remove_killed(&mut self) -> bool {
        self.killed.retain(|leaf| !leaf.remove());
        !self.killed.is_empty()
    }
}

impl ExecCgroup {
    /// Makes an out-of-memory kill end all processes of the leaf. A command also runs without this; a failure is
    /// logged.
    fn enable_group_kill(&self) {
        let file = self.path.join("memory.oom.group");
        let write = || File::options().write(true).open(&file)?.write_all(b"1");
        let why = match write().and_then(|()| fs::read_to_string(&file)) {
            Ok(text) if text.trim() == "1" => return,
            // Without the memory controller there is no such file, and no such kill.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Ok(text) => format!("{} reads {:?} after \"1\" was written", file.display(), text.trim()),
            Err(error) => format!("write \"1\" to {}: {error}", file.display()),
        };
        log::warn!("what a command left running outlives its end for want of memory: {why}");
    }

    /// Moves a process in, and reads back that it is there. `is_same_process` returns whether the pid still belongs to
    /// the process that reported it. It is called when the process's directory in /proc is open, which excludes reuse
    /// of the pid. The write waits for an RCU grace period, several milliseconds, if no process of the host was moved
    /// shortly before (cgroup_threadgroup_rwsem).
    ///
    /// # Errors
    /// The reason why it could not be moved, for the log.
    pub fn add_process(&self, pid: i32, is_same_process: impl FnOnce() -> bool) -> Result<(), String> {
        // Beneath this open directory the pid always means the same process (proc(5)).
        let process_dir =
            File::open(format!("/proc/{pid}")).map_err(|error| format!("process {pid}: {error}"))?;
        if !is_same_process() {
            return Err(format!("process {pid} has ended"));
        }
        let procs = self.path.join("cgroup.procs");
        let message = |error: io::Error| format!("{}: {error}", procs.display());
        fs::write(&procs, pid.to_string()).map_err(message)?;
        let inside = fs::read_to_string(&procs).map_err(message)?;
        if !is_unreaped(&process_dir) || !inside.lines().any(|line| line.parse() == Ok(pid)) {
            return Err(format!("process {pid} is not in {}", self.path.display()));
        }
        Ok(())
    }

    /// Kills every process in it, including those that are being forked (cgroup.kill, Linux 5.14). Returns whether the
    /// write succeeded.
    pub fn kill(&self) -> bool {
        fs::write(self.path.join("cgroup.kill"), "1").is_ok()
    }

    /// Number of its processes that the kernel killed because memory ran out.
    pub fn oom_kills(&self) -> u64 {
        read_field(&self.path, "memory.events", "oom_kill").unwrap_or(0)
    }

    /// Peak memory usage in bytes (memory.peak, Linux 5.19).
    pub fn memory_peak(&self) -> Option<u64> {
        fs::read_to_string(self.path.join("memory.peak")).ok()?.trim().parse().ok()
    }

    /// CPU time in microseconds.
    pub fn cpu_usec(&self) -> Option<u64> {
        read_field(&self.path, "cpu.stat", "usage_usec")
    }

    /// Removes the leaf. Returns whether it is gone.
    fn remove(&self) -> bool {
        match fs::remove_dir(&self.path) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// Whether the process of this directory in /proc has not been reaped.
fn is_unreaped(process: &File) -> bool {
    rustix::fs::openat(process, "stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .is_ok_and(|stat| File::from(stat).read(&mut [0]).is_ok_and(|count| count > 0))
}

/// The pids in `main` and in every leaf of a sandbox, in our pid namespace.
pub fn sandbox_pids(sandbox: &Path) -> Vec<i32> {
    let children = fs::read_dir(sandbox).into_iter().flatten().flatten();
    let directories = children.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let lists = directories.filter_map(|entry| fs::read_to_string(entry.path().join("cgroup.procs")).ok());
    // A pid of 0 stands for a process of another pid namespace.
    let pids = |list: String| list.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>();
    lists.flat_map(pids).filter(|pid| *pid > 0).collect()
}
