//! `org.saggar.bridge`: the bridge of an agent beside the container (DECISIONS 12).
//!
//! ```text
//!  saggar create ── executes itself ──> supervisor ── forks ──> guard
//!      │  socketpair: the streams, a pidfd of the init; "ready"     both beside the init, never above it
//!      └── clone ──> init, which becomes the program at `start`
//! ```
//! The supervisor carries the conversation; the guard only waits. Each holds a pidfd of the other, and whichever is
//! left alone kills the container: they are in different cgroups, so that no one kill takes both. Neither holds
//! anything of the caller's but, for the supervisor, the container's standard output.

mod place;
pub(super) mod serve;

use super::Context;
use crate::bridge::adapter;
use crate::bridge::adapter::Transport;
use crate::cgroup::{Group, Layout, Place};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::launch::container::Init;
use crate::launch::socket_pair;
use crate::spec::container::Container;
use crate::stage::watcher::Charge;
use crate::state::container::{Beside, Directory};
use crate::state::process::ProcessId;
use crate::sys::file::FileId;
use crate::sys::{pidfd, scm};
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the names of our annotations begin with.
const OURS: &str = "org.saggar.";
/// `true`, or the name of a socket in the operator's directory ([`place`]).
const BRIDGE: &str = "org.saggar.bridge";
/// What the program speaks.
const ADAPTER: &str = "org.saggar.adapter";

/// Which container of a pod is meant: pods hand their annotations to all of them.
const CONTAINER: &str = "org.saggar.container";

/// What containerd and CRI-O say of a container of a pod: its kind, and its name.
const KINDS: [&str; 2] = ["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"];
const NAMES: [&str; 2] = ["io.kubernetes.cri.container-name", "io.kubernetes.cri-o.ContainerName"];

/// How long a supervisor whose container has ended is given to tell its servers.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long a process is given to end after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer of a supervisor.
const ANSWER: usize = 16 << 10;

/// What the annotations ask for.
#[derive(Debug)]
pub(super) struct Asked {
    /// Where the bridge listens.
    socket: place::Place,
    adapter: String,
}

impl Asked {
    /// Reads the annotations of a container; `None` without a bridge.
    ///
    /// # Errors
    /// [`Code::Invalid`], naming the annotation that has a value it cannot have, or that does not go with the rest
    /// of the configuration.
    pub(super) fn by(container: &Container) -> Result<Option<Self>> {
        let annotations = &container.annotations;
        for name in annotations.keys().filter(|name| name.starts_with(OURS)) {
            if ![BRIDGE, ADAPTER, CONTAINER].contains(&name.as_str()) {
                log::warn!("annotations[{name:?}] is not known and is left out");
            }
        }
        let invalid =
            |name: &str, why: &str| Error::new(Code::Invalid, format!("annotations[{name:?}]: {why}"));
        let socket = match annotations.get(BRIDGE).map(String::as_str) {
            None | Some("false") => {
                if annotations.contains_key(ADAPTER) {
                    log::warn!("annotations[{ADAPTER:?}] says nothing without {BRIDGE}");
                }
                return Ok(None);
            }
            Some(_) if !is_meant(annotations) => return Ok(None),
            Some(value) => place::Place::parse(value)?,
        };
        let process = container.process.as_ref();
        let process =
            process.ok_or_else(|| invalid(BRIDGE, "there is no process for a bridge to speak with"))?;
        if process.terminal {
            return Err(invalid(BRIDGE, "process.terminal is true, and the bridge needs plain streams")
                .hint("set process.terminal to false (podman run without -t; tty: false), or leave the annotation out"));
        }
        let name = annotations.get(ADAPTER).map_or("stream-json", String::as_str);
        match adapter::by_name(name).map(|adapter| adapter.transport()) {
            Some(Transport::Stdio) => Ok(Some(Asked { socket, adapter: name.to_owned() })),
            _ => Err(invalid(ADAPTER, &format!("{name:?} is none that speaks on its standard streams"))
                .hint("stream-json and demo do")),
        }
    }
}

