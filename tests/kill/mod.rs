//! KC-33, DECISIONS 11: the runtime is killed at any point, and nothing of its sandbox stays.

mod parent;

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::isolation::wrapped::Wrap;
use crate::support::deadline::Deadline;
use crate::support::process::{Process, Watch, killed_by};
use crate::support::wait;

/// Daemons of every kind, and a program that stays, none of which ends by itself; `up` says that they all stand.
const PAYLOAD: &str = "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exec sleep 1000' &) ; nohup sleep 1000 >/dev/null & \
    : > up; exec sleep 1000";

/// The living processes that a path gives away: by an argument, or by a mount on it. Zombies are dead.
pub(crate) fn alive_in(marker: &Path) -> Vec<u32> {
    let marker = marker.to_str().expect("a plain path").as_bytes();
    let numbers =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| is_alive(*pid) && mentions(*pid, marker)).collect()
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may hold anything; the state follows its last parenthesis.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn mentions(pid: u32, marker: &[u8]) -> bool {
    ["cmdline", "mountinfo"].iter().any(|file| {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.windows(marker.len()).any(|part| part == marker)
    })
}

/// Waits until nothing of the sandbox lives; panics when something goes on living.
pub(crate) fn wait_for_nothing(marker: &Path, when: Duration) {
    let deadline = Deadline::usual();
    loop {
        let alive = alive_in(marker);
        for pid in &alive {
            // One that is gone meanwhile has no pidfd.
            if let Some(watch) = Watch::of(*pid) {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                assert!(watch.is_gone_by(deadline), "killed at {when:?}: {pid} ({name}) lives");
            }
        }
        if alive.is_empty() {
            return;
        }
        assert!(!deadline.remaining().is_zero(), "killed at {when:?}: new processes come up");
    }
}

/// Directories that a sandbox of this name may have left, wherever it had them.
fn leftovers(wrap: &Wrap, id: &str) -> Vec<PathBuf> {
    let mut roots =
        vec![PathBuf::from("/run/saggar"), wrap.place.join("run"), PathBuf::from("/sys/fs/cgroup")];
    let mut found = Vec::new();
    while let Some(root) = roots.pop() {
        for entry in fs::read_dir(&root).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().contains(id) {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                roots.push(entry.path());
            }
        }
    }
    found
}

/// pid 1 of the sandbox of a saggar.
pub(crate) fn init_of(process: &Process) -> Watch {
    let is_init =
        |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "saggar:init\n");
    let mut children = process.descendants().into_iter().map(|(pid, _)| pid);
    let init = children.find(|pid| is_init(*pid)).expect("pid 1 says what it is");
    Watch::of(init).expect("pid 1 lives")
}

fn rounds() -> u32 {
    let long = env::var_os("SAGGAR_TEST_LONG").is_some_and(|long| long == "1");
    if long { 200 } else { 40 }
}

