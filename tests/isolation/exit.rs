//! Exit statuses and the status descriptor: a server must tell the program's end from saggar's own.

use std::fs;

use serde_json::{Value, json};

use super::wrapped::{Ended, Wrap, finish, finish_in_time};
use crate::support::caller::Caller;
use crate::support::process::Process;
use crate::support::wait;
use nix::sys::signal::Signal;

/// Runs a script with its status events in a file.
fn events(wrap: &Wrap, options: &[&str], program: &[&str]) -> (Ended, Vec<Value>) {
    let saggar = wrap.command(options, program);
    let mut command = wrap.place.command("/bin/sh".as_ref());
    let events = wrap.place.make_file("events", "");
    command.arg("-c").arg("exec \"$@\" 7>>../events").arg("sh").arg(saggar.get_program());
    let mut arguments = saggar.get_args();
    command.arg(arguments.next().expect("wrap")).args(["--status-fd", "7"]).args(arguments);
    let mut process = Process::start(&wrap.place, command);
    drop(process.take_stdin());
    let ended = finish_in_time(process);
    let lines = fs::read_to_string(events).unwrap();
    (ended, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

as_each_caller! {
    fn the_programs_own_status_and_signal_are_saggars(caller) {
        let wrap = Wrap::new(caller);
        for status in [0, 1, 3, 124, 125, 126, 127, 255] {
            assert_eq!(wrap.sh(&format!("exit {status}")).code(), status);
        }
        for (name, number) in [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("HUP", 1)] {
            assert_eq!(wrap.sh(&format!("kill -{name} $$")).code(), 128 + number, "{name}");
        }
    }

    fn program_that_cannot_run_has_status_126_or_127(caller) {
        let wrap = Wrap::new(caller);
        assert_eq!(wrap.run(&[], &["saggar-no-such-program"]).code(), 127);
        assert_eq!(wrap.run(&[], &["./missing"]).code(), 127);
        assert_eq!(wrap.run(&[], &[""]).code(), 127);
        wrap.place.make_file("work/plain", "not a program");
        assert_eq!(wrap.run(&[], &["./plain"]).code(), 126);
        assert_eq!(wrap.run(&[], &["/tmp"]).code(), 126);
        let refused = wrap.run(&["--ro", "/nonexistent"], &["/bin/true"]);
        refused.refused(&["/nonexistent"]);
    }

    fn status_events_report_the_exit_of_the_program(caller) {
        let wrap = Wrap::new(caller);
        // What is counted is another test's matter, in a guest that counts.
        let without_usage = |event: &mut Value| {
            event.as_object_mut().unwrap().remove("usage");
        };
        let (ended, mut lines) = events(&wrap, &["--id", "box"], &["/bin/sh", "-c", "exit 125"]);
        assert_eq!(ended.code(), 125);
        let [started, exited] = &mut lines[..] else { panic!("two events: {lines:?}") };
        assert_eq!((&started["event"], &started["id"]), (&json!("started"), &json!("box")));
        assert!(started["pid"].as_i64().unwrap() > 1, "{started}");
        without_usage(exited);
        assert_eq!(*exited, json!({"event": "exited", "id": "box", "reason": "exit", "exit_code": 125}));

        let (ended, mut lines) = events(&wrap, &["--id", "box"], &["/bin/sh", "-c", "kill -9 $$"]);
        assert_eq!(ended.code(), 137);
        without_usage(&mut lines[1]);
        assert_eq!(lines[1], json!({"event": "exited", "id": "box", "reason": "signal", "signal": 9}));

        let (ended, lines) = events(&wrap, &["--ro", "/nonexistent"], &["/bin/true"]);
        assert_eq!(ended.code(), 125);
        let [exited] = &lines[..] else { panic!("one event: {lines:?}") };
        assert_eq!(exited["reason"], "runtime");
        assert!(exited["message"].as_str().unwrap().contains("/nonexistent"), "{exited}");
    }

    /// DECISIONS 13: the whole tree, sessions of its own and all. Nothing in it ends by itself.
    fn the_time_limit_kills_the_whole_tree(caller) {
        let wrap = Wrap::new(caller);
        let script = "setsid sh -c 'sleep 1000' & (setsid sleep 1000 &); trap '' TERM; echo up; sleep 1000";
        let (ended, lines) = events(&wrap, &["--timeout", "300ms"], &["/bin/sh", "-c", script]);
        assert_eq!(ended.code(), 124, "{ended:?}");
        assert_eq!(lines.last().unwrap()["reason"], "timeout");
        let work = wrap.work();
        assert_eq!(crate::kill::alive_in(&work), [0; 0], "nothing of it lives");
    }

    /// DECISIONS 13: processor time of all processes together; who sleeps uses none. Without a cgroup nobody counts.
    fn the_limit_of_processor_time_kills_the_whole_tree(caller) {
        let wrap = Wrap::new(caller);
        let policy = wrap.place.make_file("policy.toml", "limits.cpu_time = '400ms'");
        let limited = |script: &str| {
            events(&wrap, &["--policy", policy.to_str().unwrap()], &["/bin/sh", "-c", script])
        };
        let (ended, lines) = limited("(while :; do :; done) & (setsid sh -c 'while :; do :; done' &); sleep 1000");
        let told = lines.last().unwrap();
        if ended.code() == 125 {
            // In a guest the user that runs the tests has a cgroup.
            let has_cgroup = caller.is_root() || (std::env::var_os("SAGGAR_GUEST").is_some() && caller == Caller::current());
            assert!(!has_cgroup, "{ended:?}");
            ended.refused(&["cpu_time = 400", "cgroup"]);
            return;
        }
        assert_eq!((ended.code(), &told["reason"]), (124, &json!("timeout")), "{ended:?} {told}");
        assert!(told["message"].as_str().unwrap().contains("400ms of processor time (cpu_time)"), "{told}");
        let used = told["usage"]["cpu_usec"].as_u64().unwrap();
        assert!(used >= 400_000, "not before: {used}");
        assert_eq!(crate::kill::alive_in(&wrap.work()), [0; 0]);
        let (ended, _) = limited("sleep 1; exit 3");
        assert_eq!(ended.code(), 3, "{ended:?}");
    }

    /// Signals reach the program, and it answers them.
    fn a_signal_to_saggar_reaches_the_program(caller) {
        let wrap = Wrap::new(caller);
        let script = "trap 'exit 42' TERM; : > up; while :; do sleep 0.01; done";
        let process = Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", script]));
        wait::until_exists(&wrap.work().join("up"));
        process.signal(Signal::SIGTERM);
        assert_eq!(finish(process).code(), 42);
    }

    /// KC-33: what outlives the program is gone with it.
    fn descendants_end_with_the_program(caller) {
        let wrap = Wrap::new(caller);
        let script = "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &); nohup sleep 1000 & exit 5";
        assert_eq!(wrap.sh(script).code(), 5);
        assert_eq!(crate::kill::alive_in(&wrap.work()), [0; 0]);
    }
}
