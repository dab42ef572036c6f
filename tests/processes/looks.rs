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

/// The worker that has these capabilities, while the launcher has it.
fn worker(launcher: u32, capabilities: impl Fn(&Account) -> bool) -> Account {
    let deadline = Deadline::usual();
    loop {
        let workers = Account::children(launcher).into_iter().filter(|child| child.name == "saggar:files");
        if let Some(found) = workers.filter(|worker| worker.seccomp == 2).find(|worker| capabilities(worker))
        {
            return found;
        }
        assert!(!deadline.remaining().is_zero(), "no such worker: {:?}", Account::children(launcher));
        deadline.pause();
    }
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
        let script = "mkdir -p .git/hooks; echo x > .git/hooks/post-commit; exec sleep 1000";
        let mut process = Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", script]));
        let deadline = Deadline::usual();
        while !wrap.work().join(".git/hooks/post-commit").exists() {
            assert!(!deadline.remaining().is_zero(), "the program planted nothing");
            deadline.pause();
        }
        let launcher = family(process.pid(), "saggar:launch").pid;
        let init = family(process.pid(), "saggar:init").pid;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(init.cast_signed()), nix::sys::signal::Signal::SIGKILL).unwrap();
        let root = caller.is_root();
        let reads = worker(launcher, |worker| !root || (worker.bounding, worker.permitted) == (READS, READS));
        assert_confined(caller, &reads, READS);
        let has = |worker: &Account| !root || (worker.bounding, worker.permitted) == (TAKES, TAKES);
        let takes = worker(launcher, |worker| worker.pid != reads.pid && has(worker));
        assert_confined(caller, &takes, TAKES);
        process.wait();
        assert!(!wrap.work().join(".git/hooks/post-commit").exists());
    }
}
