//! Which rights the workers have that compare and apply (saggar-security(7), PROCESSES).

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, chown};

use super::{ID, Work, on_each};
use crate::processes::account::{Account, family};
use crate::support::caller::Caller;
use crate::support::process::Process;

/// A user to whom a root's folder can belong.
const OTHER: u32 = 12345;

/// As root, gives the folder to another user; to whom it belongs.
fn give(caller: Caller, work: &Work) -> u32 {
    if !caller.is_root() {
        return caller.uid().as_raw();
    }
    let mut paths = vec![work.folder()];
    while let Some(path) = paths.pop() {
        chown(&path, Some(OTHER), Some(OTHER)).unwrap();
        if path.is_dir() {
            paths.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    OTHER
}

fn assert_confined(caller: Caller, worker: &Account, owner: u32) {
    worker.assert_powerless();
    assert!(worker.uids.iter().all(|id| *id == owner), "{worker:?}");
    if caller.is_root() {
        assert_eq!((worker.bounding, worker.groups.len()), (0, 0), "{worker:?}");
        assert!(worker.gids.iter().all(|id| *id == owner), "{worker:?}");
    }
}

/// Waits until the process is in write(2), and not on its way there.
#[cfg(target_arch = "x86_64")]
fn until_it_writes(pid: u32) {
    let deadline = crate::support::deadline::Deadline::usual();
    loop {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        if call.starts_with(&format!("{} ", libc::SYS_write)) {
            return;
        }
        assert!(!deadline.remaining().is_zero(), "it is in another call: {call}");
        deadline.pause();
    }
}

as_each_caller! {
    /// More text than pipes hold, which is not read: the worker waits.
    fn the_worker_of_a_diff_has_the_ids_of_the_owner_and_no_other_rights(caller) {
        on_each(caller, |work| {
            let owner = give(caller, &work);
            work.begin("for i in 1 2 3 4 5; do seq 60000 > big$i; done");
            let mut verb = Process::start(&work.place, work.session_command(&["diff", "--patch", ID]));
            let worker = family(verb.pid(), "saggar:files");
            assert_confined(caller, &worker, owner);
            #[cfg(target_arch = "x86_64")]
            if caller.is_root() {
                until_it_writes(worker.pid);
                crate::processes::taken::assert_harmless(worker.pid);
            }
            let mut text = String::new();
            verb.take_stdout().read_to_string(&mut text).unwrap();
            assert!(verb.wait().success(), "{}", verb.stderr());
            assert_eq!(text.lines().filter(|line| *line == "+60000").count(), 5);
        });
    }

    fn files_made_by_a_worker_belong_to_the_folder_owner(caller) {
        on_each(caller, |work| {
            let owner = give(caller, &work);
            work.begin("echo new > src/main; mkdir d; echo x > d/x; ln -s x d/link; rm kept");
            work.run(&["apply", ID]).success();
            for name in ["src/main", "d", "d/x", "d/link"] {
                let meta = fs::symlink_metadata(work.folder().join(name)).unwrap();
                assert_eq!(meta.uid(), owner, "{name}, overlay {}", work.overlay);
            }
            assert!(!work.folder().join("kept").exists());
            assert_eq!(work.diff(), [""; 0]);
        });
    }
}

#[test]
fn a_root_applies_to_files_of_several_owners() {
    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root has files of several owners")
    };
    on_each(caller, |work| {
        give(caller, &work);
        // The agent may write it; its owner is another.
        let shared = work.folder().join("src/same");
        fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        chown(&shared, Some(OTHER + 1), Some(OTHER + 1)).unwrap();
        work.begin("cat src/same src/same > x; cat x > src/same");
        work.run(&["apply", ID]).success();
        work.has("src/same", "same\nsame\n");
        let meta = fs::metadata(&shared).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (OTHER + 1, OTHER + 1), "overlay {}", work.overlay);
    });
}

#[test]
fn a_file_that_the_owner_of_the_folder_cannot_read_is_not_copied_for_the_agent() {
    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root could read it")
    };
    let work = Work::new(caller, false);
    give(caller, &work);
    let secret = work.folder().join("secret");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let ended = crate::isolation::wrapped::finish(Process::start(&work.place, work.start("cat secret", &[])));
    assert_ne!(ended.code(), 0, "{ended:?}");
    assert!(ended.stderr.contains("the owner of the folder cannot read it"), "{ended:?}");
}
