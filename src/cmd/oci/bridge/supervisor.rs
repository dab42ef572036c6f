//! The supervisor of a container with a bridge, which is saggar executed by itself, and the guard, its fork.
//!
//! They are processes of the host with the rights of the runtime, single-threaded, each in a session of its own,
//! with standard streams on /dev/null.

use super::{SupervisorReply, events_directory};
use crate::bridge::adapter::{self, SingleStartAdapter};
use crate::bridge::io::UnixSocketListener;
use crate::cgroup::CgroupHandle;
use crate::cmd::oci::cgroups::JoinedCgroup;
use crate::cmd::oci::container::{ContainerStatus, LoadedContainer};
use crate::cmd::oci::{cleanup, filter, update};
use crate::error::{Code, Error, Result};
use crate::host::peer::PeerPolicy;
use crate::id::SandboxId;
use crate::launch::container::{self as launch, ConsoleTarget, ContainerOptions, PendingExec};
use crate::launch::ids::{self, IdBlock};
use crate::plan::container::ContainerFilter;
use crate::session::policy_parser::WorkerPolicyParser;
use crate::spec::ProgramSpec;
use crate::spec::container::{Capabilities, ContainerSpec, ProcessSpec};
use crate::spec::policy::{self, HomeSource, PolicyOptions, PolicySources};
use crate::stage::watcher::CleanupItem;
use crate::state::container::{ContainerRecord, ContainerRoot, SidecarRecord, SidecarSocket};
use crate::supervise::sidecar::{
    ContainerFds, ContainerHandle, ExecStarter, ProcessExit, SidecarJob, run, socket_file,
};
use crate::supervise::signals;
use crate::sys::spawn;
use crate::sys::{pidfd, process, scm};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Runs the supervisor and returns its exit status. `args` are `ROOT ID` of its container; standard input is the
/// socket to the runtime.
pub(in crate::cmd) fn run_supervisor(args: &[OsString]) -> u8 {
    let (Some(root), Some(id)) = (args.first(), args.get(1).and_then(|id| id.to_str())) else { return 2 };
    if spawn::close_inherited().and_then(|()| launch::protect_self().map_err(|_| Errno::EPERM)).is_err() {
        return 125;
    }
    let Ok(runtime) = std::io::stdin().as_fd().try_clone_to_owned() else { return 125 };
    let served = set_up(&runtime, Path::new(root), id);
    match served {
        Ok(Some((job, mut room))) => {
            drop(runtime);
            match run(job, &mut room) {
                Ok(()) => 0,
                Err(error) => {
                    log::error!("{error}");
                    room.kill();
                    1
                }
            }
        }
        // The runtime has exited, and the init with it.
        Ok(None) => 0,
        Err(error) => {
            send_reply(&runtime, &SupervisorReply::Failed(error));
            125
        }
    }
}

fn send_reply(runtime: &OwnedFd, answer: &SupervisorReply) {
    // It is not an error if the runtime has already exited.
    let text = serde_json::to_vec(answer).unwrap_or_default();
    let _ = scm::send(runtime.as_fd(), &text, &[]);
}

/// Prepares the event loop; returns `None` if the runtime has exited.
fn set_up(runtime: &OwnedFd, root: &Path, id: &str) -> Result<Option<(SidecarJob, BridgedContainer)>> {
    detach_from_caller()?;
    let Some(streams) = receive_streams(runtime)? else { return Ok(None) };
    let found =
        LoadedContainer::load(ContainerRoot::new(Some(root))?.find_directory(&SandboxId::parse(id)?)?)?;
    let sidecar = found.record.bridge.clone();
    let sidecar = sidecar.ok_or_else(|| Error::new(Code::Invalid, "its record has none"))?;
    let container = found.config()?.container;
    let process = container.process.clone();
    let process = process.ok_or_else(|| Error::new(Code::Invalid, "the container has no process"))?;
    let adapter = adapter::adapter_by_name(&sidecar.adapter)
        .ok_or_else(|| Error::new(Code::Invalid, format!("there is no adapter {:?}", sidecar.adapter)))?;
    crate::log::install_file(&found.directory.path().join("bridge.log"), true, log::LevelFilter::Info)?;
    check_isolation(streams.init.as_fd())?;
    let signals = signals::open()?;
    let listener = UnixSocketListener::bind(&sidecar.socket)?;
    let control = bind_control_socket(&sidecar, found.directory.path())?;
    // Not before the socket is bound: a running container of this name stores its events there.
    let spool = sidecar.spool.as_ref().map(events_directory::open_spool).transpose()?;
    let socket = file_number(&listener);
    let control_file = control.as_ref().map(file_number);
    let init = duplicate(streams.init.as_fd())?;
    let (pid, guard) = fork_guard(&found.record, [Some(&listener), control.as_ref()], init.as_fd())?;
    send_reply(runtime, &SupervisorReply::Ready { guard: pid, socket, control: control_file });
    let job = SidecarJob {
        name: id.to_owned(),
        adapter: Box::new(SingleStartAdapter::new(adapter)),
        listener,
        control,
        spool,
        fds: streams,
        guard,
        signals,
        environment: process.program.env.clone(),
        directory: process.program.cwd.clone(),
        ids: own_ids()?,
    };
    let filter = filter::recompile(&container)?;
    Ok(Some((job, BridgedContainer { loaded: found, container, filter, process, init })))
}

