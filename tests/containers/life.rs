//! The life of a container: created, started, joined, ended.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use saggar::launch::container::{
    self as launch, ConsoleTarget, ContainerExecRequest, ContainerRecorder, LaunchedProcess, NoCgroup,
};
use saggar::plan::container::ContainerFilter;
use saggar::spec::container::{Hook, ProcessSpec};
use saggar::sys::pidfd;

use super::Caller;
use super::bundle::{Bundle, Nothing, Output, process, wait};

pub(crate) fn created(caller: Caller) {
    let bundle = Bundle::new(caller, "echo started");
    let output = Output::catch();
    let init = bundle.create().unwrap();
    let socket = bundle.state_dir().join("start.sock");
    assert!(socket.exists());
    // Nothing of the program yet: it is still our own image, and hides it.
    assert!(fs::read_to_string(format!("/proc/{}/comm", init.pid)).unwrap().starts_with("containers"));
    bundle.start(&init).unwrap();
    assert!(!socket.exists());
    wait(&init);
    assert_eq!(output.end(), "started\n");
    let again = bundle.start(&init).unwrap_err();
    assert!(again.to_string().contains("does not wait for a start"), "{again}");

    let init = bundle.create().unwrap();
    pidfd::signal(init.pidfd.as_fd(), libc::SIGKILL).unwrap();
    wait(&init);
    let dead = bundle.start(&init).unwrap_err();
    assert!(dead.to_string().contains("does not wait for a start"), "{dead}");
}

fn children() -> String {
    fs::read_to_string("/proc/self/task/".to_owned() + &std::process::id().to_string() + "/children").unwrap()
}

pub(crate) fn failed(caller: Caller) {
    let mut bundle = Bundle::new(caller, "true");
    let (table, fds) = (fs::read_to_string("/proc/self/mountinfo").unwrap(), count_descriptors());
    let source = Path::new("/nowhere/at/all");
    bundle.container.mounts.push(super::bundle::bind(source, "/data", 0));
    let error = bundle.create().unwrap_err().to_string();
    assert_eq!(error, "mount /nowhere/at/all on /data: no such file or directory");
    bundle.container.mounts.pop();
    bundle.container.mounts.push(super::bundle::mount("/data", "nofs", &[], 0));
    let error = bundle.create().unwrap_err().to_string();
    assert_eq!(error, "mount nofs on /data: no such device");
    assert_eq!(children(), "");
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), table);
    assert_eq!(fs::read_dir(bundle.state_dir()).unwrap().count(), 0);
    assert_eq!(count_descriptors(), fds);
}

fn count_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Tells the pid of the init to whoever reads, and then dies or waits.
struct Dying {
    tell: fs::File,
    at: &'static str,
}

impl ContainerRecorder for Dying {
    fn init_spawned(&mut self, init: &LaunchedProcess) -> saggar::error::Result<()> {
        use std::io::Write;
        self.tell.write_all(init.pid.to_string().as_bytes()).unwrap();
        self.die("born")
    }

    fn init_created(&mut self, _: &LaunchedProcess) -> saggar::error::Result<()> {
        self.die("created")
    }

    fn oci_state(&self, status: &str, pid: i32) -> String {
        Nothing.oci_state(status, pid)
    }
}

impl Dying {
    fn die(&self, at: &str) -> saggar::error::Result<()> {
        if self.at == at {
            nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        Ok(())
    }
}

pub(crate) fn killed(caller: Caller) {
    let bundle = Bundle::new(caller, "true");
    // What the runtime leaves behind is ours to reap.
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    for at in ["born", "created"] {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let state_dir = bundle.state_dir();
        // SAFETY: one thread.
        let runtime = match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                super::heap::may_be_used();
                let request = launch::ContainerCreateRequest {
                    container: &bundle.container,
                    id: "test",
                    bundle: Path::new("/"),
                    state_dir: &state_dir,
                    filter: None,
                    console: ConsoleTarget::None,
                    streams: None,
                    options: bundle.options,
                };
                let _ = launch::create(&request, &NoCgroup, &mut Dying { tell: write.into(), at });
                std::process::exit(0);
            }
            ForkResult::Parent { child } => child,
        };
        drop(write);
        let mut pid = String::new();
        fs::File::from(read).read_to_string(&mut pid).unwrap();
        waitpid(runtime, None).unwrap();
        let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
        // It ends without anybody's doing, or this waits for ever.
        let ended = waitpid(pid, None).unwrap();
        assert!(matches!(ended, WaitStatus::Signaled(..) | WaitStatus::Exited(_, 125)), "{at}: {ended:?}");
        fs::remove_file(state_dir.join("start.sock")).unwrap();
    }
}

