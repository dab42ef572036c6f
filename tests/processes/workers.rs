//! Which rights the workers have that take a snapshot, restore one, and read a folder's policy: by /proc right before their
//! last system call, and by system calls that are made in them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::Pid;
use serde_json::json;

use super::account::Account;
use crate::isolation::wrapped::finish;
use crate::races::stepped::stepped;
use crate::session::stage::{Sessions, control, supervisor};
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::place::Place;
use crate::support::process::Process;

/// A user to whom a root's folder can belong.
const OTHER: u32 = 12345;
/// CAP_DAC_READ_SEARCH
const READ: u64 = 1 << 2;
const NAME: &str = "saggar:files";

/// Runs a command; what its file workers were in the end, in the order of their pids.
fn workers_of(place: &Place, command: &Command) -> Vec<Account> {
    let output = place.join("output");
    let mut workers = BTreeMap::new();
    let status = stepped(place, command, &output, |pid| {
        if let Some(account) = worker(pid) {
            workers.insert(pid, account);
        }
    });
    assert_eq!(status, Some(0), "{command:?}: {}", fs::read_to_string(output).unwrap());
    workers.into_values().collect()
}

/// The account of a process that is a worker with its filter.
fn worker(pid: Pid) -> Option<Account> {
    Account::of(pid.as_raw().cast_unsigned()).filter(|account| account.name == NAME && account.seccomp == 2)
}

/// An agent's folder, of another user as root's.
fn folder(caller: Caller, place: &Place) -> u32 {
    place.make_dir("agent", 0o755);
    place.make_file("agent/CLAUDE.md", "# test\n");
    if !caller.is_root() {
        return caller.uid().as_raw();
    }
    for name in ["agent", "agent/CLAUDE.md"] {
        chown(place.join(name), Some(OTHER), Some(OTHER)).unwrap();
    }
    OTHER
}

fn saggar(place: &Place, words: &[&str]) -> Command {
    let mut command = place.saggar();
    command.args(words);
    command
}

/// A session `work` with changes and a home, ended.
fn session(place: &Place, options: &[&str]) -> PathBuf {
    let words = ["agent", "--adapter", "demo", "--session", "work"];
    let prompt = "run: echo x > new; mkdir -p $HOME/.claude; echo x > $HOME/.claude/state";
    let words = [&words, options, &["../agent", prompt]].concat();
    let ended = finish(Process::start(place, saggar(place, &words)));
    assert_eq!(ended.code(), 0, "{ended:?}");
    place.join("state/saggar/sessions/work")
}

fn assert_ids(caller: Caller, worker: &Account, owner: u32) {
    assert!(worker.uids.iter().all(|id| *id == owner), "{worker:?}");
    if caller.is_root() {
        assert!(worker.gids.iter().all(|id| *id == owner), "{worker:?}");
        assert_eq!(worker.groups.len(), 0, "{worker:?}");
    }
}

fn assert_powerless(caller: Caller, worker: &Account, owner: u32) {
    worker.assert_powerless();
    assert_ids(caller, worker, owner);
    assert!(!caller.is_root() || worker.bounding == 0, "{worker:?}");
}

as_each_caller! {
    /// The home is root's and the workspace is not: what reads both has the one capability that this takes.
    fn the_worker_of_a_snapshot_has_the_ids_of_the_owner_and_reads_alone(caller) {
        for options in [&[][..], &["--workspace-overlay"]] {
            let place = Place::new(caller);
            let owner = folder(caller, &place);
            session(&place, options);
            let workers = workers_of(&place, &saggar(&place, &["session", "snapshot", "work"]));
            let [worker] = &workers[..] else { panic!("{workers:?}") };
            if caller.is_root() {
                assert_eq!((worker.permitted, worker.effective, worker.bounding), (READ, READ, READ), "{worker:?}");
                assert_eq!((worker.inheritable, worker.ambient, worker.no_new_privs), (0, 0, 1), "{worker:?}");
                assert_ids(caller, worker, owner);
            } else {
                assert_powerless(caller, worker, owner);
            }
        }
    }

    /// As root there is one for the workspace and one for the home, and of what was there before likewise.
    fn the_workers_of_a_restore_have_the_ids_of_the_owners_and_no_other_rights(caller) {
        for options in [&[][..], &["--workspace-overlay"]] {
            let place = Place::new(caller);
            let owner = folder(caller, &place);
            let session = session(&place, options);
            let left = session.join(if options.is_empty() { "workspace" } else { "upper/changes" });
            let owned = |name: &str| fs::metadata(session.join(name)).unwrap().uid();
            let home = owned("home");
            let before = (fs::metadata(&left).unwrap().uid(), owned("home/.claude"), owned("home/.claude/state"));
            let file = place.join("state/s.tar.zst");
            let file = file.to_str().unwrap();
            let taken = finish(Process::start(&place, saggar(&place, &["session", "snapshot", "--output", file, "work"])));
            assert_eq!(taken.code(), 0, "{taken:?}");
            let workers = workers_of(&place, &saggar(&place, &["session", "restore", "work", file]));
            let first = workers.first().expect("there is a worker");
            assert_powerless(caller, first, owner);
            assert!(workers.iter().any(|worker| worker.uids[0] == home), "{workers:?}");
            for worker in &workers {
                assert!([owner, home].contains(&worker.uids[0]), "{worker:?}");
                assert_powerless(caller, worker, worker.uids[0]);
            }
            let after = (fs::metadata(&left).unwrap().uid(), owned("home/.claude"), owned("home/.claude/state"));
            assert_eq!((before, after.0), (after, owner), "{options:?}");
            assert_eq!(fs::read_to_string(left.join("new")).unwrap(), "x\n");
            assert_eq!(fs::metadata(left.join("new")).unwrap().uid(), owner);
        }
    }

    /// A start without such a policy has no worker at all.
    fn the_policy_of_a_folder_is_read_by_a_worker_without_rights(caller) {
        let place = Place::new(caller);
        let start = saggar(&place, &["wrap", "--", "true"]);
        let workers = workers_of(&place, &start);
        assert!(workers.is_empty(), "{workers:?}");
        let policy = place.make_file("work/saggar.toml", "[limits]\nnofile = 4096\n");
        let owner = if caller.is_root() { OTHER } else { caller.uid().as_raw() };
        if caller.is_root() {
            chown(place.work(), Some(OTHER), Some(OTHER)).unwrap();
            chown(&policy, Some(OTHER), Some(OTHER)).unwrap();
        }
        let policy = policy.to_str().unwrap();
        for words in [&["wrap", "--", "true"][..], &["explain"], &["policy", "check", policy]] {
            let workers = workers_of(&place, &saggar(&place, words));
            // The name of the file is one that the look in the end stops at.
            let looks = usize::from(words[0] == "wrap");
            assert_eq!(workers.len(), 1 + looks, "{words:?}: {workers:?}");
            assert_powerless(caller, &workers[0], owner);
        }
    }

    /// Of a session that is served too. It adds its filter to that of the launcher, whose process it comes from.
    fn a_snapshot_of_a_session_that_is_served_is_taken_by_a_file_worker(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("served", &[]);
        sessions.send("served", "run: head -c 100000000 /dev/urandom > large; echo made");
        let supervisor = supervisor(&session).pid();
        let mut client = control(&session);
        let owner = fs::metadata(sessions.directory("served").join("workspace")).unwrap().uid();
        for _ in 0..20 {
            let id = client.ask("snapshot", &json!({}));
            let deadline = Deadline::usual();
            let found = loop {
                if let Some(found) = below(supervisor).filter(|found| filters(found.pid) == Some(2)) {
                    break Some(found);
                }
                let is_over = !snapshots(&sessions.directory("served")).is_empty();
                assert!(!deadline.remaining().is_zero(), "there is no worker");
                if is_over {
                    break None;
                }
            };
            let answer = client.answer(id);
            assert!(answer["result"]["file"].is_string(), "{answer}");
            if let Some(worker) = found {
                assert_powerless(caller, &worker, owner);
                return;
            }
            snapshots(&sessions.directory("served")).iter().for_each(|path| fs::remove_file(path).unwrap());
        }
        panic!("every worker was done before it was seen");
    }
}

