//! A program in the foreground: what goes in and what comes out.

use super::{Background, says, shell};
use crate::callers::{Engine, IMAGE, Kind, fresh_name};
use crate::output::Running;
use crate::terminal::{COLUMNS, ROWS, Screen};

pub(super) fn exit_status(engine: &dyn Engine) {
    for code in [0, 1, 3, 125, 255] {
        engine.run(&["run", "--rm", IMAGE, "sh", "-c", &format!("exit {code}")]).exits(code);
    }
}

pub(super) fn streams(engine: &dyn Engine) {
    let said = engine.run(&["run", "--rm", IMAGE, "sh", "-c", "echo out; echo err >&2"]).exits(0);
    // Docker has warnings of its own about a host without forwarding.
    let mut errors = said.stderr.lines().filter(|line| !line.starts_with("WARNING: "));
    assert_eq!((said.stdout.as_str(), errors.next(), errors.next()), ("out\n", Some("err"), None), "{said}");
}

pub(super) fn stdin(engine: &dyn Engine) {
    let text = "a line\n".repeat(20_000);
    let said = engine.feed(&["run", "--rm", "--interactive", IMAGE, "cat"], &text).exits(0);
    assert!(said.stdout == text, "{} of {} bytes came back", said.stdout.len(), text.len());
}

pub(super) fn environment(engine: &dyn Engine) {
    let said = shell(engine, &["--env", "GIVEN=a b", "--env", "EMPTY="], "env");
    assert!(said.lines().any(|line| line == "GIVEN=a b"), "{said}");
    assert!(said.lines().any(|line| line == "EMPTY="), "{said}");
    assert!(!said.contains("XDG_RUNTIME_DIR"), "of the host: {said}");
}

pub(super) fn working_directory(engine: &dyn Engine) {
    let said = shell(engine, &["--workdir", "/var/tmp", "--hostname", "a-box"], "pwd; hostname");
    assert_eq!(said, "/var/tmp\na-box");
    if engine.kind() == Kind::Podman {
        return;
    }
    // One that is not there is made; Podman refuses it.
    assert_eq!(says(engine, &["--workdir", "/made/for/it"], &["pwd"]), "/made/for/it");
}

pub(super) fn arguments(engine: &dyn Engine) {
    let said =
        says(engine, &[], &["sh", "-c", "printf '<%s>' \"$@\"", "sh", "a b", "", "$HOME", "\"quoted\"", "é"]);
    assert_eq!(said, "<a b><><$HOME><\"quoted\"><é>");
}

pub(super) fn missing_program(engine: &dyn Engine) {
    for program in ["/no/such/program", "no-such-program"] {
        engine.run(&["run", "--rm", IMAGE, program]).exits(127).mentions(program);
    }
}

pub(super) fn program_that_is_not_executable(engine: &dyn Engine) {
    engine.run(&["run", "--rm", IMAGE, "/etc/not-executable"]).exits(126).mentions("ermission denied");
    engine.run(&["run", "--rm", IMAGE, "/etc"]).exits(126);
}

pub(super) fn terminal(engine: &dyn Engine) {
    let line = "tty; echo ready; read line; echo got-$line; \
                until stty size 2>/dev/null | grep 121; do :; done; exit 5";
    let mut screen = Screen::start(&engine.command(&["run", "--rm", "-i", "-t", IMAGE, "sh", "-c", line]));
    screen.expect("/dev/pts/0");
    screen.expect("ready");
    screen.type_in("a word\n");
    screen.expect("got-a word");
    // The client sets the size when it has attached, which may be later.
    screen.expect(&format!("{ROWS} {COLUMNS}"));
    assert_eq!(screen.wait().code(), Some(5));
}

pub(super) fn user(engine: &dyn Engine) {
    assert_eq!(says(engine, &["--user", "1000:1001"], &["id", "-u"]), "1000");
    assert_eq!(says(engine, &["--user", "1000:1001"], &["id", "-g"]), "1001");
    let said = says(engine, &["--user", "guest"], &["id"]);
    assert!(said.starts_with("uid=1000(guest) gid=1000(guest)") && said.contains("1001(other)"), "{said}");
    let said = says(engine, &["--user", "1000", "--group-add", "4242"], &["id", "-G"]);
    assert!(said.split(' ').any(|group| group == "4242"), "{said}");
    // A user without privileges has none.
    let said = shell(engine, &["--user", "1000"], "grep CapEff /proc/self/status; touch /x 2>&1; true");
    assert!(said.contains("0000000000000000") && said.contains("ermission denied"), "{said}");
}

pub(super) fn twenty_at_once(engine: &dyn Engine) {
    // Podman's monitor takes its client in beside the container's first words, and what comes before that is in the log
    // alone: each waits for a line of the client's.
    let begin = |at: usize| {
        let line = format!("read go; echo {at}; exit {at}");
        let arguments = ["run", "--rm", "--interactive", "--name", &fresh_name(), IMAGE, "sh", "-c", &line];
        engine.begin(&arguments, "go\n")
    };
    let running: Vec<Running> = (1..=20).map(begin).collect();
    for (at, running) in (1..).zip(running) {
        let said = running.wait().exits(at);
        assert_eq!(said.stdout, format!("{at}\n"), "{said}");
    }
}

pub(super) fn logs(engine: &dyn Engine) {
    let line = "for at in 1 2 3; do echo line $at; done; echo err >&2; exit 9";
    let container = Background::run(engine, &[], &["sh", "-c", line]);
    assert_eq!(container.wait(), "9");
    let said = engine.run(&["logs", &container.name]).exits(0);
    assert_eq!(said.stdout, "line 1\nline 2\nline 3\n", "{said}");
    // Podman gives both streams apart only in later versions.
    if engine.kind() == Kind::Docker {
        assert_eq!(said.stderr, "err\n", "{said}");
    }
    assert_eq!(container.inspect(".State.ExitCode"), "9");
    assert_eq!(container.inspect(".State.Status"), "exited");
}
