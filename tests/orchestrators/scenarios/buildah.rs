//! Buildah: `run` in a working container, and `build`.

use std::fs;

use crate::callers::{Engine, IMAGE, fresh_name};
use crate::output::{Output, Running};
use crate::terminal::Screen;

/// A working container; gone when dropped.
struct Working<'a> {
    engine: &'a dyn Engine,
    name: String,
}

impl<'a> Working<'a> {
    #[track_caller]
    fn new(engine: &'a dyn Engine) -> Self {
        let name = fresh_name();
        engine.run(&["from", "--pull-never", "--name", &name, IMAGE]).exits(0);
        Working { engine, name }
    }

    fn arguments<'b>(&'b self, options: &[&'b str], program: &[&'b str]) -> Vec<&'b str> {
        [&["run"], options, &["--", self.name.as_str()], program].concat()
    }

    fn run(&self, options: &[&str], line: &str) -> Output {
        self.engine.run(&self.arguments(options, &["sh", "-c", line]))
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.engine.run(&["rm", &self.name]);
    }
}

pub(super) fn exit_status(engine: &dyn Engine) {
    let working = Working::new(engine);
    for code in [0, 1, 3] {
        working.run(&[], &format!("exit {code}")).exits(code);
    }
}

pub(super) fn streams(engine: &dyn Engine) {
    let said = Working::new(engine).run(&[], "echo out; echo err >&2").exits(0);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("out\n", "err\n"), "{said}");
}

pub(super) fn stdin(engine: &dyn Engine) {
    let working = Working::new(engine);
    let text = "a line\n".repeat(20_000);
    let said = engine.feed(&working.arguments(&[], &["cat"]), &text).exits(0);
    assert!(said.stdout == text, "{} of {} bytes came back", said.stdout.len(), text.len());
}

pub(super) fn environment(engine: &dyn Engine) {
    let said = Working::new(engine).run(
        &["--env", "GIVEN=a b", "--workingdir", "/var", "--hostname", "a-box"],
        "echo $GIVEN; pwd; hostname",
    );
    assert_eq!(said.says(), "a b\n/var\na-box");
}

pub(super) fn missing_program(engine: &dyn Engine) {
    let working = Working::new(engine);
    let said = engine.run(&working.arguments(&[], &["no-such-program"]));
    assert_ne!(said.code(), 0, "{said}");
    said.mentions("no-such-program");
    // And the next one runs.
    working.run(&[], "true").exits(0);
}

pub(super) fn terminal(engine: &dyn Engine) {
    let working = Working::new(engine);
    let line = "tty; echo ready; read line; echo got-$line; exit 5";
    let mut screen = Screen::start(&engine.command(&working.arguments(&["--terminal"], &["sh", "-c", line])));
    screen.expect("/dev/pts/0");
    screen.expect("ready");
    screen.type_in("a word\n");
    screen.expect("got-a word");
    assert_eq!(screen.wait().code(), Some(5));
}

pub(super) fn user(engine: &dyn Engine) {
    let said = Working::new(engine)
        .run(&["--user", "1000:1001"], "id -u; id -g; grep CapEff /proc/self/status")
        .says();
    assert!(said.starts_with("1000\n1001\n") && said.ends_with("0000000000000000"), "{said}");
}

pub(super) fn capabilities(engine: &dyn Engine) {
    let said = Working::new(engine).run(&["--cap-drop", "CAP_CHOWN"], "touch /x; chown 1:1 /x").exits(1);
    said.mentions("not permitted");
}

pub(super) fn volumes(engine: &dyn Engine) {
    let share = engine.dir().join("share");
    fs::write(share.join("given"), "from outside\n").unwrap();
    let bind = format!("{}:/given:ro", share.display());
    Working::new(engine)
        .run(&["--volume", &bind], "cat /given/given; touch /given/x")
        .exits(1)
        .mentions("from outside")
        .mentions("Read-only");
}

pub(super) fn no_network(engine: &dyn Engine) {
    let said = Working::new(engine)
        .run(&["--network", "none"], "ip addr show lo; readlink /proc/self/ns/net")
        .says();
    assert!(said.contains("LOOPBACK,UP"), "{said}");
    assert!(!said.contains(fs::read_link("/proc/self/ns/net").unwrap().to_str().unwrap()), "{said}");
}

pub(super) fn host_network(engine: &dyn Engine) {
    let said = Working::new(engine).run(&["--network", "host"], "readlink /proc/self/ns/net").says();
    assert_eq!(said, fs::read_link("/proc/self/ns/net").unwrap().to_str().unwrap());
}

pub(super) fn seccomp_off(engine: &dyn Engine) {
    let name = fresh_name();
    for (option, expected) in
        [("seccomp=unconfined", "0"), ("seccomp=/usr/share/containers/seccomp.json", "2")]
    {
        engine.run(&["from", "--pull-never", "--security-opt", option, "--name", &name, IMAGE]).exits(0);
        let said =
            engine.run(&["run", &name, "sed", "-n", "s/^Seccomp:[[:space:]]*//p", "/proc/self/status"]);
        assert_eq!(said.says(), expected);
        engine.run(&["rm", &name]).exits(0);
    }
}

pub(super) fn build(engine: &dyn Engine) {
    let recipe = format!(
        "FROM {IMAGE}\nRUN echo $((6*7)) >/etc/made && mkdir -p /work && chown 1000 /work\n\
         USER 1000\nWORKDIR /work\nRUN id -u >uid; cat /etc/made\n"
    );
    let file = engine.dir().join("share/Containerfile");
    fs::write(&file, recipe).unwrap();
    let said = engine.run(&[
        "build",
        "--pull-never",
        "--tag",
        "localhost/built",
        "--file",
        file.to_str().unwrap(),
        engine.dir().join("share").to_str().unwrap(),
    ]);
    said.exits(0).mentions("42");
    let name = fresh_name();
    engine.run(&["from", "--pull-never", "--name", &name, "localhost/built"]).exits(0);
    assert_eq!(engine.run(&["run", &name, "cat", "/etc/made", "/work/uid"]).says(), "42\n1000");
    engine.run(&["rm", &name]).exits(0);
}

pub(super) fn twenty_at_once(engine: &dyn Engine) {
    let working: Vec<Working<'_>> = (0..20).map(|_| Working::new(engine)).collect();
    let begin = |(at, working): (usize, &Working<'_>)| {
        engine.begin(&working.arguments(&[], &["sh", "-c", &format!("exit {at}")]), "")
    };
    let running: Vec<Running> = working.iter().enumerate().map(begin).collect();
    for (at, running) in (0..).zip(running) {
        running.wait().exits(at);
    }
}

pub(super) fn leaves_no_container(engine: &dyn Engine) {
    Working::new(engine).run(&[], "true").exits(0);
    let state = fs::read_dir(engine.dir().join("state")).unwrap().count();
    assert_eq!(state, 0, "the runtime's state");
}
