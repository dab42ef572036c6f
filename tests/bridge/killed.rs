//! KC-33, DECISIONS 11: the runtime of an agent killed at any point, and nothing of it stays.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::served::Stage;
use crate::kill::wait_for_nothing;
use crate::support::deadline::Deadline;
use crate::support::process::{Process, killed_by};
use crate::support::wait;

/// What the host still has of a stage's sandboxes: sockets, runtime directories, cgroups. Sessions are to stay.
pub(super) fn leftovers(stage: &Stage) -> Vec<String> {
    let id = stage.name();
    let mut roots: Vec<PathBuf> =
        vec!["/run/saggar".into(), stage.place.join("run"), "/sys/fs/cgroup".into()];
    let mut found = Vec::new();
    while let Some(root) = roots.pop() {
        for entry in fs::read_dir(&root).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().contains(&id) || path == stage.socket() {
                found.push(path.display().to_string());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                roots.push(path);
            }
        }
    }
    found
}

fn rounds() -> u32 {
    let long = env::var_os("SAGGAR_TEST_LONG").is_some_and(|long| long == "1");
    if long { 200 } else { 40 }
}

as_each_caller! {
    /// At any moment from the first instruction to well into a turn.
    fn nothing_outlives_a_killed_agent_command(caller) {
        let stage = Stage::new(caller);
        let prompt = "run: setsid sleep 1000 & (setsid sleep 1000 &) ; : > up; exec sleep 1000";
        let start = |resume: bool| {
            let mut command = stage.command(&["--adapter", "demo", "--bridge-socket"]);
            command.arg(stage.socket()).args(resume.then_some("--resume")).arg(prompt);
            Process::start(&stage.place, command)
        };
        let begun = Instant::now();
        let mut whole = start(false);
        wait::until_exists(&stage.work().join("up"));
        let span = begun.elapsed().clamp(Duration::from_millis(15), Duration::from_millis(300)).mul_f64(1.5);
        whole.signal(Signal::SIGKILL);
        whole.wait();
        wait_for_nothing(&stage.work(), span);

        let before = stage.place.mounts();
        for round in 0..rounds() {
            let when = span.mul_f64(f64::from(round) / f64::from(rounds()));
            let mut process = start(true);
            // The moment is what this test is about; nothing is waited for.
            thread::sleep(when);
            process.signal(Signal::SIGKILL);
            assert!(killed_by(process.wait(), Signal::SIGKILL), "{when:?}: {}", process.stderr());
            wait_for_nothing(&stage.work(), when);
        }
        // Directories of cgroups are among them: no event tells of those.
        let deadline = Deadline::usual();
        while !leftovers(&stage).is_empty() && !deadline.remaining().is_zero() {
            deadline.pause();
        }
        assert_eq!(leftovers(&stage), [""; 0]);
        assert_eq!(stage.place.mounts(), before, "no mount of the host comes or goes");
    }
}
