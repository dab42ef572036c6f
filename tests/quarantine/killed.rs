//! A supervisor that is killed: the next start on the workspace makes the look, or `gc` does.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use super::told::Session;
use super::wrapped::run;
use crate::isolation::wrapped::{Wrap, finish};
use crate::support::process::Process;
use crate::support::wait;

/// Plants in a sandbox whose supervisor is killed then.
fn plant_and_kill(wrap: &Wrap) {
    let script = "echo evil > .bashrc; git init -q sub; git -C sub config core.fsmonitor evil; echo up; exec sleep 1000";
    let mut process = Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", script]));
    process.take_stdout().read_exact(&mut [0; 3]).unwrap();
    assert!(!records(wrap).is_empty(), "the record is written before a program runs");
    process.signal(nix::sys::signal::Signal::SIGKILL);
    process.wait();
}

/// The launcher has the record as long as it cleans up.
fn await_cleanup(wrap: &Wrap) {
    records(wrap).iter().for_each(|record| wait::until_unlocked(record));
}

/// The records of this place.
fn records(wrap: &Wrap) -> Vec<PathBuf> {
    let entries = fs::read_dir(wrap.place.join("state/saggar/unfinished")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn is_clean(wrap: &Wrap) -> bool {
    let config: PathBuf = wrap.work().join("sub/.git/config");
    !wrap.work().join(".bashrc").exists() && !fs::read_to_string(config).unwrap().contains("fsmonitor")
}

as_each_caller! {
    fn the_next_start_looks_at_what_a_killed_supervisor_left(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        plant_and_kill(&wrap);
        await_cleanup(&wrap);
        assert!(!is_clean(&wrap) && records(&wrap).len() == 1);
        let ended = run(&wrap, &[], "cat .bashrc || echo gone");
        assert_eq!(ended.stdout, "gone\n", "{ended:?}");
        assert!(ended.stderr.contains("killed") && ended.stderr.contains("sub/.git/config"), "{}", ended.stderr);
        assert!(is_clean(&wrap) && records(&wrap).is_empty());
        assert_eq!(run(&wrap, &[], "true").stderr, "", "it is told once");
    }

    /// Each waits until what was left is taken away, whoever does it.
    fn several_starts_at_once_after_a_kill_find_nothing_of_it(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        plant_and_kill(&wrap);
        let look = ["/bin/sh", "-c", "cat .bashrc sub/.git/config 2>&- | grep evil; exit 0"];
        let starts: Vec<Process> = (0..6).map(|_| Process::start(&wrap.place, wrap.command(&[], &look))).collect();
        let mut told = 0;
        for start in starts {
            let ended = finish(start);
            assert_eq!((ended.stdout.as_str(), ended.code()), ("", 0), "{ended:?}");
            told += usize::from(ended.stderr.contains("killed"));
        }
        assert_eq!(told, 1, "it is told once");
        assert!(is_clean(&wrap) && records(&wrap).is_empty());
    }

    /// Nothing is told of a sandbox that left nothing, in the output of another one.
    fn a_killed_supervisor_that_left_nothing_is_not_spoken_of(caller) {
        let wrap = Wrap::new(caller);
        let mut process = Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", "echo up; exec sleep 1000"]));
        process.take_stdout().read_exact(&mut [0; 3]).unwrap();
        process.signal(nix::sys::signal::Signal::SIGKILL);
        process.wait();
        await_cleanup(&wrap);
        let ended = run(&wrap, &[], "echo other");
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("other\n", ""));
        assert!(records(&wrap).is_empty());
    }

    fn gc_looks_at_what_a_killed_supervisor_left(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        plant_and_kill(&wrap);
        await_cleanup(&wrap);
        let mut gc = wrap.place.saggar();
        gc.arg("gc");
        let ended = finish(Process::start(&wrap.place, gc));
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert!(ended.stdout.contains("1 looked at"), "{ended:?}");
        assert!(ended.stderr.contains(".bashrc"), "{ended:?}");
        assert!(is_clean(&wrap) && records(&wrap).is_empty());
    }

    fn a_clean_end_leaves_no_record(caller) {
        let wrap = Wrap::new(caller);
        let _session = Session::of(&wrap.place);
        assert_eq!(run(&wrap, &[], "true").stderr, "");
        assert_eq!(records(&wrap).len(), 0);
    }
}