/// Binds the control socket: beside the bridge's socket if that has a name, else in the container's directory `own`,
/// where it is optional.
fn bind_control_socket(sidecar: &SidecarRecord, own: &Path) -> Result<Option<UnixSocketListener>> {
    if let Some(SidecarSocket { path, .. }) = &sidecar.control {
        return UnixSocketListener::bind(path).map(Some).map_err(|error| error.context("the control socket"));
    }
    let control = UnixSocketListener::bind(&own.join("control.sock"));
    // The socket path can be too long if the state directory is not the default one.
    Ok(control.inspect_err(|error| log::warn!("there is no control socket: {error}")).ok())
}

/// The device and the inode of a socket's file.
fn file_number(listener: &UnixSocketListener) -> (u64, u64) {
    (listener.record().dev, listener.record().ino)
}

/// Rejects a container whose programs could pass the peer verification of the sockets as processes of the host.
fn check_isolation(init: BorrowedFd<'_>) -> Result<()> {
    let peers =
        PeerPolicy::of_this_process().map_err(|e| Error::system("judge the callers of the bridge", e))?;
    match peers.is_in_own_namespaces(init) {
        false => Ok(()),
        true => Err(Error::new(Code::Invalid, "its programs are in the pid and user namespaces of the host")
            .hint("give the container a pid namespace (no --pid=host, no hostPID)")),
    }
}

/// Creates a session, and replaces the caller's standard streams.
fn detach_from_caller() -> Result<()> {
    let fails = |e: Errno| Error::system("leave the caller's session", e);
    nix::unistd::setsid().map_err(fails)?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let _ = process::set_name(c"saggar:bridge");
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(|e| Error::system("open /dev/null", e))?;
    nix::unistd::dup2_stdin(&null).map_err(fails)?;
    nix::unistd::dup2_stdout(&null).map_err(fails)?;
    nix::unistd::dup2_stderr(&null).map_err(fails)
}

/// Allocates an id block for the supervisor of root, held as long as this process lives.
fn own_ids() -> Result<Option<IdBlock>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let places = PolicySources::of_this_host("/".into(), geteuid().as_raw(), &WorkerPolicyParser);
    let range =
        policy::load_policy(&places, HomeSource::Tmp, PolicyOptions::default())?.effective.ids.range.value;
    ids::allocate(range.first..=range.last).map(Some)
}

/// Receives the descriptors that the runtime sends once the init exists.
fn receive_streams(runtime: &OwnedFd) -> Result<Option<ContainerFds>> {
    let mut buffer = [0; 8];
    let received = scm::receive(runtime.as_fd(), &mut buffer)
        .map_err(|e| Error::system("receive from the runtime", e))?;
    let [Some(stdin), Some(stdout), Some(pass), Some(started), Some(init), ..] = received.fds else {
        return Ok(None);
    };
    Ok(Some(ContainerFds { stdin, stdout, stdout_target: pass, started, init }))
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|e| Error::system("duplicate a pidfd", e))
}

/// The container, as its supervisor controls it.
struct BridgedContainer {
    loaded: LoadedContainer,
    container: ContainerSpec,
    filter: Option<ContainerFilter>,
    /// The process settings of the container's program, which commands of the bridge share.
    process: ProcessSpec,
    init: OwnedFd,
}

impl ExecStarter for BridgedContainer {
    fn exec(&mut self, argv: Vec<OsString>, streams: [BorrowedFd<'_>; 3]) -> Result<PendingExec> {
        let program = ProgramSpec { argv, file: None, ..self.process.program.clone() };
        let process = ProcessSpec { program, terminal: false, ..self.process.clone() };
        let (init, pid) = self.loaded.init()?;
        let state = self.loaded.oci_state(ContainerStatus::Running).to_string();
        let request = launch::ContainerExecRequest {
            container: &self.container,
            process: &process,
            init: init.as_fd(),
            pid,
            filter: self.filter.as_ref(),
            console: ConsoleTarget::None,
            streams: Some(streams),
            options: ContainerOptions {
                die_with_runtime: true,
                subreaper: true,
                ..ContainerOptions::default()
            },
            state: &state,
        };
        let group = self.loaded.group()?;
        launch::begin_exec(&request, &JoinedCgroup::new(&group, pid)?)
    }

    fn capabilities(&self) -> u64 {
        let Capabilities { bounding, effective, inheritable, permitted, ambient } = self.process.capabilities;
        bounding | effective | inheritable | permitted | ambient
    }
}

impl ContainerHandle for BridgedContainer {
    fn has_systemd_unit(&self) -> bool {
        self.loaded.record.cgroup.as_ref().is_some_and(|location| location.unit.is_some())
    }

