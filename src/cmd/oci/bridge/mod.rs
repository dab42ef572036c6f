//! `org.saggar.bridge`: the bridge of an agent beside the container (DECISIONS 12).
//!
//! ```text
//!  saggar create ── executes itself ──> supervisor ── forks ──> guard
//!      │  socketpair: the streams, a pidfd of the init; "ready"     both beside the init, never above it
//!      └── clone ──> init, which becomes the program at `start`
//! ```
//! The supervisor relays the conversation, and the guard only waits. Each holds a pidfd of the other and kills the
//! container when the other exits. They are in different cgroups, so that killing one cgroup does not end both.
//! The only descriptor of the caller's that either holds is the container's standard output, in the supervisor.

mod events_directory;
mod socket_path;
pub(super) mod supervisor;

use super::OciContext;
use crate::bridge::adapter;
use crate::bridge::adapter::AgentTransport;
use crate::cgroup::{CgroupHandle, CgroupLayout, CgroupLocation};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::launch::container::LaunchedProcess;
use crate::spec::container::ContainerSpec;
use crate::stage::watcher::CleanupItem;
use crate::state::container::{ContainerDirectory, SidecarRecord, SidecarSocket};
use crate::state::process::ProcessId;
use crate::sys::file;
use crate::sys::file::FileId;
use crate::sys::scm::socket_pair;
use crate::sys::{pidfd, scm};
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The prefix of our annotations.
const ANNOTATION_PREFIX: &str = "org.saggar.";
/// `true`, or the name of a socket in the operator's directory ([`socket_path`]).
const BRIDGE_ANNOTATION: &str = "org.saggar.bridge";
/// The adapter for the protocol of the program.
const ADAPTER_ANNOTATION: &str = "org.saggar.adapter";
/// `true`: the events of the bridge are stored beside its socket ([`events_directory`]).
const SPOOL_ANNOTATION: &str = "org.saggar.spool";

/// Selects a container of a pod, because pods pass their annotations to every container.
const CONTAINER_ANNOTATION: &str = "org.saggar.container";

/// Annotations of containerd and CRI-O for the kind and the name of a container in a pod.
const POD_KIND_ANNOTATIONS: [&str; 2] =
    ["io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"];
const POD_NAME_ANNOTATIONS: [&str; 2] =
    ["io.kubernetes.cri.container-name", "io.kubernetes.cri-o.ContainerName"];

/// How long a supervisor may take to notify its clients after its container has exited.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Time limit for a process to exit after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a reply of the supervisor, in bytes.
const MAX_REPLY: usize = 16 << 10;

/// The bridge that the annotations request.
#[derive(Debug)]
pub(super) struct BridgeRequest {
    /// The socket that the bridge listens on.
    socket: socket_path::BridgeSocketPath,
    adapter: String,
    /// Its events are stored.
    spool: bool,
}

impl BridgeRequest {
    /// Reads the annotations of a container; `None` without a bridge.
    ///
    /// # Errors
    /// [`Code::Invalid`], with the name of the annotation, for an invalid value or one that conflicts with the
    /// configuration.
    pub(super) fn from_annotations(container: &ContainerSpec) -> Result<Option<Self>> {
        let annotations = &container.annotations;
        for name in annotations.keys().filter(|name| name.starts_with(ANNOTATION_PREFIX)) {
            let known = [BRIDGE_ANNOTATION, ADAPTER_ANNOTATION, SPOOL_ANNOTATION, CONTAINER_ANNOTATION];
            if !known.contains(&name.as_str()) {
                log::warn!("annotations[{name:?}] is not known and is left out");
            }
        }
        let invalid = annotation_error;
        let socket = match annotations.get(BRIDGE_ANNOTATION).map(String::as_str) {
            None | Some("false") => {
                if annotations.contains_key(ADAPTER_ANNOTATION) {
                    log::warn!(
                        "annotations[{ADAPTER_ANNOTATION:?}] has no effect without {BRIDGE_ANNOTATION}"
                    );
                }
                if selects_container(annotations) && wants_spool(annotations)? {
                    return Err(spool_without_name_error());
                }
                return Ok(None);
            }
            Some(_) if !selects_container(annotations) => return Ok(None),
            Some(value) => socket_path::BridgeSocketPath::parse(value)?,
        };
        let spool = wants_spool(annotations)?;
        if spool && socket == socket_path::BridgeSocketPath::StateDirectory {
            return Err(spool_without_name_error());
        }
        let process = container.process.as_ref();
        let process = process
            .ok_or_else(|| invalid(BRIDGE_ANNOTATION, "there is no process for a bridge to connect to"))?;
        if process.terminal {
            return Err(invalid(BRIDGE_ANNOTATION, "process.terminal is true, and the bridge needs plain streams")
                .hint("set process.terminal to false (podman run without -t; tty: false), or leave the annotation out"));
        }
        let name = annotations.get(ADAPTER_ANNOTATION).map_or("stream-json", String::as_str);
        match adapter::adapter_by_name(name).map(|adapter| adapter.transport()) {
            Some(AgentTransport::Stdio) => {
                Ok(Some(BridgeRequest { socket, adapter: name.to_owned(), spool }))
            }
            _ => Err(invalid(ADAPTER_ANNOTATION, &format!("adapter {name:?} does not support stdio"))
                .hint("stream-json and demo do")),
        }
    }
}

