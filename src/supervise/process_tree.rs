//! Kills a program and all of its descendants, and no other process of its sandbox.
//!
//! Programs that may have to be killed alone are subreapers (prctl(2), PR_SET_CHILD_SUBREAPER): every descendant stays
//! below them, even after a double fork or in a session of its own. The tree is stopped first, until every process has
//! stopped and no new one appears in it; then it is killed. Each process is opened as a pidfd and then checked a second time, so that a
//! process with a reused pid is never signalled.

use crate::host::processes::parent_of;
use crate::sys::pidfd;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

/// Most rounds to stop a tree that forks meanwhile; after them it is killed as it is.
const MAX_STOP_ROUNDS: usize = 64;
/// Pause before the next round if a process has not stopped yet: a signal takes effect when the process is scheduled.
const STOP_INTERVAL: Duration = Duration::from_millis(1);
/// Rounds without a change after which the tree is complete. In one alone, a child whose parent exits meanwhile can pass from
/// the children that are read later to those that were read before.
const QUIET_ROUNDS: usize = 2;

/// Kills the process `pid`, which must not have been reaped, and its descendants.
pub(super) fn kill_tree(pid: i32) {
    if let Ok(root) = pidfd::open(pid) {
        stop_and_kill(pid, root);
    }
}

/// Kills the process of this pidfd, which had the pid `pid`, and its descendants; another process may reap it at any
/// time.
pub(super) fn kill_tree_by_pidfd(pid: i32, root: BorrowedFd<'_>) {
    if let Ok(root) = root.try_clone_to_owned() {
        stop_and_kill(pid, root);
    }
}

fn stop_and_kill(pid: i32, root: OwnedFd) {
    let mut held: BTreeMap<i32, OwnedFd> = BTreeMap::from([(pid, root)]);
    let mut quiet = 0;
    for _ in 0..MAX_STOP_ROUNDS {
        for fd in held.values() {
            let _ = pidfd::signal(fd.as_fd(), libc::SIGSTOP);
        }
        // Before the children are read: one that runs may be forking.
        let have_stopped = held.keys().all(|pid| has_stopped(*pid));
        let mut found = false;
        for parent in held.keys().copied().collect::<Vec<_>>() {
            for child in children(parent) {
                if held.contains_key(&child) {
                    continue;
                }
                // If the parent has not been reaped by now, its pid was its own all the time.
                if let Ok(fd) = pidfd::open(child)
                    && parent_of(child) == Some(parent)
                    && held.get(&parent).is_some_and(|parent| pidfd::signal(parent.as_fd(), 0).is_ok())
                {
                    held.insert(child, fd);
                    found = true;
                }
            }
        }
        quiet = if have_stopped && !found { quiet + 1 } else { 0 };
        if quiet == QUIET_ROUNDS {
            break;
        }
        if !have_stopped {
            thread::sleep(STOP_INTERVAL);
        }
    }
    for fd in held.values() {
        let _ = pidfd::signal(fd.as_fd(), libc::SIGKILL);
    }
}

/// Whether no thread of a process runs: each has stopped or exited (proc_pid_stat(5), `state`).
fn has_stopped(pid: i32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    states.all(|stat| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_none_or(|state| "TtZX".contains(state))
    })
}

/// The children of every thread of a process (proc(5), CONFIG_PROC_CHILDREN).
fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}