fn hook(script: &str, timeout: Option<u64>) -> Hook {
    let args = ["sh", "-c", script].map(str::to_owned).into();
    Hook {
        path: "/bin/sh".into(),
        args,
        env: Some(vec!["PATH=/usr/bin:/bin".into(), "A=b=c".into()]),
        timeout,
    }
}

pub(crate) fn hooks(caller: Caller) {
    let mut bundle = Bundle::new(caller, "echo program >> /tmp/log");
    let (log, root) = (bundle.root().join("tmp/log"), bundle.root().to_owned());
    let ns = "$(readlink /proc/self/ns/mnt /proc/self/ns/net | xargs)";
    let note = |what: &str, log: &Path| {
        let log = log.display();
        hook(
            &format!(
                "echo \"{what} $(cat) $A {ns} $(env | wc -l)\" >> {log}; test -w {}/dev/null && echo dev >> {log}; true",
                root.display()
            ),
            Some(10),
        )
    };
    let hooks = &mut bundle.container.hooks;
    hooks.prestart = vec![note("prestart", &log)];
    hooks.create_runtime = vec![note("runtime", &log), note("runtime2", &log)];
    hooks.create_container = vec![note("container", &log)];
    hooks.start_container = vec![note("start", Path::new("/tmp/log"))];
    bundle.said();
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let words: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    // In the container's mount namespace the root is at its path, with everything mounted.
    assert_eq!(words, ["prestart", "runtime", "runtime2", "container", "dev", "start", "program"], "{text}");
    let ours: Vec<String> = ["mnt", "net"]
        .iter()
        .map(|kind| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().to_string_lossy().into_owned())
        .collect();
    for (line, (status, inside)) in lines.iter().filter(|line| line.len() > 1).zip([
        ("creating", false),
        ("creating", false),
        ("creating", false),
        ("creating", true),
        ("created", true),
    ]) {
        assert!(line[1].contains(&format!("\"status\":\"{status}\"")), "{line:?}");
        assert_eq!(line[2], "b=c");
        assert_eq!(line[3] != ours[0] && line[4] != ours[1], inside, "{line:?}");
    }
}

pub(crate) fn bad_hooks(caller: Caller) {
    let mut bundle = Bundle::new(caller, "echo program");
    bundle.container.hooks.create_runtime = vec![hook("echo why >&2; exit 4", None)];
    let error = bundle.create().unwrap_err().to_string();
    assert_eq!(error, "createRuntime hook #0 /bin/sh: exit status 4: its output was \"why\"");
    // It does not end by itself: that this fails is the timeout's doing.
    bundle.container.hooks.create_runtime = vec![hook("sleep 1000 & sleep 1000", Some(1))];
    let error = bundle.create().unwrap_err().to_string();
    assert!(error.contains("longer than its timeout"), "{error}");
    bundle.container.hooks.create_runtime[0].path = "/no/hook".into();
    let error = bundle.create().unwrap_err().to_string();
    assert!(error.starts_with("createRuntime hook #0 /no/hook: exec:"), "{error}");
    // What a hook leaves running keeps nobody waiting: the container ends before it.
    let left = bundle.dir.path().join("left");
    let line = format!("sleep 1000 & echo $! > {}", left.display());
    bundle.container.hooks.create_runtime = vec![hook(&line, None)];
    assert_eq!(bundle.said().trim(), "program");
    let left: i32 = fs::read_to_string(left).unwrap().trim().parse().unwrap();
    // Not its words: while it becomes `sleep` it has none.
    let state = fs::read_to_string(format!("/proc/{left}/status")).unwrap();
    assert!(!state.contains("\nState:\tZ"), "it still runs: {state}");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(left), nix::sys::signal::Signal::SIGKILL).unwrap();
    bundle.container.hooks.create_runtime.clear();
    bundle.container.hooks.start_container = vec![hook("exit 9", None)];
    let init = bundle.create().unwrap();
    let error = bundle.start(&init).unwrap_err().to_string();
    assert!(error.starts_with("startContainer hook #0"), "{error}");
    assert!(matches!(wait(&init), WaitStatus::Signaled(..)));
}