fn annotation_error(name: &str, why: &str) -> Error {
    Error::new(Code::Invalid, format!("annotations[{name:?}]: {why}"))
}

/// Returns whether the events of the bridge are to be stored.
fn wants_spool(annotations: &BTreeMap<String, String>) -> Result<bool> {
    match annotations.get(SPOOL_ANNOTATION).map(String::as_str) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            Err(annotation_error(SPOOL_ANNOTATION, &format!("{other:?} is neither true nor false")))
        }
    }
}

/// The container's own directory, which has a socket without a name, goes with the container.
fn spool_without_name_error() -> Error {
    let why = "events are stored beside a socket in bridge.directory, and the bridge has none there";
    annotation_error(SPOOL_ANNOTATION, why)
        .hint(format!("set {BRIDGE_ANNOTATION} to a name, or leave {SPOOL_ANNOTATION} out (saggar-oci(8))"))
}

/// Returns whether the annotations of a pod apply to this container: never to the pod's sandbox container, which
/// only holds its namespaces, and only to the selected container if one is selected.
fn selects_container(annotations: &BTreeMap<String, String>) -> bool {
    let is_sandbox =
        POD_KIND_ANNOTATIONS.iter().any(|kind| annotations.get(*kind).is_some_and(|kind| kind == "sandbox"));
    let name = POD_NAME_ANNOTATIONS.iter().find_map(|name| annotations.get(*name));
    let selected = annotations.get(CONTAINER_ANNOTATION);
    !is_sandbox && selected.is_none_or(|selected| name.is_none_or(|name| name == selected))
}

/// Returns the cgroup path of the sidecar, next to the container's.
pub(super) fn sidecar_path(path: &Path) -> PathBuf {
    let mut path: PathBuf = path.components().collect();
    path.as_mut_os_string().push(".saggar");
    path
}

/// The bridge of a container that is not created yet.
#[derive(Debug)]
pub(super) struct PlannedBridge {
    request: BridgeRequest,
    cgroup_location: CgroupLocation,
}

impl PlannedBridge {
    /// Chooses the location of its cgroups: next to the container's, with `.saggar` appended to the name.
    ///
    /// # Errors
    /// As [`CgroupLocation::choose`].
    pub(super) fn new(
        context: &OciContext,
        request: BridgeRequest,
        id: &SandboxId,
        container: &ContainerSpec,
    ) -> Result<Self> {
        let path = container.cgroups_path.as_ref().filter(|path| !path.as_os_str().is_empty());
        let path = path.map(|path| sidecar_path(path));
        let cgroup_request = crate::cgroup::CgroupRequest {
            id: &format!("{id}.saggar"),
            cgroups_path: path.as_deref(),
            driver: context.driver,
            rootless: context.rootless,
            annotations: &BTreeMap::new(),
        };
        Ok(PlannedBridge {
            request,
            cgroup_location: CgroupLocation::choose(&CgroupLayout::discover()?, &cgroup_request)?,
        })
    }

    /// Converts to the record that is written before anything is created.
    ///
    /// # Errors
    /// As `BridgeSocketPath::files`.
    pub(super) fn into_record(self, directory: &ContainerDirectory) -> Result<SidecarRecord> {
        let BridgeRequest { socket, adapter, spool } = self.request;
        let files = socket.files(directory.path(), spool)?;
        Ok(SidecarRecord {
            adapter,
            socket: files.socket,
            socket_file: None,
            control: files.control.map(|path| SidecarSocket { path, file: None }),
            spool: files.spool,
            cgroup: self.cgroup_location,
            supervisor: None,
            guard: None,
        })
    }
}

/// The program's ends of its streams. They are closed here once the init has them.
#[derive(Debug)]
pub(super) struct ContainerStreams {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// The init holds it too, close-on-exec: end of file on the other end means that the program runs.
    _start: OwnedFd,
}

/// The bridge's ends of the program's streams.
#[derive(Debug)]
pub(super) struct BridgeStreams {
    stdin: OwnedFd,
    stdout: OwnedFd,
    pass: OwnedFd,
    started: OwnedFd,
}

impl ContainerStreams {
    /// # Errors
    /// [`Code::System`].
    pub(super) fn new() -> Result<(Self, BridgeStreams)> {
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
        let ends = BridgeStreams { stdin: into, stdout: out, pass, started };
        Ok((ContainerStreams { stdin, stdout, stderr, _start: start }, ends))
    }

    /// Returns the standard streams of the program.
    pub(super) fn for_program(&self) -> [BorrowedFd<'_>; 3] {
        [self.stdin.as_fd(), self.stdout.as_fd(), self.stderr.as_fd()]
    }
}

/// A reply of the supervisor to the runtime.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SupervisorReply {
    Ready { guard: i32, socket: (u64, u64), control: Option<(u64, u64)> },
    Failed(Error),
}

