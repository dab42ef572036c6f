//! What takes a right over the processes of a sandbox: done by its launcher ([`crate::stage::launcher`]), which has it,
//! or by this process, where it has given up nothing.

use super::worker::processes;
use super::{memory, tree};
use crate::stage::launcher::Launcher;
use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Does it.
#[derive(Debug, Clone, Default)]
pub(super) struct Privileged(Option<Rc<Launcher>>);

impl Privileged {
    /// By this launcher.
    pub(super) fn by(launcher: &Rc<Launcher>) -> Self {
        Privileged(Some(Rc::clone(launcher)))
    }

    /// Who does it, unless it is this process.
    pub(super) fn launcher(&self) -> Option<&Launcher> {
        self.0.as_deref()
    }

    /// Kills a program, which has not been reaped, with everything that it has started.
    pub(super) fn kill_tree(&self, pid: i32) {
        match &self.0 {
            Some(launcher) => processes::kill(launcher, pid),
            None => tree::kill(pid),
        }
    }

    /// Has the kernel take this process before others when the memory of this cgroup is used up.
    pub(super) fn kill_first(&self, pid: i32, cgroup: &str) {
        match &self.0 {
            Some(launcher) => processes::kill_first(launcher, pid),
            None => memory::kill_first(pid, cgroup),
        }
    }

    /// The same for all processes of the cgroup but these.
    pub(super) fn kill_last(&self, spared: [i32; 2], cgroup: &Path) {
        match &self.0 {
            Some(launcher) => processes::kill_last(launcher, spared),
            None => memory::kill_last(spared, cgroup),
        }
    }

    /// The mount table of pid 1 (proc_pid_mountinfo(5)).
    pub(super) fn mounts(&self, pid: i32) -> io::Result<File> {
        super::pins::table(self.launcher(), pid)
    }
}
