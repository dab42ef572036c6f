//! ctr: what containerd's shim asks of a runtime, without much of a client in between.

use std::fs;

use super::{WAIT, eventually};
use crate::callers::{Engine, IMAGE, fresh_name, is_unified};
use crate::output::{Output, Running};
use crate::terminal::Screen;

/// A container that was made with `run`; gone when dropped.
struct Task<'a> {
    engine: &'a dyn Engine,
    name: String,
}

impl<'a> Task<'a> {
    #[track_caller]
    fn waiting(engine: &'a dyn Engine, options: &[&str]) -> Self {
        let task = Task { engine, name: fresh_name() };
        let log = engine.dir().join("share").join(&task.name);
        let log = format!("file://{}", log.display());
        let arguments = [
            &["run", "--detach", "--log-uri", log.as_str()],
            options,
            &[IMAGE, &task.name, "sh", "-c", WAIT],
        ];
        engine.run(&arguments.concat()).exits(0);
        task.expect("up");
        task
    }

    fn exec(&self, options: &[&str], program: &[&str]) -> Output {
        let id = fresh_name();
        self.engine.run(
            &[&["task", "exec", "--exec-id", id.as_str()], options, &[self.name.as_str()], program].concat(),
        )
    }

    fn status(&self) -> String {
        let tasks = self.engine.run(&["task", "list"]).says();
        let line = tasks.lines().find(|line| line.split_whitespace().next() == Some(&self.name));
        line.and_then(|line| line.split_whitespace().nth(2)).unwrap_or("none").to_owned()
    }

    #[track_caller]
    fn expect(&self, text: &str) {
        let log = self.engine.dir().join("share").join(&self.name);
        eventually(text, || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            if said.contains(text) { Ok(()) } else { Err(said) }
        });
    }

    #[track_caller]
    fn becomes(&self, status: &str) {
        eventually(status, || if self.status() == status { Ok(()) } else { Err(self.status()) });
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        self.engine.run(&["task", "delete", "--force", &self.name]);
        self.engine.run(&["container", "delete", &self.name]);
    }
}

/// A container to its end.
fn run(engine: &dyn Engine, options: &[&str], line: &str) -> Output {
    let name = fresh_name();
    engine.run(&[&["run", "--rm"], options, &[IMAGE, &name, "sh", "-c", line]].concat())
}

pub(super) fn exit_status(engine: &dyn Engine) {
    for code in [0, 1, 3, 255] {
        run(engine, &[], &format!("exit {code}")).exits(code);
    }
}

pub(super) fn streams(engine: &dyn Engine) {
    let said = run(engine, &[], "echo out; echo err >&2").exits(0);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("out\n", "err\n"), "{said}");
}

pub(super) fn stdin(engine: &dyn Engine) {
    let text = "a line\n".repeat(5000);
    let said = engine.feed(&["run", "--rm", IMAGE, &fresh_name(), "head", "-n", "5000"], &text).exits(0);
    assert!(said.stdout == text, "{} of {} bytes came back", said.stdout.len(), text.len());
}

pub(super) fn environment(engine: &dyn Engine) {
    let said = run(engine, &["--env", "GIVEN=a b", "--cwd", "/var"], "echo $GIVEN; pwd");
    assert_eq!(said.says(), "a b\n/var");
}

pub(super) fn missing_program(engine: &dyn Engine) {
    let name = fresh_name();
    let said = engine.run(&["run", "--rm", IMAGE, &name, "no-such-program"]);
    assert_ne!(said.code(), 0, "{said}");
    said.mentions("no-such-program");
    // Nothing is left in the way of the name.
    engine.run(&["run", "--rm", IMAGE, &name, "true"]).exits(0);
}

pub(super) fn terminal(engine: &dyn Engine) {
    let line = "tty; echo ready; read line; echo got-$line; exit 5";
    let mut screen =
        Screen::start(&engine.command(&["run", "--rm", "--tty", IMAGE, &fresh_name(), "sh", "-c", line]));
    screen.expect("/dev/pts/0");
    screen.expect("ready");
    screen.type_in("a word\n");
    screen.expect("got-a word");
    assert_eq!(screen.wait().code(), Some(5));
}

