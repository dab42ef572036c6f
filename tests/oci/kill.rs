//! runtime.md, Kill.

use super::bundle::Bench;
use crate::support::process::Watch;
use crate::support::wait::{until_exists, until_written};
use std::fs;

as_each_caller! {
    fn kill_without_an_id_is_an_error(caller) {
        Bench::new(caller).say(&["kill"]).fails("ID");
    }

    fn kill_of_an_unknown_id_is_an_error(caller) {
        Bench::new(caller).say(&["kill", "nobody", "KILL"]).fails("does not exist");
    }

    fn kill_of_a_stopped_container_is_an_error(caller) {
        let bench = Bench::new(caller);
        bench.program(&["/bin/true"]);
        let id = bench.id();
        bench.create(&id).ok();
        let watch = Watch::of(bench.pid(&id)).unwrap();
        bench.say(&["start", &id]).ok();
        watch.wait_gone("true");
        bench.say(&["kill", &id, "TERM"]).fails("container not running");
        bench.say(&["kill", "--all", &id, "KILL"]).fails("container not running");
        bench.status_is(&id, "stopped");
    }

    fn kill_of_a_created_container_reaches_it(caller) {
        let bench = Bench::new(caller);
        let id = bench.id();
        bench.create(&id).ok();
        let watch = Watch::of(bench.pid(&id)).unwrap();
        bench.say(&["kill", &id, "KILL"]).ok();
        watch.wait_gone("a created container");
        bench.status_is(&id, "stopped");
    }

    fn kill_sends_exactly_the_given_signal(caller) {
        let bench = Bench::new(caller);
        let script = "for s in HUP USR1 USR2 WINCH TERM RTMIN+2; do trap \"echo $s >> /tmp/got\" $s; done; \
                      trap 'echo 40 >> /tmp/got' 40; touch /tmp/ready; while :; do sleep 0.01; done";
        bench.program(&["/bin/sh", "-c", &script.replace(" RTMIN+2", "")]);
        let id = bench.start();
        let tmp = bench.bundle().join("rootfs/tmp");
        until_exists(&tmp.join("ready"));
        for (signal, name) in [
            ("SIGHUP", "HUP"), ("USR1", "USR1"), ("sigusr2", "USR2"), ("28", "WINCH"), ("SIGRTMIN+6", "40"), ("TERM", "TERM"),
        ] {
            let _ = fs::remove_file(tmp.join("got"));
            bench.say(&["kill", &id, signal]).ok();
            until_written(&tmp.join("got"));
            assert_eq!(fs::read_to_string(tmp.join("got")).unwrap().trim(), name, "{signal}");
        }
        bench.say(&["kill", &id, "NOSUCH"]).fails("signal");
        bench.status_is(&id, "running");
    }

    fn the_signal_without_a_name_is_term(caller) {
        let bench = Bench::new(caller);
        bench.program(&["/bin/sh", "-c", "trap 'exit 3' TERM; touch /tmp/ready; while :; do sleep 0.01; done"]);
        let id = bench.start();
        until_exists(&bench.bundle().join("rootfs/tmp/ready"));
        let watch = Watch::of(bench.pid(&id)).unwrap();
        bench.say(&["kill", &id]).ok();
        watch.wait_gone("the program");
    }
}