    fn init(&self) -> BorrowedFd<'_> {
        self.init.as_fd()
    }

    fn kill(&mut self) {
        kill(&self.loaded.record, self.init.as_fd());
    }

    fn freeze(&mut self, freeze: bool) -> Result<()> {
        let group = self.loaded.group()?;
        if freeze { group.freeze() } else { group.thaw() }
    }

    fn is_frozen(&self) -> bool {
        self.loaded.is_frozen()
    }

    fn stats(&self) -> Result<Value> {
        let stats = self.loaded.group()?.stats()?;
        serde_json::to_value(stats)
            .map_err(|e| Error::system("report the resource usage of the container", e))
    }

    fn update(&mut self, resources: &str) -> Result<()> {
        // Device rules are replaced as a whole, after the limits, and could not be rolled back with them.
        let requested: Value = serde_json::from_str(resources).unwrap_or_default();
        if !requested["devices"].is_null() {
            let message = "update: devices of a container cannot change here";
            return Err(Error::new(Code::Unsupported, message).hint("use saggar update for them"));
        }
        update::set_limits(&self.loaded, resources.as_bytes())
    }

    fn state(&self) -> Value {
        // The record dates from the creation, so the current status is read.
        let status = match (pidfd::has_exited(self.init.as_fd()), self.is_frozen()) {
            (true, _) => ContainerStatus::Stopped,
            (false, true) => ContainerStatus::Paused,
            (false, false) => ContainerStatus::Running,
        };
        self.loaded.oci_state(status)
    }

    fn signal(&self, signal: i32) -> Result<()> {
        pidfd::signal(self.init.as_fd(), signal).map_err(|e| Error::system("send a signal", e.desc()))
    }

    fn exit(&self) -> Option<ProcessExit> {
        let process = self.loaded.record.process.as_ref()?;
        let code = match process.zombie_status() {
            Some(code) => code,
            // Its parent, whichever process that is, has reaped it.
            None => pidfd::exit_code(self.init.as_fd()).ok().flatten()?,
        };
        match WaitStatus::from_raw(Pid::from_raw(process.pid), code).ok()? {
            WaitStatus::Exited(_, code) => Some(ProcessExit::Exited(code)),
            WaitStatus::Signaled(_, signal, _) => Some(ProcessExit::Killed(signal as i32)),
            _ => None,
        }
    }
}

/// Kills a container: its init, and every other process in cgroups that it does not share.
fn kill(record: &ContainerRecord, init: BorrowedFd<'_>) {
    let _ = pidfd::signal(init, libc::SIGKILL);
    let Some(location) = &record.cgroup else { return };
    let killed = CgroupHandle::open(location).and_then(|group| {
        group.thaw_killed();
        if cleanup::owns_cgroups(location) { group.kill_all(libc::SIGKILL) } else { Ok(()) }
    });
    if let Err(error) = killed {
        log::error!("{error}");
    }
}

/// Forks the guard and returns its pid and a pidfd. The guard waits until the supervisor exits, kills the container
/// if it still runs, and removes the sockets.
fn fork_guard(
    record: &ContainerRecord,
    sockets: [Option<&UnixSocketListener>; 2],
    init: BorrowedFd<'_>,
) -> Result<(i32, OwnedFd)> {
    let fails = |e: Errno| Error::system("start the guard of the container", e);
    let supervisor = pidfd::open(std::process::id().cast_signed()).map_err(fails)?;
    let supervisor = supervisor.as_fd();
    let sockets = sockets.map(|socket| socket.and_then(socket_file));
    let kept_fds: Vec<BorrowedFd<'_>> =
        [init, supervisor].into_iter().chain(crate::log::descriptor()).collect();
    spawn::fork_keeping(&kept_fds, || {
        let _ = process::block_signals();
        let _ = nix::unistd::setsid();
        let _ = process::set_name(c"saggar:guard");
        if wait_for_exit([init, supervisor]) == Some([true, false]) {
            // After the container exits, the supervisor still notifies its clients.
            wait_for_exit([supervisor]);
        } else {
            kill(record, init);
        }
        for (path, is) in sockets.iter().flatten() {
            CleanupItem::File { path, id: *is }.remove();
        }
        0
    })
    .map_err(fails)
}

/// Waits until one of these processes has exited, and returns which have. `None` means that they cannot be
/// watched, which is treated like their exit.
fn wait_for_exit<const N: usize>(processes: [BorrowedFd<'_>; N]) -> Option<[bool; N]> {
    let mut fds = processes.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    loop {
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(_) => return None,
            Ok(_) => return Some(fds.map(|fd| fd.any() == Some(true))),
        }
    }
}
