//! Cgroups for programs that run beside the first one: each gets a leaf of its own below the sandbox's cgroup, so
//! that it and all it ever starts can be killed as one, and the kernel says which of them ran out of memory.
//!
//! ```text
//! <own>/saggar-<id>          the limits; memory is counted for each child where the host can
//! <own>/saggar-<id>/main     pid 1 and the first program, born there
//! <own>/saggar-<id>/exec-N   one command of a server: memory.oom.group is 1, so it dies whole
//! ```
//! A program is put in its leaf while it stops at its gate, before execve: whatever it starts is born inside. Both
//! ends of that move are below a directory that is ours, so it needs no right over any cgroup above (cgroups(7),
//! cgroup v2 delegation).

use super::place::{LEAF, MAIN};
use super::usage::field;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Has memory counted for each child of a sandbox's cgroup. To be called before a process is in any of them: later
/// the kernel stops every fork of the host for the change (cgroup_threadgroup_rwsem). Without the controller a leaf
/// still holds its processes together.
pub fn enable(sandbox: &Path) {
    let _ = fs::write(sandbox.join("cgroup.subtree_control"), "+memory");
}

/// The leaves of one sandbox.
#[derive(Debug)]
pub struct Leaves {
    sandbox: PathBuf,
    next: u64,
    /// Made ahead: to make one takes longer than all else that a start of a command needs of it.
    spare: Option<Leaf>,
    /// Killed, but not yet without processes.
    leaving: Vec<Leaf>,
    /// What their programs left running stays, and they with it.
    resting: Vec<Leaf>,
}

/// The cgroup of one program and all it starts.
#[derive(Debug)]
pub struct Leaf {
    path: PathBuf,
}

impl Leaves {
    /// The leaves of the sandbox whose cgroup this is; `None` where it has none.
    pub fn of(sandbox: &Path) -> Option<Self> {
        let is_made = sandbox.join(MAIN).is_dir();
        is_made.then(|| Leaves {
            sandbox: sandbox.to_owned(),
            next: 1,
            spare: None,
            leaving: Vec::new(),
            resting: Vec::new(),
        })
    }

    /// An empty leaf.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn take(&mut self) -> io::Result<Leaf> {
        match self.spare.take() {
            Some(spare) => Ok(spare),
            None => self.make(),
        }
    }

    /// Makes the next leaf ahead, when there is nothing more urgent to do.
    pub fn make_spare(&mut self) {
        if self.spare.is_none() {
            self.spare = self.make().ok();
        }
    }

    fn make(&mut self) -> io::Result<Leaf> {
        let path = self.sandbox.join(format!("{LEAF}{}", self.next));
        self.next += 1;
        fs::create_dir(&path)?;
        let leaf = Leaf { path };
        leaf.die_whole();
        Ok(leaf)
    }

    /// The program of a leaf has ended: it is removed now, or when what that left running has ended too and another
    /// program ends.
    pub fn leave(&mut self, leaf: Leaf) {
        self.resting.push(leaf);
        self.resting.retain(|leaf| !leaf.remove());
    }

    /// Kills what is left in a leaf, and removes it: now, or in a later [`Leaves::sweep`].
    pub fn end(&mut self, leaf: Leaf) {
        leaf.kill();
        if !leaf.remove() {
            self.leaving.push(leaf);
        }
    }

    /// Removes the leaves whose processes have left by now; whether some are still to leave. What is left at the
    /// sandbox's end its watcher removes.
    pub fn sweep(&mut self) -> bool {
        self.leaving.retain(|leaf| !leaf.remove());
        !self.leaving.is_empty()
    }
}

impl Leaf {
    /// Has the kernel kill all of it when it kills one of it for want of memory. A command runs without that too, and
    /// is told of.
    fn die_whole(&self) {
        let file = self.path.join("memory.oom.group");
        let write = || File::options().write(true).open(&file)?.write_all(b"1");
        let why = match write().and_then(|()| fs::read_to_string(&file)) {
            Ok(text) if text.trim() == "1" => return,
            // Without the controller there is no such file, and no such kill.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Ok(text) => format!("{} reads {:?} after \"1\" was written", file.display(), text.trim()),
            Err(error) => format!("write \"1\" to {}: {error}", file.display()),
        };
        log::warn!("what a command left running outlives its end for want of memory: {why}");
    }

    /// Puts a process in, and reads back that it is there. `is_it` says whether the number still means the process
    /// that told it: it is asked when the process is held, and then no other can be meant.
    ///
    /// # Errors
    /// Why it could not be put there, for the log.
    pub fn put(&self, pid: i32, is_it: impl FnOnce() -> bool) -> Result<(), String> {
        // Beneath this directory the number means the same process for ever (proc(5)).
        let held = File::open(format!("/proc/{pid}")).map_err(|error| format!("process {pid}: {error}"))?;
        if !is_it() {
            return Err(format!("process {pid} has ended"));
        }
        let procs = self.path.join("cgroup.procs");
        let says = |error: io::Error| format!("{}: {error}", procs.display());
        fs::write(&procs, pid.to_string()).map_err(says)?;
        let inside = fs::read_to_string(&procs).map_err(says)?;
        if !has_parent(&held) || !inside.lines().any(|line| line.parse() == Ok(pid)) {
            return Err(format!("process {pid} is not in {}", self.path.display()));
        }
        Ok(())
    }

    /// Kills every process in it, those that are being forked too (cgroup.kill, Linux 5.14); whether it could.
    pub fn kill(&self) -> bool {
        fs::write(self.path.join("cgroup.kill"), "1").is_ok()
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub fn oom_kills(&self) -> u64 {
        field(&self.path, "memory.events", "oom_kill").unwrap_or(0)
    }

    /// The most memory that it had at one time, in bytes; the kernel tells since Linux 5.19.
    pub fn memory_peak(&self) -> Option<u64> {
        fs::read_to_string(self.path.join("memory.peak")).ok()?.trim().parse().ok()
    }

    /// Processor time in microseconds.
    pub fn cpu_usec(&self) -> Option<u64> {
        field(&self.path, "cpu.stat", "usage_usec")
    }

    /// Whether it is gone.
    fn remove(&self) -> bool {
        match fs::remove_dir(&self.path) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// Whether the process of this directory in /proc has not been reaped.
fn has_parent(process: &File) -> bool {
    rustix::fs::openat(process, "stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .is_ok_and(|stat| File::from(stat).read(&mut [0]).is_ok_and(|count| count > 0))
}

/// The pids in `main` and in every leaf of a sandbox, in our pid namespace.
pub fn processes(sandbox: &Path) -> Vec<i32> {
    let children = fs::read_dir(sandbox).into_iter().flatten().flatten();
    let directories = children.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let lists = directories.filter_map(|entry| fs::read_to_string(entry.path().join("cgroup.procs")).ok());
    // 0 stands for a process of another pid namespace.
    let pids = |list: String| list.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>();
    lists.flat_map(pids).filter(|pid| *pid > 0).collect()
}