pub(super) fn exec(engine: &dyn Engine) {
    let task = Task::waiting(engine, &["--env", "OF=container"]);
    assert_eq!(task.exec(&[], &["sh", "-c", "echo $OF"]).says(), "container");
    task.exec(&[], &["sh", "-c", "exit 42"]).exits(42);
    assert_eq!(task.exec(&["--cwd", "/tmp"], &["pwd"]).says(), "/tmp");
    assert_eq!(task.exec(&["--user", "1000:1001"], &["id", "-u"]).says(), "1000");
    let said = task.exec(&[], &["no-such-program"]);
    assert_ne!(said.code(), 0, "{said}");
    said.mentions("no-such-program");
    assert_eq!(task.status(), "RUNNING");
}

pub(super) fn exec_terminal(engine: &dyn Engine) {
    let task = Task::waiting(engine, &[]);
    let line = "tty; echo ready; read line; echo got-$line; exit 6";
    let arguments = ["task", "exec", "--exec-id", "x", "--tty", &task.name, "sh", "-c", line];
    let mut screen = Screen::start(&engine.command(&arguments));
    screen.expect("/dev/pts/");
    screen.expect("ready");
    screen.type_in("a word\n");
    screen.expect("got-a word");
    assert_eq!(screen.wait().code(), Some(6));
}

pub(super) fn exec_detached(engine: &dyn Engine) {
    let task = Task::waiting(engine, &[]);
    task.exec(&["--detach"], &["sh", "-c", "echo done >/proc/1/fd/1"]).exits(0);
    task.expect("done");
}

pub(super) fn kill_with_a_signal(engine: &dyn Engine) {
    let task = Task::waiting(engine, &[]);
    engine.run(&["task", "kill", "--signal", "SIGUSR1", &task.name]).exits(0);
    task.expect("usr1");
    engine.run(&["task", "kill", "--signal", "SIGTERM", &task.name]).exits(0);
    task.becomes("STOPPED");
    engine.run(&["task", "delete", &task.name]).exits(0).mentions("exit code 7");
    assert_eq!(task.status(), "none");
}

pub(super) fn pause(engine: &dyn Engine) {
    let task = Task::waiting(engine, &[]);
    engine.run(&["task", "pause", &task.name]).exits(0);
    task.becomes("PAUSED");
    engine.run(&["task", "kill", "--signal", "SIGUSR1", &task.name]).exits(0);
    // Another container runs from its start to its end meanwhile.
    run(engine, &[], "true").exits(0);
    let log = fs::read_to_string(engine.dir().join("share").join(&task.name)).unwrap();
    assert!(!log.contains("usr1"), "it runs while it is paused");
    engine.run(&["task", "resume", &task.name]).exits(0);
    task.expect("usr1");
    task.becomes("RUNNING");
}

pub(super) fn list_processes(engine: &dyn Engine) {
    let task = Task::waiting(engine, &[]);
    let said = engine.run(&["task", "ps", &task.name]).says();
    assert!(said.lines().count() >= 2, "a head and at least the program: {said}");
}

pub(super) fn memory(engine: &dyn Engine) {
    let (mount, file) = if is_unified() {
        ("type=cgroup2,src=cgroup2,dst=/sys/fs/cgroup,options=ro", "/sys/fs/cgroup/memory.max")
    } else {
        (
            "type=cgroup,src=cgroup,dst=/sys/fs/cgroup,options=ro",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        )
    };
    let limit = (32 << 20).to_string();
    let own = run(engine, &["--memory-limit", &limit], "cat /proc/self/cgroup").says();
    assert!(own.contains("memory") || is_unified(), "{own} {mount} {file}");
    // One endless line: tail has to keep it.
    run(engine, &["--memory-limit", &limit], "tail /dev/zero; echo $?").mentions("137");
}

pub(super) fn metrics(engine: &dyn Engine) {
    let task = Task::waiting(engine, &[]);
    let said = engine.run(&["task", "metrics", &task.name]).says();
    assert!(said.contains("memory"), "{said}");
}

