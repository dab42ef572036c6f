//! Signals that are sent to saggar reach its program, as if that ran by itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::wrapped::{Wrap, finish};
use crate::bridge::served::Stage;
use crate::support::deadline::Deadline;
use crate::support::process::Process;
use crate::support::wait;

/// Catches each signal whose number is an argument, and makes a file of that name when it comes.
const CATCHES: &str = "#!/usr/bin/python3
import signal, sys
for number in map(int, sys.argv[1:]):
    signal.signal(number, lambda number, frame: open(f'got-{number}', 'w').close())
open('up', 'w').close()
for line in sys.stdin:
    pass
while True:
    signal.pause()
";

/// All but those that nobody can catch, those that saggar's own children, pipes and terminals cause, and the one that stops
/// a job; and without what the C library keeps for itself.
fn all() -> Vec<i32> {
    let apart = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGCHLD,
        libc::SIGPIPE,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGTSTP,
    ];
    (1..=31).chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|signal| !apart.contains(signal)).collect()
}

fn send(process: &Process, signal: i32) {
    let sent =
        Command::new("/bin/kill").args([format!("-{signal}"), process.pid().to_string()]).status().unwrap();
    assert!(sent.success(), "signal {signal}");
}

/// Waits until the program has caught it. Not by inotify: a user has 128 instances, and the kernel takes its time to give one
/// back.
fn arrived(work: &Path, signal: i32) {
    let (file, deadline) = (work.join(format!("got-{signal}")), Deadline::usual());
    while !file.exists() {
        assert!(!deadline.remaining().is_zero(), "signal {signal} does not arrive");
        deadline.pause();
    }
}

fn words(signals: &[i32]) -> Vec<String> {
    signals.iter().map(i32::to_string).collect()
}

as_each_caller! {
    fn every_signal_reaches_the_program_of_wrap(caller) {
        let wrap = Wrap::new(caller);
        let script = wrap.place.make_file("work/catches", CATCHES);
        let signals = all();
        let mut program = vec!["/usr/bin/python3".to_owned(), script.to_str().unwrap().to_owned()];
        program.extend(words(&signals));
        let process = Process::start(&wrap.place, wrap.command(&[], &program));
        wait::until_exists(&wrap.work().join("up"));
        for signal in signals {
            send(&process, signal);
            arrived(&wrap.work(), signal);
        }
        send(&process, libc::SIGKILL);
        drop(process);
    }

    /// A program without a handler dies of them, and saggar says which it was.
    fn a_signal_without_a_handler_kills_the_program(caller) {
        for signal in [libc::SIGPWR, libc::SIGIO, libc::SIGPROF, libc::SIGVTALRM, libc::SIGUSR1, libc::SIGRTMIN() + 3] {
            let wrap = Wrap::new(caller);
            let process = Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", ": >up; exec sleep 1000"]));
            wait::until_exists(&wrap.work().join("up"));
            send(&process, signal);
            assert_eq!(finish(process).code(), 128 + signal);
        }
    }

    /// Those that ask for an end are saggar's own, since a session ends in order; all others are the agent's.
    fn every_other_signal_reaches_an_agent(caller) {
        let stage = Stage::new(caller);
        let own = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
        let signals: Vec<i32> = all().into_iter().filter(|signal| !own.contains(signal)).collect();
        let catches = stage.script("catches", CATCHES);
        let served = stage.scripted("stream-json", &format!("#!/bin/sh\nexec {catches} {}\n", words(&signals).join(" ")));
        let mut client = served.connect();
        client.query("x");
        wait::until_exists(&stage.work().join("up"));
        for signal in signals {
            send(&served.process, signal);
            arrived(&stage.work(), signal);
        }
        fs::remove_file(stage.work().join("up")).unwrap();
        drop(served);
    }
}