/// Starts the supervisor of a container whose init waits. Its socket listens when this returns. `sidecar` records
/// the processes and the socket, also after a failure.
///
/// # Errors
/// The failure to start. The caller then kills the init, which ends all of it.
pub(super) fn start(
    directory: &ContainerDirectory,
    sidecar: &mut SidecarRecord,
    streams: BridgeStreams,
    init: &LaunchedProcess,
) -> Result<()> {
    let fails = |e: &dyn std::fmt::Display| Error::system("start the supervisor of the bridge", e);
    let mut group = CgroupHandle::create(&sidecar.cgroup, None)?;
    let (own_end, child_end) = socket_pair()?;
    let root = directory.path().parent().unwrap_or(Path::new("/"));
    let child = Command::new("/proc/self/exe")
        .arg0("saggar")
        .args([super::super::BRIDGE_SUPERVISOR.as_ref(), root.as_os_str(), directory.id().as_str().as_ref()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(child_end))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| fails(&e))?;
    let pid = i32::try_from(child.id()).map_err(|e| fails(&e))?;
    sidecar.supervisor = ProcessId::from_pid(pid);

    let fds = [&streams.stdin, &streams.stdout, &streams.pass, &streams.started, &init.pidfd]
        .map(AsRawFd::as_raw_fd);
    scm::send(own_end.as_fd(), b"go", &fds).map_err(|e| fails(&e))?;
    let mut buffer = vec![0; MAX_REPLY];
    let received = scm::receive(own_end.as_fd(), &mut buffer).map_err(|e| fails(&e))?;
    let reply = serde_json::from_slice(&buffer[..received.len]);
    match reply.map_err(|_| fails(&"it was killed"))? {
        SupervisorReply::Ready { guard, socket, control } => {
            sidecar.guard = ProcessId::from_pid(guard);
            sidecar.socket_file = Some(socket);
            if let Some(beside) = &mut sidecar.control {
                beside.file = control;
            }
        }
        SupervisorReply::Failed(error) => {
            let code = match error.code() {
                Code::Invalid | Code::Exists => Code::Invalid,
                _ => Code::System,
            };
            return Err(error.with_code(code).context("the bridge of the container"));
        }
    }
    // The guard stays in the runtime's cgroup, so that killing one cgroup does not end both.
    group.enter(pid)
}

/// Ends the supervisor and the guard of a container whose init has exited, and removes their sockets and cgroups.
///
/// # Errors
/// [`Code::System`] if a process survives SIGKILL or a cgroup cannot be removed.
pub(super) fn end(sidecar: &SidecarRecord) -> Result<()> {
    for (process, what) in [(&sidecar.supervisor, "supervisor"), (&sidecar.guard, "guard")] {
        let Some(process) = process else { continue };
        if let Ok(pidfd) = process.open_pidfd()
            && !crate::state::process::wait_for_exit(&pidfd, SHUTDOWN_GRACE)
        {
            let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
        }
        if !process.kill_and_wait(KILL_TIMEOUT) {
            return Err(Error::new(
                Code::System,
                format!("the {what} of the bridge, process {}, outlives SIGKILL", process.pid),
            )
            .hint("it hangs in the kernel; see /proc/PID/stack"));
        }
    }
    remove_sockets(sidecar);
    let group = CgroupHandle::open(&sidecar.cgroup)?;
    group.kill_all(libc::SIGKILL)?;
    group.remove()
}

/// Removes the sockets, unless other files have replaced them.
fn remove_sockets(sidecar: &SidecarRecord) {
    let control = sidecar.control.iter().map(|control| (&control.path, control.file));
    for (path, file) in control.chain([(&sidecar.socket, sidecar.socket_file)]) {
        if let (Ok(path), Some((device, inode))) = (file::c_path(path), file) {
            CleanupItem::File { path: &path, id: FileId { device, inode } }.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_pod_only_the_container_that_is_meant_has_a_bridge() {
        let meant = |pairs: &[(&str, &str)]| {
            selects_container(
                &pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            )
        };
        assert!(meant(&[]));
        for (kind, name) in POD_KIND_ANNOTATIONS.into_iter().zip(POD_NAME_ANNOTATIONS) {
            assert!(!meant(&[(kind, "sandbox")]));
            assert!(meant(&[(kind, "container"), (name, "a")]));
            assert!(meant(&[(kind, "container"), (name, "a"), (CONTAINER_ANNOTATION, "a")]));
            assert!(!meant(&[(kind, "container"), (name, "b"), (CONTAINER_ANNOTATION, "a")]));
        }
        assert!(meant(&[(CONTAINER_ANNOTATION, "a")]));
    }

    #[test]
    fn the_cgroup_beside_another_has_its_name_and_more() {
        for (path, sidecar) in [
            ("/pods/web", "/pods/web.saggar"),
            ("pods/web/", "pods/web.saggar"),
            ("machine.slice:libpod:x", "machine.slice:libpod:x.saggar"),
        ] {
            assert_eq!(sidecar_path(Path::new(path)), Path::new(sidecar));
        }
    }
}