pub(super) fn remove_running(engine: &dyn Engine) {
    let task = Task::waiting(engine, &[]);
    assert_ne!(engine.run(&["task", "delete", &task.name]).code(), 0, "it runs");
    engine.run(&["task", "delete", "--force", &task.name]).exits(0).mentions("exit code 137");
    engine.run(&["container", "delete", &task.name]).exits(0);
    assert_eq!(task.status(), "none");
}

pub(super) fn read_only(engine: &dyn Engine) {
    run(engine, &["--read-only"], "touch /x").exits(1).mentions("Read-only");
}

pub(super) fn capabilities(engine: &dyn Engine) {
    let effective = "sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status";
    let bits = |options: &[&str]| u64::from_str_radix(&run(engine, options, effective).says(), 16).unwrap();
    let default = bits(&[]);
    assert_eq!(bits(&["--cap-drop", "CAP_CHOWN"]), default & !1);
    assert_eq!(bits(&["--cap-add", "CAP_SYS_TIME"]), default | 1 << 25);
}

pub(super) fn privileged(engine: &dyn Engine) {
    let said = run(
        engine,
        &["--privileged"],
        "mkdir /m; mount -t tmpfs m /m && echo mounted; grep Seccomp: /proc/self/status",
    )
    .says();
    assert!(said.contains("mounted") && said.ends_with('0'), "{said}");
}

pub(super) fn seccomp(engine: &dyn Engine) {
    let said = run(
        engine,
        &["--seccomp"],
        "sed -n 's/^Seccomp:[[:space:]]*//p' /proc/self/status; unshare --mount true",
    )
    .exits(1);
    assert!(said.stdout.starts_with('2'), "{said}");
}

pub(super) fn host_network(engine: &dyn Engine) {
    let host = fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(run(engine, &["--net-host"], "readlink /proc/self/ns/net").says(), host.to_str().unwrap());
    assert_ne!(run(engine, &[], "readlink /proc/self/ns/net").says(), host.to_str().unwrap());
}

pub(super) fn pids_of_another_container(engine: &dyn Engine) {
    let task = Task::waiting(engine, &[]);
    let tasks = engine.run(&["task", "list"]).says();
    let line = tasks.lines().find(|line| line.split_whitespace().next() == Some(&task.name)).unwrap();
    let pid = line.split_whitespace().nth(1).unwrap();
    let option = format!("pid:/proc/{pid}/ns/pid");
    run(engine, &["--with-ns", &option], "ps").exits(0).mentions("trap 'exit 7' TERM");
}

pub(super) fn mounts(engine: &dyn Engine) {
    let share = engine.dir().join("share");
    fs::write(share.join("given"), "from outside\n").unwrap();
    let bind = format!("type=bind,src={},dst=/given,options=rbind:ro", share.display());
    run(engine, &["--mount", &bind], "cat /given/given; touch /given/x")
        .exits(1)
        .mentions("from outside")
        .mentions("Read-only");
    let tmpfs = "type=tmpfs,src=tmpfs,dst=/scratch,options=size=1m:noexec";
    run(engine, &["--mount", tmpfs], "mount | grep /scratch").exits(0).mentions("size=1024k");
}

pub(super) fn twenty_at_once(engine: &dyn Engine) {
    let begin = |at: usize| {
        engine.begin(&["run", "--rm", IMAGE, &fresh_name(), "sh", "-c", &format!("echo {at}; exit {at}")], "")
    };
    let running: Vec<Running> = (1..=20).map(begin).collect();
    for (at, running) in (1..).zip(running) {
        running.wait().exits(at);
    }
}

pub(super) fn many_one_after_another(engine: &dyn Engine) {
    // A guest has no time for as many.
    let times = if std::env::var_os("SAGGAR_GUEST").is_some() { 5 } else { 50 };
    for _ in 0..times {
        run(engine, &[], "exit 3").exits(3);
    }
    let state = engine.dir().join("state");
    let left = walk(&state);
    assert!(left.is_empty(), "the runtime's state: {left:?}");
}

fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| if entry.path().is_dir() { walk(&entry.path()) } else { vec![entry.path()] })
        .collect()
}