as_each_caller! {
    /// KC-33: at any moment from the first instruction to well after the program runs.
    fn nothing_outlives_a_killed_runtime(caller) {
        let wrap = Wrap::new(caller);
        let id = format!("kill-{}", wrap.place.path().file_name().unwrap().display());
        let work = wrap.work();
        let options = ["--id", &id, "--workspace", work.to_str().unwrap()];
        let start = || Process::start(&wrap.place, wrap.command(&options, &["/bin/sh", "-c", PAYLOAD]));

        // How long a start takes here and now says which moments there are.
        let begun = Instant::now();
        let mut whole = start();
        wait::until_exists(&work.join("up"));
        let span = begun.elapsed().clamp(Duration::from_millis(15), Duration::from_millis(200)).mul_f64(1.5);
        assert!(alive_in(&work).len() >= 6, "saggar, pid 1 and the daemons are seen: {:?}", alive_in(&work));
        whole.signal(Signal::SIGKILL);
        whole.wait();
        wait_for_nothing(&work, span);

        let before = wrap.place.mounts();
        for round in 0..rounds() {
            let when = span.mul_f64(f64::from(round) / f64::from(rounds()));
            let mut process = start();
            // The moment is what this test is about; nothing is waited for.
            thread::sleep(when);
            process.signal(Signal::SIGKILL);
            assert!(killed_by(process.wait(), Signal::SIGKILL));
            wait_for_nothing(&work, when);
        }
        assert_eq!(wrap.place.mounts(), before, "no mount of the host comes or goes");
        assert_eq!(leftovers(&wrap, &id), Vec::<PathBuf>::new(), "no runtime directory, no cgroup");
        // What is left does not hinder the next.
        assert_eq!(wrap.run(&options, &["/bin/sh", "-c", "exit 7"]).code(), 7);
    }

    /// DECISIONS 11: of runtime and watcher together nothing lives, and the next start cleans up and goes on.
    fn nothing_outlives_a_killed_runtime_and_watcher(caller) {
        let wrap = Wrap::new(caller);
        let id = format!("both-{}", wrap.place.path().file_name().unwrap().display());
        let work = wrap.work();
        let options = ["--id", &id, "--workspace", work.to_str().unwrap()];
        for _ in 0..5 {
            let mut process = Process::start(&wrap.place, wrap.command(&options, &["/bin/sh", "-c", PAYLOAD]));
            wait::until_exists(&work.join("up"));
            fs::remove_file(work.join("up")).unwrap();
            process.kill_launcher();
            process.signal(Signal::SIGKILL);
            assert!(killed_by(process.wait(), Signal::SIGKILL));
            wait_for_nothing(&work, Duration::ZERO);
        }
        assert_eq!(wrap.run(&options, &["/bin/sh", "-c", "exit 7"]).code(), 7);
        assert_eq!(leftovers(&wrap, &id), Vec::<PathBuf>::new(), "no runtime directory, no cgroup");
    }

    /// pid 1 is stopped, so that it cannot see the end of its stream: its launcher ends it.
    fn a_stopped_pid_one_dies_with_the_runtime(caller) {
        let wrap = Wrap::new(caller);
        let options = ["--id", &format!("stop-{}", wrap.place.path().file_name().unwrap().display())];
        let mut process = Process::start(&wrap.place, wrap.command(&options, &["/bin/sh", "-c", PAYLOAD]));
        wait::until_exists(&wrap.work().join("up"));
        let init = init_of(&process);
        // A process group that nobody outside of it looks after any more is sent SIGCONT when it has stopped members:
        // a child of ours in it keeps it from that.
        let mut keeper = Command::new("sleep").arg("1000").process_group(process.pid().cast_signed()).spawn().unwrap();
        init.stop();
        process.signal(Signal::SIGKILL);
        process.wait();
        let gone = init.is_gone_by(Deadline::usual());
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        if !gone {
            init.signal(Signal::SIGKILL);
        }
        assert!(gone, "pid 1 lives");
        wait_for_nothing(&wrap.work(), Duration::ZERO);
    }

    /// A sandbox whose launcher was killed is ended: nobody could kill it any more.
    fn a_killed_launcher_ends_the_sandbox(caller) {
        let wrap = Wrap::new(caller);
        let mut process = Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", PAYLOAD]));
        wait::until_exists(&wrap.work().join("up"));
        process.kill_launcher();
        process.signal(Signal::SIGCONT);
        assert_eq!(process.wait().code(), Some(125), "{}", process.stderr());
        assert!(process.stderr().contains("the launcher of the sandbox was killed"), "{}", process.stderr());
        wait_for_nothing(&wrap.work(), Duration::ZERO);
    }

    /// pid 1 killed from outside takes everything along, and saggar says so.
    fn a_killed_pid_one_ends_the_sandbox(caller) {
        let wrap = Wrap::new(caller);
        let mut process = Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", PAYLOAD]));
        wait::until_exists(&wrap.work().join("up"));
        init_of(&process).signal(Signal::SIGKILL);
        assert_eq!(process.wait().code(), Some(137));
        assert_eq!(alive_in(&wrap.work()), [0; 0]);
    }
}
