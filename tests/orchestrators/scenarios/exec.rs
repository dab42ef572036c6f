//! A second program in a container that runs.

use super::{Background, eventually};
use crate::callers::{Engine, Kind};
use crate::output::Running;
use crate::terminal::Screen;

pub(super) fn exec(engine: &dyn Engine) {
    let container = Background::waiting(engine, &["--env", "OF=container", "--workdir", "/var"]);
    let said = container.exec(&["sh", "-c", "pwd; echo $OF; hostname"]);
    assert!(said.starts_with("/var\ncontainer\n"), "{said}");
    engine.run(&["exec", &container.name, "sh", "-c", "exit 42"]).exits(42);
    engine.run(&["exec", &container.name, "sh", "-c", "kill -9 $$"]).exits(137);
    let said = engine.run(&[
        "exec",
        "--env",
        "A=b",
        "--workdir",
        "/tmp",
        &container.name,
        "sh",
        "-c",
        "echo $A $PWD",
    ]);
    assert_eq!(said.says(), "b /tmp");
    // In every namespace of the container.
    let spaces = "for space in mnt pid net ipc uts cgroup user; do readlink /proc/$1/ns/$space; done";
    let of = |pid: &str| container.exec(&["sh", "-c", spaces, "sh", pid]);
    assert_eq!(of("1"), of("self"));
    // And in its cgroups.
    let cgroups = |pid: &str| container.exec(&["cat", &format!("/proc/{pid}/cgroup")]);
    assert_eq!(cgroups("1"), cgroups("self"));
}

pub(super) fn exec_stdin(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    let text = "a line\n".repeat(5000);
    let said = engine.feed(&["exec", "--interactive", &container.name, "cat"], &text).exits(0);
    assert!(said.stdout == text, "{} of {} bytes came back", said.stdout.len(), text.len());
}

pub(super) fn exec_terminal(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    let line = "tty; echo ready; read line; echo got-$line; exit 6";
    let mut screen = Screen::start(&engine.command(&["exec", "-i", "-t", &container.name, "sh", "-c", line]));
    screen.expect("/dev/pts/");
    screen.expect("ready");
    screen.type_in("a word\n");
    screen.expect("got-a word");
    assert_eq!(screen.wait().code(), Some(6));
}

pub(super) fn exec_as_user(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    let said = engine.run(&["exec", "--user", "1000:1001", &container.name, "id"]).says();
    assert!(said.starts_with("uid=1000(guest) gid=1001(other)"), "{said}");
    let said = engine
        .run(&["exec", "--user", "guest", &container.name, "grep", "CapEff", "/proc/self/status"])
        .says();
    assert!(said.ends_with("0000000000000000"), "{said}");
    // As the container's program has it.
    let of = |pid: &str| {
        container.exec(&["sh", "-c", &format!("grep -E 'Cap|Seccomp:|NoNewPrivs' /proc/{pid}/status")])
    };
    assert_eq!(of("1"), of("self"));
    let said =
        engine.run(&["exec", "--privileged", &container.name, "grep", "CapEff", "/proc/self/status"]).says();
    assert!(said != container.exec(&["grep", "CapEff", "/proc/self/status"]), "{said}");
}

pub(super) fn exec_of_missing_program(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    // Docker 20.10 says 126 for both.
    let missing = if engine.kind() == Kind::Docker { 126 } else { 127 };
    let said = engine.run(&["exec", &container.name, "no-such-program"]);
    assert!([missing, 127].contains(&said.code()), "{said}");
    said.mentions("no-such-program");
    engine.run(&["exec", &container.name, "/etc/not-executable"]).exits(126).mentions("ermission denied");
    assert_eq!(container.inspect(".State.Status"), "running");
}

pub(super) fn exec_detached(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    let line = "echo done >/proc/1/fd/1";
    engine.run(&["exec", "--detach", &container.name, "sh", "-c", line]).exits(0);
    container.expect("done");
}

pub(super) fn exec_twenty_at_once(engine: &dyn Engine) {
    let container = Background::waiting(engine, &[]);
    container.expect("up");
    let before = container.exec(&["sh", "-c", "ps | wc -l"]);
    let begin = |at: usize| engine.begin(&["exec", &container.name, "sh", "-c", &format!("exit {at}")], "");
    let running: Vec<Running> = (1..=20).map(begin).collect();
    for (at, running) in (1..).zip(running) {
        running.wait().exits(at);
    }
    // A caller may be told of the end before the kernel has removed the last of them.
    eventually("no process more than before", || {
        let now = container.exec(&["sh", "-c", "ps | wc -l"]);
        if now == before { Ok(()) } else { Err(now) }
    });
}