/// A container that runs until its gate is written to.
fn gated(caller: Caller) -> (Bundle, LaunchedProcess) {
    let bundle = Bundle::new(caller, "read word < /tmp/gate");
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
    nix::unistd::mkfifo(&bundle.root().join("tmp/gate"), mode).unwrap();
    let init = bundle.create().unwrap();
    bundle.start(&init).unwrap();
    (bundle, init)
}

fn open(bundle: &Bundle, init: &LaunchedProcess) {
    fs::write(bundle.root().join("tmp/gate"), "\n").unwrap();
    wait(init);
}

fn exec(
    bundle: &Bundle,
    init: &LaunchedProcess,
    process: &ProcessSpec,
    console: ConsoleTarget<'_>,
    filter: Option<&ContainerFilter>,
) -> saggar::error::Result<LaunchedProcess> {
    launch::exec(
        &ContainerExecRequest {
            container: &bundle.container,
            process,
            init: init.pidfd.as_fd(),
            pid: init.pid,
            filter,
            console,
            streams: None,
            options: bundle.options,
            state: &Nothing.oci_state("running", init.pid),
        },
        &NoCgroup,
    )
}

pub(crate) fn exec_terminal(caller: Caller) {
    let (bundle, init) = gated(caller);
    let mut program = process("tty; mkdir /tmp/x; exit 5", 0);
    program.terminal = true;
    let refused = libc::SECCOMP_RET_ERRNO | libc::EUSERS as u32;
    let filter = super::process::answering(&[libc::SYS_mkdir], refused);
    let filter = ContainerFilter { program: filter, flags: 0, listener: None };
    let added = exec(&bundle, &init, &program, ConsoleTarget::Keep, Some(&filter)).unwrap();
    let mut master = fs::File::from(added.terminal.as_ref().unwrap().try_clone().unwrap());
    let (mut said, mut buffer) = (Vec::new(), [0; 256]);
    while let Ok(len @ 1..) = master.read(&mut buffer) {
        said.extend_from_slice(&buffer[..len]);
    }
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("/dev/pts/0\r\n") && said.contains("Too many users"), "{said}");
    assert!(matches!(wait(&added), WaitStatus::Exited(_, 5)));
    open(&bundle, &init);
}

pub(crate) fn exec_all(caller: Caller) {
    let (bundle, init) = gated(caller);
    let script = "readlink /proc/self/ns/*; hostname; pwd; ls /proc/self/fd | wc -l; grep CapEff /proc/self/status; id -u";
    let output = Output::catch();
    let mut program = process(script, 1);
    program.program.cwd = "/tmp".into();
    let added = exec(&bundle, &init, &program, ConsoleTarget::None, None);
    let said = output.end();
    let added = added.unwrap_or_else(|error| panic!("{error} {said}"));
    assert!(matches!(wait(&added), WaitStatus::Exited(_, 0)), "{said}");
    let lines: Vec<_> = said.lines().collect();
    let (names, rest) = lines.split_at(lines.len() - 5);
    for name in names {
        let kind = name.split(':').next().unwrap();
        let inside = fs::read_link(format!("/proc/{}/ns/{kind}", init.pid)).unwrap();
        assert_eq!(Path::new(name), inside);
    }
    assert_eq!(rest, ["inside", "/tmp", "4", "CapEff:\t0000000000000001", "0"]);
    program.program.argv = vec!["nope".into()];
    let error = exec(&bundle, &init, &program, ConsoleTarget::None, None).unwrap_err();
    assert_eq!(error.to_string(), "exec: \"nope\": executable file not found in $PATH");
    let left = children();
    assert_eq!(left.trim(), init.pid.to_string(), "the init alone is left");
    open(&bundle, &init);
}