/// The file worker among what is below a process.
fn below(above: u32) -> Option<Account> {
    let children = Account::children(above);
    children.into_iter().find_map(|child| if child.name == NAME { Some(child) } else { below(child.pid) })
}

/// How many filters a process has.
fn filters(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"))?.trim().parse().ok()
}

/// The snapshots of a session that are whole.
fn snapshots(session: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(session.join("snapshots")).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "zst"))
        .collect()
}

/// System calls in them, as if what they read had taken them over. The folder is root's, as everything else: no owner of a
/// file stops them, but the landlock domain does.
#[cfg(target_arch = "x86_64")]
mod taken {
    use super::super::taken::{Taken, assert_refused};
    use super::*;

    /// Runs a command; each of its workers is taken over right before the first `write` that it makes with its filter.
    fn take_over(place: &Place, words: &[&str], closed: &Path) {
        let output = place.join("output");
        let mut taken = Vec::new();
        let status = stepped(place, &saggar(place, words), &output, |pid| {
            let number =
                nix::sys::ptrace::getregs(pid).map_or(0, |registers| registers.orig_rax.cast_signed());
            if number == libc::SYS_write && !taken.contains(&pid) && worker(pid).is_some() {
                let worker = Taken::before_call(pid);
                assert_refused(&worker);
                let here = i64::from(libc::AT_FDCWD).cast_unsigned();
                let flags = i64::from(libc::O_WRONLY | libc::O_CREAT).cast_unsigned();
                let path = closed.join("made");
                let text = Some((1, path.to_str().unwrap()));
                let made = worker.call(libc::SYS_openat, [here, 0, flags, 0o600, 0, 0], text);
                assert_eq!(made, libc::EACCES, "{words:?}: a file in {}", closed.display());
                taken.push(pid);
            }
        });
        assert_eq!(status, Some(0), "{words:?}: {}", fs::read_to_string(output).unwrap());
        assert!(!taken.is_empty(), "{words:?}");
    }

    fn root() -> Result<Place, &'static str> {
        let place = Place::new(Caller::root()?);
        place.make_dir("agent", 0o755);
        place.make_file("agent/CLAUDE.md", "# test\n");
        Ok(place)
    }

    #[test]
    fn workers_of_snapshots_and_restores_that_were_taken_over_can_do_no_harm() {
        let Ok(place) = root() else {
            skip!("this test needs to be started as root: only root may trace a worker")
        };
        let session = session(&place, &[]);
        let file = place.join("state/s.tar.zst");
        let file = file.to_str().unwrap();
        take_over(&place, &["session", "snapshot", "--output", file, "work"], &session.join("workspace"));
        take_over(&place, &["session", "restore", "work", file], &session);
        assert_eq!(fs::read_to_string(session.join("workspace/new")).unwrap(), "x\n");
    }

    #[test]
    fn a_reader_of_a_policy_that_was_taken_over_can_do_no_harm() {
        let Ok(place) = root() else {
            skip!("this test needs to be started as root: only root may trace a worker")
        };
        place.make_file("work/saggar.toml", "[limits]\nnofile = 4096\n");
        take_over(&place, &["explain"], &place.work());
    }
}
