//! Signals to the program, and the freezer.

use super::{Background, eventually, shell};
use crate::callers::{Engine, IMAGE, Kind};

pub(super) fn stop_is_handled(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    container.expect("up");
    engine.run(&["stop", "--time", "30", &container.name]).exits(0);
    assert_eq!(container.inspect(".State.ExitCode"), "7");
}

pub(super) fn stop_ends_in_kill(engine: &dyn Engine) {
    // pid 1 has no default for SIGTERM.
    let container = Background::run(engine, &[], &["sleep", "1000"]);
    engine.run(&["stop", "--time", "1", &container.name]).exits(0);
    assert_eq!(container.inspect(".State.ExitCode"), "137");
}

pub(super) fn kill_with_a_signal(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    container.expect("up");
    engine.run(&["kill", "--signal", "USR1", &container.name]).exits(0);
    container.expect("usr1");
    engine.run(&["kill", &container.name]).exits(0);
    assert_eq!(container.wait(), "137");
    // There is nobody to kill.
    assert_ne!(engine.run(&["kill", &container.name]).code(), 0);
}

pub(super) fn death_by_signal(engine: &dyn Engine) {
    let said = engine
        .run(&["run", "--rm", IMAGE, "sh", "-c", "kill -KILL 1; sh -c 'kill -TERM $$'; echo $?"])
        .exits(0);
    assert_eq!(said.stdout.trim(), "143", "pid 1 does not kill itself: {said}");
}

pub(super) fn pause(engine: &dyn Engine) {
    let line = "trap 'exit 7' TERM; while :; do echo tick; sleep 0.05; done";
    let container = Background::run(engine, &[], &["sh", "-c", line]);
    container.expect("tick");
    engine.run(&["pause", &container.name]).exits(0);
    assert_eq!(container.inspect(".State.Status"), "paused");
    assert_ne!(engine.run(&["exec", &container.name, "true"]).code(), 0);
    // The caller's reader may be behind: two looks that agree, then it must stay so.
    let before = eventually("silence", || {
        let (first, second) = (container.logs(), container.logs());
        if first == second { Ok(first) } else { Err("it goes on".to_owned()) }
    });
    // Another container ticks ten times meanwhile, from its start to its end.
    shell(engine, &[], "at=0; while [ $at -lt 10 ]; do echo tick; sleep 0.05; at=$((at+1)); done");
    assert!(container.logs() == before, "it runs while it is paused");
    engine.run(&["unpause", &container.name]).exits(0);
    eventually("a tick after the pause", || {
        if container.logs().len() > before.len() { Ok(()) } else { Err(String::new()) }
    });
    if engine.kind() == Kind::Docker {
        assert_ne!(engine.run(&["unpause", &container.name]).code(), 0, "it is not paused");
    }
    engine.run(&["stop", "--time", "30", &container.name]).exits(0);
    assert_eq!(container.inspect(".State.ExitCode"), "7");
}
