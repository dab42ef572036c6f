//! The runtime killed at any moment: after `delete --force` nothing is left.

use super::bundle::Bench;
use super::traced::killed_at;
use crate::support::deadline::Deadline;
use crate::support::rounds;
use nix::fcntl::{Flock, FlockArg};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

as_each_caller! {
    fn a_runtime_killed_anywhere_leaves_nothing_that_delete_force_does_not_remove(caller) {
        let bench = Bench::new(caller);
        let bundle = bench.bundle();
        let bundle = bundle.to_str().unwrap();
        for round in 0..rounds(24, 200) {
            let id = bench.id();
            let verb = ["create", "start", "exec", "delete"][round % 4];
            if verb != "create" {
                bench.create(&id).ok();
            }
            if matches!(verb, "exec" | "delete") {
                bench.say(&["start", &id]).ok();
            }
            let args: Vec<&str> = match verb {
                "create" => vec!["create", "--bundle", bundle, &id],
                "exec" => vec!["exec", "--detach", &id, "/bin/sleep", "1000"],
                "delete" => vec!["delete", "--force", &id],
                _ => vec![verb, &id],
            };
            let whole = time_of(&bench, &args, &id, verb);
            // The same once more, killed after a part of that time: the parts go round. The moment is what this test
            // is about; nothing is waited for.
            let part = whole.mul_f64(((round * 37) % 100) as f64 / 100.0);
            let mut command = bench.command(&args);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let begun = Instant::now();
            while begun.elapsed() < part {
                std::hint::spin_loop();
            }
            let _ = child.kill();
            child.wait().unwrap();
            bench.say(&["delete", "--force", &id]).ok();
            bench.is_clean(&id);
            no_process(&bench, round);
        }
        nothing_left(&bench);
    }

    /// The same without chance: at some of the system calls of each verb, or at every one.
    fn a_runtime_killed_at_any_of_its_system_calls_leaves_nothing_that_delete_force_does_not_remove(caller) {
        let bench = Bench::new(caller);
        let bundle = bench.bundle();
        let bundle = bundle.to_str().unwrap();
        for (verb, before) in
            [("create", &[][..]), ("start", &["create"]), ("exec", &["create", "start"]), ("delete", &["create", "start"]), ("run", &[])]
        {
            if verb == "run" {
                bench.program(&["/bin/true"]);
            }
            let mut total = 0;
            let (mut at, mut next) = (usize::MAX, 0);
            loop {
                let id = bench.id();
                make(&bench, &id, before);
                let args: Vec<&str> = match verb {
                    "create" | "run" => vec![verb, "--bundle", bundle, &id],
                    "exec" => vec!["exec", "--detach", &id, "/bin/sleep", "1000"],
                    "delete" => vec!["delete", "--force", &id],
                    _ => vec![verb, &id],
                };
                let status = killed_at(&bench, &args, |index, _| {
                    total = total.max(index + 1);
                    index == at
                });
                // The first is not killed, and says how many there are; a later one may do with fewer.
                assert!(status.success() || at != usize::MAX, "{verb}: {status:?}");
                bench.say(&["list"]).ok();
                bench.say(&["delete", "--force", &id]).ok();
                bench.is_clean(&id);
                no_process(&bench, at);
                at = next;
                next += (total / rounds(10, total)).max(1);
                if at >= total {
                    break;
                }
            }
        }
        nothing_left(&bench);
    }

    /// The init is a fork of its maker: it must not hold on to the lock that its maker had.
    fn a_create_killed_before_it_lets_the_lock_go_leaves_a_container_that_is_free(caller) {
        let bench = Bench::new(caller);
        let (id, bundle) = (bench.id(), bench.bundle());
        let mut locks = 0;
        let args = ["create", "--bundle", bundle.to_str().unwrap(), &id];
        let status = killed_at(&bench, &args, |_, number| {
            locks += usize::from(number == libc::SYS_flock);
            locks == 2
        });
        assert_eq!(status.signal(), Some(libc::SIGKILL), "create does not let its lock go by flock(2)");
        bench.status_is(&id, "created");
        // Held by the init, it would be held for as long as that lives.
        let lock = fs::File::open(bench.state_dir(&id).join("lock")).unwrap();
        drop(Flock::lock(lock, FlockArg::LockExclusiveNonblock).expect("nobody holds the lock"));
        bench.say(&["start", &id]).ok();
        bench.say(&["delete", "--force", &id]).ok();
        bench.is_clean(&id);
    }
}

fn make(bench: &Bench, id: &str, verbs: &[&str]) {
    for verb in verbs {
        if *verb == "create" {
            bench.create(id).ok()
        } else {
            bench.say(&[verb, id]).ok()
        };
    }
}

/// No mount of the bench's and no container.
fn nothing_left(bench: &Bench) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&*bench.place.path().to_string_lossy()), "mounts are left:\n{mounts}");
    let left: Vec<_> = fs::read_dir(bench.place.join("oci")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// How long the verb takes, and the container as it was before.
fn time_of(bench: &Bench, args: &[&str], id: &str, verb: &str) -> Duration {
    let begun = Instant::now();
    bench.say(args).ok();
    let whole = begun.elapsed();
    let again = |verbs: &[&str]| {
        bench.say(&["delete", "--force", id]).ok();
        make(bench, id, verbs);
    };
    match verb {
        "create" => again(&[]),
        "start" => again(&["create"]),
        "delete" => again(&["create", "start"]),
        _ => {}
    }
    whole
}

/// No living process has its root in the bundle: killed ones go in their own time.
fn no_process(bench: &Bench, round: usize) {
    let deadline = Deadline::usual();
    loop {
        let pids = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let left: Vec<u32> = pids
            .filter(|pid| {
                let root = fs::read_link(format!("/proc/{pid}/root")).unwrap_or_default();
                let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let place = bench.place.path();
                *pid != std::process::id()
                    && ((root.starts_with(place)
                        || String::from_utf8_lossy(&words).contains(&*place.to_string_lossy()))
                        && !words.is_empty())
            })
            .collect();
        if left.is_empty() {
            return;
        }
        assert!(!deadline.remaining().is_zero(), "round {round}: processes are left: {left:?}");
        deadline.pause();
    }
}
