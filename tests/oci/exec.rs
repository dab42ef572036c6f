//! `exec`: one more program in a container.

use super::bundle::Bench;
use crate::support::deadline::Deadline;
use crate::support::process::Watch;
use crate::support::wait::until_exists;
use serde_json::json;
use std::fs;
use std::time::Duration;

as_each_caller! {
    fn exec_gives_the_output_and_the_status_of_the_program(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        for (script, status) in [("echo hi", 0), ("echo hi; exit 7", 7), ("echo hi; kill -9 $$", 137)] {
            let said = bench.say(&["exec", &id, "/bin/sh", "-c", script]);
            assert_eq!((said.status.code(), said.stdout.as_str()), (Some(status), "hi\n"), "{said:?}");
        }
    }

    fn exec_is_in_the_containers_namespaces(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        let pid = bench.pid(&id);
        let script = "for n in user mnt pid net ipc uts; do readlink /proc/self/ns/$n; done";
        let said = bench.say(&["exec", &id, "/bin/busybox", "sh", "-c", &script.replace("readlink", "busybox readlink")]).ok();
        let outside: Vec<_> = ["user", "mnt", "pid", "net", "ipc", "uts"]
            .map(|ns| fs::read_link(format!("/proc/{pid}/ns/{ns}")).unwrap().to_string_lossy().into_owned())
            .into();
        assert_eq!(said.stdout.lines().collect::<Vec<_>>(), outside);
    }

    fn exec_takes_its_options(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        let said = bench.say(&["exec", "--cwd", "/tmp", "-e", "A=b", &id, "/bin/sh", "-c", "pwd; echo $A"]).ok();
        assert_eq!(said.stdout, "/tmp\nb\n");
        let process = bench.place.make_file("process.json", &json!({
            "terminal": false, "user": { "uid": 0, "gid": 0 }, "cwd": "/", "env": ["PATH=/bin", "X=y"],
            "args": ["sh", "-c", "echo $X"],
        }).to_string());
        let said = bench.say(&["exec", "--process", process.to_str().unwrap(), &id]).ok();
        assert_eq!(said.stdout, "y\n");
    }

    /// By the name that the caller gave it.
    fn a_process_file_is_named_in_its_errors(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        for content in ["{", "[]", r#"{ "cwd": "/", "args": [] }"#] {
            let file = bench.place.make_file("odd.json", content);
            bench.say(&["exec", "--process", file.to_str().unwrap(), &id]).fails(&format!("{}: ", file.display()));
        }
    }

    fn exec_detached_writes_its_pid_file_and_returns(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        let file = bench.place.join("work/pid");
        bench.say(&["exec", "--detach", "--pid-file", file.to_str().unwrap(), &id, "/bin/sh", "-c", "touch /tmp/there; exec sleep 1000"]).ok();
        let pid: u32 = fs::read_to_string(&file).unwrap().parse().unwrap();
        let watch = Watch::of(pid).unwrap();
        until_exists(&bench.bundle().join("rootfs/tmp/there"));
        let pids = bench.say(&["ps", "--format", "json", &id]).ok().json();
        if caller.is_root() {
            assert!(pids.as_array().unwrap().contains(&pid.into()), "{pid} did not outlive exec: {pids}");
        }
        assert!(!watch.is_gone_by(Deadline::after(Duration::ZERO)));
        bench.say(&["delete", "--force", &id]).ok();
        watch.wait_gone("the program of exec");
    }

    fn exec_in_a_stopped_container_is_an_error(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        bench.say(&["kill", &id, "KILL"]).ok();
        bench.wait_stopped(&id);
        bench.say(&["exec", &id, "/bin/true"]).fails("not running");
        bench.say(&["exec", "nobody", "/bin/true"]).fails("does not exist");
        bench.say(&["exec", &id]).fails("error");
    }
}
