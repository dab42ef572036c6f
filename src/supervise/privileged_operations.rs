//! Operations that need rights over the processes of a sandbox. The launcher ([`crate::stage::agent::launcher`]) has these
//! rights and performs them, or this process itself before it has dropped its rights.

use super::worker::processes;
use super::{memory, process_tree};
use crate::stage::agent::launcher::Launcher;
use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// The launcher that performs the operations; `None` for this process.
#[derive(Debug, Clone, Default)]
pub(super) struct PrivilegedOperations(Option<Rc<Launcher>>);

impl PrivilegedOperations {
    /// The operations through this launcher.
    pub(super) fn through_launcher(launcher: &Rc<Launcher>) -> Self {
        PrivilegedOperations(Some(Rc::clone(launcher)))
    }

    /// The launcher, unless this process performs the operations.
    pub(super) fn launcher(&self) -> Option<&Launcher> {
        self.0.as_deref()
    }

    /// Kills a program, which has not been reaped, and all of its descendants.
    pub(super) fn kill_tree(&self, pid: i32) {
        match &self.0 {
            Some(launcher) => processes::kill_tree(launcher, pid),
            None => process_tree::kill_tree(pid),
        }
    }

    /// Makes the OOM killer prefer this process when the memory of this cgroup is used up.
    pub(super) fn prefer_for_oom(&self, pid: i32, cgroup: &str) {
        match &self.0 {
            Some(launcher) => processes::prefer_for_oom(launcher, pid),
            None => memory::prefer_for_oom(pid, cgroup),
        }
    }

    /// Makes the OOM killer prefer all processes of the cgroup but `spared`.
    pub(super) fn spare_from_oom(&self, spared: [i32; 2], cgroup: &Path) {
        match &self.0 {
            Some(launcher) => processes::spare_from_oom(launcher, spared),
            None => memory::spare_from_oom(spared, cgroup),
        }
    }

    /// Opens the mount table of pid 1 (proc_pid_mountinfo(5)).
    pub(super) fn open_mount_table(&self, pid: i32) -> io::Result<File> {
        super::pin_watch::open_mount_table(self.launcher(), pid)
    }
}
