//! A cgroup that was given to saggar alone, as a service manager gives one, and saggar in it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::Value;

use crate::in_guest_of;
use crate::support::caller::Caller;
use crate::support::place::Place;
use crate::support::process::Watch;
use crate::support::wait::until_gone;

/// A cgroup beside the tests' own that belongs to the caller, and is removed in the end.
pub(crate) struct Given {
    pub(crate) place: Place,
    pub(crate) path: PathBuf,
    /// The cgroup above, where that is ours to remove too.
    above: Option<PathBuf>,
}

/// What saggar is to run, and how.
#[derive(Default)]
pub(crate) struct Run<'a> {
    /// Options of `wrap`.
    pub(crate) options: &'a [&'a str],
    /// What stands below `[limits]` in the file of `--policy`.
    pub(crate) limits: &'a str,
    /// Arguments of strace, when saggar is to run under it.
    pub(crate) strace: &'a [&'a str],
    pub(crate) program: &'a [&'a str],
}

/// A saggar that runs.
pub(crate) struct Saggar {
    pub(crate) child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Given {
    /// One with every controller that the cgroup of the tests has.
    pub(crate) fn new(caller: Caller) -> Self {
        in_guest_of("unified");
        let place = Place::new(caller);
        let path = beside().join(place.path().file_name().unwrap());
        own_cgroup(caller, &path);
        Given { place, path, above: None }
    }

    /// One with these controllers alone.
    pub(crate) fn with_only(caller: Caller, controllers: &[&str]) -> Self {
        in_guest_of("unified");
        let place = Place::new(caller);
        let above = beside().join(place.path().file_name().unwrap());
        fs::create_dir(&above).unwrap();
        let on: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
        fs::write(above.join("cgroup.subtree_control"), on.join(" ")).unwrap();
        let path = above.join("given");
        own_cgroup(caller, &path);
        Given { place, path, above: Some(above) }
    }

    /// As a kernel that has huge pages gives them to who asks: root switches them on, as the cure says.
    pub(crate) fn switch_hugetlb_on(&self) {
        let above: Vec<&Path> =
            self.path.ancestors().skip(1).take_while(|path| path.starts_with("/sys/fs/cgroup")).collect();
        for path in above.iter().rev() {
            fs::write(path.join("cgroup.subtree_control"), "+hugetlb").unwrap();
        }
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path.join(file)).unwrap()
    }

    /// The cgroups in it.
    pub(crate) fn children(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }

    /// The cgroup of the one sandbox in it.
    #[track_caller]
    pub(crate) fn sandbox(&self) -> PathBuf {
        let children = self.children();
        let [sandbox] = &children.iter().filter(|path| path.join("main").is_dir()).collect::<Vec<_>>()[..]
        else {
            panic!("{children:?}");
        };
        sandbox.to_path_buf()
    }

    /// A shell that waits to be put in this cgroup and becomes `saggar wrap`; its events are in the file `events`.
    pub(crate) fn start(&self, run: &Run) -> Saggar {
        let events = self.place.make_file("events", "");
        let tracer = [&["/usr/bin/strace", "-o", "trace"][..], run.strace].concat();
        let shell = ["/bin/sh", "-c", "exec 3>\"$0\"; echo $$; read go; exec \"$@\""];
        let all = if run.strace.is_empty() { shell.to_vec() } else { [&tracer[..], &shell].concat() };
        let mut command = self.place.command(Path::new(all[0]));
        command.args(&all[1..]).arg(events).arg(self.place.saggar().get_program());
        command.args(["wrap", "--status-fd", "3"]).args(run.options);
        if !run.limits.is_empty() {
            let policy = self.place.make_file("limits.toml", &format!("[limits]\n{}\n", run.limits));
            command.arg("--policy").arg(policy);
        }
        command.arg("--").args(run.program);
        let stderr = File::create(self.place.join("stderr")).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut pid = String::new();
        stdout.read_line(&mut pid).unwrap();
        fs::write(self.path.join("cgroup.procs"), &pid).unwrap();
        stdin.write_all(b"go\n").unwrap();
        Saggar { child, stdin, stdout }
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.place.join("stderr")).unwrap()
    }

    /// The events of the last `wrap`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let events = fs::read_to_string(self.place.join("events")).unwrap();
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last event of the last `wrap`.
    pub(crate) fn exited(&self) -> Value {
        self.events().pop().unwrap()
    }

    /// Kills the supervisor of the one sandbox; when everything has gone with it, all is as it was (DECISIONS 11).
    #[track_caller]
    pub(crate) fn kill(&self, mut saggar: Saggar) {
        let children = self.children();
        assert_eq!(children.len(), 2, "the sandbox and the leaf: {children:?}");
        let leaf = children.iter().find(|path| !path.join("main").exists()).unwrap();
        let pids = fs::read_to_string(leaf.join("cgroup.procs")).unwrap();
        let aside: Vec<Watch> = pids.lines().filter_map(|pid| Watch::of(pid.parse().unwrap())).collect();
        // As root a standard stream that is open for reading and writing has a copier.
        assert!(aside.len() >= 2, "the supervisor and the watcher");
        saggar.child.kill().unwrap();
        saggar.child.wait().unwrap();
        children.iter().for_each(|child| until_gone(child));
        aside.iter().for_each(|one| one.wait_gone("who had stepped aside"));
        self.is_as_it_was();
    }

    /// It can be used again: nothing is in it, and it may have processes.
    #[track_caller]
    pub(crate) fn is_as_it_was(&self) {
        assert_eq!(self.children(), [""; 0].map(PathBuf::from));
        assert_eq!(
            (self.read("cgroup.procs").as_str(), self.read("cgroup.subtree_control").trim()),
            ("", "")
        );
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        for path in std::iter::once(&self.path).chain(&self.above) {
            let removed = fs::remove_dir(path);
            assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
        }
    }
}

impl Saggar {
    /// The next line of the program.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits for a line of the program.
    #[track_caller]
    pub(crate) fn heard(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// Waits for these bytes of the program.
    #[track_caller]
    pub(crate) fn heard_bytes(&mut self, bytes: &[u8]) {
        let mut heard = vec![0; bytes.len()];
        self.stdout.read_exact(&mut heard).unwrap();
        assert_eq!(heard, bytes);
    }

    /// Lets the program end; its exit status.
    pub(crate) fn end(mut self) -> Option<i32> {
        drop(self.stdin);
        self.child.wait().unwrap().code()
    }
}

/// The cgroup above that of the tests.
fn beside() -> PathBuf {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    Path::new("/sys/fs/cgroup").join(own).parent().unwrap().to_owned()
}

/// A new cgroup that is delegated to the caller (cgroup-v2.rst, "Delegation").
fn own_cgroup(caller: Caller, path: &Path) {
    fs::create_dir(path).unwrap();
    for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
        caller.own(&path.join(file));
    }
}
