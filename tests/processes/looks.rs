//! Which rights the workers have that look for what a sandbox left (saggar-security(7), PROCESSES).

use std::fs;
use std::os::unix::fs::chown;

use super::account::{Account, family};
use crate::isolation::wrapped::Wrap;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::process::Process;

/// CAP_DAC_READ_SEARCH; CAP_DAC_OVERRIDE.
const READS: u64 = 0b100;
const TAKES: u64 = 0b10;
/// A user to whom a root's workspace can belong.
const OTHER: u32 = 12345;

/// Directories that it takes a while to walk through.
fn fill(wrap: &Wrap) {
    for number in 0..8000 {
        fs::create_dir_all(wrap.work().join(format!("d/{}/{number}", number / 100))).unwrap();
    }
}

/// The workers of a sandbox that leaves something behind, as far as they were seen while they lived.
fn workers(wrap: &Wrap) -> Vec<Account> {
    let script = "mkdir -p .git/hooks; echo x > .git/hooks/post-commit; exec sleep 1000";
    let mut process = Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", script]));
    let planted = wrap.work().join(".git/hooks/post-commit");
    let deadline = Deadline::usual();
    while !planted.exists() {
        assert!(!deadline.remaining().is_zero(), "the program planted nothing");
        deadline.pause();
    }
    let launcher = family(process.pid(), "saggar:launch").pid;
    let init = family(process.pid(), "saggar:init").pid;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(init.cast_signed()), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    let mut workers: Vec<Account> = Vec::new();
    while Account::of(launcher).is_some_and(|account| account.name == "saggar:launch") {
        for child in Account::children(launcher) {
            let is_new = !workers.iter().any(|worker| worker.pid == child.pid);
            if is_new && child.name == "saggar:files" && child.seccomp == 2 {
                workers.push(child);
            }
        }
    }
    process.wait();
    assert!(!planted.exists());
    // What is there at the start is protected, and no program plants anything in it.
    fs::remove_dir_all(wrap.work().join(".git")).unwrap();
    workers
}

fn assert_confined(caller: Caller, worker: &Account, capabilities: u64) {
    assert_eq!(worker.no_new_privs, 1, "{worker:?}");
    assert_eq!((worker.inheritable, worker.ambient), (0, 0), "{worker:?}");
    if caller.is_root() {
        let sets = [worker.permitted, worker.effective, worker.bounding];
        assert_eq!(sets, [capabilities; 3], "{worker:?}");
        assert!(worker.uids.iter().chain(&worker.gids).all(|id| *id == OTHER), "{worker:?}");
        assert!(worker.groups.is_empty(), "{worker:?}");
    } else {
        worker.assert_powerless();
    }
}

as_each_caller! {
    /// One that reads, as the owner of the workspace; and when there is something, one that takes it.
    fn workers_that_look_have_the_rights_of_the_table(caller) {
        let wrap = Wrap::new(caller);
        fill(&wrap);
        if caller.is_root() {
            chown(wrap.work(), Some(OTHER), Some(OTHER)).unwrap();
        }
        // A worker lives for a moment, which a busy machine may spend elsewhere.
        let (mut reads, mut takes, deadline) = (None, None, Deadline::usual());
        while reads.is_none() || takes.is_none() {
            assert!(!deadline.remaining().is_zero(), "the workers were not seen: {reads:?}, {takes:?}");
            let has = |worker: &Account, set| !caller.is_root() || (worker.bounding, worker.permitted) == (set, set);
            let mut seen = workers(&wrap).into_iter();
            reads = reads.or(seen.by_ref().find(|worker| has(worker, READS)));
            takes = takes.or(seen.find(|worker| has(worker, TAKES)));
        }
        assert_confined(caller, &reads.unwrap(), READS);
        assert_confined(caller, &takes.unwrap(), TAKES);
    }
}
