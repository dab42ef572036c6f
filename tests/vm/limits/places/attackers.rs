//! Programs that take what they can get, in a default sandbox from a plain shell: the machine stays of use to others.

use std::fs;
use std::io::Write as _;
use std::process::Command;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::way::Way;
use super::{MACHINE, Site, callers};
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::process::Watch;

/// The longest that another shell may take to run a program: the one bound on time here is what is promised.
const LONGEST: Duration = Duration::from_secs(2);
/// How often that is tried.
const TRIES: usize = 20;

/// What each does, as a program of Python that creates the file `begun` when it is at it.
const ATTACKERS: [(&str, &str); 3] = [
    (
        "fork bomb",
        "import os
while True:
    try: os.fork()
    except OSError: os.close(os.open(\"begun\", os.O_CREAT))",
    ),
    // One after the other: each is killed, or refused more.
    (
        "allocator",
        "import os, time
while True:
    child = os.fork()
    if child == 0:
        taken = []
        try:
            while True: taken.append(bytearray(1 << 20))
        except MemoryError: os._exit(0)
    os.waitpid(child, 0)
    os.close(os.open(\"begun\", os.O_CREAT))",
    ),
    (
        "CPU burner",
        "import os
for _ in range(8):
    if os.fork() == 0: break
os.close(os.open(\"begun\", os.O_CREAT))
while True: pass",
    ),
];

/// The longest that another shell of root took to start `true`.
fn longest_start() -> Duration {
    let starts = (0..TRIES).map(|_| {
        let before = Instant::now();
        assert!(Command::new("/bin/sh").args(["-c", "/bin/true"]).status().unwrap().success());
        before.elapsed()
    });
    starts.max().unwrap()
}

fn attack(caller: Caller, name: &str, program: &str) {
    let site = Site::new(caller, Way::Login);
    let begun = site.place.work().join("begun");
    let file = site.place.make_file("work/attack.py", program);
    let mut wrapped = site.start(&[], &format!("exec python3 {}", file.display()));
    let started = wrapped.await_start().unwrap_or_else(|| panic!("{name}: {}", wrapped.said()));
    let deadline = Deadline::after(Duration::from_secs(600));
    while !begun.exists() {
        assert!(!deadline.remaining().is_zero(), "{name} does not begin: {}", wrapped.said());
        deadline.pause();
    }
    let end = End::of(&started);
    let longest = longest_start();
    let who = if caller.is_root() { "root" } else { "user" };
    let _ = writeln!(
        std::io::stderr(),
        "attack: {name:10} {who}  another shell started `true` within {longest:?}"
    );
    assert!(longest < LONGEST, "{name}, {who}: {longest:?}");
    drop(end);
    wrapped.child.wait().unwrap();
}

/// Kills pid 1 of the sandbox, and with it all that the attacker has made.
struct End(Watch);

impl End {
    fn of(started: &serde_json::Value) -> Self {
        let status = fs::read_to_string(format!("/proc/{}/status", started["pid"])).unwrap();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim();
        End(Watch::of(parent.parse().unwrap()).unwrap())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.signal(nix::sys::signal::Signal::SIGKILL);
    }
}

#[test]
fn places_stay_of_use_beside_an_attacker() {
    let Some(callers) = callers() else { skip!("this test needs to be started as root") };
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    for (name, program) in ATTACKERS {
        for caller in callers {
            attack(caller, name, program);
        }
    }
}
