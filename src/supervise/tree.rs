//! Kills a program with everything that it started, and nothing else of its sandbox.
//!
//! Programs that may have to be killed alone are subreapers (prctl(2), PR_SET_CHILD_SUBREAPER): whatever
//! they start, also by a double fork or in a session of its own, stays below them. First the tree is stopped,
//! until nothing new appears in it; then it is killed. Each process is held by a pidfd before it is looked
//! at a second time, so that a number that went to another process is never signalled.

use crate::host::processes::parent_of;
use crate::sys::pidfd;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};

/// Rounds until a tree that forks while it is being stopped is given up for killing as it is.
const ROUNDS: usize = 64;

/// Kills the tree below and with `pid`, which must not have been reaped.
pub(super) fn kill(pid: i32) {
    let Ok(root) = pidfd::open(pid) else { return };
    let mut held: BTreeMap<i32, OwnedFd> = BTreeMap::from([(pid, root)]);
    for _ in 0..ROUNDS {
        for fd in held.values() {
            let _ = pidfd::signal(fd.as_fd(), libc::SIGSTOP);
        }
        let mut found = false;
        for parent in held.keys().copied().collect::<Vec<_>>() {
            for child in children(parent) {
                if held.contains_key(&child) {
                    continue;
                }
                if let Ok(fd) = pidfd::open(child)
                    && parent_of(child) == Some(parent)
                {
                    held.insert(child, fd);
                    found = true;
                }
            }
        }
        if !found {
            break;
        }
    }
    for fd in held.values() {
        let _ = pidfd::signal(fd.as_fd(), libc::SIGKILL);
    }
}

/// The children of every thread of a process (proc(5), CONFIG_PROC_CHILDREN).
fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}