/// Whether the annotations of a pod are for this container of it: never for the one that only holds the pod's
/// namespaces, and where one is named, for that alone.
fn is_meant(annotations: &BTreeMap<String, String>) -> bool {
    let is_sandbox = KINDS.iter().any(|kind| annotations.get(*kind).is_some_and(|kind| kind == "sandbox"));
    let name = NAMES.iter().find_map(|name| annotations.get(*name));
    let wanted = annotations.get(CONTAINER);
    !is_sandbox && wanted.is_none_or(|wanted| name.is_none_or(|name| name == wanted))
}

/// The path beside that of a container's cgroup.
pub(super) fn beside_path(path: &Path) -> PathBuf {
    let mut path: PathBuf = path.components().collect();
    path.as_mut_os_string().push(".saggar");
    path
}

/// The bridge of a container that is to be made.
#[derive(Debug)]
pub(super) struct Wanted {
    asked: Asked,
    place: Place,
}

impl Wanted {
    /// Chooses the place of its cgroups: beside the container's, with `.saggar` after the name.
    ///
    /// # Errors
    /// As [`Place::choose`].
    pub(super) fn new(
        context: &Context,
        asked: Asked,
        id: &SandboxId,
        container: &Container,
    ) -> Result<Self> {
        let path = container.cgroups_path.as_ref().filter(|path| !path.as_os_str().is_empty());
        let path = path.map(|path| beside_path(path));
        let wanted = crate::cgroup::Wanted {
            id: &format!("{id}.saggar"),
            cgroups_path: path.as_deref(),
            driver: context.driver,
            rootless: context.rootless,
            annotations: &BTreeMap::new(),
        };
        Ok(Wanted { asked, place: Place::choose(&Layout::discover()?, &wanted)? })
    }

    /// What is written down before anything of it is made.
    ///
    /// # Errors
    /// Those of [`place::Place::path`].
    pub(super) fn record(self, directory: &Directory) -> Result<Beside> {
        let Asked { socket, adapter } = self.asked;
        let socket = socket.path(directory.path())?;
        Ok(Beside { adapter, socket, socket_file: None, cgroup: self.place, supervisor: None, guard: None })
    }
}

/// The program's ends of its streams. They are closed here once the init has them.
#[derive(Debug)]
pub(super) struct Streams {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// The init holds it too, close-on-exec: its end says that the program runs.
    _start: OwnedFd,
}

/// The bridge's ends.
#[derive(Debug)]
pub(super) struct Ends {
    stdin: OwnedFd,
    stdout: OwnedFd,
    pass: OwnedFd,
    started: OwnedFd,
}

impl Streams {
    /// # Errors
    /// [`Code::System`].
    pub(super) fn new() -> Result<(Self, Ends)> {
        let pipe = || {
            nix::unistd::pipe2(OFlag::O_CLOEXEC)
                .map_err(|e| Error::system("make the streams of the agent", e))
        };
        let own = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|e| Error::system("duplicate a standard stream", e))
        };
        let ((stdin, into), (out, stdout), (started, start)) = (pipe()?, pipe()?, pipe()?);
        let pass = own(std::io::stdout().as_fd())?;
        let stderr = own(std::io::stderr().as_fd())?;
        let ends = Ends { stdin: into, stdout: out, pass, started };
        Ok((Streams { stdin, stdout, stderr, _start: start }, ends))
    }

    /// What the program gets.
    pub(super) fn of_program(&self) -> [BorrowedFd<'_>; 3] {
        [self.stdin.as_fd(), self.stdout.as_fd(), self.stderr.as_fd()]
    }
}

/// What the supervisor answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Answer {
    Ready { guard: i32, socket: (u64, u64) },
    Failed(Error),
}

