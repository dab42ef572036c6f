//! Processes under test: watched by pidfd, so that a recycled pid is never waited for or killed.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use super::deadline::Deadline;
use super::network;
use super::place::Place;

/// A child of the test with its own process group; killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    watch: Watch,
    stderr: PathBuf,
}

impl Process {
    /// Starts `command` without any network, its stdin and stdout as pipes, its stderr in a file of `place`.
    pub(crate) fn start(place: &Place, mut command: Command) -> Self {
        let stderr = tempfile::Builder::new().prefix("stderr-").tempfile_in(place.path()).unwrap();
        let (stderr, path) = stderr.keep().unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).process_group(0);
        let program = command.get_program().to_owned();
        let child = network::spawn_without(command)
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()));
        let watch = Watch::of(child.id()).expect("an unreaped child has a pidfd");
        Process { child, watch, stderr: path }
    }

    /// The pid.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The write end of its stdin; dropping it is the end of file.
    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("stdin is taken once")
    }

    /// The read end of its stdout.
    pub(crate) fn take_stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("stdout is taken once")
    }

    /// Takes its stdout, where it is to write its ready byte (BP-06), and waits for that.
    pub(crate) fn take_ready_stdout(&mut self) -> ChildStdout {
        let mut stdout = self.take_stdout();
        let mut ready = [0];
        let listens = Deadline::usual().readable(&stdout).and_then(|()| stdout.read(&mut ready));
        assert!(
            matches!((&listens, ready), (Ok(1), [b'R'])),
            "no R on the ready descriptor but {listens:?} {ready:?}; stderr:\n{}",
            self.stderr()
        );
        stdout
    }

    /// Its stdout to the end; panics, with its stderr, when that does not come.
    pub(crate) fn read_stdout(&mut self) -> Vec<u8> {
        let mut stdout = self.take_stdout();
        Deadline::usual()
            .read_to_end(&mut stdout)
            .unwrap_or_else(|error| panic!("stdout does not end: {error}; stderr:\n{}", self.stderr()))
    }

    /// Sends a signal to this process alone.
    pub(crate) fn signal(&self, signal: Signal) {
        self.watch.signal(signal);
    }

    /// CPU time of this process alone so far, in clock ticks of 10 ms; also after its end, until it is reaped.
    pub(crate) fn ticks(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// The same when it has ended.
    pub(crate) fn ticks_at_the_end(&self) -> u64 {
        self.watch.wait_gone(&format!("the process with this stderr:\n{}", self.stderr()));
        self.ticks()
    }

    /// Waits for the exit; panics, with its stderr, when it does not come.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.watch.wait_gone(&format!("the process with this stderr:\n{}", self.stderr()));
        self.child.wait().expect("a child can be reaped")
    }

    /// What it has written to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        fs::read(&self.stderr).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// Kills the launcher of this saggar, so that nobody cleans up after a killed one; which stands still from now on,
    /// since it would end everything itself.
    pub(crate) fn kill_launcher(&self) {
        let launcher = self.launcher();
        self.watch.stop();
        launcher.signal(Signal::SIGKILL);
        assert!(launcher.is_gone_by(Deadline::usual()), "it does not die");
    }

    /// Its launcher. On a busy machine that is forked, and has its name, later than the sandbox stands.
    pub(crate) fn launcher(&self) -> Watch {
        let parent = self.pid().to_string();
        let is_launcher = |pid: &u32| {
            let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            read("comm") == "saggar:launch\n"
                && read("stat")
                    .rsplit_once(") ")
                    .is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&parent))
        };
        let deadline = Deadline::usual();
        loop {
            let pids = fs::read_dir("/proc").unwrap().flatten();
            let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            if let Some(launcher) = pids.find(is_launcher).and_then(Watch::of) {
                return launcher;
            }
            assert!(!deadline.remaining().is_zero(), "there is no launcher");
            deadline.pause();
        }
    }

    /// Its descendants on the host, nearest first, each with its argument list.
    pub(crate) fn descendants(&self) -> Vec<(u32, Vec<String>)> {
        let mut found = Vec::new();
        let mut parents = VecDeque::from([self.pid()]);
        while let Some(parent) = parents.pop_front() {
            // One list per thread: a child belongs to the thread that started it.
            for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                for child in children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
                    found.push((child, arguments(child)));
                    parents.push_back(child);
                }
            }
        }
        found
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // Not reaped yet, so the group cannot be another's. Its members may have gone on their own.
            let _ = killpg(Pid::from_raw(self.pid().cast_signed()), Signal::SIGKILL);
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("stderr of the process under test:\n{}", self.stderr());
        }
    }
}

/// A hold on any process, by pidfd.
#[derive(Debug)]
pub(crate) struct Watch {
    pid: u32,
    pidfd: OwnedFd,
}

impl Watch {
    /// Watches the process that has this pid now, if there is one.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let raw = rustix::process::Pid::from_raw(pid.cast_signed())?;
        Some(Watch { pid, pidfd: pidfd_open(raw, PidfdFlags::empty()).ok()? })
    }

    /// The pid it had when the watch began.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal; to a process that is gone it does nothing.
    pub(crate) fn signal(&self, signal: Signal) {
        let signal = rustix::process::Signal::from_named_raw(signal as i32).expect("a named signal");
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Stops the process, and returns when each of its threads stands still.
    pub(crate) fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let stopped = |task: &fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        let tasks = || fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let deadline = Deadline::usual();
        while !tasks().all(|task| stopped(&task)) {
            assert!(!deadline.remaining().is_zero(), "process {} does not stop", self.pid);
            deadline.pause();
        }
    }

    /// Blocks until the process has ended (it may be a zombie) or the time is over; whether it has.
    pub(crate) fn is_gone_by(&self, deadline: Deadline) -> bool {
        deadline.readable(&self.pidfd).is_ok()
    }

    /// Blocks until the process has ended (it may be a zombie); panics when it does not.
    pub(crate) fn wait_gone(&self, what: &str) {
        Deadline::usual()
            .readable(&self.pidfd)
            .unwrap_or_else(|error| panic!("process {} does not end: {error}: {what}", self.pid));
    }
}

/// Whether the process ended by this signal.
pub(crate) fn killed_by(status: ExitStatus, signal: Signal) -> bool {
    status.signal() == Some(signal as i32)
}

/// Whether any process has this word as an argument.
pub(crate) fn any_with_argument(word: &str) -> bool {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.into_iter().any(|pid| arguments(pid).iter().any(|argument| argument == word))
}

fn arguments(pid: u32) -> Vec<String> {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    raw.split(|&byte| byte == 0)
        .filter(|argument| !argument.is_empty())
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}
