//! Notification that forks failed at the limit of processes of a sandbox.

use super::place::SandboxCgroups;
use super::usage::parse_field;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};

/// Watches `pids.events` of a sandbox (Documentation/admin-guide/cgroup-v2.rst, "PID"). Version 1 has the same file, but from
/// Linux 6.11 on the kernel notifies another one that version 1 does not have (kernel/cgroup/pids.c, `pids_event`).
#[derive(Debug)]
pub struct PidsWatch {
    events: File,
}

impl PidsWatch {
    /// Starts to watch; `None` without the controller.
    pub fn new(cgroups: &SandboxCgroups) -> Option<Self> {
        let events = File::open(cgroups.path_with("pids")?.join("pids.events")).ok()?;
        let mut watch = PidsWatch { events };
        // The kernel notifies of what changes after a read.
        watch.refused();
        Some(watch)
    }

    /// Number of forks that failed so far; zero if the cgroup was removed.
    pub fn refused(&mut self) -> u64 {
        let mut text = String::new();
        match self.events.rewind().and_then(|()| self.events.read_to_string(&mut text)) {
            Ok(_) => parse_field(&text, "max").unwrap_or(0),
            Err(_) => 0,
        }
    }
}

impl AsFd for PidsWatch {
    /// The descriptor is ready for POLLPRI when forks have failed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