/// Starts the supervisor of a container whose init waits; its socket listens when this returns. What stands then
/// is in `beside`, also after a failure.
///
/// # Errors
/// What kept it from standing; the caller ends the init, and by that all of it.
pub(super) fn start(directory: &Directory, beside: &mut Beside, ends: Ends, init: &Init) -> Result<()> {
    let fails = |e: &dyn std::fmt::Display| Error::system("start the supervisor of the bridge", e);
    let mut group = Group::create(&beside.cgroup, None)?;
    let (ours, theirs) = socket_pair()?;
    let root = directory.path().parent().unwrap_or(Path::new("/"));
    let child = Command::new("/proc/self/exe")
        .arg0("saggar")
        .args([super::super::BESIDE.as_ref(), root.as_os_str(), directory.id().as_str().as_ref()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| fails(&e))?;
    let pid = i32::try_from(child.id()).map_err(|e| fails(&e))?;
    beside.supervisor = ProcessId::of(pid);

    let fds = [&ends.stdin, &ends.stdout, &ends.pass, &ends.started, &init.pidfd].map(AsRawFd::as_raw_fd);
    scm::send(ours.as_fd(), b"go", &fds).map_err(|e| fails(&e))?;
    let mut buffer = vec![0; ANSWER];
    let received = scm::receive(ours.as_fd(), &mut buffer).map_err(|e| fails(&e))?;
    let answer = serde_json::from_slice(&buffer[..received.len]);
    match answer.map_err(|_| fails(&"it was killed"))? {
        Answer::Ready { guard, socket } => {
            beside.guard = ProcessId::of(guard);
            beside.socket_file = Some(socket);
        }
        Answer::Failed(error) => {
            let code = match error.code() {
                Code::Invalid | Code::Exists => Code::Invalid,
                _ => Code::System,
            };
            return Err(error.with_code(code).context("the bridge of the container"));
        }
    }
    // The guard stays where we are: one kill of a cgroup must not take both.
    group.enter(pid)
}

/// Ends what stands beside a container whose init has ended, and removes what it made.
///
/// # Errors
/// [`Code::System`] when something outlives SIGKILL, or a cgroup cannot be removed.
pub(super) fn end(beside: &Beside) -> Result<()> {
    for (process, what) in [(&beside.supervisor, "supervisor"), (&beside.guard, "guard")] {
        let Some(process) = process else { continue };
        if let Ok(pidfd) = process.open()
            && !crate::state::process::wait(&pidfd, LAST_WORDS)
        {
            let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
        }
        if !process.kill(PATIENCE) {
            return Err(Error::new(
                Code::System,
                format!("the {what} of the bridge, process {}, outlives SIGKILL", process.pid),
            )
            .hint("it hangs in the kernel; see /proc/PID/stack"));
        }
    }
    remove_socket(beside);
    let group = Group::open(&beside.cgroup)?;
    group.kill_all(libc::SIGKILL)?;
    group.remove()
}

/// Removes the socket, as long as it is the one that was made.
fn remove_socket(beside: &Beside) {
    let path = CString::new(beside.socket.as_os_str().as_encoded_bytes());
    if let (Ok(path), Some((device, inode))) = (path, beside.socket_file) {
        Charge::File { path: &path, is: FileId { device, inode } }.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_pod_only_the_container_that_is_meant_has_a_bridge() {
        let meant = |pairs: &[(&str, &str)]| {
            is_meant(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        assert!(meant(&[]));
        for (kind, name) in KINDS.into_iter().zip(NAMES) {
            assert!(!meant(&[(kind, "sandbox")]));
            assert!(meant(&[(kind, "container"), (name, "a")]));
            assert!(meant(&[(kind, "container"), (name, "a"), (CONTAINER, "a")]));
            assert!(!meant(&[(kind, "container"), (name, "b"), (CONTAINER, "a")]));
        }
        assert!(meant(&[(CONTAINER, "a")]));
    }

    #[test]
    fn the_cgroup_beside_another_has_its_name_and_more() {
        for (path, beside) in [
            ("/pods/web", "/pods/web.saggar"),
            ("pods/web/", "pods/web.saggar"),
            ("machine.slice:libpod:x", "machine.slice:libpod:x.saggar"),
        ] {
            assert_eq!(beside_path(Path::new(path)), Path::new(beside));
        }
    }
}
