//! `run`: create, start, wait, delete.

use super::bundle::{Bench, end_of};
use crate::support::process::Watch;
use crate::support::rounds;
use crate::support::wait::until_exists;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Stdio;

as_each_caller! {
    fn run_gives_the_output_and_the_status_of_the_program(caller) {
        let bench = Bench::new(caller);
        for (script, status) in [("echo hi", 0), ("echo hi; exit 7", 7), ("echo hi; exit 255", 255)] {
            bench.program(&["/bin/sh", "-c", script]);
            let id = bench.id();
            let said = bench.run(&id);
            assert_eq!((said.status.code(), said.stdout.as_str()), (Some(status), "hi\n"), "{script}: {said:?}");
            bench.is_clean(&id);
        }
    }

    fn a_signal_is_passed_on(caller) {
        let bench = Bench::new(caller);
        bench.program(&["/bin/sh", "-c", "trap 'exit 9' TERM; touch /tmp/ready; while :; do sleep 0.01; done"]);
        let (id, bundle) = (bench.id(), bench.bundle());
        let mut command = bench.command(&["run", "--bundle", bundle.to_str().unwrap(), &id]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until_exists(&bundle.join("rootfs/tmp/ready"));
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert_eq!(end_of(child, "run").code(), Some(9));
        bench.is_clean(&id);
    }

    fn a_killed_program_gives_128_and_the_signal(caller) {
        let bench = Bench::new(caller);
        bench.program(&["/bin/sh", "-c", "touch /tmp/ready; exec sleep 1000"]);
        let (id, bundle) = (bench.id(), bench.bundle());
        let mut command = bench.command(&["run", "--bundle", bundle.to_str().unwrap(), &id]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until_exists(&bundle.join("rootfs/tmp/ready"));
        bench.say(&["kill", &id, "KILL"]).ok();
        assert_eq!(end_of(child, "run").code(), Some(137));
        bench.is_clean(&id);
    }

    fn run_detached_returns_and_the_container_runs_on(caller) {
        let bench = Bench::new(caller);
        let (id, bundle) = (bench.id(), bench.bundle());
        bench.say(&["run", "--detach", "--bundle", bundle.to_str().unwrap(), &id]).ok();
        bench.status_is(&id, "running");
    }

    fn run_keep_leaves_a_stopped_container(caller) {
        let bench = Bench::new(caller);
        bench.program(&["/bin/true"]);
        let (id, bundle) = (bench.id(), bench.bundle());
        bench.say(&["run", "--keep", "--bundle", bundle.to_str().unwrap(), &id]).ok();
        bench.status_is(&id, "stopped");
        bench.say(&["delete", &id]).ok();
    }

    fn a_foreground_container_dies_with_its_runtime(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| {
            config["process"]["args"] = serde_json::json!(["/bin/sh", "-c", "touch /tmp/ready; exec sleep 1000"]);
            // A change of user undoes the parent-death signal.
            if caller.is_root() {
                config["process"]["user"] = serde_json::json!({ "uid": 1000, "gid": 1000 });
            }
        });
        let (id, bundle) = (bench.id(), bench.bundle());
        std::os::unix::fs::chown(bundle.join("rootfs/tmp"), caller.is_root().then_some(1000), None).unwrap();
        let mut command = bench.command(&["run", "--bundle", bundle.to_str().unwrap(), &id]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until_exists(&bundle.join("rootfs/tmp/ready"));
        let watch = Watch::of(bench.pid(&id)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        watch.wait_gone("the container");
        // Nobody was left to remove it: it is shown for what it is, and deleted without force.
        let rows = bench.say(&["list", "--format", "json"]).ok().json();
        let row = rows.as_array().unwrap().iter().find(|row| row["id"] == id.as_str()).unwrap();
        assert_eq!((&row["status"], &row["pid"]), (&"stopped".into(), &0.into()), "{row}");
        bench.status_is(&id, "stopped");
        bench.say(&["delete", &id]).ok();
        bench.is_clean(&id);
    }

    fn immediate_exits_are_all_seen(caller) {
        let bench = Bench::new(caller);
        bench.program(&["/bin/busybox", "sh", "-c", "exit 42"]);
        for _ in 0..rounds(40, 10_000) {
            let id = format!("once-{}", bench.place.path().file_name().unwrap().to_str().unwrap());
            let said = bench.run(&id);
            assert_eq!(said.status.code(), Some(42), "{said:?}");
        }
    }
}
