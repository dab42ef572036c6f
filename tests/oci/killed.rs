//! The runtime killed at any moment: after `delete --force` nothing is left.

use super::bundle::Bench;
use crate::support::rounds;
use std::fs;
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
            // The same once more, killed after a part of that time: the parts go round.
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
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&*bench.place.path().to_string_lossy()), "mounts are left:\n{mounts}");
        let left: Vec<_> = fs::read_dir(bench.place.join("oci")).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// How long the verb takes, and the container as it was before.
fn time_of(bench: &Bench, args: &[&str], id: &str, verb: &str) -> Duration {
    let begun = Instant::now();
    bench.say(args).ok();
    let whole = begun.elapsed();
    let again = |verbs: &[&str]| {
        bench.say(&["delete", "--force", id]).ok();
        for verb in verbs {
            if *verb == "create" {
                bench.create(id).ok()
            } else {
                bench.say(&[verb, id]).ok()
            };
        }
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
    let deadline = Instant::now() + Duration::from_secs(30);
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
        assert!(Instant::now() < deadline, "round {round}: processes are left: {left:?}");
        std::thread::yield_now();
    }
}
